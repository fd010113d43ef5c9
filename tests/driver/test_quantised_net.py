"""Graphs in int8: near the float network, in the right places, and the same in RTL."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from trirow_driver.caffe import load_caffe
from trirow_driver.calibrate import signal_to_noise
from trirow_driver.graph import (
    AveragePool,
    BatchNorm,
    Concat,
    Convolution,
    Eltwise,
    Flatten,
    Graph,
    InnerProduct,
    MaxPool,
    Node,
    Prelu,
    Relu,
    Reshape,
    Sigmoid,
    Slice,
    Softmax,
)
from trirow_driver.quantised_net import quantise_graph
from trirow_hw.config import PRESETS
from trirow_sim.simulate import simulate_graph

from .caffe.kit import real

SHAPE = (1, 6, 8, 7)
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture
def rng():
    return np.random.default_rng(8)


def convolution(rng, filters, channels, kernel=3, **options):
    weights = rng.normal(size=(filters, channels, kernel, kernel)) / (kernel * channels**0.5)
    return Convolution(weights, rng.normal(size=filters) / 4, pad=(kernel // 2,) * 4, **options)


def branches(rng):
    """A network with everything that the accelerator computes, and a little that it does not."""
    return Graph(
        {"x": SHAPE},
        [
            Node("conv", convolution(rng, 8, 6), ("x",), ("a",)),
            Node("bn", BatchNorm(rng.normal(size=8), rng.uniform(0.5, 2, 8)), ("a",), ("b",)),
            Node("relu", Relu(), ("b",), ("c",)),
            Node("cut", Slice(2, (3,)), ("c",), ("d", "e")),
            Node("left", convolution(rng, 4, 3), ("d",), ("f",)),
            Node("prelu", Prelu(rng.uniform(-0.5, 0.5, 4)), ("f",), ("g",)),
            Node("right", convolution(rng, 4, 5, 1), ("e",), ("h",)),
            Node("leaky", Relu(0.1), ("h",), ("i",)),
            Node("sum", Eltwise(), ("g", "i"), ("j",)),
            Node("sum relu", Relu(), ("j",), ("k",)),
            Node("largest", Eltwise("max"), ("g", "k"), ("l",)),
            Node("join", Concat(), ("k", "l", "g"), ("m",)),
            Node("deep", convolution(rng, 12, 1, group=12), ("m",), ("n",)),
            Node("pool", MaxPool((3, 3), (2, 2)), ("n",), ("o",)),
            Node("mean", AveragePool((2, 2), (2, 2)), ("o",), ("p",)),
            Node("flat", Flatten(), ("p",), ("q",)),
            Node("fc", InnerProduct(rng.normal(size=(5, 48)) / 7), ("q",), ("r",)),
            Node("fc relu", Relu(), ("r",), ("s",)),
            Node("last", InnerProduct(rng.normal(size=(3, 5)), rng.normal(size=3)), ("s",), ("t",)),
            Node("prob", Softmax(), ("t",), ("u",)),
            Node("sig", Sigmoid(), ("o",), ("v",)),
        ],
    )


def images(rng, count=6):
    return [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("method", ["minmax", "mse", "percentile"])
def test_near_the_float_network(rng, method):
    graph, batches = branches(rng), images(rng)
    net = quantise_graph(graph, batches, method=method)
    assert [step.node.name for step in net.host] == ["prob", "sig"]
    assert net.host[0].reason == "the accelerator has no Softmax"
    for feeds in batches:
        maps, outputs = net.golden(feeds)
        exact = graph.compute(feeds, ["c", "k", "m", "t", "u", "v"])
        for name in ("c", "k", "m", "t"):
            assert signal_to_noise(exact[name], net.real(name, maps[name])) > 20, name
        for name in ("u", "v"):
            assert outputs[name].shape == exact[name].shape
            assert np.abs(outputs[name] - exact[name]).max() < 0.1


def test_the_order_of_features_matters(rng):
    """An inner product behind a feature map takes CHW; the map in memory is HWC."""
    weights = rng.normal(size=(4, 6 * 8 * 7))
    for flatten in ([], [Node("flat", Reshape((0, -1)), ("x",), ("f",))]):
        source = "f" if flatten else "x"
        graph = Graph(
            {"x": SHAPE}, [*flatten, Node("fc", InnerProduct(weights), (source,), ("y",))]
        )
        (feeds,) = images(rng, 1)
        net = quantise_graph(graph, [feeds])
        assert not net.host
        assert net.nodes[0].layer.kernel == (8, 7)
        assert net.nodes[0].inputs == ("x",)
        maps, outputs = net.golden(feeds)
        assert signal_to_noise(graph.compute(feeds)["y"], outputs["y"]) > 35
        assert maps["y"].shape == (1, 1, 1, 4)


def test_one_quantisation_around_pools_and_concatenations(rng):
    net = quantise_graph(branches(rng), images(rng))
    q = net.quantisations
    assert q["k"] == q["l"] == q["g"] == q["m"]
    assert q["n"] == q["o"] == q["p"]
    assert q["c"] != q["m"]


def test_what_reads_the_host_is_on_the_host(rng):
    graph = Graph(
        {"x": SHAPE},
        [
            Node("conv", convolution(rng, 4, 6), ("x",), ("a",)),
            Node("sig", Sigmoid(), ("a",), ("b",)),
            Node("gate", Eltwise("product"), ("a", "b"), ("c",)),
            Node("next", convolution(rng, 2, 4), ("c",), ("d",)),
            Node("other", convolution(rng, 2, 4), ("a",), ("e",)),
        ],
    )
    batches = images(rng)
    net = quantise_graph(graph, batches)
    assert [node.layer.name for node in net.nodes] == ["conv", "other"]
    assert {step.node.name: step.reason for step in net.host} == {
        "sig": "the accelerator has no Sigmoid",
        "gate": "it reads 'b', which the host computes",
        "next": "it reads 'c', which the host computes",
    }
    _, outputs = net.golden(batches[0])
    for name, exact in graph.compute(batches[0]).items():
        assert signal_to_noise(exact, outputs[name]) > 30


def test_outputs_that_are_channels_of_others(rng):
    graph = Graph(
        {"x": SHAPE},
        [
            Node("conv", convolution(rng, 4, 6), ("x",), ("a",)),
            Node("cut", Slice(2, (1,)), ("a",), ("b", "c")),
            Node("sig", Sigmoid(), ("c",), ("d",)),
        ],
    )
    batches = images(rng)
    _, outputs = quantise_graph(graph, batches).golden(batches[0])
    for name, exact in graph.compute(batches[0]).items():
        assert signal_to_noise(exact, outputs[name]) > 30


def test_nothing_to_calibrate_with(rng):
    with pytest.raises(ValueError, match="calibration needs one image or more"):
        quantise_graph(branches(rng), [])


def test_rtl_computes_the_same(rng):
    batches = images(rng, 2)
    net = quantise_graph(branches(rng), batches)
    features = net.features(batches[0])
    run = simulate_graph(
        net.nodes, features, PRESETS["tiny"], slices=net.slices, memory="ideal", engine="pysim"
    )
    assert run.ok
    maps, outputs = net.golden(batches[0])
    written = {node.output: y for node, y in zip(net.nodes, run.outputs, strict=True)}
    assert all(np.array_equal(maps[name], y) for name, y in written.items())
    finished = net.finish(batches[0], {**maps, **written})
    assert all(np.array_equal(outputs[name], finished[name]) for name in outputs)


def test_digits():
    """The example from Caffe's files: all ten pictures as in float."""
    graph = load_caffe(DIGITS / "digits.prototxt", DIGITS / "digits.caffemodel").graph
    batches = []
    for path in sorted((DIGITS / "images").glob("digit_*.png")):
        pixels = np.asarray(Image.open(path).convert("L"), np.float32) / 255
        batches.append({"data": pixels[None, None]})
    assert len(batches) == 10
    net = quantise_graph(graph, batches)
    assert len(net.nodes) == 4
    assert not net.host
    for feeds in batches:
        exact, (found, outputs) = graph.compute(feeds), net.golden(feeds)
        assert found["classifier"].shape == (1, 1, 1, 10)
        assert outputs["classifier"].argmax() == exact["classifier"].argmax()
        assert signal_to_noise(exact["classifier"], outputs["classifier"]) > 25


@pytest.mark.parametrize(
    ("name", "layers", "on_host"),
    [("det1", 6, 1), ("det2", 8, 1), ("det3", 11, 1), ("lenet", 6, 1), ("slim-320", 42, 19)],
)
def test_real_networks(name, layers, on_host):
    """In dB: 42 layers with activations of 8 bits leave the boxes 16, the others 25 and more."""
    graph = load_caffe(*real(name)).graph
    (tensor,) = graph.inputs
    person = Path(__file__).parents[2] / ".." / "shared" / "models" / "images" / "person.bmp"
    _, channels, rows, columns = graph.inputs[tensor]
    picture = Image.open(person).convert("RGB" if channels == 3 else "L").resize((columns, rows))
    pixels = np.asarray(picture, np.float32).reshape(rows, columns, channels)
    graph = graph.with_inputs({tensor: (1, channels, rows, columns)})
    feeds = {tensor: ((pixels - 127) / 128).transpose(2, 0, 1)[None]}
    net = quantise_graph(graph, [feeds])
    assert (len(net.nodes), len(net.host)) == (layers, on_host)
    _, outputs = net.golden(feeds)
    for output, exact in graph.compute(feeds).items():
        least = 15 if name == "slim-320" else 25
        assert signal_to_noise(exact, outputs[output]) > least, output

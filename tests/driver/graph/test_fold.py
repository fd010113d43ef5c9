"""A folded graph computes the same, with what can be folded gone."""

import numpy as np
import pytest

from trirow_driver.caffe import load_caffe
from trirow_driver.graph import (
    BatchNorm,
    Bias,
    Convolution,
    Deconvolution,
    Eltwise,
    Graph,
    Identity,
    InnerProduct,
    Node,
    Power,
    Relu,
    Scale,
    fold,
)

from ..caffe.kit import REAL, real

RNG = np.random.default_rng(6)
SHAPE = (2, 6, 7, 5)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def chain(*operations):
    return [
        Node(f"n{k}", operation, (f"t{k}",), (f"t{k + 1}",))
        for k, operation in enumerate(operations)
    ]


def same(graph, folded, tolerance=1e-5):
    """Compare all tensors that are still there."""
    feeds = {
        name: RNG.uniform(0, 1, shape).astype(np.float32) for name, shape in graph.inputs.items()
    }
    kept = [name for name in folded.shapes if name in graph.shapes]
    assert set(folded.outputs) == set(graph.outputs)
    assert set(folded.shapes) <= set(graph.shapes)
    before, after = graph.compute(feeds, kept), folded.compute(feeds, kept)
    for name in kept:
        if before[name].size and before[name].shape == after[name].shape:
            scale = max(1, np.abs(before[name]).max())
            assert np.abs(before[name] - after[name]).max() <= tolerance * scale, name


LINEAR = [
    BatchNorm(normal(6), RNG.uniform(0.5, 2, 6), 1e-3),
    Scale(normal(6), normal(6)),
    Scale(normal(6), axis=-3),
    Bias(normal(6)),
    Power(1, 0.5, -2),
]
MATRICES = {
    "convolution": Convolution(normal(6, 6, 3, 3), normal(6)),
    "no bias": Convolution(normal(6, 3, 3, 2), group=2),
    "depthwise": Convolution(normal(6, 1, 3, 3), normal(6), group=6),
    "deconvolution": Deconvolution(normal(6, 6, 2, 2), normal(6), (2, 2)),
    "grouped deconvolution": Deconvolution(normal(6, 2, 2, 3), None, (2, 1), group=3),
}


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("linear", range(len(LINEAR)))
def test_behind_weights(matrix, linear):
    graph = Graph({"t0": SHAPE}, chain(MATRICES[matrix], LINEAR[linear], LINEAR[0], Relu()))
    folded = fold(graph)
    assert [node.name for node in folded.nodes] == ["n0", "n3"]
    assert folded.nodes[0].outputs == ("t3",)
    same(graph, folded)


def test_behind_an_inner_product():
    graph = Graph({"t0": (2, 8)}, chain(InnerProduct(normal(6, 8)), LINEAR[0], LINEAR[1]))
    folded = fold(graph)
    assert len(folded.nodes) == 1
    same(graph, folded)


def test_in_front_of_weights():
    """It becomes a convolution, into which the next one is folded; padding stays as it was."""
    graph = Graph({"t0": SHAPE}, chain(LINEAR[0], LINEAR[1], MATRICES["convolution"]))
    folded = fold(graph)
    assert [node.operation.kind for node in folded.nodes] == ["Convolution"] * 2
    assert folded.nodes[0].operation.group == 6
    same(graph, folded)


def test_what_is_not_linear_in_channels_stays():
    graph = Graph(
        {"t0": SHAPE}, chain(MATRICES["convolution"], Scale(normal(5, 3), axis=2), Power(2))
    )
    assert [node.name for node in fold(graph).nodes] == ["n0", "n1", "n2"]
    graph = Graph({"t0": (3, 6)}, chain(Relu(), LINEAR[1]))
    folded = fold(graph)
    assert [node.operation.kind for node in folded.nodes] == ["Relu", "Scale"]


@pytest.mark.parametrize("as_output", [False, True])
def test_what_others_read_stays(as_output):
    nodes = chain(MATRICES["convolution"], LINEAR[1])
    outputs = ["t2", "t1"] if as_output else ["sum"]
    if not as_output:
        nodes.append(Node("sum", Eltwise(), ("t1", "t2"), ("sum",)))
    graph = Graph({"t0": SHAPE}, nodes, outputs)
    folded = fold(graph)
    assert [node.operation.kind for node in folded.nodes][:2] == ["Convolution"] * 2
    assert "t1" in folded.shapes
    same(graph, folded)


def test_identities_disappear():
    nodes = [
        *chain(MATRICES["convolution"], Identity(), LINEAR[1]),
        Node("split", Identity(2), ("t3",), ("a", "b")),
        Node("relu", Relu(), ("a",), ("c",)),
        Node("sum", Eltwise(), ("b", "c"), ("d",)),
    ]
    graph = Graph({"t0": SHAPE}, nodes)
    folded = fold(graph)
    assert [node.name for node in folded.nodes] == ["n0", "relu", "sum"]
    assert folded.nodes[-1].inputs == ("t3", "c")
    same(graph, folded)


def test_readers_behind_a_split_count():
    nodes = [
        *chain(MATRICES["convolution"]),
        Node("split", Identity(2), ("t1",), ("a", "b")),
        Node("scale", LINEAR[1], ("a",), ("c",)),
        Node("sum", Eltwise(), ("b", "c"), ("d",)),
    ]
    graph = Graph({"t0": SHAPE}, nodes)
    folded = fold(graph)
    assert [node.name for node in folded.nodes] == ["n0", "scale", "sum"]
    same(graph, folded)


def test_output_of_an_identity_stays():
    graph = Graph({"t0": SHAPE}, chain(Relu(), Identity()))
    assert fold(graph).outputs == ("t2",)
    same(graph, fold(graph))


@pytest.mark.parametrize("name", REAL)
def test_real_networks(name):
    net = load_caffe(*real(name))
    folded = fold(net.graph)
    kinds = {node.operation.kind for node in folded.nodes}
    assert not kinds & {"Identity", "BatchNorm", "Scale", "Bias"}
    same(net.graph, folded, 1e-4)

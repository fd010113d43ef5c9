"""The digits example as a network of Caffe."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trirow_driver.caffe import load_caffe, to_caffe, write_caffemodel, write_prototxt
from trirow_driver.float_network import load_npz
from trirow_golden import float32

from .kit import opencv

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
STORED = DIGITS / "digits.prototxt", DIGITS / "digits.caffemodel"


def test_stored_files_are_those_of_the_example(tmp_path):
    net = to_caffe(load_npz(DIGITS / "weights.npz"), name="digits")
    write_prototxt(tmp_path / "a", net)
    write_caffemodel(tmp_path / "b", net)
    assert (tmp_path / "a").read_text() == STORED[0].read_text()
    assert (tmp_path / "b").read_bytes() == STORED[1].read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_it_computes_the_same():
    """As the layers one after the other do, and as OpenCV does."""
    network = load_npz(DIGITS / "weights.npz")
    image = np.random.default_rng(7).uniform(0, 1, (1, 1, 28, 28)).astype(np.float32)
    values = image
    for layer in network.layers:
        weights = np.ascontiguousarray(layer.weights.transpose(0, 3, 1, 2), np.float32)
        bias = layer.bias.astype(np.float32)
        values = float32.convolution(values, weights, bias, stride=layer.stride, pad=layer.pad)
        if layer.relu:
            values = float32.relu(values)
    net = load_caffe(*STORED)
    assert net.graph.inputs == {"data": (1, 1, 28, 28)}
    assert net.graph.outputs == ("classifier",)
    found = net.graph.compute({"data": image})["classifier"]
    assert np.array_equal(found, values)
    (expected,) = opencv(STORED, {"data": image}, ["classifier"])
    assert np.allclose(found, expected, atol=1e-4)


def test_what_caffe_cannot_say():
    network = load_npz(DIGITS / "weights.npz")
    network.layers[1] = replace(network.layers[1], pad=(0, 1, 1, 1))
    with pytest.raises(ValueError, match=r"layer 'conv2': padding must be symmetric, not \(0, 1"):
        to_caffe(network)
    with pytest.raises(ValueError, match="network must have an input shape"):
        to_caffe(replace(network, input_shape=None))

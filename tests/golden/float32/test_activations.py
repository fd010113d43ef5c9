"""Layers on single values against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import absolute, power, prelu, relu, sigmoid, tanh

from .kit import assert_close, opencv, random

SHAPES = [(2, 3, 4, 5), (3, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("slope", [0.0, 0.1, -0.5])
def test_relu(slope, shape):
    x = random(1, *shape)
    expected = opencv("ReLU", x, f"relu_param {{ negative_slope: {slope} }}")
    assert_close(relu(x, negative_slope=slope), expected)


def test_relu_default():
    x = random(2, 2, 3, 4, 5)
    assert_close(relu(x), opencv("ReLU", x))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_prelu(shape, shared):
    x, slopes = random(3, *shape), random(4, 1 if shared else shape[1])
    settings = f"prelu_param {{ channel_shared: {str(shared).lower()} }}"
    assert_close(prelu(x, slopes), opencv("PReLU", x, settings, [slopes]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("kind", "layer"), [("Sigmoid", sigmoid), ("TanH", tanh), ("AbsVal", absolute)]
)
def test_function(kind, layer, shape):
    x = 4 * random(5, *shape)
    assert_close(layer(x), opencv(kind, x))


def test_far_from_zero():
    x = np.array([-1e30, -200, 0, 200, 1e30], np.float32)
    np.testing.assert_array_equal(sigmoid(x), [0, 0, 0.5, 1, 1])
    np.testing.assert_array_equal(tanh(x), [-1, -1, 0, 1, 1])


@pytest.mark.parametrize(
    ("exponent", "factor", "addend"),
    [(1, 1, 0), (1, 0.5, -3), (2, 1, 0), (3, -0.5, 1), (0.5, 1, 0.25), (-1.5, 2, 1), (0, 1, 0)],
)
def test_power(exponent, factor, addend):
    x = random(6, 2, 3, 4, 5)
    if exponent != int(exponent):
        x = np.abs(x)
    settings = f"power_param {{ power: {exponent} scale: {factor} shift: {addend} }}"
    result = power(x, power=exponent, scale=factor, shift=addend)
    assert_close(result, opencv("Power", x, settings))


def test_power_without_a_result():
    x = np.array([-1, 0, 4], np.float32)
    np.testing.assert_array_equal(power(x, power=0.5), [np.nan, 0, 2])
    np.testing.assert_array_equal(power(x, power=-1), [-1, np.inf, 0.25])


@pytest.mark.parametrize("layer", [relu, sigmoid, tanh, absolute, power])
def test_wrong_type(layer):
    with pytest.raises(TypeError, match="x must be float32, not float64"):
        layer(np.zeros(3))


def test_prelu_wrong():
    x, slopes = np.zeros((1, 3, 2, 2), np.float32), np.zeros(3, np.float32)
    with pytest.raises(TypeError, match="x must be float32, not float64"):
        prelu(x.astype(np.float64), slopes)
    with pytest.raises(ValueError, match=r"x must have the axes \(N, C, ...\), not shape \(3,\)"):
        prelu(slopes, slopes)
    with pytest.raises(TypeError, match=r"slopes must be float32 .*, not int64"):
        prelu(x, np.zeros(3, np.int64))
    with pytest.raises(
        ValueError, match=r"slopes must be float32 of shape \(C,\), not .* \(1, 3\)"
    ):
        prelu(x, slopes[np.newaxis])
    text = "slopes must have a value for each of the 3 channels or a single one, not 2"
    with pytest.raises(ValueError, match=text):
        prelu(x, slopes[:2])

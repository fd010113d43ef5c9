"""Batch normalisation, scale and bias against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import batch_norm, bias, scale

from .kit import assert_close, opencv, random


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("weight", [1.0, 250.0])
def test_batch_norm(weight, eps):
    x = random(1, 2, 4, 5, 3)
    mean, variance = random(2, 4), np.abs(random(3, 4))
    blobs = [mean * np.float32(weight), variance * np.float32(weight), np.array([weight])]
    settings = f"batch_norm_param {{ use_global_stats: true eps: {eps} }}"
    assert_close(batch_norm(x, mean, variance, eps=eps), opencv("BatchNorm", x, settings, blobs))


@pytest.mark.parametrize(("axis", "num_axes"), [(1, 1), (1, 2), (1, 3), (0, 2), (2, 1), (3, 1)])
@pytest.mark.parametrize("offsets", [True, False])
def test_scale(axis, num_axes, offsets):
    x = random(4, 2, 4, 5, 3)
    shape = x.shape[axis : axis + num_axes]
    blobs = [random(5, *shape), random(6, *shape)][: 1 + offsets]
    settings = (
        f"scale_param {{ axis: {axis} num_axes: {num_axes} bias_term: {str(offsets).lower()} }}"
    )
    expected = opencv("Scale", x, settings, blobs)
    assert_close(scale(x, *blobs, axis=axis), expected)
    assert_close(scale(x, *blobs, axis=axis - 4), expected)  # which OpenCV does not take


def test_scale_by_second_input():
    x, factors = random(7, 2, 4, 5, 3), random(8, 2, 4)
    expected = opencv("Scale", [x, factors], "scale_param { axis: 0 }")
    assert_close(scale(x, factors, axis=0), expected)


def test_scale_by_scalar():
    x = random(9, 2, 3)
    assert_close(scale(x, np.array(2, np.float32), np.array(1, np.float32)), 2 * x + 1)


# OpenCV has no layer Bias: it is a Scale whose factors are 1
@pytest.mark.parametrize("axis", [1, 3])
def test_bias(axis):
    x = random(10, 2, 4, 5, 3)
    offsets = random(11, x.shape[axis])
    settings = f"scale_param {{ axis: {axis} bias_term: true }}"
    expected = opencv("Scale", x, settings, [np.ones_like(offsets), offsets])
    assert_close(bias(x, offsets, axis=axis), expected)


X, C = np.zeros((1, 3, 2, 4), np.float32), np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("arguments", "eps", "text"),
    [
        ((C, C, C), 1, r"x must have the axes \(N, C, ...\), not shape \(3,\)"),
        ((X, C[:2], C), 1, "mean must have a value for each of the 3 channels, not 2"),
        ((X, C, C[:1]), 1, "variance must have a value for each of the 3 channels, not 1"),
        ((X, C, C), 0, "eps must be positive, not 0"),
        ((X, C, -C), 0.5, "variance must be above -0.5, not -1.0"),
        ((X, C, np.full_like(C, np.nan)), 0.5, "variance must be above -0.5, not nan"),
    ],
)
def test_batch_norm_wrong(arguments, eps, text):
    with pytest.raises(ValueError, match=text):
        batch_norm(*arguments, eps=eps)


def test_scale_wrong():
    text = r"factors must have the shape \(2,\) of x from axis 2 on, not \(3,\)"
    with pytest.raises(ValueError, match=text):
        scale(X, C, axis=2)
    text = r"offsets must have the shape \(3,\) of x from axis 1 on, not \(1,\)"
    with pytest.raises(ValueError, match=text):
        scale(X, C, C[:1])
    with pytest.raises(ValueError, match=r"offsets must have the shape \(4,\) .*, not \(3,\)"):
        bias(X, C, axis=-1)
    with pytest.raises(ValueError, match="axis must be from -4 to 3, not -5"):
        bias(X, C, axis=-5)


def test_wrong_type():
    wide = X.astype(np.float64)
    for layer, arguments in ((scale, (C,)), (bias, (C,)), (batch_norm, (C, C))):
        with pytest.raises(TypeError, match="x must be float32, not float64"):
            layer(wide, *arguments)
    with pytest.raises(TypeError, match="factors must be float32, not int64"):
        scale(X, np.ones(3, np.int64))

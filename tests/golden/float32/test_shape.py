"""Flatten, reshape and permute against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import flatten, permute, reshape

from .kit import assert_close, opencv, random


@pytest.mark.parametrize(("axis", "end_axis"), [(1, -1), (1, 2), (2, 3), (0, 1), (-2, -1), (1, 1)])
def test_flatten(axis, end_axis):
    x = random(1, 2, 3, 4, 5)
    settings = f"flatten_param {{ axis: {axis} end_axis: {end_axis} }}"
    assert_close(flatten(x, axis=axis, end_axis=end_axis), opencv("Flatten", x, settings))


@pytest.mark.parametrize(
    ("shape", "axis", "num_axes"),
    [
        ((0, -1), 0, -1),
        ((0, 0, -1), 0, -1),
        ((2, 12, 0, 2), 0, -1),
        ((0, -1, 3, 5), 0, -1),
        ((-1, 10), 1, -1),
        ((6, 2), 1, 1),
        ((0, 2, -1), 1, 2),
    ],
)
def test_reshape(shape, axis, num_axes):
    x = random(2, 2, 12, 2, 5)
    if shape == (2, 12, 0, 2):
        x = random(2, 4, 3, 2, 4)
    dims = " ".join(f"dim: {length}" for length in shape)
    settings = f"reshape_param {{ shape {{ {dims} }} axis: {axis} num_axes: {num_axes} }}"
    assert_close(reshape(x, shape, axis=axis, num_axes=num_axes), opencv("Reshape", x, settings))


# OpenCV takes no negative axis here. In Caffe -1 is behind the last, -2 the last.
def test_reshape_negative_axis():
    x = random(3, 2, 3, 4)
    assert_close(reshape(x, (1, 1), axis=-1), x.reshape(2, 3, 4, 1, 1))
    assert_close(reshape(x, (2, 2), axis=-2), x.reshape(2, 3, 2, 2))
    assert_close(reshape(x, (1,), axis=1, num_axes=0), x.reshape(2, 1, 3, 4))


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 2, 1, 0), (0, 1, 2, 3), (1, 0, 3, 2)])
def test_permute(order):
    x = random(4, 2, 3, 4, 5)
    settings = "permute_param { " + " ".join(f"order: {axis}" for axis in order) + " }"
    result = permute(x, order)
    assert_close(result, opencv("Permute", x, settings))
    assert not np.shares_memory(result, x)


# OpenCV wants all axes
def test_permute_some():
    x = random(5, 2, 3, 4, 5)
    assert_close(permute(x, (0, 2)), x.transpose(0, 2, 1, 3))
    assert_close(permute(x, ()), x)


def test_copies():
    x = random(6, 2, 3)
    for result in (flatten(x), reshape(x, (0, -1))):
        assert not np.shares_memory(result, x)


X = np.zeros((2, 3, 4), np.float32)


def test_flatten_wrong():
    with pytest.raises(ValueError, match="axis must be from -3 to 2, not 3"):
        flatten(X, axis=3)
    with pytest.raises(ValueError, match="end_axis must be from -3 to 2, not -4"):
        flatten(X, end_axis=-4)
    with pytest.raises(ValueError, match="end_axis must not be before axis -1, not 1"):
        flatten(X, axis=-1, end_axis=1)


@pytest.mark.parametrize(
    ("shape", "parameters", "text"),
    [
        ((5, -1), {}, r"shape must fit an array of shape \(2, 3, 4\), axis 0 on, not \(5, -1\)"),
        ((-1, -1), {}, r"shape must fit .*, not \(-1, -1\)"),
        ((2, -2), {}, r"shape must fit .*, not \(2, -2\)"),
        ((0, 0, 4, 0), {}, r"shape must fit .*, not \(0, 0, 4, 0\)"),
        ((5,), {"axis": 1}, r"shape must fit .*, axis 1 on, not \(5,\)"),
        ((1,), {"axis": 4}, "axis must be from -4 to 3, not 4"),
        ((1,), {"axis": 1, "num_axes": 3}, "num_axes must be -1 or from 0 to 2, .*, not 3"),
        ((1,), {"axis": 1, "num_axes": -2}, "num_axes must be -1 or from 0 to 2, .*, not -2"),
    ],
)
def test_reshape_wrong(shape, parameters, text):
    with pytest.raises(ValueError, match=text):
        reshape(X, shape, **parameters)


@pytest.mark.parametrize("order", [(0, 0, 1), (0, 3), (-1,)])
def test_permute_wrong(order):
    with pytest.raises(ValueError, match=r"order must be different axes from 0 to 2, not \("):
        permute(X, order)


def test_wrong_type():
    for layer, arguments in ((flatten, ()), (reshape, ((0, -1),)), (permute, ((1, 0),))):
        with pytest.raises(TypeError, match="x must be float32, not float64"):
            layer(X.astype(np.float64), *arguments)

"""Concat, slice and crop against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import concat, crop, slice_

from .kit import assert_close, opencv, random, run


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_concat(axis):
    shapes = [[2, 3, 4, 5] for _ in range(3)]
    for length, shape in enumerate(shapes, 1):
        shape[axis] = length
    inputs = [random(1, *shape) for shape in shapes]
    expected = opencv("Concat", inputs, f"concat_param {{ axis: {axis} }}")
    assert_close(concat(inputs, axis=axis), expected)


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("points", [(1, 3), (2, 5), None])
def test_slice(axis, points):
    # OpenCV cuts into equal parts only if other layers take them
    x = random(2, 2, 6, 6, 6)
    listed = " ".join(f"slice_point: {point}" for point in points or ())
    layers = f"""
        layer {{ name: "cut" type: "Slice" bottom: "x0" top: "a" top: "b" top: "c"
                 slice_param {{ axis: {axis} {listed} }} }}
        layer {{ name: "y0" type: "Concat" bottom: "c" bottom: "a" bottom: "b" top: "y0"
                 concat_param {{ axis: {axis} }} }}"""
    parts = slice_(x, 3, points=points, axis=axis)
    assert [part.shape[axis] for part in parts] == list(np.diff((0, *(points or (2, 4)), 6)))
    (expected,) = run(layers, [x])
    assert_close(concat([parts[2], parts[0], parts[1]], axis=axis), expected)


def test_slice_into_one():
    x = random(3, 2, 6)
    (part,) = slice_(x, 1)
    assert_close(part, x)
    assert not np.shares_memory(part, x)


@pytest.mark.parametrize(
    ("axis", "offsets", "shape"),
    [
        (2, (), (2, 3, 4, 3)),
        (2, (1,), (2, 3, 4, 3)),
        (2, (2, 0), (2, 3, 4, 3)),
        (1, (1, 0, 2), (2, 2, 6, 3)),
        (-1, (3,), (2, 3, 6, 2)),
    ],
)
def test_crop(axis, offsets, shape):
    x, reference = random(4, 2, 3, 6, 5), random(5, *shape)
    listed = " ".join(f"offset: {offset}" for offset in offsets)
    expected = opencv("Crop", [x, reference], f"crop_param {{ axis: {axis} {listed} }}")
    result = crop(x, shape, offsets=offsets, axis=axis)
    assert_close(result, expected)
    assert not np.shares_memory(result, x)


X = np.zeros((2, 3, 4), np.float32)


def test_concat_wrong():
    with pytest.raises(ValueError, match="inputs must be at least one array, not none"):
        concat([])
    with pytest.raises(ValueError, match="axis must be from -3 to 2, not 3"):
        concat([X], axis=3)
    text = r"inputs\[1\] must have the shape \(2, 3, 4\) of inputs\[0\] but for axis 1, not \(2, 3"
    for other in (X[:, :, :3], X[..., np.newaxis]):
        with pytest.raises(ValueError, match=text):
            concat([X, other])
    with pytest.raises(TypeError, match=r"inputs\[1\] must be float32, not int8"):
        concat([X, X.astype(np.int8)])


@pytest.mark.parametrize(
    ("parts", "parameters", "text"),
    [
        (0, {}, "parts must be at least 1, not 0"),
        (2, {}, "parts must divide the length 3 of axis 1, not 2"),
        (2, {"axis": -4}, "axis must be from -3 to 2, not -4"),
        (3, {"points": (1,)}, r"points must be 2 ascending positions within .* 3, not \[1\]"),
        (3, {"points": (2, 1)}, r"points must be 2 ascending .*, not \[2, 1\]"),
        (2, {"points": (3,)}, r"points must be 1 ascending .*, not \[3\]"),
        (2, {"points": (0,)}, r"points must be 1 ascending .*, not \[0\]"),
    ],
)
def test_slice_wrong(parts, parameters, text):
    with pytest.raises(ValueError, match=text):
        slice_(X, parts, **parameters)


@pytest.mark.parametrize(
    ("shape", "parameters", "text"),
    [
        ((2, 3), {}, r"shape must have the 3 axes of x, not \(2, 3\)"),
        ((2, 3, 4), {"axis": 3}, "axis must be from -3 to 2, not 3"),
        ((2, 3, 4), {"axis": 1, "offsets": (0, 0, 0)}, r"offsets must be none, 1 or 2, not \(0, 0"),
        ((2, 3, 4), {"offsets": (1,)}, "Crop of axis 2 must be within its length 4, not 1 to 5"),
        ((2, 3, 2), {"offsets": (-1,)}, "Crop of axis 2 must be within its length 4, not -1 to 1"),
        ((2, 3, 0), {}, "Crop of axis 2 must be within its length 4, not 0 to 0"),
    ],
)
def test_crop_wrong(shape, parameters, text):
    with pytest.raises(ValueError, match=text):
        crop(X, shape, **parameters)


def test_wrong_type():
    for layer, argument in ((slice_, 1), (crop, X.shape)):
        with pytest.raises(TypeError, match="x must be float32, not float64"):
            layer(X.astype(np.float64), argument)

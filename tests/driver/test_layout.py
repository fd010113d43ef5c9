import itertools
import re

import numpy as np
import pytest

from trirow_driver.layout import Layout, convert, offset

LAYOUTS = list(Layout)

# The batch of the EdgeBoard article: N=2, C=16, H=5, W=4, elements numbered in NCHW order.
ARTICLE = (2, 16, 5, 4)
NUMBERED = np.arange(640, dtype=np.int16).reshape(ARTICLE)


def strides_formula(layout: Layout, shape: tuple[int, ...], index: tuple[int, ...]) -> int:
    """Offset by the three formulas of the article, written out."""
    (images, channels, height, width), (n, c, h, w) = shape, index
    return {
        "NCHW": n * channels * height * width + c * height * width + h * width + w,
        "NHWC": n * height * width * channels + h * width * channels + w * channels + c,
        "CHWN": c * height * width * images + h * width * images + w * images + n,
    }[layout.name]


def test_names():
    assert [layout.name for layout in Layout] == ["NCHW", "NHWC", "CHWN"]
    assert Layout("NHWC") is Layout.NHWC


def test_shape():
    assert Layout.NCHW.shape((2, 3, 4, 5)) == (2, 3, 4, 5)
    assert Layout.NHWC.shape((2, 3, 4, 5)) == (2, 4, 5, 3)
    assert Layout.CHWN.shape((2, 3, 4, 5)) == (3, 4, 5, 2)


def test_nhwc_order_of_the_article():
    order = convert(NUMBERED, Layout.NCHW, Layout.NHWC).ravel().tolist()
    assert order[:4] == [0, 20, 40, 60]
    assert order[15:18] == [300, 1, 21]
    assert order[63:66] == [303, 4, 24]
    assert order[319:322] == [319, 320, 340]
    assert order[639] == 639


def test_chwn_order_of_the_article():
    order = convert(NUMBERED, Layout.NCHW, Layout.CHWN).ravel().tolist()
    assert order[:4] == [0, 320, 1, 321]
    assert order[6:10] == [3, 323, 4, 324]
    assert order[38:42] == [19, 339, 20, 340]
    assert order[639] == 639


def test_element_341_of_the_article():
    assert offset(Layout.NCHW, ARTICLE, 1, 1, 0, 1) == 341


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 13, 2, 3), (3, 1, 1, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_offset_finds_every_element(layout, shape):
    values = np.arange(np.prod(shape)).reshape(shape)
    memory = convert(values, Layout.NCHW, layout).ravel()
    for index in np.ndindex(shape):
        assert offset(layout, shape, *index) == strides_formula(layout, shape, index)
        assert memory[offset(layout, shape, *index)] == values[index]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_convert_there_and_back(source, target):
    array = convert(NUMBERED, Layout.NCHW, source)
    there = convert(array, source, target)
    assert there.shape == target.shape(ARTICLE)
    assert there.dtype == np.int16
    assert there.flags.c_contiguous
    assert not np.shares_memory(there, array)
    np.testing.assert_array_equal(convert(there, target, source), array)


def test_convert_takes_arrays_that_are_not_contiguous():
    array = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)[:, ::2, ::-1]
    result = convert(array, Layout.NCHW, Layout.NHWC)
    assert result.flags.c_contiguous
    assert result[1, 2, 3, 1] == array[1, 1, 2, 3]


def test_convert_takes_empty_arrays():
    assert convert(np.zeros((2, 0, 4, 5)), Layout.NCHW, Layout.NHWC).shape == (2, 4, 5, 0)


def test_convert_needs_four_axes():
    text = "array in layout NHWC must have 4 axes, not shape (2, 3, 4)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        convert(np.zeros((2, 3, 4)), Layout.NHWC, Layout.NCHW)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("beyond", [-1, 0])
def test_offset_out_of_range(layout, axis, beyond):
    shape = (2, 3, 4, 5)
    index = [0, 0, 0, 0]
    index[axis] = -1 if beyond else shape[axis]
    text = f"index {index[axis]} on axis {'NCHW'[axis]} is out of range for shape NCHW (2, 3, 4, 5)"
    with pytest.raises(IndexError, match=f"^{re.escape(text)}$"):
        offset(layout, shape, *index)


def test_offset_of_narrow_integers_does_not_wrap():
    index = np.array([0, 0, 199, 199], dtype=np.uint8)
    assert offset(Layout.NCHW, (1, 1, 200, 200), *index) == 39999


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"^shape NCHW must have 4 extents, not \(2, 3, 4\)$"):
        offset(Layout.NCHW, (2, 3, 4), 0, 0, 0, 0)
    with pytest.raises(ValueError, match=r"^axis H of shape NCHW \(2, 3, -4, 5\) must be 0 or mo"):
        Layout.NHWC.shape((2, 3, -4, 5))

"""Pools against OpenCV and against plain loops over Caffe's definition."""

import math

import numpy as np
import pytest

from trirow_golden.float32 import average_pool, max_pool

from .kit import assert_close, opencv, random

POOLS = {"MAX": max_pool, "AVE": average_pool}
# kernel, stride, pad in y and x
WINDOWS = [
    ((2, 2), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (0, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((2, 2), (2, 2), (1, 1)),
    ((3, 3), (1, 1), (1, 1)),
    ((3, 3), (3, 3), (2, 2)),
    ((4, 3), (3, 1), (1, 2)),
    ((5, 2), (2, 4), (0, 1)),
    ((3, 2), (1, 2), (2, 0)),
]


def by_hand(kind, x, kernel, stride, pad, ceil):
    """Pool as Caffe defines it: pads (top, left, bottom, right), a loop over all windows."""
    size, out = x.shape[2:], []
    for axis in range(2):
        room = size[axis] + pad[axis] + pad[2 + axis] - kernel[axis]
        windows = (math.ceil if ceil else math.floor)(room / stride[axis]) + 1
        if ceil and (windows - 1) * stride[axis] >= size[axis] + pad[axis]:
            windows -= 1  # it would start in the padding behind the map
        out.append(windows)
    y = np.zeros((*x.shape[:2], *out))
    for n, c, oy, ox in np.ndindex(y.shape):
        begins = [o * stride[axis] - pad[axis] for axis, o in enumerate((oy, ox))]
        ends = [min(begins[axis] + kernel[axis], size[axis] + pad[2 + axis]) for axis in range(2)]
        count = (ends[0] - begins[0]) * (ends[1] - begins[1])
        ys, xs = (slice(max(b, 0), min(e, s)) for b, e, s in zip(begins, ends, size, strict=True))
        window = x[n, c, ys, xs].astype(np.float64)
        y[n, c, oy, ox] = window.max() if kind == "MAX" else window.sum() / count
    return y


# OpenCV names BVLC's round_mode ceil_mode
@pytest.mark.parametrize("ceil", [True, False])
@pytest.mark.parametrize("size", [(7, 9), (8, 6), (5, 10)])
@pytest.mark.parametrize("window", range(len(WINDOWS)))
@pytest.mark.parametrize("kind", POOLS)
def test_pool(kind, window, size, ceil):
    kernel, stride, pad = WINDOWS[window]
    x = random(window, 2, 3, *size)
    result = POOLS[kind](x, kernel, stride=stride, pad=pad * 2, ceil=ceil)
    assert_close(result, by_hand(kind, x, kernel, stride, pad * 2, ceil))
    settings = f"""pooling_param {{ pool: {kind} kernel_h: {kernel[0]} kernel_w: {kernel[1]}
        stride_h: {stride[0]} stride_w: {stride[1]} pad_h: {pad[0]} pad_w: {pad[1]}
        ceil_mode: {str(ceil).lower()} }}"""
    assert_close(result, opencv("Pooling", x, settings))


@pytest.mark.parametrize("kind", POOLS)
def test_global(kind):
    x = random(1, 2, 3, 5, 7)
    expected = opencv("Pooling", x, f"pooling_param {{ pool: {kind} global_pooling: true }}")
    assert expected.shape == (2, 3, 1, 1)
    assert_close(POOLS[kind](x, None), expected)


@pytest.mark.parametrize("pad", [(1, 0, 2, 2), (2, 1, 0, 0), (0, 2, 1, 0)])
@pytest.mark.parametrize("kind", POOLS)
def test_unequal_padding(kind, pad):
    x = random(2, 1, 2, 8, 7)
    for ceil in (True, False):
        result = POOLS[kind](x, (3, 3), stride=(2, 2), pad=pad, ceil=ceil)
        assert_close(result, by_hand(kind, x, (3, 3), (2, 2), pad, ceil))


def test_default_rounds_up():
    x = random(3, 1, 1, 6, 6)
    assert max_pool(x, (3, 3), stride=(2, 2)).shape == (1, 1, 3, 3)
    assert max_pool(x, (3, 3), stride=(2, 2), ceil=False).shape == (1, 1, 2, 2)


# Without padding Caffe, and OpenCV like it, keep a window that starts behind the map. It has no
# pixel: Caffe gives -FLT_MAX for the maximum. Here it is dropped, with padding or without.
def test_window_of_no_pixel():
    x = random(4, 1, 2, 6, 6)
    settings = "pooling_param { pool: MAX kernel_size: 1 stride: 2 }"
    with_empty = opencv("Pooling", x, settings)
    assert with_empty.shape == (1, 2, 4, 4)
    assert_close(max_pool(x, (1, 1), stride=(2, 2)), with_empty[:, :, :3, :3])
    assert_close(max_pool(x, (1, 1), stride=(2, 2)), x[:, :, ::2, ::2])


@pytest.mark.parametrize("pool", POOLS.values())
def test_wrong(pool):
    x = np.zeros((1, 2, 5, 5), np.float32)
    with pytest.raises(TypeError, match=r"x must be float32 .*, not float64"):
        pool(x.astype(np.float64), (2, 2))
    with pytest.raises(ValueError, match=r"x must be float32 of shape \(N, C, H, W\), not"):
        pool(x[0], (2, 2))
    for pad in np.eye(4, dtype=int) * (3, 2, 3, 2):
        with pytest.raises(ValueError, match=r"Padding must be less than the kernel \(3, 2\), not"):
            pool(x, (3, 2), pad=tuple(pad.tolist()))
    with pytest.raises(ValueError, match=r"Padding .* must not be negative"):
        pool(x, (2, 2), pad=(-1, 0, 0, 0))
    with pytest.raises(ValueError, match="Stride must be at least 1x1, not 1x0"):
        pool(x, (2, 2), stride=(1, 0))
    with pytest.raises(ValueError, match="Kernel must be at least 1x1, not 0x1"):
        pool(x, (0, 1))
    with pytest.raises(ValueError, match=r"Output of kernel 7x1 .* is empty"):
        pool(x, (7, 1))
    text = r"Stride and padding of global pooling must be \(1, 1\) and \(0, 0, 0, 0\), not \(2, 1\)"
    with pytest.raises(ValueError, match=text):
        pool(x, None, stride=(2, 1))

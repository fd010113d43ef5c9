"""Pools in float32: Caffe's Pooling layer, whose rounding and counting are its own."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trirow_golden.float32.checks import FloatArray, check_features
from trirow_golden.geometry import output_size

_Pair = tuple[int, int]
_Pad = tuple[int, int, int, int]


def max_pool(
    x: FloatArray,
    kernel: tuple[int, int] | None,
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    ceil: bool = True,
) -> FloatArray:
    """Take the largest pixel of each window; the padding is never the largest.

    It is Caffe's Pooling with ``pool: MAX``.

    Parameters
    ----------
    x : float32 array of shape (N, C, H, W)
        Feature maps.
    kernel : (int, int), optional
        Rows and columns of the window, each at least 1. None is the whole map, Caffe's
        ``global_pooling``, which has neither stride nor padding.
    stride : (int, int)
        Step in y and x, each at least 1.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right, each at least 0 and less than the kernel.
    ceil : bool
        Round the output's size up, as Caffe does by default, unless the last window would start
        beyond the map and its leading padding. (Caffe makes that exception only with padding.
        Without any, which needs a stride above the kernel, it keeps a window of no pixel; here it
        is dropped.)

    Returns
    -------
    float32 array of shape (N, C, OH, OW)
        OH and OW as in `output_size`.

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x is no feature map, a parameter is outside its range, or the output is empty.
    """
    kernel = _check_window(x, kernel, stride, pad)
    y: FloatArray = _windows(x, -np.inf, kernel, stride, pad, ceil).max(axis=(-2, -1))
    return y


def average_pool(
    x: FloatArray,
    kernel: tuple[int, int] | None,
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    ceil: bool = True,
) -> FloatArray:
    """Average each window, the pixels of the padding being zeros that count.

    It is Caffe's Pooling with ``pool: AVE``. What a window that was rounded up covers beyond the
    padding does not count.

    Parameters
    ----------
    x, kernel, stride, pad, ceil
        As for `max_pool`.

    Returns
    -------
    float32 array of shape (N, C, OH, OW)
        Averages, summed in float64.

    Raises
    ------
    TypeError, ValueError
        As `max_pool`.
    """
    kernel = _check_window(x, kernel, stride, pad)
    windows = _windows(x, 0.0, kernel, stride, pad, ceil)
    sums = windows.sum(axis=(-2, -1), dtype=np.float64)
    counts = [
        _covered(windows.shape[2 + axis], kernel[axis], stride[axis], size)
        for axis, size in enumerate((x.shape[2] + pad[0] + pad[2], x.shape[3] + pad[1] + pad[3]))
    ]
    average: FloatArray = (sums / np.outer(*counts)).astype(np.float32)
    return average


def _check_window(x: FloatArray, kernel: _Pair | None, stride: _Pair, pad: _Pad) -> _Pair:
    """Return the kernel, that of global pooling too; refuse paddings that hold whole windows."""
    check_features("x", x)
    if kernel is None:
        if tuple(stride) != (1, 1) or tuple(pad) != (0, 0, 0, 0):
            raise ValueError(
                "Stride and padding of global pooling must be (1, 1) and (0, 0, 0, 0), "
                f"not {stride!r} and {pad!r}"
            )
        return x.shape[2], x.shape[3]
    if max(pad[0], pad[2]) >= max(kernel[0], 1) or max(pad[1], pad[3]) >= max(kernel[1], 1):
        raise ValueError(f"Padding must be less than the kernel {kernel!r}, not {pad!r}")
    return kernel


def _windows(
    x: FloatArray, fill: float, kernel: _Pair, stride: _Pair, pad: _Pad, ceil: bool
) -> FloatArray:
    """Return all windows as a view of shape (N, C, OH, OW, R, S) of the map in its padding."""
    out = output_size((x.shape[2], x.shape[3]), kernel, stride, pad, ceil=ceil)
    margins = []
    for axis in range(2):
        reach = (out[axis] - 1) * stride[axis] + kernel[axis]  # rounded up, beyond the padding
        margins.append((pad[axis], max(0, reach - pad[axis] - x.shape[2 + axis])))
    padded = np.pad(x, ((0, 0), (0, 0), *margins), constant_values=fill)
    windows = sliding_window_view(padded, kernel, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
    return windows[:, :, : out[0], : out[1]]


def _covered(windows: int, kernel: int, stride: int, padded_size: int) -> NDArray[np.int64]:
    """Return how many pixels of the padded map each window covers along one axis."""
    start = np.arange(windows) * stride
    return np.minimum(start + kernel, padded_size) - start

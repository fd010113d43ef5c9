"""Pools of int8 feature maps: largest value, sum and average of windows.

Windows lie as in `output_size`. With ``ceil`` the last ones may reach beyond the padding; what is
there counts as nothing at all.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import (
    INT8,
    INT32,
    check_features,
    check_int8_value,
    check_output,
)
from trirow_golden.geometry import output_size

MAX_COUNT = (1 << 16) - 1  # taps of a window for which `average_constants` are exact


def max_pool2d(
    x: NDArray[np.int8],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    dilation: tuple[int, int] = (1, 1),
    ceil: bool = False,
) -> NDArray[np.int8]:
    """Take the largest value of every window.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    kernel, stride, pad, dilation, ceil
        As for `output_size`.

    Returns
    -------
    int8 array of shape (N, OH, OW, C)
        Largest values. Padding is lower than any value; a window wholly in it gives -128.

    Raises
    ------
    TypeError, ValueError
        If x is not an int8 feature map, a parameter is outside its range, or the output is empty.
    """
    check_features("x", x)
    out = output_size((x.shape[1], x.shape[2]), kernel, stride, pad, dilation, ceil)
    result = np.full((x.shape[0], *out, x.shape[3]), INT8.min, np.int8)
    for tap in _taps(x, INT8.min, out, kernel, stride, pad, dilation):
        np.maximum(result, tap, out=result)
    return result


def sum_pool2d(
    x: NDArray[np.int8],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    dilation: tuple[int, int] = (1, 1),
    ceil: bool = False,
    zero_point: int = 0,
) -> NDArray[np.int32]:
    """Add up ``x - zero_point`` over every window; padding adds nothing.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    kernel, stride, pad, dilation, ceil
        As for `output_size`; a window has at most 2**23 taps.
    zero_point : int
        Value of x that stands for 0, from -128 to 127.

    Returns
    -------
    int32 array of shape (N, OH, OW, C)
        Sums.

    Raises
    ------
    TypeError, ValueError
        If x is not an int8 feature map, a parameter is outside its range, or the output is empty.
    """
    check_features("x", x)
    check_int8_value("zero_point", zero_point)
    out = output_size((x.shape[1], x.shape[2]), kernel, stride, pad, dilation, ceil)
    if kernel[0] * kernel[1] > INT32.max // 255:
        raise ValueError(f"kernel must have at most 2**23 taps, not {kernel[0] * kernel[1]}")
    centred = x.astype(np.int32) - zero_point
    result = np.zeros((x.shape[0], *out, x.shape[3]), np.int32)
    for tap in _taps(centred, 0, out, kernel, stride, pad, dilation):
        result += tap
    return result


def pool_counts(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    dilation: tuple[int, int] = (1, 1),
    ceil: bool = False,
    count_padding: bool = False,
) -> NDArray[np.int64]:
    """Count the taps of every window that an average divides by.

    Parameters
    ----------
    size : (int, int)
        Height and width of the input.
    kernel, stride, pad, dilation, ceil
        As for `output_size`.
    count_padding : bool
        False: taps on the feature map (TFLite; ONNX by default). True: taps in the padding as well,
        but not those beyond it, as Caffe and ONNX's ``count_include_pad`` do.

    Returns
    -------
    int64 array of shape (OH, OW)
        Counts; without count_padding 0 for windows wholly in the padding.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or the output is empty.
    """
    out = output_size(size, kernel, stride, pad, dilation, ceil)
    axes = []
    for axis in range(2):
        leading, trailing = pad[axis], pad[axis + 2]
        first = np.arange(out[axis])[:, np.newaxis] * stride[axis] - leading
        position = first + np.arange(kernel[axis]) * dilation[axis]
        least, end = (-leading, size[axis] + trailing) if count_padding else (0, size[axis])
        axes.append(np.count_nonzero((position >= least) & (position < end), axis=1))
    rows, columns = axes
    counts: NDArray[np.int64] = rows[:, np.newaxis].astype(np.int64) * columns
    return counts


def average_pool2d(
    x: NDArray[np.int8],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    *,
    dilation: tuple[int, int] = (1, 1),
    ceil: bool = False,
    count_padding: bool = False,
    zero_point: int = 0,
    low: int = -128,
    high: int = 127,
) -> NDArray[np.int8]:
    """Average every window: `sum_pool2d` over `pool_counts`, rounded half away from zero.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    kernel, stride, pad, dilation, ceil
        As for `output_size`.
    count_padding : bool
        As for `pool_counts`.
    zero_point : int
        Zero point of input and output, from -128 to 127: the average of ``x - zero_point`` is
        rounded, then zero_point is added. It tells from which value ties go away, and what padding
        stands for with count_padding. 0 gives TFLite's AVERAGE_POOL_2D, whatever the zero point of
        its tensors.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.

    Returns
    -------
    int8 array of shape (N, OH, OW, C)
        Averages. A window of no taps at all gives zero_point.

    Raises
    ------
    TypeError, ValueError
        If x is not an int8 feature map, a parameter is outside its range, or the output is empty.
    """
    check_output(zero_point, low, high)
    sums = sum_pool2d(
        x, kernel, stride, pad, dilation=dilation, ceil=ceil, zero_point=zero_point
    ).astype(np.int64)
    size = (x.shape[1], x.shape[2])
    counts = pool_counts(
        size, kernel, stride, pad, dilation=dilation, ceil=ceil, count_padding=count_padding
    )
    divisor = np.maximum(counts, 1)[:, :, np.newaxis]
    magnitude = (2 * np.abs(sums) + divisor) // (2 * divisor)
    average = np.where(sums < 0, -magnitude, magnitude) + zero_point
    clipped: NDArray[np.int64] = np.clip(average, low, high)
    return clipped.astype(np.int8)


def global_average_pool(
    x: NDArray[np.int8], *, zero_point: int = 0, low: int = -128, high: int = 127
) -> NDArray[np.int8]:
    """Average whole feature maps; as `average_pool2d` with the kernel (H, W).

    Returns
    -------
    int8 array of shape (N, 1, 1, C)
        Averages.
    """
    check_features("x", x)
    kernel = (x.shape[1], x.shape[2])
    return average_pool2d(x, kernel, zero_point=zero_point, low=low, high=high)


def average_constants(count: int) -> tuple[int, int, int]:
    """Return the constants with which `requantise_fixed` divides sums by a count.

    The result is the exact quotient rounded half away from zero for every sum of at most
    ``255 * count`` in magnitude. With ``n = 2**right``, from 2 * count to below 4 * count:

    - The first rounding sees ``sum * n / count * (1 + e)`` with 0 <= e <= 2**-30, as the mantissa
      is at least 2**30 and rounded up.
    - A quotient of q + 1/2 or more stays at ``(q + 1/2) * n``, an integer, or above; the second
      rounding takes it up.
    - A smaller one is smaller by 1 / (2 * count) or more, so the first rounding sees a value that
      is below ``(q + 1/2) * n`` by ``n / (2 * count)``, at least 1, less the error. That is at most
      ``2**-30 * 256 * n``, below 1/16. What is left is more than 1/2: it is not rounded up to it.
    - Negative sums mirror this: the first rounding takes their ties to the smaller magnitude.

    Parameters
    ----------
    count : int
        Taps of a window, from 1 to 2**16 - 1.

    Returns
    -------
    (int, int, int)
        Mantissa, left and right shift.

    Raises
    ------
    ValueError
        If count is outside its range.
    """
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count must be from 1 to {MAX_COUNT}, not {count!r}")
    right = (2 * count - 1).bit_length()
    left = 2  # n / count is from 2 to below 4, the mantissa from 2**30 to below 2**31
    return -(-(1 << (right + 31 - left)) // count), left, right


def _taps(
    x: NDArray[np.int8] | NDArray[np.int32],
    fill: int,
    out: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> Iterator[NDArray[np.int8] | NDArray[np.int32]]:
    """Yield for each tap what it sees in all windows, a view of shape (N, OH, OW, C)."""
    images, height, width, channels = x.shape
    top, left, _, _ = pad
    covered = [
        (out[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        for axis in range(2)
    ]
    shape = (images, max(covered[0], top + height), max(covered[1], left + width), channels)
    padded = np.full(shape, fill, x.dtype)
    padded[:, top : top + height, left : left + width] = x
    for r in range(kernel[0]):
        for s in range(kernel[1]):
            first_y, first_x = r * dilation[0], s * dilation[1]
            rows = slice(first_y, first_y + (out[0] - 1) * stride[0] + 1, stride[0])
            columns = slice(first_x, first_x + (out[1] - 1) * stride[1] + 1, stride[1])
            yield padded[:, rows, columns]

"""INT8 convolution to int32 accumulators: a plain form, a fast form, and the accumulator's bound.

All of them compute, for every output pixel of an NHWC feature map,

    acc[k] = bias[k] + sum over (r, s, c) of
             (x[r, s, c] - zero_point) * (weights[k, r, s, c] - weight_zero_point)

where a tap in the padding contributes nothing: a padded pixel has the real value 0, which is what
``x = zero_point`` means. This is QLinearConv of ONNX and CONV_2D of TFLite before requantisation.
With groups, filter k sees the channels of its group only; with as many groups as channels
(depthwise) filter ``c * M + m`` is the m-th of the M filters of channel c, the order of ONNX and of
TFLite's DEPTHWISE_CONV_2D.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trirow_golden.checks import INT8, check_filters, check_int32, check_operands
from trirow_golden.geometry import output_size

_BLOCK_BYTES = 4 << 20  # unrolled windows held at a time by `conv2d`; about the size of a cache


def conv2d_plain(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    zero_point: int = 0,
    weight_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Convolve by the definition, one tap of one output pixel after the other.

    Slow, and meant to be checked by reading; `conv2d` computes the same.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    weights : int8 array of shape (K, R, S, C / groups)
        K kernels of R rows and S columns.
    bias : int32 array of shape (K,)
        Start value of the accumulator.
    stride : (int, int)
        Step in y and x, each at least 1.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right, each at least 0.
    dilation : (int, int)
        Distance of neighbouring taps in y and x, each at least 1.
    groups : int
        Groups of channels, at least 1; they divide C and K.
    zero_point : int
        Value of x that stands for 0, from -128 to 127.
    weight_zero_point : int
        Value of a weight that stands for 0, from -128 to 127.

    Returns
    -------
    int32 array of shape (N, OH, OW, K)
        Accumulators; OH and OW as in `output_size`.

    Raises
    ------
    TypeError
        If an array does not have its type.
    ValueError
        If an array does not have its shape, a parameter is outside its range, or the output is
        empty.
    OverflowError
        If an accumulator leaves int32; the text names its output channel.
    """
    check_operands(x, weights, bias, groups, zero_point, weight_zero_point)
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, _ = weights.shape
    kernel = (kernel_height, kernel_width)
    out_height, out_width = output_size((height, width), kernel, stride, pad, dilation)
    top, left, _, _ = pad
    centred = x.astype(np.int64) - zero_point
    wide_weights = weights.astype(np.int64) - weight_zero_point
    acc = np.empty((images, out_height, out_width, filters), np.int64)
    for image in range(images):
        for out_y in range(out_height):
            for out_x in range(out_width):
                pixel = bias.astype(np.int64)
                for r in range(kernel_height):
                    for s in range(kernel_width):
                        in_y = out_y * stride[0] + r * dilation[0] - top
                        in_x = out_x * stride[1] + s * dilation[1] - left
                        if not (0 <= in_y < height and 0 <= in_x < width):
                            continue
                        for group in range(groups):
                            of_group = slice(
                                group * filters // groups, (group + 1) * filters // groups
                            )
                            seen = slice(
                                group * channels // groups, (group + 1) * channels // groups
                            )
                            pixel[of_group] += (
                                wide_weights[of_group, r, s, :] @ centred[image, in_y, in_x, seen]
                            )
                acc[image, out_y, out_x] = pixel
    check_int32(acc)
    return acc.astype(np.int32)


def conv2d(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    zero_point: int = 0,
    weight_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Convolve by matrix products; parameters, result and errors are those of `conv2d_plain`.

    The windows of a few output rows at a time are unrolled (im2col) and multiplied in float64.
    That is exact in any order of summation: a product is an integer of at most 255 * 255, so
    every partial sum stays below 2**53 for kernels of up to 2**36 taps. A depthwise convolution,
    for which the matrices would be columns, adds up its taps one after the other, in int64.
    """
    check_operands(x, weights, bias, groups, zero_point, weight_zero_point)
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, group_channels = weights.shape
    kernel = (kernel_height, kernel_width)
    out_height, out_width = output_size((height, width), kernel, stride, pad, dilation)
    top, left, bottom, right = pad
    padded = np.zeros((height + top + bottom, width + left + right, channels), np.int16)
    inside = padded[top : top + height, left : left + width]
    reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True))
    windows = sliding_window_view(padded, reach, axis=(0, 1))
    windows = windows[:: stride[0], :: stride[1], :, :: dilation[0], :: dilation[1]]
    wide_weights = weights.astype(np.int16) - np.int16(weight_zero_point)
    block_rows = max(1, _BLOCK_BYTES // (out_width * kernel_height * kernel_width * channels * 8))
    acc = np.empty((images, out_height, out_width, filters), np.int32)
    for image in range(images):
        np.subtract(x[image], zero_point, out=inside, dtype=np.int16)
        for first in range(0, out_height, block_rows):
            rows = slice(first, min(first + block_rows, out_height))
            sums = (
                _sum_depthwise(windows[rows], wide_weights)
                if group_channels == 1 and groups > 1
                else _multiply_groups(windows[rows], wide_weights, groups)
            )
            block = sums + bias
            check_int32(block)
            acc[image, rows] = block
    return acc


def accumulator_bound(
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    zero_point: int,
    weight_zero_point: int = 0,
) -> NDArray[np.int64]:
    """Return the largest magnitude that each channel's accumulator can reach.

    It is the maximum over all int8 inputs, and some input attains it. It also holds for every
    partial sum in any order, and with any of the taps in padding: a tap can contribute 0 (since
    ``x = zero_point`` is an int8 input), so leaving taps out never leads beyond the bound. An
    accumulator of 32 bits cannot overflow where the bound is below 2**31.

    Parameters
    ----------
    weights : int8 array of shape (K, R, S, C / groups)
        The kernels.
    bias : int32 array of shape (K,)
        Start values of the accumulators.
    zero_point : int
        Zero point of the input, from -128 to 127.
    weight_zero_point : int
        Zero point of the weights, from -128 to 127.

    Returns
    -------
    int64 array of shape (K,)
        Largest absolute values.

    Raises
    ------
    TypeError, ValueError
        As `conv2d_plain`.
    """
    check_filters(weights, bias, zero_point, weight_zero_point)
    kernels = weights.reshape(weights.shape[0], -1).astype(np.int64) - weight_zero_point
    positive = np.maximum(kernels, 0).sum(axis=1)
    negative = np.minimum(kernels, 0).sum(axis=1)
    most, least = INT8.max - zero_point, INT8.min - zero_point
    high = bias.astype(np.int64) + positive * most + negative * least
    low = bias.astype(np.int64) + positive * least + negative * most
    bound: NDArray[np.int64] = np.maximum(np.abs(high), np.abs(low))
    return bound


def _multiply_groups(
    windows: NDArray[np.int16], weights: NDArray[np.int16], groups: int
) -> NDArray[np.float64]:
    """Multiply windows of shape (OH, OW, C, R, S) by kernels (K, R, S, C / groups)."""
    rows, columns, channels, *kernel = windows.shape
    filters = weights.shape[0]
    split = windows.reshape(rows, columns, groups, channels // groups, *kernel)
    unrolled = split.transpose(2, 0, 1, 4, 5, 3).astype(np.float64, order="C")
    matrices = weights.reshape(groups, filters // groups, -1).transpose(0, 2, 1).astype(np.float64)
    products = unrolled.reshape(groups, rows * columns, -1) @ matrices
    result: NDArray[np.float64] = products.transpose(1, 0, 2).reshape(rows, columns, filters)
    return result


def _sum_depthwise(windows: NDArray[np.int16], weights: NDArray[np.int16]) -> NDArray[np.int64]:
    """Convolve windows of shape (OH, OW, C, R, S) by kernels (K, R, S, 1), each on one channel."""
    rows, columns, channels, kernel_height, kernel_width = windows.shape
    kernels = weights[..., 0].reshape(channels, -1, kernel_height, kernel_width)
    total = np.zeros((rows, columns, *kernels.shape[:2]), np.int64)
    for r in range(kernel_height):
        for s in range(kernel_width):
            tap = windows[:, :, :, np.newaxis, r, s].astype(np.int32)
            total += tap * kernels[:, :, r, s]
    return total.reshape(rows, columns, -1)

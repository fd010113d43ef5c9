"""INT8 convolution to int32 accumulators: a plain form, a fast form, and the accumulator's bound.

All of them compute, for every output pixel of an NHWC feature map,

    acc[k] = bias[k] + sum over (r, s, c) of (x[r, s, c] - zero_point) * weights[k, r, s, c]

where a tap in the padding contributes nothing: a padded pixel has the real value 0, which is what
``x = zero_point`` means. This is QLinearConv of ONNX and CONV_2D of TFLite before requantisation.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trirow_golden.geometry import output_size

_INT8 = np.iinfo(np.int8)
_INT32 = np.iinfo(np.int32)
_BLOCK_BYTES = 4 << 20  # unrolled windows held at a time by `conv2d`; about the size of a cache


def conv2d_plain(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    zero_point: int = 0,
) -> NDArray[np.int32]:
    """Convolve by the definition, one tap of one output pixel after the other.

    Slow, and meant to be checked by reading; `conv2d` computes the same.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    weights : int8 array of shape (K, R, S, C)
        K kernels of R rows and S columns.
    bias : int32 array of shape (K,)
        Start value of the accumulator.
    stride : (int, int)
        Step in y and x, each at least 1.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right, each at least 0.
    zero_point : int
        Value of x that stands for 0, from -128 to 127.

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
    _check_operands(x, weights, bias, zero_point)
    images, height, width, _ = x.shape
    filters, kernel_height, kernel_width, _ = weights.shape
    out_height, out_width = output_size((height, width), (kernel_height, kernel_width), stride, pad)
    top, left, _, _ = pad
    centred = x.astype(np.int64) - zero_point
    wide_weights = weights.astype(np.int64)
    acc = np.empty((images, out_height, out_width, filters), np.int64)
    for image in range(images):
        for out_y in range(out_height):
            for out_x in range(out_width):
                pixel = bias.astype(np.int64)
                for r in range(kernel_height):
                    for s in range(kernel_width):
                        in_y = out_y * stride[0] + r - top
                        in_x = out_x * stride[1] + s - left
                        if 0 <= in_y < height and 0 <= in_x < width:
                            pixel += wide_weights[:, r, s, :] @ centred[image, in_y, in_x, :]
                acc[image, out_y, out_x] = pixel
    _check_int32(acc)
    return acc.astype(np.int32)


def conv2d(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    zero_point: int = 0,
) -> NDArray[np.int32]:
    """Convolve by matrix products; parameters, result and errors are those of `conv2d_plain`.

    The windows of a few output rows at a time are unrolled (im2col) and multiplied in float64.
    That is exact in any order of summation: a product is an integer of at most 255 * 128, so
    every partial sum stays below 2**53 for kernels of up to 2**37 taps.
    """
    _check_operands(x, weights, bias, zero_point)
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, _ = weights.shape
    out_height, out_width = output_size((height, width), (kernel_height, kernel_width), stride, pad)
    top, left, bottom, right = pad
    padded = np.zeros((height + top + bottom, width + left + right, channels), np.int16)
    inside = padded[top : top + height, left : left + width]
    windows = sliding_window_view(padded, (kernel_height, kernel_width), axis=(0, 1))
    windows = windows[:: stride[0], :: stride[1]].transpose(0, 1, 3, 4, 2)  # OH, OW, R, S, C
    taps = kernel_height * kernel_width * channels
    matrix = weights.reshape(filters, taps).T.astype(np.float64)
    block_rows = max(1, _BLOCK_BYTES // (out_width * taps * matrix.itemsize))
    acc = np.empty((images, out_height, out_width, filters), np.int32)
    for image in range(images):
        np.subtract(x[image], zero_point, out=inside, dtype=np.int16)
        for first in range(0, out_height, block_rows):
            rows = slice(first, min(first + block_rows, out_height))
            unrolled = windows[rows].astype(np.float64, order="C").reshape(-1, taps)
            block = unrolled @ matrix + bias
            _check_int32(block)
            acc[image, rows] = block.reshape(-1, out_width, filters)
    return acc


def accumulator_bound(
    weights: NDArray[np.int8], bias: NDArray[np.int32], zero_point: int
) -> NDArray[np.int64]:
    """Return the largest magnitude that each channel's accumulator can reach.

    It is the maximum over all int8 inputs, and some input attains it. It also holds for every
    partial sum in any order, and with any of the taps in padding: a tap can contribute 0 (since
    ``x = zero_point`` is an int8 input), so leaving taps out never leads beyond the bound. An
    accumulator of 32 bits cannot overflow where the bound is below 2**31.

    Parameters
    ----------
    weights : int8 array of shape (K, R, S, C)
        The kernels.
    bias : int32 array of shape (K,)
        Start values of the accumulators.
    zero_point : int
        Zero point of the input, from -128 to 127.

    Returns
    -------
    int64 array of shape (K,)
        Largest absolute values.

    Raises
    ------
    TypeError, ValueError
        As `conv2d_plain`.
    """
    _check_filters(weights, bias, zero_point)
    kernels = weights.reshape(weights.shape[0], -1).astype(np.int64)
    positive = np.maximum(kernels, 0).sum(axis=1)
    negative = np.minimum(kernels, 0).sum(axis=1)
    most, least = _INT8.max - zero_point, _INT8.min - zero_point
    high = bias.astype(np.int64) + positive * most + negative * least
    low = bias.astype(np.int64) + positive * least + negative * most
    bound: NDArray[np.int64] = np.maximum(np.abs(high), np.abs(low))
    return bound


def _check_filters(weights: NDArray[np.int8], bias: NDArray[np.int32], zero_point: int) -> None:
    """Refuse kernels, biases and zero points that no convolution can have."""
    _check_array("weights", weights, np.dtype(np.int8), "(K, R, S, C)")
    _check_array("bias", bias, np.dtype(np.int32), "(K,)")
    if 0 in weights.shape:
        raise ValueError(f"weights must not have an empty axis: shape {weights.shape}")
    if bias.shape != weights.shape[:1]:
        raise ValueError(
            f"bias must have one value for each of the {weights.shape[0]} output channels, "
            f"not {bias.shape[0]}"
        )
    if not _INT8.min <= zero_point <= _INT8.max:
        raise ValueError(f"zero_point must be from -128 to 127, not {zero_point!r}")


def _check_operands(
    x: NDArray[np.int8], weights: NDArray[np.int8], bias: NDArray[np.int32], zero_point: int
) -> None:
    """Refuse arrays and zero points that do not make up a convolution."""
    _check_array("x", x, np.dtype(np.int8), "(N, H, W, C)")
    _check_filters(weights, bias, zero_point)
    if x.shape[3] != weights.shape[3]:
        raise ValueError(
            f"x and weights must have the same number of channels, not {x.shape[3]} and "
            f"{weights.shape[3]}"
        )


def _check_array(name: str, array: NDArray[np.generic], dtype: np.dtype, axes: str) -> None:
    """Refuse an array of another type or another number of axes."""
    text = f"{name} must be {dtype} of shape {axes}, not {array.dtype} of shape {array.shape}"
    if array.dtype != dtype:
        raise TypeError(text)
    if array.ndim != axes.count(",") + (not axes.endswith(",)")):
        raise ValueError(text)


def _check_int32(acc: NDArray[np.int64] | NDArray[np.float64]) -> None:
    """Refuse accumulators of shape (..., K) that int32 cannot hold."""
    outside = (acc < _INT32.min) | (acc > _INT32.max)
    if outside.any():
        where = tuple(np.argwhere(outside)[0])
        raise OverflowError(
            f"Accumulator of output channel {where[-1]} leaves int32: it reaches {int(acc[where])}"
        )

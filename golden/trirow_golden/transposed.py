"""INT8 transposed convolution ("deconvolution") to int32 accumulators."""

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_int32, check_operands
from trirow_golden.geometry import transposed_output_size


def transposed_conv2d(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    output_padding: tuple[int, int] = (0, 0),
    zero_point: int = 0,
    weight_zero_point: int = 0,
) -> NDArray[np.int32]:
    """Spread every input pixel over the output by the kernels.

    On the bias, every pixel (iy, ix) of x and every tap (r, s) adds

        y[iy * stride_y + r * dilation_y - top, ix * stride_x + s * dilation_x - left, k] +=
            sum over c of (x[iy, ix, c] - zero_point) * (weights[k, r, s, c] - weight_zero_point)

    as far as that is inside the output. It is ONNX's ConvTranspose and TFLite's TRANSPOSE_CONV. The
    sums are exact, as in `conv2d`.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    weights : int8 array of shape (K, R, S, C / groups)
        K kernels of R rows and S columns; K are the channels of the output. (ONNX orders its
        weights (C, K / groups, R, S).)
    bias : int32 array of shape (K,)
        Start value of the accumulator.
    stride : (int, int)
        Step in the output from one pixel of x to the next in y and x, each at least 1.
    pad : (int, int, int, int)
        Rows and columns cut off at the top, left, bottom and right, each at least 0.
    dilation : (int, int)
        Distance of neighbouring taps in y and x, each at least 1.
    groups : int
        Groups of channels, at least 1; they divide C and K.
    output_padding : (int, int)
        Rows and columns added at the bottom and right, as in `transposed_output_size`.
    zero_point, weight_zero_point : int
        Values of x and of a weight that stand for 0, from -128 to 127.

    Returns
    -------
    int32 array of shape (N, OH, OW, K)
        Accumulators; OH and OW as in `transposed_output_size`.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As `conv2d_plain`.
    """
    check_operands(x, weights, bias, groups, zero_point, weight_zero_point)
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, _ = weights.shape
    out_height, out_width = transposed_output_size(
        (height, width), (kernel_height, kernel_width), stride, pad, dilation, output_padding
    )
    top, left, bottom, right = pad
    whole = (images, out_height + top + bottom, out_width + left + right, filters)
    acc = np.zeros(whole, np.float64)  # before anything is cut off
    pixels = (x.astype(np.float64) - zero_point).reshape(-1, groups, channels // groups)
    kernels = weights.astype(np.float64) - weight_zero_point
    for r in range(kernel_height):
        for s in range(kernel_width):
            matrices = kernels[:, r, s].reshape(groups, filters // groups, -1).transpose(0, 2, 1)
            products = (pixels.transpose(1, 0, 2) @ matrices).transpose(1, 0, 2)
            first_y, first_x = r * dilation[0], s * dilation[1]
            rows = slice(first_y, first_y + (height - 1) * stride[0] + 1, stride[0])
            columns = slice(first_x, first_x + (width - 1) * stride[1] + 1, stride[1])
            acc[:, rows, columns] += products.reshape(images, height, width, filters)
    acc = acc[:, top : top + out_height, left : left + out_width] + bias
    check_int32(acc)
    return acc.astype(np.int32)

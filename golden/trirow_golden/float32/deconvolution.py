"""Transposed convolution in float32: Caffe's Deconvolution layer."""

import numpy as np

from trirow_golden.float32.checks import FloatArray, check_bias, check_kernels
from trirow_golden.geometry import transposed_output_size


def deconvolution(
    x: FloatArray,
    weights: FloatArray,
    bias: FloatArray | None = None,
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    group: int = 1,
) -> FloatArray:
    """Spread every input pixel over the output by the kernels.

    On the bias, every pixel (iy, ix) of x and every tap (r, s) adds

        y[k, iy * stride_y + r * dilation_y - top, ix * stride_x + s * dilation_x - left] +=
            sum over the channels c of k's group of x[c, iy, ix] * weights[c, k, r, s]

    as far as that is inside the output. It is Caffe's Deconvolution and ONNX's ConvTranspose of two
    spatial axes without output padding.

    Parameters
    ----------
    x : float32 array of shape (N, C, H, W)
        Feature maps.
    weights : float32 array of shape (C, K / group, R, S)
        Kernels of R rows and S columns; K are the channels of the output.
    bias : float32 array of shape (K,), optional
        Added to each output channel.
    stride : (int, int)
        Step in the output from one pixel of x to the next in y and x, each at least 1.
    pad : (int, int, int, int)
        Rows and columns cut off at the top, left, bottom and right, each at least 0.
    dilation : (int, int)
        Distance of neighbouring taps in y and x, each at least 1.
    group : int
        Groups of channels, at least 1; they divide C and K.

    Returns
    -------
    float32 array of shape (N, K, OH, OW)
        OH and OW as in `transposed_output_size`.

    Raises
    ------
    TypeError, ValueError
        As `convolution`.
    """
    check_kernels(x, weights, group, "(C, K / group, R, S)")
    images, channels, height, width = x.shape
    kernels, group_filters, rows, columns = weights.shape
    if kernels != channels:
        raise ValueError(
            f"weights must have a kernel for each of the {channels} channels of x, not {kernels}"
        )
    filters = group_filters * group
    check_bias(bias, filters)
    out_height, out_width = transposed_output_size(
        (height, width), (rows, columns), stride, pad, dilation
    )
    pixels = x.reshape(images, group, channels // group, height * width)
    matrices = weights.reshape(group, channels // group, -1).transpose(0, 2, 1)
    products = (matrices @ pixels).reshape(images, filters, rows, columns, height, width)
    top, left, bottom, right = pad
    whole = (out_height + top + bottom, out_width + left + right)  # before anything is cut off
    y = np.zeros((images, filters, *whole), np.float32)
    for r, s in np.ndindex(rows, columns):
        first_y, first_x = r * dilation[0], s * dilation[1]
        ys = slice(first_y, first_y + (height - 1) * stride[0] + 1, stride[0])
        xs = slice(first_x, first_x + (width - 1) * stride[1] + 1, stride[1])
        y[:, :, ys, xs] += products[:, :, r, s]
    y = y[:, :, top : top + out_height, left : left + out_width]
    return y.copy() if bias is None else y + bias[:, np.newaxis, np.newaxis]

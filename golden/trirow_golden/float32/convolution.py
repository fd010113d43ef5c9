"""Convolution in float32: Caffe's Convolution layer."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trirow_golden.float32.checks import FloatArray, check_bias, check_kernels
from trirow_golden.geometry import output_size


def convolution(
    x: FloatArray,
    weights: FloatArray,
    bias: FloatArray | None = None,
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    group: int = 1,
) -> FloatArray:
    """Convolve feature maps with kernels; what lies in the padding counts as 0.

    It is Caffe's Convolution and ONNX's Conv of two spatial axes. A filter sees the channels of its
    group only: filter k those of group ``k // (K / group)``. With as many groups as channels this
    is the depthwise convolution.

    Parameters
    ----------
    x : float32 array of shape (N, C, H, W)
        Feature maps.
    weights : float32 array of shape (K, C / group, R, S)
        K kernels of R rows and S columns.
    bias : float32 array of shape (K,), optional
        Added to each output channel.
    stride : (int, int)
        Step in y and x, each at least 1.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right, each at least 0.
    dilation : (int, int)
        Distance of neighbouring taps in y and x, each at least 1.
    group : int
        Groups of channels, at least 1; they divide C and K.

    Returns
    -------
    float32 array of shape (N, K, OH, OW)
        OH and OW as in `output_size`, rounded down.

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape, a parameter is outside its range, or the output is
        empty.
    """
    check_kernels(x, weights, group, "(K, C / group, R, S)")
    images, channels, height, width = x.shape
    filters, group_channels, rows, columns = weights.shape
    if group_channels * group != channels:
        raise ValueError(
            f"weights must have {channels // group} channels, the {channels} of x in {group} "
            f"groups, not {group_channels}"
        )
    check_bias(bias, filters)
    out_height, out_width = output_size((height, width), (rows, columns), stride, pad, dilation)
    top, left, bottom, right = pad
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = ((rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1)
    windows = sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    if group_channels == 1:
        y = _sum_taps(windows, weights)
    else:
        split = windows.reshape(images, group, group_channels, *windows.shape[2:])
        y = _multiply(split, weights.reshape(group, filters // group, -1))
    y = y.reshape(images, filters, out_height, out_width)
    return y if bias is None else y + bias[:, np.newaxis, np.newaxis]


def _multiply(windows: FloatArray, weights: FloatArray) -> FloatArray:
    """Multiply windows (N, G, C, OH, OW, R, S) by matrices (G, K, C * R * S), an image at a time.

    One image, since the unrolled windows (im2col) take R * S times the memory of the feature map.
    """
    images, group, channels, out_height, out_width, rows, columns = windows.shape
    y = np.empty((images, group, weights.shape[1], out_height * out_width), np.float32)
    for image in range(images):
        unrolled = windows[image].transpose(0, 1, 4, 5, 2, 3)
        taps = channels * rows * columns
        np.matmul(weights, unrolled.reshape(group, taps, out_height * out_width), out=y[image])
    return y


def _sum_taps(windows: FloatArray, weights: FloatArray) -> FloatArray:
    """Convolve windows (N, C, OH, OW, R, S) by kernels (K, 1, R, S), K / C of them per channel.

    The matrices would be single rows here, so all channels at once add up tap after tap.
    """
    images, channels, out_height, out_width, rows, columns = windows.shape
    kernels = weights.reshape(channels, -1, 1, 1, rows, columns)
    y = np.zeros((images, channels, kernels.shape[1], out_height, out_width), np.float32)
    for r, s in np.ndindex(rows, columns):
        y += windows[:, :, np.newaxis, :, :, r, s] * kernels[..., r, s]
    return y

"""Whole layers, int8 to int8, as the accelerator runs them in one go."""

import numpy as np
from numpy.typing import NDArray

from trirow_golden.convolution import conv2d
from trirow_golden.requantise import requantise


def conv2d_int8(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    multiplier: NDArray[np.float32],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    zero_in: int = 0,
    zero_out: int = 0,
    low: int = -128,
    high: int = 127,
) -> NDArray[np.int8]:
    """Convolve and requantise; equals ONNX Runtime's QLinearConv with int8 tensors.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    weights : int8 array of shape (K, R, S, C)
        Kernels.
    bias : int32 array of shape (K,)
        Start value of the accumulator.
    multiplier : float32 array of shape (K,)
        Ratio of the scales, as from `conv_multiplier`.
    stride : (int, int)
        Step in y and x.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right.
    zero_in, zero_out : int
        Zero points of the input and the output, from -128 to 127.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.

    Returns
    -------
    int8 array of shape (N, OH, OW, K)
        Feature map; OH and OW as in `output_size`.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As `conv2d_plain` and `requantise`.
    """
    if multiplier.shape != bias.shape:
        raise ValueError(
            f"multiplier must have the shape of bias, {bias.shape}, not {multiplier.shape}"
        )
    acc = conv2d(x, weights, bias, stride=stride, pad=pad, zero_point=zero_in)
    return requantise(acc, multiplier, zero_out, low, high)

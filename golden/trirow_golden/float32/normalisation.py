"""Layers in float32 that divide values by what is around them: softmax, LRN, SSD's Normalize."""

from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from trirow_golden.checks import check_type
from trirow_golden.float32.checks import (
    FloatArray,
    check_axis,
    check_features,
    check_per_channel,
    check_positive,
)


def softmax(x: FloatArray, *, axis: int = 1) -> FloatArray:
    """Return ``exp(x)`` over its sum along an axis (Caffe's Softmax).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    axis : int
        Axis whose values sum up to 1; a negative one counts from the end.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x has no such axis.
    """
    check_type("x", x, np.float32)
    axis = check_axis("axis", axis, x.ndim)
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    y: FloatArray = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return y


def lrn(
    x: FloatArray,
    *,
    size: int = 5,
    alpha: float = 1.0,
    beta: float = 0.75,
    k: float = 1.0,
    region: Literal["across_channels", "within_channel"] = "across_channels",
) -> FloatArray:
    """Divide by ``(k + alpha * mean of squares) ** beta`` (local response normalisation).

    It is Caffe's LRN, and across channels ONNX's. The mean is that over `size` channels around a
    value, or over the ``size * size`` pixels around it in its channel. What is outside the map is
    0, and counts.

    Parameters
    ----------
    x : float32 array of shape (N, C, H, W)
        Feature maps.
    size : int
        Extent of the region, odd and at least 1 (Caffe's ``local_size``).
    alpha, beta : float
        Weight of the mean, and exponent.
    k : float
        Addend, positive. Caffe ignores it within a channel, where it is always 1.
    region : "across_channels" or "within_channel"
        What is averaged.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x is no feature map, or a parameter is outside its range.
    """
    check_features("x", x)
    if size < 1 or size % 2 == 0:
        raise ValueError(f"size must be odd and at least 1, not {size!r}")
    check_positive("k", k)
    half = (size - 1) // 2
    squares = x * x
    if region == "across_channels":
        padded = np.pad(squares, ((0, 0), (half, half), (0, 0), (0, 0)))
        mean = sliding_window_view(padded, size, axis=1).sum(axis=-1) / np.float32(size)
        addend = np.float32(k)
    elif region == "within_channel":
        padded = np.pad(squares, ((0, 0), (0, 0), (half, half), (half, half)))
        windows = sliding_window_view(padded, (size, size), axis=(2, 3))
        mean = windows.sum(axis=(-2, -1)) / np.float32(size * size)
        addend = np.float32(1)
    else:
        raise ValueError(f"region must be 'across_channels' or 'within_channel', not {region!r}")
    y: FloatArray = x / (addend + np.float32(alpha) * mean) ** np.float32(beta)
    return y


def normalize(
    x: FloatArray, factors: FloatArray, *, across_spatial: bool = True, eps: float = 1e-10
) -> FloatArray:
    """Divide by the L2 norm and multiply by factors: Normalize of the SSD fork of Caffe.

    The norm is ``sqrt(sum of squares + eps)``, that of each pixel's channels or of a whole image
    (Liu et al., "ParseNet: Looking Wider to See Better", 2015).

    Parameters
    ----------
    x : float32 array of shape (N, C, H, W)
        Feature maps.
    factors : float32 array of shape (C,) or (1,)
        Factor of each channel, or of all (``channel_shared``).
    across_spatial : bool
        Take the norm of the whole image, channels and pixels.
    eps : float
        Keeps the norm away from 0; positive.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape, or eps is outside its range.
    """
    check_features("x", x)
    check_per_channel("factors", factors, x.shape[1], or_one=True)
    check_positive("eps", eps)
    axes = (1, 2, 3) if across_spatial else (1,)
    norm = np.sqrt((x * x).sum(axis=axes, keepdims=True) + np.float32(eps))
    y: FloatArray = x / norm * factors[:, np.newaxis, np.newaxis]
    return y

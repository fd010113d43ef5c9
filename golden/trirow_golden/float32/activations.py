"""Layers in float32 that map every value by itself: Caffe's neurons."""

import numpy as np

from trirow_golden.checks import check_type
from trirow_golden.float32.checks import FloatArray, check_channels, check_per_channel


def relu(x: FloatArray, *, negative_slope: float = 0.0) -> FloatArray:
    """Multiply negative values by a slope (Caffe's ReLU; "leaky" with a slope other than 0).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    negative_slope : float
        Slope below 0.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If x is not float32.
    """
    check_type("x", x, np.float32)
    y: FloatArray = np.maximum(x, 0) + np.float32(negative_slope) * np.minimum(x, 0)
    return y


def prelu(x: FloatArray, slopes: FloatArray) -> FloatArray:
    """Multiply negative values by the slope of their channel (Caffe's PReLU).

    Parameters
    ----------
    x : float32 array of shape (N, C, ...)
        Input.
    slopes : float32 array of shape (C,) or (1,)
        Slope below 0 of each channel, or of all (Caffe's ``channel_shared``).

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape.
    """
    check_channels("x", x)
    check_per_channel("slopes", slopes, x.shape[1], or_one=True)
    per_channel = slopes.reshape(-1, *[1] * (x.ndim - 2))
    y: FloatArray = np.maximum(x, 0) + per_channel * np.minimum(x, 0)
    return y


def sigmoid(x: FloatArray) -> FloatArray:
    """Return ``1 / (1 + exp(-x))``, written so that nothing overflows (Caffe's Sigmoid).

    Parameters
    ----------
    x : float32 array of any shape
        Input.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If x is not float32.
    """
    check_type("x", x, np.float32)
    y: FloatArray = 0.5 * np.tanh(0.5 * x) + 0.5
    return y


def tanh(x: FloatArray) -> FloatArray:
    """Return the hyperbolic tangent (Caffe's TanH).

    Parameters, result and errors are those of `sigmoid`.
    """
    check_type("x", x, np.float32)
    y: FloatArray = np.tanh(x)
    return y


def absolute(x: FloatArray) -> FloatArray:
    """Return the absolute values (Caffe's AbsVal).

    Parameters, result and errors are those of `sigmoid`.
    """
    check_type("x", x, np.float32)
    y: FloatArray = np.abs(x)
    return y


def power(
    x: FloatArray, *, power: float = 1.0, scale: float = 1.0, shift: float = 0.0
) -> FloatArray:
    """Return ``(shift + scale * x) ** power`` (Caffe's Power).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    power, scale, shift : float
        Exponent, factor and addend.

    Returns
    -------
    float32 array of the shape of x
        NaN where a negative base has a fractional exponent, infinite where 0 has a negative one.

    Raises
    ------
    TypeError
        If x is not float32.
    """
    check_type("x", x, np.float32)
    base = np.float32(shift) + np.float32(scale) * x
    with np.errstate(all="ignore"):  # Caffe's result is NaN or infinite, too, and no error
        y: FloatArray = base ** np.float32(power)
    return y

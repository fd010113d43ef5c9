"""Layers in float32 that scale and shift channels: Caffe's BatchNorm, Scale and Bias."""

import numpy as np

from trirow_golden.checks import check_type
from trirow_golden.float32.checks import (
    FloatArray,
    check_axis,
    check_channels,
    check_per_channel,
    check_positive,
)


def batch_norm(
    x: FloatArray, mean: FloatArray, variance: FloatArray, *, eps: float = 1e-5
) -> FloatArray:
    """Return ``(x - mean) / sqrt(variance + eps)``, channel by channel.

    It is Caffe's BatchNorm with ``use_global_stats``, hence at inference. Caffe stores the sums of
    mean and variance and their weight in a third blob: both are to be divided by it first (or are
    0 if it is 0).

    Parameters
    ----------
    x : float32 array of shape (N, C, ...)
        Input.
    mean, variance : float32 array of shape (C,)
        Statistics of each channel; ``variance + eps`` is positive.
    eps : float
        Keeps the divisor away from 0; positive.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape, or a value is outside its range.
    """
    check_channels("x", x)
    check_per_channel("mean", mean, x.shape[1])
    check_per_channel("variance", variance, x.shape[1])
    check_positive("eps", eps)
    if not (variance + np.float32(eps) > 0).all():
        raise ValueError(f"variance must be above {-eps!r}, not {float(variance.min())!r}")
    shape = (-1, *[1] * (x.ndim - 2))
    deviation = np.sqrt(variance + np.float32(eps))
    y: FloatArray = (x - mean.reshape(shape)) / deviation.reshape(shape)
    return y


def scale(
    x: FloatArray, factors: FloatArray, offsets: FloatArray | None = None, *, axis: int = 1
) -> FloatArray:
    """Multiply by factors, and add offsets, that are the same along the other axes.

    It is Caffe's Scale, whether the factors are its weights or its second input; the offsets are
    those of its ``bias_term``.

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    factors : float32 array
        Its axes are those of x from `axis` on, as many as it has (Caffe's ``num_axes``): of shape
        (C,) with the default axis; a scalar, of shape (), fits every x.
    offsets : float32 array of the shape of factors, optional
        Addends.
    axis : int
        First axis of the factors in x; a negative one counts from the end.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If factors or offsets do not fit x, or x has no such axis.
    """
    check_type("x", x, np.float32)
    y = x * _aligned("factors", factors, x, axis)
    return y if offsets is None else y + _aligned("offsets", offsets, x, axis)


def bias(x: FloatArray, offsets: FloatArray, *, axis: int = 1) -> FloatArray:
    """Add offsets that are the same along the other axes (Caffe's Bias).

    Parameters
    ----------
    x, offsets, axis
        As for `scale`.

    Returns
    -------
    float32 array of the shape of x

    Raises
    ------
    TypeError, ValueError
        As `scale`.
    """
    check_type("x", x, np.float32)
    return x + _aligned("offsets", offsets, x, axis)


def _aligned(name: str, values: FloatArray, x: FloatArray, axis: int) -> FloatArray:
    """Return values with the axes that make them broadcast along x from `axis` on."""
    check_type(name, values, np.float32)
    axis = check_axis("axis", axis, x.ndim) if values.ndim else x.ndim
    expected = x.shape[axis : axis + values.ndim]
    if values.shape != expected:
        raise ValueError(
            f"{name} must have the shape {expected} of x from axis {axis} on, not {values.shape}"
        )
    return values.reshape(values.shape + (1,) * (x.ndim - axis - values.ndim))

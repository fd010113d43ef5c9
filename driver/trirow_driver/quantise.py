"""From real numbers to int8 and back: activations, weights and biases."""

import math
import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "Quantisation",
    "dequantise",
    "from_range",
    "quantise",
    "quantise_bias",
    "quantise_weights",
]

_Int8 = npt.NDArray[np.int8]
_Int32 = npt.NDArray[np.int32]
_Float32 = npt.NDArray[np.float32]

_SMALLEST = np.finfo(np.float32).tiny
_LARGEST = float(np.finfo(np.float32).max)
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Quantisation:
    """How the int8 values of a tensor stand for real ones: real = scale * (value - zero_point).

    Parameters
    ----------
    scale : float
        Step between neighbouring values; finite and above 0, also once rounded to float32, which is
        what the arithmetic uses.
    zero_point : int
        The value that stands for 0, -128 .. 127.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    scale: float
    zero_point: int

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            single = np.float32(self.scale)
        if not (np.isfinite(single) and single > 0):
            raise ValueError(f"scale must be finite and above 0 as float32, not {self.scale!r}")
        try:
            zero_point = operator.index(self.zero_point)
        except TypeError:
            raise ValueError(f"zero point must be an integer, not {self.zero_point!r}") from None
        if not -128 <= zero_point <= 127:
            raise ValueError(f"zero point must be in -128 .. 127, not {zero_point}")
        object.__setattr__(self, "scale", float(self.scale))
        object.__setattr__(self, "zero_point", zero_point)


def from_range(low: float, high: float) -> Quantisation:
    """Return the asymmetric quantisation that covers a range of real values.

    The range is first extended to contain 0, which is then exactly a value, so that zero padding
    and ReLU cost no accuracy. The ends are met to within half a step.

    Parameters
    ----------
    low, high : float
        Smallest and largest real value, low <= high. If both are 0 the scale is 1.

    Raises
    ------
    ValueError
        If an end is not finite, the ends are reversed, or the step exceeds float32.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"range must be finite, not {low} .. {high}")
    if low > high:
        raise ValueError(f"range must not be reversed: {low} .. {high}")
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if low == high:
        return Quantisation(1.0, 0)
    step = high / 255 - low / 255  # the difference first could overflow
    if step > _LARGEST:
        raise ValueError(f"range {low} .. {high} is too wide: its step exceeds float32")
    scale = max(float(np.float32(step)), float(_SMALLEST))
    return Quantisation(scale, min(max(round(-128 - low / scale), -128), 127))


def quantise(x: npt.ArrayLike, q: Quantisation) -> _Int8:
    """Return the int8 values nearest to real ones.

    Computed as ONNX's QuantizeLinear defines it: the float32 quotient x / scale is rounded, halves
    to even, then the zero point is added, then the sum saturates to -128 .. 127.

    Parameters
    ----------
    x : float array of any shape
        Real values; infinities saturate.
    q : Quantisation
        The quantisation of the result.

    Returns
    -------
    int8 array of the shape of x
        Quantised values.

    Raises
    ------
    ValueError
        If a value is not a number.
    """
    with np.errstate(over="ignore"):
        steps = np.rint(np.asarray(x).astype(np.float32) / np.float32(q.scale))
    if np.isnan(steps).any():
        raise ValueError("values to quantise must not contain NaN")
    # Beyond +-256 every sum saturates; below, float32 adds exactly.
    shifted = np.clip(steps, -256, 256) + np.float32(q.zero_point)
    values: _Int8 = np.clip(shifted, -128, 127).astype(np.int8)
    return values


def dequantise(values: _Int8, q: Quantisation) -> _Float32:
    """Return the real values that int8 ones stand for.

    Parameters
    ----------
    values : int8 array of any shape
        Quantised values.
    q : Quantisation
        Their quantisation.

    Returns
    -------
    float32 array of the shape of values
        The product scale * (value - zero_point), in float32.
    """
    steps = values.astype(np.float32) - np.float32(q.zero_point)
    real: _Float32 = steps * np.float32(q.scale)
    return real


def quantise_weights(
    w: npt.ArrayLike, *, least_scales: npt.ArrayLike | None = None
) -> tuple[_Int8, _Float32]:
    """Quantise the weights of a layer, symmetrically and with one scale per output channel.

    Parameters
    ----------
    w : float array of shape (K, R, S, C)
        Real weights.
    least_scales : float array of shape (K,), optional
        Smallest scale allowed for each output channel. By default the largest weight of
        each channel becomes 127 or -127.

    Returns
    -------
    values : int8 array of shape (K, R, S, C)
        Weights, -127 .. 127.
    scales : float32 array of shape (K,)
        Above 0: w is about scales[k] * values[k]. A channel of zeros takes the
        largest scale of the other channels, or 1 if there is none.

    Raises
    ------
    ValueError
        If there are not four axes of at least 1, a weight or a smallest scale is not finite as
        float32, or there is not one smallest scale for each output channel.
    """
    with np.errstate(over="ignore"):
        weights = np.asarray(w).astype(np.float32)
    if weights.ndim != 4 or weights.size == 0:
        raise ValueError(
            f"weights must have shape (K, R, S, C) without an empty axis, not {weights.shape}"
        )
    flat = weights.reshape(weights.shape[0], -1)
    bad = ~np.isfinite(flat).all(axis=1)
    if bad.any():
        raise ValueError(f"weights of output channel {int(bad.argmax())} must be finite")
    largest = np.abs(flat).max(axis=1, initial=0.0)
    scales = np.maximum(largest / np.float32(127), _SMALLEST)
    zero = largest == 0
    scales[zero] = 1.0 if zero.all() else scales[~zero].max()
    if least_scales is not None:
        with np.errstate(over="ignore"):
            least = np.asarray(least_scales).astype(np.float32)
        if least.shape != scales.shape or not np.isfinite(least).all():
            raise ValueError(f"least scales must be {len(scales)} finite numbers, not {least}")
        scales = np.maximum(scales, least)
    values = np.clip(np.rint(weights / scales[:, None, None, None]), -127, 127)
    return values.astype(np.int8), scales


def quantise_bias(bias: npt.ArrayLike, scale_in: float, scales_w: npt.ArrayLike) -> _Int32:
    """Quantise the bias of a layer to the units of its accumulators.

    Parameters
    ----------
    bias : float array of shape (K,)
        Real values.
    scale_in : float
        Scale of the layer's input.
    scales_w : float array of shape (K,)
        Scale of the weights of each output channel.

    Returns
    -------
    int32 array of shape (K,)
        The value of bias / (scale_in * scales_w), halves rounded to even.

    Raises
    ------
    ValueError
        If the shapes differ, or a value is not finite or beyond int32.
    """
    values = np.asarray(bias).astype(np.float64)
    scales = np.asarray(scales_w).astype(np.float64)
    if values.ndim != 1 or values.shape != scales.shape:
        raise ValueError(
            f"bias and scales of the weights must both have shape (K,), "
            f"not {values.shape} and {scales.shape}"
        )
    units = float(scale_in) * scales
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        steps = np.rint(values / units)
    bad = ~((steps >= _INT32.min) & (steps <= _INT32.max))
    if bad.any():
        k = int(bad.argmax())
        raise ValueError(
            f"bias of output channel {k} does not fit int32: {values[k]} in units of {units[k]}"
        )
    return steps.astype(np.int32)

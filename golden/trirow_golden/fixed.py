"""Requantisation with integers in two rounding steps, as TFLite's reference kernels do it.

A multiplier is ``mantissa * 2**-31 * 2**left * 2**-right`` with a mantissa below 2**31 and one of
the shifts 0. A sum is multiplied and rounded to an integer, half up (gemmlowp's
``SaturatingRoundingDoublingHighMul``), then divided by ``2**right`` and rounded a second time, half
away from zero (``RoundingDivideByPOT``). This is mode "fixed" of a layer; it differs from mode
"float32" by 1 in about 2 of 1,000 outputs.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trirow_golden.checks import check_output, check_scale, check_type

MAX_LEFT = 9  # from 2**8 on every sum but 0 saturates
MAX_RIGHT = 31
_MANTISSA_BITS = 31


def conv_multiplier_fixed(
    scale_in: float, scale_weights: NDArray[np.float32], scale_out: float
) -> NDArray[np.float64]:
    """Return the multipliers that requantise a convolution in mode "fixed".

    They are ``scale_in * scale_weights / scale_out`` of the float32 scales, evaluated from left to
    right in float64, as TFLite's ``PopulateConvolutionQuantizationParams`` does.

    Parameters
    ----------
    scale_in, scale_out : float
        Scales of the input and the output, rounded to float32; positive and finite.
    scale_weights : float32 array of shape (K,)
        Scales of the kernels, at least 0 and finite.

    Returns
    -------
    float64 array of shape (K,)
        Multipliers.

    Raises
    ------
    TypeError
        If scale_weights is not float32.
    ValueError
        If a scale is outside its range.
    """
    check_type("scale_weights", scale_weights, np.float32)
    wide = scale_weights.astype(np.float64)
    _check_multiplier("scale_weights", wide)
    in_, out = (
        np.float64(check_scale(name, scale))
        for name, scale in (("scale_in", scale_in), ("scale_out", scale_out))
    )
    multiplier: NDArray[np.float64] = in_ * wide / out
    return multiplier


def encode_fixed(
    multiplier: ArrayLike,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
    """Split multipliers into mantissas and shifts, as TFLite's ``QuantizeMultiplier`` does.

    The fraction from 1/2 to 1 of ``frexp`` is rounded to 31 bits, half away from zero. Multipliers
    below 2**-32 become 0. Left shifts above 9 become 9: with 9 already, every sum but 0 saturates.

    Parameters
    ----------
    multiplier : float64 array of any shape, or a float
        Ratios of scales, at least 0 and finite.

    Returns
    -------
    mantissa : uint32 array
        From 2**30 to 2**31 - 1, or 0 (with shifts of 0).
    left : uint32 array
        From 0 to 9.
    right : uint32 array
        From 0 to 31; 0 where left is not 0.

    Raises
    ------
    TypeError
        If multiplier is not float64.
    ValueError
        If a multiplier is negative, infinite or not a number; the text names its channel.
    """
    values = np.asarray(multiplier)
    check_type("multiplier", values, np.float64)
    _check_multiplier("multiplier", values)
    fraction, power = np.frexp(values)
    # fraction * 2**31 is exact and has 22 bits behind the point, which leaves room to add 1/2.
    mantissa = np.floor(np.ldexp(fraction, _MANTISSA_BITS) + 0.5).astype(np.int64)
    carry = mantissa == 1 << _MANTISSA_BITS
    mantissa = np.where(carry, mantissa >> 1, mantissa)
    shift = power.astype(np.int64) + carry
    vanishes = (shift < -MAX_RIGHT) | (mantissa == 0)
    shift = np.where(vanishes, 0, shift)
    left = np.clip(shift, 0, MAX_LEFT).astype(np.uint32)
    right = np.maximum(-shift, 0).astype(np.uint32)
    return np.where(vanishes, 0, mantissa).astype(np.uint32), left, right


def requantise_fixed(
    acc: NDArray[np.int32],
    mantissa: ArrayLike,
    left: ArrayLike,
    right: ArrayLike,
    zero_point: int,
    low: int = -128,
    high: int = 127,
) -> NDArray[np.int8]:
    """Scale accumulators to int8 with two roundings.

    ::

        x = (acc * mantissa + 2**(30 - left)) >> (31 - left)        half up
        y = x / 2**right, rounded half away from zero
        clip(y + zero_point, low, high)

    Nothing overflows here. TFLite shifts left in int32 first, so the two agree as long as
    ``acc * 2**left`` is an int32.

    Parameters
    ----------
    acc : int32 array of shape (..., K)
        Accumulators, of any value.
    mantissa, left, right : integer arrays of shape (K,) or others that broadcast against acc
        As `encode_fixed` returns them: below 2**31, up to 9, and up to 31. Mantissas below 2**30
        are allowed, and so are shifts in both directions.
    zero_point : int
        Value of the output that stands for 0, from -128 to 127.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.

    Returns
    -------
    int8 array of the shape of acc
        Activations.

    Raises
    ------
    TypeError
        If acc is not int32, or another array not of integers.
    ValueError
        If a value is outside its range.
    """
    check_type("acc", acc, np.int32)
    wide_mantissa = _integers("mantissa", mantissa, (1 << _MANTISSA_BITS) - 1)
    wide_left = _integers("left", left, MAX_LEFT)
    wide_right = _integers("right", right, MAX_RIGHT)
    check_output(zero_point, low, high)
    y = scale_twice(acc.astype(np.int64), wide_mantissa, wide_left, wide_right)
    clipped: NDArray[np.int64] = np.clip(y + zero_point, low, high)
    return clipped.astype(np.int8)


def scale_twice(
    values: NDArray[np.int64],
    mantissa: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Scale integers of 32 bits with the two roundings of `requantise_fixed`, unchecked.

    int64 holds all of it: the product is at most 2**31 * (2**31 - 1) in magnitude.
    """
    shift = _MANTISSA_BITS - left
    x = (values * mantissa + (1 << (shift - 1))) >> shift
    mask = (1 << right) - 1
    y: NDArray[np.int64] = (x >> right) + ((x & mask) > (mask >> 1) + (x < 0))
    return y


def _integers(name: str, values: ArrayLike, most: int) -> NDArray[np.int64]:
    """Return integers as int64; refuse other types and values outside 0 to `most`."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} must be of integers, not {array.dtype}")
    wrong = (array < 0) | (array > most)
    if wrong.any():
        raise ValueError(f"{name} must be from 0 to {most}, not {int(array[wrong].flat[0])}")
    return array.astype(np.int64)


def _check_multiplier(name: str, values: NDArray[np.float64]) -> None:
    """Refuse values that are negative, infinite or not a number."""
    wrong = ~((values >= 0) & (values < np.inf))
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        channel = where[-1] if where else 0
        raise ValueError(
            f"{name} of channel {channel} must be at least 0 and finite, not {values[where]}"
        )

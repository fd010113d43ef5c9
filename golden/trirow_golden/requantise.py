"""Requantisation: from int32 accumulators to int8 activations by one multiplier per channel.

`requantise` is the contract of mode "float32", as the frameworks compute it. `requantise_integer`
gives the same result, bit for bit, with integers only and is the algorithm of the gateware; its
multipliers come from `encode_multiplier`. Mode "fixed" is in `trirow_golden.fixed`.
"""

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_output, check_scale, check_type

MANTISSA_BITS = 24
MAX_EXPONENT = 56  # |acc| * M is below 2**55, so that (|acc| * M) * 2**-56 is below 1/2
_MAX_MAGNITUDE = 255  # of a result before the zero point: from here on every sum saturates


def conv_multiplier(
    scale_in: float, scale_weights: NDArray[np.float32], scale_out: float
) -> NDArray[np.float32]:
    """Return the multipliers that requantise a convolution.

    They are ``scale_in * scale_weights / scale_out``, evaluated from left to right in float32.
    The order matters to the last bit; this is the one of ONNX Runtime's QLinearConv
    (``core/providers/cpu/quantization/qlinearconv.cc``, ``ComputeOutputScale``).

    Parameters
    ----------
    scale_in, scale_out : float
        Scales of the input and the output, rounded to float32; positive and finite.
    scale_weights : float32 array of shape (K,)
        Scales of the kernels, at least 0 and finite.

    Returns
    -------
    float32 array of shape (K,)
        Multipliers.

    Raises
    ------
    TypeError
        If scale_weights is not float32.
    ValueError
        If a scale is outside its range, or a multiplier overflows float32.
    """
    check_type("scale_weights", scale_weights, np.float32)
    _check_channels("scale_weights", scale_weights)
    rounded_in, rounded_out = check_scale("scale_in", scale_in), check_scale("scale_out", scale_out)
    with np.errstate(over="ignore", under="ignore"):
        multiplier: NDArray[np.float32] = rounded_in * scale_weights / rounded_out
    _check_channels("multiplier", multiplier)
    return multiplier


def requantise(
    acc: NDArray[np.int32],
    multiplier: NDArray[np.float32],
    zero_point: int,
    low: int = -128,
    high: int = 127,
    negative_multiplier: NDArray[np.float32] | None = None,
) -> NDArray[np.int8]:
    """Scale accumulators to int8 in float32, rounding half to even.

    ``clip(rint(float32(acc) * float32(multiplier)) + zero_point, low, high)``, which is what ONNX
    Runtime (MLAS, ``MlasRequantizeOutput``), XNNPACK and FBGEMM compute. The conversion of acc and
    the product each round to 24 significant bits before ``rint`` does; a product that overflows
    float32 saturates.

    Parameters
    ----------
    acc : int32 array of shape (..., K)
        Accumulators, of any value.
    multiplier : float32 array of shape (K,) or another that broadcasts against acc
        Ratio of the scales, at least 0 and finite.
    zero_point : int
        Value of the output that stands for 0, from -128 to 127.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127. ReLU has ``low = zero_point``.
    negative_multiplier : float32 array of the shape of multiplier, optional
        Takes the place of multiplier where acc is below 0, which is PReLU: the multiplier times the
        slope. Finite and of any sign.

    Returns
    -------
    int8 array of the shape of acc
        Activations.

    Raises
    ------
    TypeError
        If acc is not int32, or multiplier not float32.
    ValueError
        If a multiplier (the text names its channel), the zero point or a bound is outside its
        range.
    """
    check_type("acc", acc, np.int32)
    check_type("multiplier", multiplier, np.float32)
    _check_channels("multiplier", multiplier)
    check_output(zero_point, low, high)
    factor: NDArray[np.float32] = multiplier
    if negative_multiplier is not None:
        check_type("negative_multiplier", negative_multiplier, np.float32)
        if negative_multiplier.shape != multiplier.shape:
            raise ValueError(
                f"negative_multiplier must have the shape of multiplier, {multiplier.shape}, not "
                f"{negative_multiplier.shape}"
            )
        _check_channels("negative_multiplier", negative_multiplier, signed=True)
        factor = np.where(acc < 0, negative_multiplier, multiplier)
    with np.errstate(over="ignore", under="ignore"):
        scaled = acc.astype(np.float32) * factor
    # A float beyond 2**24 may round when the zero point is added, but saturates all the same.
    clipped: NDArray[np.float32] = np.clip(np.rint(scaled) + np.float32(zero_point), low, high)
    return clipped.astype(np.int8)


def encode_multiplier(
    multiplier: NDArray[np.float32],
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Split multipliers into the mantissas and exponents that the gateware takes.

    ``multiplier = mantissa * 2**-exponent``, except that

    - exponents above 56 become 56: with 56 already, every result is 0 before the zero point;
    - exponents below 0 become 0: with 0 already, every accumulator but 0 saturates.

    Parameters
    ----------
    multiplier : float32 array of any shape
        Ratios of scales, at least 0 and finite; denormal values are allowed.

    Returns
    -------
    mantissa : uint32 array
        From 2**23 to 2**24 - 1, or 0 (with exponent 0) where the multiplier is 0.
    exponent : uint8 array
        From 0 to 56.

    Raises
    ------
    TypeError
        If multiplier is not float32.
    ValueError
        If a multiplier is negative, infinite or not a number; the text names its channel.
    """
    check_type("multiplier", multiplier, np.float32)
    _check_channels("multiplier", multiplier)
    fraction, power = np.frexp(multiplier)  # fraction in [1/2, 1), denormal values too
    mantissa = np.ldexp(fraction, MANTISSA_BITS).astype(np.uint32)
    exponent = np.clip(MANTISSA_BITS - power.astype(np.int64), 0, MAX_EXPONENT)
    return mantissa, np.where(mantissa == 0, 0, exponent).astype(np.uint8)


def encode_scale(multiplier: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Encode multipliers of either sign in the 32 bits that a chunk of weights has for them.

    They are ``mantissa | exponent << 24 | negative << 31`` with mantissa and exponent as
    `encode_multiplier` gives them for the magnitude; 0 has no sign.

    Parameters
    ----------
    multiplier : float32 array of any shape
        Ratios of scales, finite.

    Returns
    -------
    uint32 array of the shape of multiplier
        Scales.

    Raises
    ------
    TypeError
        If multiplier is not float32.
    ValueError
        If a multiplier is infinite or not a number; the text names its channel.
    """
    check_type("multiplier", multiplier, np.float32)
    _check_channels("multiplier", multiplier, signed=True)
    mantissa, exponent = encode_multiplier(np.abs(multiplier))
    negative = multiplier < 0
    bits = exponent.astype(np.int64) << 24 | negative.astype(np.int64) << 31
    return (mantissa | bits).astype(np.uint32)


def requantise_integer(
    acc: NDArray[np.int32],
    mantissa: NDArray[np.uint32],
    exponent: NDArray[np.uint8],
    zero_point: int,
    low: int = -128,
    high: int = 127,
    negative: NDArray[np.bool_] | bool = False,
) -> NDArray[np.int8]:
    """Compute `requantise` with integers only, in the steps of the gateware.

    1. Round ``|acc|`` (0 to 2**31) to 24 significant bits, half to even, as float32(acc) does.
    2. Multiply by the mantissa: p, exact, below 2**55. Its integer part is ``n = p >> exponent``,
       its fraction f the ``exponent`` bits below.
    3. Saturate n to 255: whatever lies above leaves int8 for every zero point.
    4. Round n + f to an integer. In float32 the product itself is rounded first, to multiples of
       ``2**(L - 23)`` with ``L = floor(log2(n))``; that moves it onto ``n + 1/2`` if it is no
       farther away than ``2**(L - 24)``. So within this distance it is a tie and goes to the even
       one of n and n + 1; otherwise f decides. For n = 0 take L = -1: the values below 1/2, where
       float32 is finer, become 0 either way.
    5. Put the sign of acc, or with a negative multiplier the other one, back, add the zero point,
       clip.

    Parameters
    ----------
    acc : int32 array of shape (..., K)
        Accumulators, of any value.
    mantissa, exponent : uint32 and uint8 array of shape (K,), or others that broadcast against acc
        As `encode_multiplier` returns them.
    zero_point, low, high : int
        As for `requantise`.
    negative : bool array that broadcasts against acc
        Whether the multiplier is negative, as a `negative_multiplier` of `requantise` can be.

    Returns
    -------
    int8 array of the shape of acc
        Activations.

    Raises
    ------
    TypeError, ValueError
        If an array does not have its type, or a value is outside its range.
    """
    check_type("acc", acc, np.int32)
    check_type("mantissa", mantissa, np.uint32)
    check_type("exponent", exponent, np.uint8)
    if np.any(mantissa >= 1 << MANTISSA_BITS):
        raise ValueError(f"mantissa must be below 2**24, not {int(mantissa.max())}")
    if np.any(exponent > MAX_EXPONENT):
        raise ValueError(f"exponent must be from 0 to 56, not {int(exponent.max())}")
    check_output(zero_point, low, high)
    # int64 holds all of it: p needs 55 bits, and 2 * f and its limit no more than 57.
    e = exponent.astype(np.int64)
    p = _round_to_24_bits(np.abs(acc.astype(np.int64))) * mantissa.astype(np.int64)
    n = np.minimum(p >> e, _MAX_MAGNITUDE)
    above_half = 2 * (p & ((1 << e) - 1)) - (1 << e)  # f - 1/2, in units of 2**-(e + 1)
    limit_log2 = _bit_length(n) - MANTISSA_BITS + e  # L - 24, in the same units
    limit = np.where(limit_log2 >= 0, 1 << np.maximum(limit_log2, 0), 0)
    tie = np.abs(above_half) <= limit
    magnitude = n + np.where(tie, n & 1, above_half > 0)
    signed = np.where((acc < 0) ^ negative, -magnitude, magnitude)
    clipped: NDArray[np.int64] = np.clip(signed + zero_point, low, high)
    return clipped.astype(np.int8)


def _bit_length(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``floor(log2(value)) + 1``, and 0 for 0; value is at least 0 and below 2**53."""
    exponent: NDArray[np.int32] = np.frexp(value.astype(np.float64))[1]
    return exponent.astype(np.int64)


def _round_to_24_bits(value: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round integers from 0 to 2**31 to 24 significant bits, half to even."""
    shift = np.maximum(_bit_length(value) - MANTISSA_BITS, 0)
    kept = value >> shift
    half = (1 << shift) >> 1
    rest = value - (kept << shift)
    up = (rest > half) | ((rest == half) & (half > 0) & (kept & 1 == 1))
    rounded: NDArray[np.int64] = (kept + up) << shift
    return rounded


def _check_channels(name: str, values: NDArray[np.float32], signed: bool = False) -> None:
    """Refuse values that are infinite, not a number or, unless signed, negative."""
    wrong = ~np.isfinite(values) if signed else ~((values >= 0) & (values < np.inf))
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        channel = where[-1] if where else 0
        least = "" if signed else "at least 0 and "
        raise ValueError(f"{name} of channel {channel} must be {least}finite, not {values[where]}")

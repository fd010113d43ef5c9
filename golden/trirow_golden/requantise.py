"""Requantisation: from int32 accumulators to int8 activations by one multiplier per channel.

`requantise` is the contract, in float32 as the frameworks compute it. `requantise_integer` gives
the same result, bit for bit, with integers only and is the algorithm of the gateware; its
multipliers come from `encode_multiplier`.
"""

import numpy as np
from numpy.typing import NDArray

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
    _check_type("scale_weights", scale_weights, np.float32)
    _check_channels("scale_weights", scale_weights)
    with np.errstate(over="ignore", under="ignore"):
        rounded_in, rounded_out = np.float32(scale_in), np.float32(scale_out)
        for name, scale in (("scale_in", rounded_in), ("scale_out", rounded_out)):
            if not 0 < scale < np.inf:
                raise ValueError(f"{name} must be positive and finite in float32, not {scale}")
        multiplier: NDArray[np.float32] = rounded_in * scale_weights / rounded_out
    _check_channels("multiplier", multiplier)
    return multiplier


def requantise(
    acc: NDArray[np.int32],
    multiplier: NDArray[np.float32],
    zero_point: int,
    low: int = -128,
    high: int = 127,
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
    _check_type("acc", acc, np.int32)
    _check_type("multiplier", multiplier, np.float32)
    _check_channels("multiplier", multiplier)
    _check_output(zero_point, low, high)
    with np.errstate(over="ignore", under="ignore"):
        scaled = acc.astype(np.float32) * multiplier
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
    _check_type("multiplier", multiplier, np.float32)
    _check_channels("multiplier", multiplier)
    fraction, power = np.frexp(multiplier)  # fraction in [1/2, 1), denormal values too
    mantissa = np.ldexp(fraction, MANTISSA_BITS).astype(np.uint32)
    exponent = np.clip(MANTISSA_BITS - power.astype(np.int64), 0, MAX_EXPONENT)
    return mantissa, np.where(mantissa == 0, 0, exponent).astype(np.uint8)


def requantise_integer(
    acc: NDArray[np.int32],
    mantissa: NDArray[np.uint32],
    exponent: NDArray[np.uint8],
    zero_point: int,
    low: int = -128,
    high: int = 127,
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
    5. Put the sign back, add the zero point, clip.

    Parameters
    ----------
    acc : int32 array of shape (..., K)
        Accumulators, of any value.
    mantissa, exponent : uint32 and uint8 array of shape (K,), or others that broadcast against acc
        As `encode_multiplier` returns them.
    zero_point, low, high : int
        As for `requantise`.

    Returns
    -------
    int8 array of the shape of acc
        Activations.

    Raises
    ------
    TypeError, ValueError
        If an array does not have its type, or a value is outside its range.
    """
    _check_type("acc", acc, np.int32)
    _check_type("mantissa", mantissa, np.uint32)
    _check_type("exponent", exponent, np.uint8)
    if np.any(mantissa >= 1 << MANTISSA_BITS):
        raise ValueError(f"mantissa must be below 2**24, not {int(mantissa.max())}")
    if np.any(exponent > MAX_EXPONENT):
        raise ValueError(f"exponent must be from 0 to 56, not {int(exponent.max())}")
    _check_output(zero_point, low, high)
    # int64 holds all of it: p needs 55 bits, and 2 * f and its limit no more than 57.
    e = exponent.astype(np.int64)
    p = _round_to_24_bits(np.abs(acc.astype(np.int64))) * mantissa.astype(np.int64)
    n = np.minimum(p >> e, _MAX_MAGNITUDE)
    above_half = 2 * (p & ((1 << e) - 1)) - (1 << e)  # f - 1/2, in units of 2**-(e + 1)
    limit_log2 = _bit_length(n) - MANTISSA_BITS + e  # L - 24, in the same units
    limit = np.where(limit_log2 >= 0, 1 << np.maximum(limit_log2, 0), 0)
    tie = np.abs(above_half) <= limit
    magnitude = n + np.where(tie, n & 1, above_half > 0)
    signed = np.where(acc < 0, -magnitude, magnitude)
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


def _check_type(name: str, array: NDArray[np.generic], dtype: type[np.generic]) -> None:
    """Refuse an array of another type."""
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")


def _check_channels(name: str, values: NDArray[np.float32]) -> None:
    """Refuse values that are negative, infinite or not a number."""
    wrong = ~((values >= 0) & (values < np.inf))
    if wrong.any():
        where = tuple(np.argwhere(wrong)[0])
        channel = where[-1] if where else 0
        raise ValueError(
            f"{name} of channel {channel} must be at least 0 and finite, not {values[where]}"
        )


def _check_output(zero_point: int, low: int, high: int) -> None:
    """Refuse zero points and clip bounds outside int8."""
    if not -128 <= zero_point <= 127:
        raise ValueError(f"zero_point must be from -128 to 127, not {zero_point!r}")
    if not -128 <= low <= high <= 127:
        raise ValueError(
            f"Clip bounds must satisfy -128 <= low <= high <= 127, not low={low!r}, high={high!r}"
        )

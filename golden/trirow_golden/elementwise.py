"""Operations of two int8 feature maps: sum, maximum and product.

Sum and maximum go through a table of 256 int32 for each operand, indexed by the byte of the value,
so that one unit covers what every framework does before it adds: `Combination` holds the tables and
the scale of the result, `combine` applies it.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import (
    INT32,
    check_int8_value,
    check_scale,
    check_table,
    check_type,
)
from trirow_golden.fixed import encode_fixed, requantise_fixed, scale_twice
from trirow_golden.lookup import BYTE_VALUES
from trirow_golden.requantise import requantise

_TFLITE_LEFT_SHIFT = 20
_XNNPACK_MULTIPLIER_BITS = 20  # of the larger one, behind its leading bit
_FAR = 1 << 10  # of a value before the zero point: saturates for every zero point
_IDENTITY = (1 << 30, 1, 0)  # mantissa, left and right of a scale of 1


@dataclass(frozen=True, eq=False)
class Combination:
    """How two feature maps are brought together.

    Parameters
    ----------
    first, second : int32 array of shape (256,)
        What each byte of the first and of the second operand stands for; the entry of value v is
        ``v mod 256``. Every sum of two entries fits into int32.
    mantissa, left, right : int
        Scale from the sum, or the maximum, to the output, as for `requantise_fixed`.

    Raises
    ------
    TypeError, ValueError
        If a table does not have its type or shape, or a sum leaves int32.
    """

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    mantissa: int
    left: int
    right: int

    def __post_init__(self) -> None:
        check_table("first", self.first, np.int32)
        check_table("second", self.second, np.int32)
        ends = [int(self.first.min()) + int(self.second.min())]
        ends.append(int(self.first.max()) + int(self.second.max()))
        if ends[0] < INT32.min or ends[1] > INT32.max:
            raise ValueError(
                f"first and second must have sums within int32, not {ends[0]} to {ends[1]}"
            )


def add_tflite(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_out: float
) -> Combination:
    """Return the sum as TFLite's reference kernel and TFLite Micro compute int8 ADD.

    Each operand is shifted left by 20 and scaled down to twice the larger scale, with two
    roundings; the sum is scaled to the output likewise.

    Parameters
    ----------
    scale_a, scale_b, scale_out : float
        Scales of the operands and the output, rounded to float32; positive and finite.
    zero_a, zero_b : int
        Zero points of the operands, from -128 to 127.

    Returns
    -------
    Combination
        Tables and scale; for `combine`.

    Raises
    ------
    ValueError
        If a scale or zero point is outside its range, or ``2 * max(scale_a, scale_b)`` is not below
        ``2**20 * scale_out``, which TFLite does not support either.
    """
    a, b, out = _check_pair(scale_a, zero_a, scale_b, zero_b, scale_out)
    twice_larger = 2.0 * max(a, b)
    output = twice_larger / (2.0**_TFLITE_LEFT_SHIFT * out)
    if output >= 1:
        raise ValueError(
            "scale_out must be above 2**-19 times the larger of scale_a and scale_b, not "
            f"{out} for {max(a, b)}"
        )
    first, second = (
        _scale_down(np.float64(scale / twice_larger), zero)
        for scale, zero in ((a, zero_a), (b, zero_b))
    )
    mantissa, left, right = encode_fixed(np.float64(output))
    return Combination(first, second, int(mantissa), int(left), int(right))


def add_xnnpack(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_out: float
) -> Combination:
    """Return the sum as XNNPACK (``qs8-vadd``), the default of LiteRT, computes int8 ADD.

    The ratios ``scale / scale_out``, in float32, become integers below 2**21 with the exponent of
    the larger one; the products are added and rounded once, half up.

    The parameters and the result are those of `add_tflite`.

    Raises
    ------
    ValueError
        If a scale or zero point is outside its range, or a ratio is not from 2**-10 to below 2**8,
        which XNNPACK leaves to other kernels.
    """
    a, b, out = _check_pair(scale_a, zero_a, scale_b, zero_b, scale_out)
    ratios = [float(np.float32(a) / np.float32(out)), float(np.float32(b) / np.float32(out))]
    for name, ratio in zip(("scale_a", "scale_b"), ratios, strict=True):
        if not 2.0**-10 <= ratio < 2.0**8:
            raise ValueError(
                f"{name} / scale_out must be from 2**-10 to below 2**8 for XNNPACK, not {ratio}"
            )
    exponent = int(np.frexp(max(ratios))[1]) - 1
    shift = _XNNPACK_MULTIPLIER_BITS - exponent  # from 13 to 30
    first, second = (
        (_distances(zero) * round(ratio * 2.0**shift)).astype(np.int32)
        for ratio, zero in zip(ratios, (zero_a, zero_b), strict=True)
    )
    # t * 2**(31 - shift) with 2**30 added, shifted right by 31, is t + 2**(shift - 1) shifted by
    # shift: XNNPACK's rounding, without a bias in the tables.
    return Combination(first, second, 1 << (31 - shift), 0, 0)


def max_tables(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_out: float
) -> Combination:
    """Return the maximum of operands that have different scales.

    Each operand is dequantised and rounded to the output's scale, half to even, in float32 as ONNX
    defines it. Rounding keeps the order, so this is what dequantising, taking the maximum and
    quantising gives.

    The parameters and errors are those of `add_tflite`, without the limit on scale_out.

    Returns
    -------
    Combination
        Tables and a scale of 1; for `combine` with ``maximum=True``.
    """
    _check_pair(scale_a, zero_a, scale_b, zero_b, scale_out)
    tables = []
    for scale, zero in ((scale_a, zero_a), (scale_b, zero_b)):
        with np.errstate(over="ignore", under="ignore"):
            real = _distances(zero).astype(np.float32) * np.float32(scale)
            rounded = np.rint(real / np.float32(scale_out))
        tables.append(np.clip(rounded, -_FAR, _FAR).astype(np.int32))
    return Combination(tables[0], tables[1], *_IDENTITY)


def combine(
    a: NDArray[np.int8],
    b: NDArray[np.int8],
    combination: Combination,
    zero_out: int,
    low: int = -128,
    high: int = 127,
    maximum: bool = False,
) -> NDArray[np.int8]:
    """Add two feature maps, or take the larger one of each two values.

    ``requantise_fixed(first[a] + second[b], ...)`` with the constants of the combination.

    Parameters
    ----------
    a, b : int8 array of the same shape
        Operands.
    combination : Combination
        As `add_tflite`, `add_xnnpack` or `max_tables` return it.
    zero_out : int
        Zero point of the output, from -128 to 127.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.
    maximum : bool
        Take the maximum of the table entries in place of their sum.

    Returns
    -------
    int8 array of the shape of a
        Activations.

    Raises
    ------
    TypeError
        If an operand is not int8.
    ValueError
        If the shapes differ, or the zero point or a bound is outside its range.
    """
    _check_same_shape(a, b)
    x, y = combination.first[a.astype(np.uint8)], combination.second[b.astype(np.uint8)]
    both = np.maximum(x, y) if maximum else x + y
    constants = (combination.mantissa, combination.left, combination.right)
    return requantise_fixed(both, *constants, zero_out, low, high)


def multiply(
    a: NDArray[np.int8],
    b: NDArray[np.int8],
    zero_a: int,
    zero_b: int,
    multiplier: float,
    zero_out: int,
    low: int = -128,
    high: int = 127,
    mode: Literal["float32", "fixed"] = "fixed",
) -> NDArray[np.int8]:
    """Multiply two feature maps: ``(a - zero_a) * (b - zero_b)``, requantised.

    Mode "fixed" is MUL of TFLite's reference kernel, whose multiplier is
    ``scale_a * scale_b / scale_out`` in float32, and of TFLite Micro, which takes it in float64.
    Mode "float32" is that of XNNPACK.

    Parameters
    ----------
    a, b : int8 array of the same shape
        Operands. For one that is broadcast, pass ``np.broadcast_to``'s result.
    zero_a, zero_b, zero_out : int
        Zero points, from -128 to 127.
    multiplier : float
        Ratio of the scales, at least 0 and finite; rounded to float32 in mode "float32".
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.
    mode : {"float32", "fixed"}
        `requantise` or `requantise_fixed`.

    Returns
    -------
    int8 array of the shape of a
        Activations.

    Raises
    ------
    TypeError
        If an operand is not int8.
    ValueError
        If the shapes differ, or another argument is outside its range.
    """
    _check_same_shape(a, b)
    check_int8_value("zero_a", zero_a)
    check_int8_value("zero_b", zero_b)
    product = (a.astype(np.int32) - zero_a) * (b.astype(np.int32) - zero_b)
    if mode == "fixed":
        constants = encode_fixed(np.float64(multiplier))
        return requantise_fixed(product, *constants, zero_out, low, high)
    if mode == "float32":
        with np.errstate(over="ignore", under="ignore"):
            factor = np.array(multiplier, np.float32)
        return requantise(product, factor, zero_out, low, high)
    raise ValueError(f"mode must be 'float32' or 'fixed', not {mode!r}")


def _check_pair(
    scale_a: float, zero_a: int, scale_b: float, zero_b: int, scale_out: float
) -> tuple[float, float, float]:
    """Return the scales in float32, as Python's floats; refuse what is outside its range."""
    a, b = float(check_scale("scale_a", scale_a)), float(check_scale("scale_b", scale_b))
    check_int8_value("zero_a", zero_a)
    check_int8_value("zero_b", zero_b)
    return a, b, float(check_scale("scale_out", scale_out))


def _check_same_shape(a: NDArray[np.int8], b: NDArray[np.int8]) -> None:
    """Refuse operands that are not int8 or differ in shape."""
    check_type("a", a, np.int8)
    check_type("b", b, np.int8)
    if a.shape != b.shape:
        raise ValueError(f"a and b must have the same shape, not {a.shape} and {b.shape}")


def _distances(zero_point: int) -> NDArray[np.int64]:
    """Return the distance from the zero point of each byte's value."""
    return BYTE_VALUES.astype(np.int64) - zero_point


def _scale_down(multiplier: np.float64, zero_point: int) -> NDArray[np.int32]:
    """Return the table of one operand of TFLite's ADD."""
    shifted = _distances(zero_point) << _TFLITE_LEFT_SHIFT
    constants = (constant.astype(np.int64) for constant in encode_fixed(multiplier))
    return scale_twice(shifted, *constants).astype(np.int32)

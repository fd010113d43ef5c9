"""Checks of arguments that several operations share; the errors name the argument."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

INT8 = np.iinfo(np.int8)
INT32 = np.iinfo(np.int32)


def check_type(name: str, array: NDArray[Any], dtype: type[np.generic]) -> None:
    """Refuse an array of another type."""
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")


def check_array(name: str, array: NDArray[Any], dtype: type[np.generic], axes: str) -> None:
    """Refuse an array of another type or another number of axes, which are given as ``(N, C)``."""
    expected = np.dtype(dtype)
    text = f"{name} must be {expected} of shape {axes}, not {array.dtype} of shape {array.shape}"
    if array.dtype != expected:
        raise TypeError(text)
    if array.ndim != axes.count(",") + (not axes.endswith(",)")):
        raise ValueError(text)


def check_features(name: str, array: NDArray[Any]) -> None:
    """Refuse what is no int8 feature map."""
    check_array(name, array, np.int8, "(N, H, W, C)")


def check_int8_value(name: str, value: int) -> None:
    """Refuse a value, such as a zero point, outside int8."""
    if not INT8.min <= value <= INT8.max:
        raise ValueError(f"{name} must be from -128 to 127, not {value!r}")


def check_output(zero_point: int, low: int, high: int) -> None:
    """Refuse zero points and clip bounds outside int8."""
    check_int8_value("zero_point", zero_point)
    if not INT8.min <= low <= high <= INT8.max:
        raise ValueError(
            f"Clip bounds must satisfy -128 <= low <= high <= 127, not low={low!r}, high={high!r}"
        )


def check_scale(name: str, scale: float) -> np.float32:
    """Return a scale in float32; refuse one that is not positive and finite there."""
    with np.errstate(over="ignore", under="ignore"):
        rounded: np.float32 = np.float32(scale)
    if not 0 < rounded < np.inf:
        raise ValueError(f"{name} must be positive and finite in float32, not {rounded}")
    return rounded


def check_table(name: str, table: NDArray[Any], dtype: type[np.generic]) -> None:
    """Refuse a table that does not have an entry for each byte."""
    check_array(name, table, dtype, "(256,)")
    if table.shape != (256,):
        raise ValueError(f"{name} must have 256 entries, not {table.shape[0]}")


def check_filters(
    weights: NDArray[Any], bias: NDArray[Any], zero_point: int, weight_zero_point: int
) -> None:
    """Refuse kernels, biases and zero points that no convolution can have."""
    check_array("weights", weights, np.int8, "(K, R, S, C)")
    check_array("bias", bias, np.int32, "(K,)")
    if 0 in weights.shape:
        raise ValueError(f"weights must not have an empty axis: shape {weights.shape}")
    if bias.shape != weights.shape[:1]:
        raise ValueError(
            f"bias must have one value for each of the {weights.shape[0]} output channels, "
            f"not {bias.shape[0]}"
        )
    check_int8_value("zero_point", zero_point)
    check_int8_value("weight_zero_point", weight_zero_point)


def check_operands(
    x: NDArray[Any],
    weights: NDArray[Any],
    bias: NDArray[Any],
    groups: int,
    zero_point: int,
    weight_zero_point: int,
) -> None:
    """Refuse arrays, groups and zero points that do not make up a convolution."""
    check_features("x", x)
    check_filters(weights, bias, zero_point, weight_zero_point)
    channels, filters = x.shape[3], weights.shape[0]
    if groups < 1:
        raise ValueError(f"groups must be at least 1, not {groups!r}")
    if groups == 1:
        if channels != weights.shape[3]:
            raise ValueError(
                f"x and weights must have the same number of channels, not {channels} and "
                f"{weights.shape[3]}"
            )
        return
    if channels % groups or filters % groups:
        raise ValueError(
            f"groups must divide the {channels} channels of x and the {filters} output channels, "
            f"which {groups} does not"
        )
    if channels // groups != weights.shape[3]:
        raise ValueError(
            f"weights must have {channels // groups} channels, the {channels} of x in {groups} "
            f"groups, not {weights.shape[3]}"
        )


def check_int32(acc: NDArray[np.int64] | NDArray[np.float64]) -> None:
    """Refuse accumulators of shape (..., K) that int32 cannot hold."""
    outside = (acc < INT32.min) | (acc > INT32.max)
    if outside.any():
        where = tuple(np.argwhere(outside)[0])
        raise OverflowError(
            f"Accumulator of output channel {where[-1]} leaves int32: it reaches {int(acc[where])}"
        )

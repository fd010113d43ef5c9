"""Tables of 256 bytes: any function of a single int8 activation."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import INT8, check_int8_value, check_scale, check_table, check_type

#: The int8 value of each byte: 0 to 127, then -128 to -1. Tables are in this order.
BYTE_VALUES = np.arange(256, dtype=np.uint8).view(np.int8)


def apply_table(x: NDArray[np.int8], table: NDArray[np.int8]) -> NDArray[np.int8]:
    """Look every value up in a table.

    Parameters
    ----------
    x : int8 array of any shape
        Activations.
    table : int8 array of shape (256,)
        The result for each byte: that of value v is entry ``v mod 256``, so that the entries 128 to
        255 belong to -128 to -1.

    Returns
    -------
    int8 array of the shape of x
        Entries of the table.

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If the table does not have 256 entries.
    """
    check_type("x", x, np.int8)
    check_table("table", table, np.int8)
    return table[x.astype(np.uint8)]


def table_of(
    function: Callable[[float], float],
    scale_in: float,
    zero_in: int,
    scale_out: float,
    zero_out: int,
) -> NDArray[np.int8]:
    """Return the table of a function of real values, such as sigmoid or hard-swish.

    ``clip(rint(function(scale_in * (v - zero_in)) / scale_out) + zero_out, -128, 127)`` for every
    int8 value v, in float64 with the scales rounded to float32; ``rint`` rounds half to even.

    Parameters
    ----------
    function : callable of float to float
        Function of the real value of an activation. It may return an infinity, which saturates.
    scale_in, scale_out : float
        Scales of the input and the output, rounded to float32; positive and finite.
    zero_in, zero_out : int
        Zero points of the input and the output, from -128 to 127.

    Returns
    -------
    int8 array of shape (256,)
        Table in the order that `apply_table` takes.

    Raises
    ------
    ValueError
        If a scale or a zero point is outside its range, or the function returns NaN.
    """
    real_in = float(check_scale("scale_in", scale_in))
    real_out = float(check_scale("scale_out", scale_out))
    check_int8_value("zero_in", zero_in)
    check_int8_value("zero_out", zero_out)
    arguments = [real_in * (int(value) - zero_in) for value in BYTE_VALUES]
    results = np.array([float(function(argument)) for argument in arguments])
    if np.isnan(results).any():
        first = arguments[int(np.isnan(results).argmax())]
        raise ValueError(f"function must return a number, not NaN as for {first}")
    with np.errstate(over="ignore"):
        rounded = np.rint(results / real_out) + zero_out
    clipped: NDArray[np.float64] = np.clip(rounded, INT8.min, INT8.max)
    return clipped.astype(np.int8)

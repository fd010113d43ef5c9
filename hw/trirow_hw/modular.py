"""Arithmetic on ring addresses, with one carry chain each."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Mux, Value

__all__ = ["add_carry", "wrap", "wrap_add"]


def wrap(value: Value, depth: int) -> Value:
    """Return ``value mod depth`` for a value below ``2 * depth``.

    Parameters
    ----------
    value : Value
        Unsigned, below ``2 * depth``.
    depth : int
        Places of the ring. A power of two costs nothing, others a subtraction.
    """
    if depth == 1:
        return Const(0, 1)
    bits = (depth - 1).bit_length()
    if depth & (depth - 1) == 0:
        return value[:bits] if len(value) > bits else value
    return Mux(value >= depth, value - depth, value)[:bits]


def wrap_add(a: Value, b: Value, depth: int, *, less: Value | None = None) -> Value:
    """Return ``(a + b) mod depth`` for two values below ``depth``.

    Parameters
    ----------
    a, b : Value
        Unsigned.
    depth : int
        Places of the ring.
    less : Value, optional
        ``b - depth``, signed, if it is known beforehand: then both sums are made at once.
    """
    if less is None or depth & (depth - 1) == 0:
        return wrap(a + b, depth)
    reduced = a + less
    return Mux(reduced < 0, a + b, reduced)[: (depth - 1).bit_length()]


def add_carry(a: Value, b: Value, carry: Value) -> Value:
    """Return ``a + b + carry`` for signed numbers and a bit, in one adder."""
    left = Cat(Const(1, 1), a).as_signed()
    return (left + Cat(carry, b).as_signed()) >> 1

"""Arithmetic on ring addresses."""

from __future__ import annotations

from amaranth.hdl import Const, Mux, Value

__all__ = ["wrap", "wrap_add"]


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


def wrap_add(a: Value, b: Value, depth: int) -> Value:
    """Return ``(a + b) mod depth`` for two values below ``depth``."""
    return wrap(a + b, depth)

"""Delay lines."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value

__all__ = ["delay"]


def delay(m: Module, value: Value, cycles: int, *, name: str, reset_less: bool = True) -> Value:
    """Return ``value`` as it was ``cycles`` cycles ago.

    Parameters
    ----------
    m : Module
        Gets the registers, in the domain ``sync``.
    value : Value or View
        What is delayed.
    cycles : int
        0 or more.
    name : str
        The registers are called ``name_1``, ``name_2`` and so on.
    reset_less : bool
        Must be False for anything that says whether data are valid.
    """
    for k in range(cycles):
        register = Signal.like(value, name=f"{name}_{k + 1}", reset_less=reset_less)
        m.d.sync += register.eq(value)
        value = register
    return value

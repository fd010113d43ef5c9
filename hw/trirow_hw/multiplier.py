"""Registered signed multipliers: generic, or DSP blocks of the device with their own registers."""

from __future__ import annotations

from amaranth.hdl import C, ClockSignal, Instance, Module, Signal, Value, signed
from amaranth.lib import data

from .delay import delay

__all__ = ["MAX_LATENCY", "is_ecp5", "latency", "multiply_pairs"]

#: Cycles from the factors to the products, at most; see `latency`.
MAX_LATENCY = 3
_ECP5_BITS = 18


def is_ecp5(platform) -> bool:
    """Tell whether the platform's device is a Lattice ECP5."""
    return str(getattr(platform, "device", "")).upper().startswith("LFE5U")


def latency(platform) -> int:
    """Return the cycles from the factors to the products on a platform.

    One with the attribute ``simulates`` has no registers in front: they would be most of what a
    simulator evaluates. The `DotProduct` makes up for the difference.
    """
    if is_ecp5(platform):
        return MAX_LATENCY
    return 1 if getattr(platform, "simulates", False) else 2


def multiply_pairs(m: Module, a: data.View, b: data.View, platform) -> list[Value]:
    """Return the products of two vectors, element by element, `latency` cycles later.

    On ECP5 each is one MULT18X18D with the registers before and behind it inside the block, where
    Yosys would leave them outside (Lattice FPGA-TN-02205, ECP5 sysDSP Usage Guide), and one more
    register on the long way from the block to the adders. Elsewhere a plain ``*`` between
    registers, which synthesis can move into a multiplier block.

    Parameters
    ----------
    m : Module
        Gets the logic, in the domain ``sync``.
    a, b : View of an ArrayLayout
        Vectors of the same length; signed elements, at most 18 bits on ECP5.
    platform
        What is built for, or None for simulation.
    """
    length = a.shape().length
    products = []
    for k in range(length):
        product = Signal(signed(len(a[k]) + len(b[k])), name=f"product{k}", reset_less=True)
        if is_ecp5(platform):
            m.d.sync += product.eq(_ecp5_product(m, a[k], b[k]))
        else:
            in_front = latency(platform) - 1
            factors = [
                delay(m, factor, in_front, name=f"{name}{k}")
                for name, factor in (("a", a[k]), ("b", b[k]))
            ]
            m.d.sync += product.eq(factors[0] * factors[1])
        products.append(product)
    return products


def _ecp5_product(m: Module, a: Value, b: Value) -> Value:
    """Instantiate a multiplier with registers at its inputs and outputs."""

    def extend(value):
        wide = Signal(signed(_ECP5_BITS))
        m.d.comb += wide.eq(value)
        return wide

    a_wide, b_wide, p = extend(a), extend(b), Signal(2 * _ECP5_BITS)
    ports = {}
    for k in range(_ECP5_BITS):
        ports[f"i_A{k}"], ports[f"i_B{k}"] = a_wide[k], b_wide[k]
    for k in range(2 * _ECP5_BITS):
        ports[f"o_P{k}"] = p[k]
    for k in range(4):
        ports[f"i_CLK{k}"] = ClockSignal() if k == 0 else C(0)
        ports[f"i_CE{k}"] = C(1)
        ports[f"i_RST{k}"] = C(0)
    for register in ("INPUTA", "INPUTB", "OUTPUT"):
        ports[f"p_REG_{register}_CLK"] = "CLK0"
        ports[f"p_REG_{register}_CE"] = "CE0"
        ports[f"p_REG_{register}_RST"] = "RST0"
    m.submodules += Instance(
        "MULT18X18D",
        i_SIGNEDA=C(1),
        i_SIGNEDB=C(1),
        i_SOURCEA=C(0),
        i_SOURCEB=C(0),
        **ports,
    )
    return p.as_signed()

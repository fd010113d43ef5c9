"""A registered signed multiplier: generic, or the DSP block of the device with its own registers."""

from __future__ import annotations

from amaranth.hdl import C, ClockSignal, Instance, Module, Signal, Value, signed

__all__ = ["LATENCY", "is_ecp5", "multiply"]

#: Cycles from the factors to the product: a register before and one behind the multiplier.
LATENCY = 2
_ECP5_BITS = 18


def is_ecp5(platform) -> bool:
    """Tell whether the platform's device is a Lattice ECP5."""
    return str(getattr(platform, "device", "")).upper().startswith("LFE5U")


def multiply(m: Module, a: Value, b: Value, platform) -> Value:
    """Return the product of two signed values, ``LATENCY`` cycles later.

    On ECP5 it is one MULT18X18D with the registers inside the block, where Yosys would leave them
    outside (Lattice FPGA-TN-02205, ECP5 sysDSP Usage Guide); elsewhere plain registers and ``*``.

    Parameters
    ----------
    m : Module
        Gets the logic, in the domain ``sync``.
    a, b : Value
        Signed, at most 18 bits on ECP5.
    platform
        What is built for, or None for simulation.
    """
    product = Signal(signed(len(a) + len(b)), reset_less=True)
    if is_ecp5(platform):
        _instantiate_ecp5(m, a, b, product)
    else:
        a_in, b_in = Signal(a.shape(), reset_less=True), Signal(b.shape(), reset_less=True)
        m.d.sync += [a_in.eq(a), b_in.eq(b), product.eq(a_in * b_in)]
    return product


def _instantiate_ecp5(m: Module, a: Value, b: Value, product: Signal) -> None:
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
    m.submodules += Instance(
        "MULT18X18D",
        p_REG_INPUTA_CLK="CLK0",
        p_REG_INPUTA_CE="CE0",
        p_REG_INPUTA_RST="RST0",
        p_REG_INPUTB_CLK="CLK0",
        p_REG_INPUTB_CE="CE0",
        p_REG_INPUTB_RST="RST0",
        p_REG_OUTPUT_CLK="CLK0",
        p_REG_OUTPUT_CE="CE0",
        p_REG_OUTPUT_RST="RST0",
        p_SOURCEB_MODE="B_SHIFT",
        i_SIGNEDA=C(1),
        i_SIGNEDB=C(1),
        i_SOURCEA=C(0),
        i_SOURCEB=C(0),
        **ports,
    )
    m.d.comb += product.eq(p)

"""The core that is synthesised for simulation, and what the harness wants around its netlist."""

from __future__ import annotations

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.accelerator import Accelerator
from trirow_hw.axi import AXI4, AXI4Lite
from trirow_hw.config import Config
from trirow_hw.supervisor import COUNTERS
from trirow_sim.compiled.gateware import TOP
from trirow_sim.probe import DETAIL_BITS, TRACK_BITS, TRACKS

__all__ = ["CORE", "ObservedCore", "top_verilog"]

CORE = "core"
"""Name of the netlist's module."""

_CONTROL_ADDRESS_BITS = 8
_MEMBERS = ("memory", "control", "interrupt")


class ObservedCore(wiring.Component):  # type: ignore[misc]  # of a package without types
    """The accelerator, with two of its registers led out so that the passes' ends can be seen.

    Parameters
    ----------
    config : Config

    Members
    -------
    memory, control, interrupt
        Those of the accelerator.
    landed : Out(16)
        Passes whose outputs have landed.
    counters : Out(32).array
        The counters, in the order of `trirow_hw.supervisor.COUNTERS`.
    """

    def __init__(self, *, config: Config):
        self._core = Accelerator(config=config)
        members = {name: self._core.signature.members[name] for name in _MEMBERS}
        super().__init__({**members, "landed": Out(16), "counters": Out(32).array(len(COUNTERS))})

    def elaborate(self, platform: object) -> Module:
        """Connect the accelerator."""
        m = Module()
        m.submodules.core = core = self._core
        for name in ("memory", "control"):
            wiring.connect(m, getattr(core, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            self.interrupt.eq(core.interrupt),
            self.landed.eq(core.supervisor.passes_landed),
        ]
        for seen, counter in zip(self.counters, core.supervisor.counters, strict=True):
            m.d.comb += seen.eq(counter)
        return m


def top_verilog(config: Config) -> str:
    """Return a module in Verilog with the ports that the harness drives, around the netlist.

    The ports are those of `trirow_sim.compiled.gateware.accelerator_verilog`. There is nothing to
    see of the units: what the tracks and the details show is 0.

    Parameters
    ----------
    config : Config

    Raises
    ------
    amaranth.back.verilog.YosysError
        If no Yosys is found or it fails.
    """
    top = Module()
    memory = AXI4(data_bytes=config.bus_bytes).create()
    control = AXI4Lite(address_bits=_CONTROL_ADDRESS_BITS).create()
    top.domains.sync = clock = ClockDomain(reset_less=True)
    ports: dict[str, Any] = {"clk": clock.clk, "gated_clk": Signal(name="gated_clk")}
    pins: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": Const(0)}
    for name, member in control.signature.flip().members.items():
        ports[f"s_{name}"] = signal = getattr(control, name)
        pins[f"{_direction(member.flow)}_control__{name}"] = signal
    for name, member in memory.signature.members.items():
        signal = getattr(memory, name)
        pins[f"{_direction(member.flow)}_memory__{name}"] = signal
        if member.flow == In:
            ports[f"next_m_{name}"] = coming = Signal.like(signal, name=f"next_m_{name}")
            top.d.sync += signal.eq(coming)
        else:
            ports[f"m_{name}"] = signal
    ports["irq"] = pins["o_interrupt"] = Signal(name="irq")
    ports["landed"] = pins["o_landed"] = Signal(16, name="landed")
    for k in range(len(COUNTERS)):
        ports[f"counter{k}"] = pins[f"o_counters__{k}"] = Signal(32, name=f"counter{k}")
    tracks = {f"track{k}": TRACK_BITS for k in range(len(TRACKS))}
    for name, width in {"gated_needed": 1, "running": 1, "detail": DETAIL_BITS, **tracks}.items():
        ports[name] = nothing = Signal(width, name=name)
        top.d.comb += nothing.eq(0)
    top.submodules.core = Instance(CORE, **pins)
    text: str = verilog.convert(
        top,
        name=TOP,
        ports={name: (value, None) for name, value in ports.items()},
        emit_src=False,
        strip_internal_attrs=True,
    )
    return text


def _direction(flow: object) -> str:
    return "i" if flow == In else "o"

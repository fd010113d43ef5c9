"""The accelerator as Verilog for Verilator."""

from __future__ import annotations

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, ClockSignal, Module, Signal
from amaranth.lib.wiring import In

from trirow_hw.accelerator import Accelerator
from trirow_hw.block_memory import BLOCK_MEMORY_CELL
from trirow_hw.config import Config
from trirow_hw.requantise import Requantiser
from trirow_sim.compiled.gating import gate_pipelines
from trirow_sim.probe import (
    DETAIL_BITS,
    TRACK_BITS,
    detail_value,
    running_value,
    track_values,
)

__all__ = ["TOP", "accelerator_verilog"]

#: Name of the top module.
TOP = "trirow"


class _CompiledPlatform:
    """Memories become a cell: Verilog would list the first value of each of their words."""

    block_memory_cell = BLOCK_MEMORY_CELL
    simulates = True


def accelerator_verilog(config: Config) -> str:
    """Return the accelerator as Verilog.

    Ports are ``clk``; of the memory bus ``m_<signal>`` if it is an output, and else
    ``next_m_<signal>``, what the input is from the next clock edge on; of the control bus
    ``s_<signal>``; ``irq``; and what the harness looks at inside: ``landed``, ``counter<k>``, and
    of `trirow_sim.probe` ``running``, ``detail`` and ``track<k>``. Those three are registers,
    which is faster: after a clock edge they have the values of the cycle before it.

    Requantisers have a clock of their own, ``gated_clk``: its edge comes with that of ``clk`` where
    ``gated_needed`` was up before, and else is left out.

    Parameters
    ----------
    config : Config

    Raises
    ------
    amaranth.back.verilog.YosysError
        If no Yosys is found or it fails.
    """
    accelerator, platform = Accelerator(config=config), _CompiledPlatform()
    top = Module()
    needed = gate_pipelines(top, accelerator, platform, Requantiser, domain="gated")
    # Verilator evaluates what depends on inputs once more for them, so as little as possible
    # does: there is no reset, and the memory bus has registers, which get what they would show.
    top.domains.sync = clock = ClockDomain(reset_less=True)
    ports: dict[str, Any] = {"clk": clock.clk, "gated_clk": ClockSignal("gated")}
    for name in accelerator.control.signature.members:
        ports[f"s_{name}"] = getattr(accelerator.control, name)
    for name, member in accelerator.memory.signature.members.items():
        signal = getattr(accelerator.memory, name)
        if member.flow == In:
            ports[f"next_m_{name}"] = coming = Signal.like(signal, name=f"next_m_{name}")
            top.d.sync += signal.eq(coming)
        else:
            ports[f"m_{name}"] = signal
    ports["gated_needed"] = Signal(name="gated_needed")
    top.d.comb += ports["gated_needed"].eq(needed)
    ports["irq"] = accelerator.interrupt
    ports["landed"] = accelerator.supervisor.passes_landed
    for k, counter in enumerate(accelerator.supervisor.counters):
        ports[f"counter{k}"] = counter
    probes = {"running": (running_value(accelerator), 1)}
    probes["detail"] = (detail_value(accelerator), DETAIL_BITS)
    for k, track in enumerate(track_values(accelerator)):
        probes[f"track{k}"] = (track, TRACK_BITS)
    for name, (value, width) in probes.items():
        ports[name] = Signal(width, name=name, reset_less=True)
        top.d.sync += ports[name].eq(value)
    named = {name: (value, None) for name, value in ports.items()}
    text: str = verilog.convert(
        top,
        name=TOP,
        platform=platform,
        ports=named,
        emit_src=False,
        strip_internal_attrs=True,
    )
    return text

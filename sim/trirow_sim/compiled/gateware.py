"""The accelerator as Verilog for Verilator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Module, Signal

from trirow_hw.accelerator import Accelerator
from trirow_hw.config import Config
from trirow_sim.probe import (
    DETAIL_BITS,
    TRACK_BITS,
    detail_value,
    running_value,
    track_values,
)

__all__ = ["BLOCK_MEMORY", "TOP", "accelerator_verilog"]

#: Name of the top module.
TOP = "trirow"
#: Source of the memories' cell.
BLOCK_MEMORY = Path(__file__).with_name("block_memory.v")


class _CompiledPlatform:
    """Memories become a cell: Verilog would list the first value of each of their words."""

    block_memory_cell = "trirow_block_memory"


def accelerator_verilog(config: Config) -> str:
    """Return the accelerator as Verilog.

    Ports are ``clk``, ``m_<signal>`` of the memory bus, ``s_<signal>`` of the control bus,
    ``irq``, and what the harness looks at inside: ``landed``, ``counter<k>``, and of
    `trirow_sim.probe` ``running``, ``detail`` and ``track<k>``. Those are registers, which is
    faster: after a clock edge they have the values of the cycle before it.

    Parameters
    ----------
    config : Config

    Raises
    ------
    amaranth.back.verilog.YosysError
        If no Yosys is found or it fails.
    """
    accelerator = Accelerator(config=config)
    ports: dict[str, Any] = {}
    for prefix, bus in (("m", accelerator.memory), ("s", accelerator.control)):
        for name in bus.signature.members:
            ports[f"{prefix}_{name}"] = getattr(bus, name)
    ports["irq"] = accelerator.interrupt
    ports["landed"] = accelerator.supervisor.passes_landed
    for k, counter in enumerate(accelerator.supervisor.counters):
        ports[f"counter{k}"] = counter
    top = Module()
    top.submodules.accelerator = accelerator
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
        platform=_CompiledPlatform(),
        ports=named,
        emit_src=False,
        strip_internal_attrs=True,
    )
    return text

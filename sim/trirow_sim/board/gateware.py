"""What is on a board as Verilog for Verilator."""

from __future__ import annotations

from typing import Any

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, ClockSignal, Module, Signal

from trirow_hw.block_memory import BLOCK_MEMORY_CELL
from trirow_hw.boards.top import BoardTop
from trirow_hw.requantise import Requantiser
from trirow_sim.compiled.gateware import TOP
from trirow_sim.compiled.gating import gate_pipelines

__all__ = ["board_verilog"]


class _CompiledPlatform:
    """Memories become a cell: Verilog would list the first value of each of their words."""

    block_memory_cell = BLOCK_MEMORY_CELL
    simulates = True


def board_verilog(board: BoardTop) -> str:
    """Return what is on a board as Verilog.

    Ports are ``clk``, ``rx``, ``tx``, ``leds``, the pins of the SDRAM by their names in
    `trirow_hw.sdram.pins.SdramPins`, and as for the compiled engine ``gated_clk`` and
    ``gated_needed``. There is no reset.

    Raises
    ------
    amaranth.back.verilog.YosysError
        If no Yosys is found or it fails.
    """
    top = Module()
    needed = gate_pipelines(top, board, _CompiledPlatform(), Requantiser, domain="gated")
    top.domains.sync = clock = ClockDomain(reset_less=True)
    ports: dict[str, Any] = {"clk": clock.clk, "gated_clk": ClockSignal("gated")}
    ports["gated_needed"] = Signal(name="gated_needed")
    top.d.comb += ports["gated_needed"].eq(needed)
    ports |= {name: getattr(board, name) for name in ("rx", "tx", "leds")}
    ports |= {name: getattr(board.sdram, name) for name in board.sdram.signature.members}
    text: str = verilog.convert(
        top,
        name=TOP,
        ports={name: (value, None) for name, value in ports.items()},
        emit_src=False,
        strip_internal_attrs=True,
    )
    return text

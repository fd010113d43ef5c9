"""From a board to its bitstream: elaboration, Yosys, nextpnr, ecppack."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ..boards.board import Board
from ..boards.ecp5_top import Ecp5Top
from ..boards.pll import PllDividers, pll_dividers
from ..config import Config
from ..sdram.chips import CHIPS
from ..sdram.controller import check_parameters
from .devices import DEVICES, Device, Usage, netlist_usage
from .nextpnr import Routed, route_ecp5
from .pad_registers import mark_pad_registers
from .resets import spread_resets
from .tools import Tool, find_ecppack, find_loader, find_nextpnr, find_yosys, run
from .yosys import Netlist, synthesise_rtlil

__all__ = ["BoardBuild", "Elaborated", "elaborate_board"]

#: Name of the top module and of the files.
_NAME = "top"


@dataclass(frozen=True)
class Elaborated:
    """A board's design as RTLIL, with its constraints.

    Parameters
    ----------
    rtlil : str
        With the top module ``top``.
    constraints : str
        Pins and clocks, LPF.
    dividers : PllDividers
        Of the clock.
    """

    rtlil: str
    constraints: str
    dividers: PllDividers


def elaborate_board(
    board: Board,
    *,
    config: Config | None = None,
    clock_mhz: float | Fraction | None = None,
    chip: str | None = None,
) -> Elaborated:
    """Elaborate the design for an ECP5 board; no tool is needed.

    Parameters
    ----------
    board : Board
    config : Config, optional
        Accelerator; the board's unless given.
    clock_mhz : float, optional
        Clock at most; the board's unless given.
    chip : str, optional
        SDRAM chip; the board's first unless given.

    Raises
    ------
    ValueError
        If the PLL or the chip cannot have such a clock, or there is no such chip.
    """
    if board.family != "ecp5":
        raise ValueError(f"there is no design for {board.name}: {board.note}")
    dividers = pll_dividers(board.oscillator_mhz, clock_mhz or board.clock_mhz)
    chip = chip or board.chips[0]
    if chip not in CHIPS:
        raise ValueError(f"unknown SDRAM chip {chip!r}; known: {', '.join(CHIPS)}")
    config = config or board.config
    # Refuse before anything is made.
    timing = CHIPS[chip].timing(float(dividers.output_mhz * 10**6))
    check_parameters(timing, config.bus_bytes, 0)
    top = Ecp5Top(config=config, chip=CHIPS[chip], dividers=dividers)
    plan = board.platform_class()().build(top, name=_NAME, do_build=False)
    return Elaborated(plan.files[f"{_NAME}.il"], plan.files[f"{_NAME}.lpf"], dividers)


class BoardBuild:
    """The steps from a board to a bitstream, all files in one folder.

    Parameters
    ----------
    board : Board
    config : Config
    folder : Path
        Is made if it is not there.
    design : Elaborated

    Attributes
    ----------
    netlist : Netlist or None
        After `synthesise`.
    pads : Counter
        Registers in pads, by direction, after `synthesise`.
    routed : Routed or None
        The best of those routed so far.
    tools : list of Tool
        Those used so far.
    """

    def __init__(self, board: Board, config: Config, folder: Path, design: Elaborated):
        self.board = board
        self.config = config
        self.folder = folder
        self.design = design
        self.netlist: Netlist | None = None
        self.pads: Counter[str] = Counter()
        self.routed: Routed | None = None
        self.tools: list[Tool] = []
        self._best = folder / f"{_NAME}.best.config"
        folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def require(*, route: bool, program: bool) -> None:
        """Look for all tools before the work begins.

        Raises
        ------
        MissingTool
        """
        find_yosys()
        if route:
            find_nextpnr()
            find_ecppack()
        if program:
            find_loader()

    @property
    def device(self) -> Device:
        """The board's FPGA."""
        return DEVICES[self.board.device]

    @property
    def target_mhz(self) -> float:
        """Clock that the PLL makes."""
        return float(self.design.dividers.output_mhz)

    @property
    def met(self) -> bool:
        """Whether the routed design is fast enough."""
        return self.routed is not None and self.routed.fmax_mhz >= self.target_mhz

    @property
    def usage(self) -> dict[str, Usage]:
        """Resources: after routing what nextpnr counts, before it an estimate from the netlist."""
        if self.routed is not None:
            return self.routed.usage
        return netlist_usage(self.netlist.cells if self.netlist else {}, self.device)

    def synthesise(self) -> None:
        """Run Yosys, copy what resets many units, and choose the registers that go into pads.

        Raises
        ------
        ToolFailed
        """
        self.netlist = synthesise_rtlil(self.design.rtlil, self.folder, name=_NAME)
        self.tools.append(self.netlist.tool)
        content = json.loads(self.netlist.path.read_text(encoding="utf-8"))
        module = content["modules"][_NAME]
        spread_resets(module)
        self.pads = mark_pad_registers(module, "sdram")
        self.netlist.path.write_text(json.dumps(content), encoding="utf-8")

    def route(self, seed: int) -> None:
        """Place and route; of several calls the best is kept.

        Parameters
        ----------
        seed : int
            Of the placement.

        Raises
        ------
        ToolFailed
        """
        constraints = self.folder / f"{_NAME}.lpf"
        constraints.write_text(self.design.constraints, encoding="utf-8")
        routed = route_ecp5(
            self.netlist.path,
            target_mhz=self.target_mhz,
            device=self.device,
            package=self.board.package,
            speed=self.board.speed,
            constraints=constraints,
            seed=seed,
        )
        if self.routed is None:
            self.tools.append(routed.tool)
        if self.routed is None or routed.fmax_mhz > self.routed.fmax_mhz:
            routed.text.replace(self._best)
            self.routed = routed

    def pack(self) -> Path:
        """Make the bitstream of the best routing, and return its path.

        Raises
        ------
        ToolFailed
        """
        tool, bitstream = find_ecppack(), self.folder / f"{self.board.name}.bit"
        temporary = self.folder / f"{_NAME}.bit"
        arguments = ["--compress", "--input", self._best.name, "--bit", temporary.name]
        run(tool, arguments, self.folder, self.folder / f"{_NAME}.pack.log")
        self.tools.append(tool)
        temporary.replace(bitstream)
        return bitstream

    def program(self, bitstream: Path) -> None:
        """Load a bitstream into the board, until it loses power.

        Raises
        ------
        ToolFailed
        """
        tool = find_loader()
        arguments = [*self.board.loader, bitstream.name]
        run(tool, arguments, self.folder, self.folder / f"{_NAME}.program.log")
        self.tools.append(tool)

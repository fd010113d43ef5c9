"""`trirow synth`: from a board's name to its bitstream, and what came out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from trirow.options import (
    Assignment,
    FailedRun,
    InputError,
    Ratio,
    configuration,
    console,
    json_option,
    save_json,
)
from trirow_hw.boards.board import BOARDS, Board
from trirow_hw.config import PRESETS, Config
from trirow_hw.synthesis.flow import BoardBuild, elaborate_board
from trirow_hw.synthesis.tools import MissingTool, ToolFailed

__all__ = ["synth"]

#: Resources as the table calls them.
_RESOURCES = {
    "luts": "LUT4",
    "registers": "registers",
    "dsps": "DSP (18 x 18)",
    "block_rams": "block RAM (18 Kbit)",
    "lut_rams": "LUT RAM (64 bits)",
}


@click.command(
    epilog="""\b
Examples:
  trirow synth ulx3s-85f
  trirow synth icesugar-pro --clock 85 --seeds 4 --json build/icesugar.json
  trirow synth ulx3s-85f --until yosys
  trirow synth ulx3s-85f --program
"""
)
@click.argument("board_name", metavar="BOARD", type=click.Choice(list(BOARDS)))
@click.option(
    "--config",
    "config_name",
    type=click.Choice(list(PRESETS)),
    metavar="NAME",
    help="Size of the accelerator, instead of the board's; `trirow configs` lists them.",
)
@click.option(
    "--set",
    "overrides",
    type=Assignment(),
    multiple=True,
    help="Replace one field of the configuration, such as post_lanes=2. Can be repeated.",
)
@click.option(
    "--clock",
    "clock_mhz",
    type=Ratio(),
    metavar="MHZ",
    help="Clock of the accelerator and its memory, instead of the board's; if the PLL cannot make "
    "it, the next lower one is taken.",
)
@click.option("--sdram", metavar="CHIP", help="SDRAM on the board, if it comes with several.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the placement, instead of the one that suited the board so far.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    help="Try up to N seeds until the clock is met, and keep the best.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for netlist, logs and bitstream.  [default: build/BOARD]",
)
@click.option(
    "--until",
    type=click.Choice(["yosys", "route"]),
    help="Stop behind this step: netlist and an estimate of resources, or no bitstream.",
)
@click.option(
    "--allow-timing-failure",
    is_flag=True,
    help="Make the bitstream and leave with status 0 even if the clock is missed.",
)
@click.option("--program", is_flag=True, help="Load the bitstream into the board (openFPGALoader).")
@json_option("the report")
def synth(
    board_name: str,
    config_name: str | None,
    overrides: tuple[tuple[str, Any], ...],
    clock_mhz: float | None,
    sdram: str | None,
    seed: int | None,
    seeds: int | None,
    output: Path | None,
    until: str | None,
    allow_timing_failure: bool,
    program: bool,
    json_file: Path | None,
) -> None:
    """Make the bitstream of a board, with open tools.

    `trirow boards` lists the boards. The steps are Yosys, nextpnr and ecppack, native ones if they
    are on PATH, those of PyPI (trirow[synth]) if not. It takes 5 to 30 minutes.

    The exit status is 1 if the clock that was asked for is missed; the bitstream is made all the
    same only with --allow-timing-failure.
    """
    board = BOARDS[board_name]
    if not board.supported:
        raise InputError(f"{board.name} is not supported: {board.note}")
    if seed is not None and seeds is not None:
        raise click.UsageError("give --seed or --seeds, not both")
    if program and until is not None:
        raise click.UsageError("--program needs the bitstream, which --until leaves out")
    config = _config(board, config_name, overrides)
    try:
        BoardBuild.require(route=until != "yosys", program=program)
        folder = output or Path("build") / board.name
        design = elaborate_board(board, config=config, clock_mhz=clock_mhz, chip=sdram)
        build = BoardBuild(board, config, folder, design)
    except (MissingTool, ValueError) as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from error
    screen = console()
    first = board.seed if seed is None else seed
    tries = range(first, first + (seeds or 1))
    try:
        bitstream = _steps(build, screen, tries, until, allow_timing_failure, program)
    except ToolFailed as error:
        raise FailedRun(str(error)) from error
    _show(build, screen, bitstream)
    if json_file is not None:
        save_json(json_file, _report(build, bitstream))
    if build.routed is not None and not build.met and not allow_timing_failure:
        raise FailedRun(
            f"{build.routed.fmax_mhz:.1f} MHz, less than {build.target_mhz:g}: try --seeds 4, a "
            f"lower --clock, or --allow-timing-failure"
        )


def _config(board: Board, name: str | None, overrides: tuple[tuple[str, Any], ...]) -> Config:
    """Return the board's configuration, or another, with some fields replaced."""
    if name is not None:
        return configuration(name, overrides)
    return configuration(board.preset, [*board.settings.items(), *overrides])


def _steps(
    build: BoardBuild,
    screen: Console,
    seeds: range,
    until: str | None,
    allow_timing_failure: bool,
    program: bool,
) -> Path | None:
    """Run the steps that were asked for, and return the bitstream's path if there is one."""
    with _step(screen, f"Yosys: {build.config.multipliers} multipliers for {build.device.name}"):
        build.synthesise()
    if until == "yosys":
        return None
    for seed in seeds:
        with _step(screen, f"nextpnr: place and route for {build.target_mhz:g} MHz, seed {seed}"):
            build.route(seed)
        if build.met:
            break
    if until == "route" or not (build.met or allow_timing_failure):
        return None
    with _step(screen, "ecppack: bitstream"):
        bitstream: Path = build.pack()
    if program:
        with _step(screen, "openFPGALoader: into the board"):
            build.program(bitstream)
    return bitstream


@contextmanager
def _step(screen: Console, text: str) -> Iterator[None]:
    """Say that a step runs, and afterwards how long it took; on a terminal the time runs along."""
    began = time.perf_counter()
    if screen.is_terminal:
        with screen.status(text):
            yield
    else:
        yield
    screen.print(f"{text}: {time.perf_counter() - began:.0f} s")


def _show(build: BoardBuild, screen: Console, bitstream: Path | None) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("resource", no_wrap=True)
    for header in ("used", "available", "percent"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, usage in build.usage.items():
        table.add_row(
            _RESOURCES[name],
            f"{usage.used:,}",
            f"{usage.available:,}",
            f"{usage.percent:.1f} %",
        )
    screen.print(table)
    if build.routed is None:
        screen.print("Estimated from the netlist; nextpnr may need some more LUTs.")
        return
    routed = build.routed
    verdict = "met" if build.met else "missed"
    screen.print(f"{routed.fmax_mhz:.1f} MHz, target {build.target_mhz:g} MHz: {verdict}.")
    screen.print(f"Slowest path: {routed.path}.")
    gops = _peak_gops(build)
    screen.print(f"Peak: {gops:.2f} GOPS with {build.config.multipliers} multipliers.")
    if bitstream is not None:
        screen.print(f"Bitstream: {bitstream}, {bitstream.stat().st_size:,} bytes.")


def _peak_gops(build: BoardBuild) -> float:
    """Return the peak at the routed clock; a multiplication and an addition are two operations."""
    return 2 * build.config.multipliers * build.routed.fmax_mhz / 1e3 if build.routed else 0.0


def _report(build: BoardBuild, bitstream: Path | None) -> dict[str, Any]:
    report: dict[str, Any] = {
        "board": build.board.name,
        "config": build.config.to_dict(),
        "resources": {
            name: {"used": usage.used, "available": usage.available}
            for name, usage in build.usage.items()
        },
        "pad_registers": dict(build.pads),
        "target_mhz": build.target_mhz,
        "tools": {tool.name: tool.version for tool in build.tools},
    }
    if build.routed is not None:
        path = build.routed.path
        report |= {
            "fmax_mhz": build.routed.fmax_mhz,
            "met": build.met,
            "seed": build.routed.seed,
            "peak_gops": _peak_gops(build),
            "critical_path": {
                "text": str(path),
                "logic_ns": path.logic_ns,
                "wire_ns": path.wire_ns,
            },
        }
    if bitstream is not None:
        report["bitstream"] = {"path": str(bitstream), "bytes": bitstream.stat().st_size}
    return report

"""`trirow boards`: the boards that bitstreams can be made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from trirow.options import console, json_option, save_json
from trirow_hw.boards.board import BOARDS, Board

__all__ = ["boards"]


@click.command()
@json_option("the list")
def boards(json_file: Path | None) -> None:
    """List the boards that the accelerator is made for.

    `trirow synth BOARD` makes the bitstream of a supported one.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("board", no_wrap=True)
    table.add_column("device", no_wrap=True)
    table.add_column("preset", no_wrap=True)
    table.add_column("multi-\npliers", justify="right", no_wrap=True)
    table.add_column("memory", no_wrap=True)
    table.add_column("MHz", justify="right", no_wrap=True)
    table.add_column("supported", no_wrap=True)
    table.add_column("note", overflow="fold")
    for board in BOARDS.values():
        table.add_row(
            board.name,
            board.device,
            board.preset + (" *" if board.settings else ""),
            str(board.config.multipliers),
            board.chips[0] if board.chips else "none",
            f"{board.clock_mhz:g}",
            "[green]yes[/]" if board.supported else "[yellow]no[/]",
            board.note,
        )
    output = console()
    output.print(table)
    if any(board.settings for board in BOARDS.values()):
        output.print("* with some fields of its own; see --json")
    if json_file is not None:
        save_json(json_file, {"boards": [_entry(board) for board in BOARDS.values()]})


def _entry(board: Board) -> dict[str, Any]:
    return {
        "name": board.name,
        "device": board.device,
        "package": board.package,
        "preset": board.preset,
        "config": board.config.to_dict(),
        "memory": list(board.chips),
        "clock_mhz": board.clock_mhz,
        "supported": board.supported,
        "note": board.note,
    }

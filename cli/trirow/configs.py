"""`trirow configs`: the configurations that come with the accelerator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from trirow.options import console, json_option, save_json
from trirow_hw.config import PRESETS, Config

__all__ = ["configs"]


@click.command()
@json_option("the list")
def configs(json_file: Path | None) -> None:
    """List the configurations of the accelerator.

    A configuration says how large the accelerator is. Each multiplies IN bytes of the feature map
    with the weights of OUT output channels in every clock cycle, so IN x OUT is the number of its
    multipliers. Larger buffers on chip mean fewer passes over the memory.

    Any of them can be the start of another: `trirow sim --config tiny --set bus_bytes=8`.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for header in ("in x out", "multi-\npliers", "line\nbuffer", "weight\nbuffer", "bus"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("for")
    for config in PRESETS.values():
        table.add_row(
            config.name,
            f"{config.in_lanes} x {config.out_lanes}",
            str(config.multipliers),
            f"{config.line_buffer_bytes / 1024:g} KiB",
            f"{config.weight_buffer_bytes / 1024:g} KiB",
            f"{8 * config.bus_bytes} bits",
            config.description,
        )
    console().print(table)
    if json_file is not None:
        save_json(json_file, {"configs": [_entry(config) for config in PRESETS.values()]})


def _entry(config: Config) -> dict[str, Any]:
    return {**config.to_dict(), "multipliers": config.multipliers, "for": config.description}

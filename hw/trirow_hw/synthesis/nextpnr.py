"""Place and route for ECP5 with nextpnr."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .critical_path import CriticalPath, critical_path
from .devices import DEVICES, Device, Usage
from .tools import Tool, find_nextpnr, run

__all__ = ["Routed", "read_report", "route_ecp5"]


@dataclass(frozen=True)
class Routed:
    """A placed and routed netlist.

    Parameters
    ----------
    fmax_mhz : float
        Highest clock of the slowest path.
    path : CriticalPath
        That path.
    usage : dict of str to Usage
        Resources by the names of `Device.available`.
    text : Path
        The bitstream as text, for ecppack; it need not exist.
    tool : Tool
        The nextpnr that made it.
    seed : int
        Of the placement.
    """

    fmax_mhz: float
    path: CriticalPath
    usage: dict[str, Usage]
    text: Path
    tool: Tool
    seed: int


def route_ecp5(
    netlist: Path,
    *,
    target_mhz: float,
    device: Device = DEVICES["LFE5U-85F"],
    package: str = "CABGA381",
    speed: str = "6",
    constraints: Path | None = None,
    seed: int = 1,
) -> Routed:
    """Place and route a netlist of `synthesise_ecp5`; report, log and text are written beside it.

    Parameters
    ----------
    netlist : Path
        JSON netlist.
    target_mhz : float
        Clock to aim at where the constraints name none; a slower result is not an error.
    device : Device
    package : str
        As nextpnr calls it.
    speed : str
        Speed grade; 6 is the slowest.
    constraints : Path, optional
        Pins and clocks (LPF), in the netlist's folder; without it pins are chosen freely.
    seed : int
        Of the placement.

    Raises
    ------
    MissingTool
        If there is no nextpnr.
    ToolFailed
        If it ends with an error.
    """
    tool = find_nextpnr()
    folder = netlist.parent
    text, report, log = (
        netlist.with_suffix(suffix) for suffix in (".config", ".report.json", ".route.log")
    )
    arguments = [device.option, "--package", package, "--speed", speed, "--json", netlist.name]
    if constraints is not None:
        arguments += ["--lpf", constraints.name]
    arguments += ["--textcfg", text.name, "--report", report.name, "--freq", f"{target_mhz:g}"]
    # router2 does not come to an end with 128 multipliers: its conflicts become more and more.
    arguments += ["--placer", device.placer, "--router", "router1"]
    arguments += ["--seed", str(seed), "--timing-allow-fail"]
    run(tool, arguments, folder, log)
    fmax, path, usage = read_report(json.loads(report.read_text(encoding="utf-8")), device)
    return Routed(fmax, path, usage, text, tool, seed)


def read_report(report: dict, device: Device) -> tuple[float, CriticalPath, dict[str, Usage]]:
    """Return what a report of nextpnr says: the highest clock in MHz, its path, and the resources.

    If there are several clocks, that of the largest part counts: the one whose slowest path misses
    its constraint the most.

    Raises
    ------
    ValueError
        If no path from register to register is in it.
    """
    clocks = report["fmax"]
    if not clocks:
        raise ValueError("the report has no path from register to register")
    slowest = min(clocks, key=lambda name: clocks[name]["achieved"] / clocks[name]["constraint"])
    edge = f"posedge {slowest}"
    paths = [p for p in report["critical_paths"] if p["from"] == p["to"] == edge]
    cells = {name: entry["used"] for name, entry in report["utilization"].items()}
    used = {
        # The write port of a LUT RAM takes two LUTs that are not counted as such.
        "luts": cells["TRELLIS_COMB"] + 2 * cells["TRELLIS_RAMW"],
        "registers": cells["TRELLIS_FF"],
        "dsps": cells["MULT18X18D"],
        "block_rams": cells["DP16KD"],
        "lut_rams": cells["TRELLIS_RAMW"],
    }
    usage = {name: Usage(used[name], available) for name, available in device.available.items()}
    return clocks[slowest]["achieved"], critical_path(paths[0]["path"]), usage

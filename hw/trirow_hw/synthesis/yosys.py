"""Synthesis for ECP5 with Yosys."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

from .block_registers import move_into_blocks
from .tools import Tool, find_yosys, run

__all__ = ["BLOCK_RAM_BITS", "Ecp5Device", "Netlist", "synthesise_ecp5", "synthesise_rtlil"]

#: Bits of an ECP5 block RAM (DP16KD).
BLOCK_RAM_BITS = 18 * 1024


@dataclass(frozen=True)
class Ecp5Device:
    """What units ask of a platform when nothing but the device is known."""

    device: str = "LFE5U-85F"


@dataclass(frozen=True)
class Netlist:
    """A synthesised component.

    Parameters
    ----------
    path : Path
        JSON netlist for nextpnr.
    cells : Counter
        Number of cells by type.
    tool : Tool
        The Yosys that made it.
    """

    path: Path
    cells: Counter[str]
    tool: Tool


def synthesise_ecp5(component, folder: Path, *, name: str = "top") -> Netlist:
    """Run ``synth_ecp5`` on a component, flattened; then `move_into_blocks`.

    Parameters
    ----------
    component : Component
        Its ports become those of the netlist.
    folder : Path
        Gets ``name.il`` and ``name.json`` and Yosys' log, ``name.log``.
    name : str
        Name of the top module.

    Raises
    ------
    MissingTool
        If there is no Yosys.
    ToolFailed
        If it ends with an error.
    """
    source = rtlil.convert(component, platform=Ecp5Device(), name=name)
    return synthesise_rtlil(source, folder, name=name)


def synthesise_rtlil(source: str, folder: Path, *, name: str) -> Netlist:
    """Run ``synth_ecp5`` on RTLIL; files and errors as `synthesise_ecp5`.

    Parameters
    ----------
    source : str
        RTLIL with a module of that name.
    folder : Path
    name : str
        Name of the top module and of the files.
    """
    tool = find_yosys()
    source = _without_brackets(source)
    (folder / f"{name}.il").write_text(source, encoding="utf-8")
    script = f"read_rtlil {name}.il\nsynth_ecp5 -top {name} -json {name}.json\n"
    (folder / f"{name}.ys").write_text(script, encoding="utf-8")
    run(tool, [f"{name}.ys"], folder, folder / f"{name}.log")
    netlist = folder / f"{name}.json"
    content = json.loads(netlist.read_text(encoding="utf-8"))
    move_into_blocks(content["modules"][name])
    netlist.write_text(json.dumps(content), encoding="utf-8")
    cells = content["modules"][name]["cells"].values()
    counted = Counter(cell["type"] for cell in cells if not cell["type"].startswith("$"))
    return Netlist(netlist, counted, tool)


def _without_brackets(source: str) -> str:
    """Rename what has an index in its name, as Amaranth calls the elements of arrays.

    ABC9 names bits so, too: where the names of a bit and of an element are the same, Yosys (0.63 to
    0.70) ends with "Assert `count_id(wire->name) == 0' failed" or another one of rtlil.cc.
    """
    name = r'\\[^\s"]*\[[^\s"]*'
    return re.sub(name, lambda match: match[0].translate(str.maketrans("[]", "<>")), source)

"""Synthesise a component for ECP5 with Yosys as a library (PyPI ``pyosys``)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

__all__ = ["Ecp5Device", "Netlist", "synthesise_ecp5"]

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
    """

    path: Path
    cells: Counter[str]


def synthesise_ecp5(component, folder: Path, *, name: str = "top") -> Netlist:
    """Run ``synth_ecp5`` on a component, flattened.

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
    ModuleNotFoundError
        If ``pyosys`` is not installed.
    """
    from pyosys import libyosys

    source, netlist = folder / f"{name}.il", folder / f"{name}.json"
    source.write_text(rtlil.convert(component, platform=Ecp5Device(), name=name))
    design = libyosys.Design()
    log = f"tee -q -o {folder / name}.log"
    libyosys.run_pass(f"{log} read_rtlil {source}", design)
    libyosys.run_pass(
        f"tee -q -a {folder / name}.log synth_ecp5 -top {name} -json {netlist}", design
    )
    cells = json.loads(netlist.read_text())["modules"][name]["cells"].values()
    return Netlist(netlist, Counter(cell["type"] for cell in cells))

"""The boards, by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..config import PRESETS, Config

__all__ = ["BOARDS", "Board"]


@dataclass(frozen=True)
class Board:
    """A board that carries the accelerator.

    Parameters
    ----------
    name : str
    preset : str
        Preset of the accelerator that fits its device.
    settings : Mapping
        Fields of the preset that are different here.
    family : str
        ``"ecp5"`` or ``"ice40"``.
    device, package, speed : str
        The FPGA: as its maker calls it, its package as nextpnr calls it, its speed grade.
    oscillator_mhz : float
        Clock on the board.
    clock_mhz : float
        Clock of the accelerator.
    chips : tuple of str
        SDRAM chips that the board comes with, by their names in `trirow_hw.sdram.chips`; the
        first is taken unless another is named. Empty if there is none.
    platform : str
        Module and class of the pinout in ``amaranth_boards``.
    loader : tuple of str
        Arguments of openFPGALoader that load a bitstream into this board.
    seed : int
        Seed of the placement that is tried first.
    supported : bool
        Whether a bitstream can be made of it.
    note : str
        What is special; why not, if it is not supported.
    """

    name: str
    preset: str
    family: str
    device: str
    package: str
    speed: str
    oscillator_mhz: float
    clock_mhz: float
    chips: tuple[str, ...]
    platform: str
    loader: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1
    supported: bool = True
    note: str = ""

    @property
    def config(self) -> Config:
        """Configuration of the accelerator."""
        return PRESETS[self.preset].override(**self.settings)

    def platform_class(self) -> type:
        """Return the class of the pinout."""
        module, name = self.platform.rsplit(".", 1)
        return getattr(importlib.import_module(f"amaranth_boards.{module}"), name)


#: What 24 thousand LUTs cost: a bus as wide as the memory is.
_25F = {"bus_bytes": 2}
_NOT_PLACED = "takes 89 % of the LUTs: nextpnr has not placed it so far"
#: What all sizes of the ULX3S have.
_ULX3S: dict[str, Any] = {
    "family": "ecp5",
    "package": "CABGA381",
    "speed": "6",
    "oscillator_mhz": 25,
    "chips": ("IS42S16160G-7", "AS4C32M16SB-7"),
    "loader": ("--board", "ulx3s"),
}

_BOARDS = [
    Board(
        "ulx3s-85f",
        preset="ecp5-85f",
        device="LFE5U-85F",
        clock_mhz=100,
        platform="ulx3s.ULX3S_85F_Platform",
        **_ULX3S,
        note="also with 64 MB: --sdram AS4C32M16SB-7",
    ),
    Board(
        "ulx3s-45f",
        preset="ecp5-25f",
        settings={
            "in_lanes": 8,
            "out_lanes": 8,
            "post_lanes": 2,
            "line_buffer_bytes": 48 * 1024,
            "weight_buffer_bytes": 64 * 1024,
        },
        device="LFE5U-45F",
        clock_mhz=85,
        platform="ulx3s.ULX3S_45F_Platform",
        **_ULX3S,
    ),
    Board(
        "ulx3s-25f",
        preset="ecp5-25f",
        settings=_25F,
        device="LFE5U-25F",
        clock_mhz=80,
        platform="ulx3s.ULX3S_25F_Platform",
        **_ULX3S,
        note=_NOT_PLACED,
    ),
    Board(
        "icesugar-pro",
        preset="ecp5-25f",
        settings=_25F,
        family="ecp5",
        device="LFE5U-25F",
        package="CABGA256",
        speed="6",
        oscillator_mhz=25,
        clock_mhz=80,
        chips=("IS42S16160B-7",),
        platform="icesugar_pro.ICESugarProPlatform",
        loader=("--cable", "cmsisdap"),
        note=_NOT_PLACED,
    ),
    Board(
        "colorlight-5a75b",
        preset="ecp5-25f",
        family="ecp5",
        device="LFE5U-25F",
        package="CABGA256",
        speed="6",
        oscillator_mhz=25,
        clock_mhz=80,
        chips=("2x M12L16161A-7",),
        platform="colorlight_5a75b_r7_0.Colorlight_5A75B_R70Platform",
        loader=("--cable", "ft232"),
        supported=False,
        note="revision 7.0 has no byte masks, so a bus of 4 bytes: too many LUTs to be sure",
    ),
    Board(
        "icebreaker",
        preset="up5k",
        family="ice40",
        device="iCE40UP5K",
        package="SG48",
        speed="",
        oscillator_mhz=12,
        clock_mhz=12,
        chips=(),
        platform="icebreaker.ICEBreakerPlatform",
        supported=False,
        note="the core does not fit",
    ),
]

#: The boards by name.
BOARDS: Mapping[str, Board] = MappingProxyType({board.name: board for board in _BOARDS})

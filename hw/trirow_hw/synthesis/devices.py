"""Devices of the ECP5 family, and how their resources are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["DEVICES", "Device", "Usage", "netlist_usage"]


@dataclass(frozen=True)
class Device:
    """A device, with what it has (Lattice FPGA-DS-02012, table 1.1).

    Parameters
    ----------
    name : str
        As Lattice calls it.
    option : str
        As nextpnr calls it.
    luts, dsps, block_rams : int
        Four-input LUTs, each with a register; multipliers of 18 x 18 bits; memories of 18 Kbit.
    placer : str
        The one of nextpnr that suits: on the largest device ``static`` takes a third of the time of
        ``heap``, but it does not come to an end on a small one that is nearly full.
    """

    name: str
    option: str
    luts: int
    dsps: int
    block_rams: int
    placer: str = "heap"

    @property
    def available(self) -> dict[str, int]:
        """Resources by the names that reports use.

        Eight LUTs make a block of logic, which holds one LUT RAM of 16 x 4 bits beside two more.
        """
        return {
            "luts": self.luts,
            "registers": self.luts,
            "dsps": self.dsps,
            "block_rams": self.block_rams,
            "lut_rams": self.luts // 8,
        }


#: The devices by name.
DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("LFE5U-25F", "--25k", 24_288, 28, 56),
        Device("LFE5U-45F", "--45k", 43_848, 72, 108),
        Device("LFE5U-85F", "--85k", 83_640, 156, 208, placer="static"),
    )
}


@dataclass(frozen=True)
class Usage:
    """How much of a resource is used.

    Parameters
    ----------
    used, available : int
    """

    used: int
    available: int

    @property
    def percent(self) -> float:
        """Used part in percent."""
        return 100 * self.used / self.available


def netlist_usage(cells: Mapping[str, int], device: Device) -> dict[str, Usage]:
    """Return what a netlist of Yosys takes of a device.

    A carry cell (CCU2C) takes two LUTs; a LUT RAM (TRELLIS_DPR16X4) four, and two more for its
    write port. nextpnr adds LUTs that only pass a signal on to a register or a carry chain.
    """
    count: Counter[str] = Counter(cells)
    used = {
        "luts": count["LUT4"] + 2 * count["CCU2C"] + 6 * count["TRELLIS_DPR16X4"],
        "registers": count["TRELLIS_FF"],
        "dsps": count["MULT18X18D"],
        "block_rams": count["DP16KD"],
        "lut_rams": count["TRELLIS_DPR16X4"],
    }
    return {name: Usage(used[name], available) for name, available in device.available.items()}

"""Most cells that the core of a preset may have after ``synth_ecp5``; growth shows here first."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LIMITS", "over_limits"]

#: By preset and type of cell: a tenth above what it has, multipliers exactly. DPR16X4 is LUT RAM of
#: 64 bits: command queues are in it, each as wide as a unit's part of the descriptor; no buffer is.
LIMITS: dict[str, dict[str, int]] = {
    "tiny": {
        "LUT4": 11_570,
        "CCU2C": 2_860,
        "TRELLIS_FF": 20_670,
        "MULT18X18D": 20,
        "DP16KD": 21,
        "TRELLIS_DPR16X4": 345,
    },
    "ecp5-85f": {
        "LUT4": 16_000,
        "CCU2C": 4_620,
        "TRELLIS_FF": 30_220,
        "MULT18X18D": 136,
        "DP16KD": 144,
        "TRELLIS_DPR16X4": 373,
    },
}


def over_limits(cells: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Return a line for each limit that is exceeded.

    Parameters
    ----------
    cells : Mapping
        Number of cells by type.
    limits : Mapping
        Most cells by type.
    """
    return [
        f"{cells.get(name, 0):,} {name}, more than {limit:,}"
        for name, limit in limits.items()
        if cells.get(name, 0) > limit
    ]

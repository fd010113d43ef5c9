"""Copies of a register that resets many others, so that each reaches those of one unit only."""

from __future__ import annotations

import copy
from collections import defaultdict

__all__ = ["spread_resets"]

#: Readers from which a register is copied, and those that a copy should have at least.
MANY = 1000
FEW = 30
#: Levels of the hierarchy in a unit's name.
LEVELS = 3


def spread_resets(module: dict) -> int:
    """Copy each register that resets more than `MANY` others, for every unit that it reaches.

    Reset of a whole design comes from one register, which would have to reach every corner of the
    device within a cycle; nextpnr has no such copies, and puts only clocks on global wires. Yosys
    would merge copies that the design contains. What belongs to a unit is known from the name of
    its cell.

    Parameters
    ----------
    module : dict
        Flat module of a JSON netlist of Yosys for ECP5; is changed.

    Returns
    -------
    int
        Copies that were made.
    """
    cells = module["cells"]
    readers = defaultdict(list)
    resets: dict[object, int] = defaultdict(int)
    free = 0
    for name, cell in cells.items():
        for port, bits in cell["connections"].items():
            free = max(free, *(bit + 1 for bit in bits if isinstance(bit, int)), 0)
            if cell["port_directions"][port] == "input":
                for place, bit in enumerate(bits):
                    readers[bit].append((name, port, place))
            if port == "LSR":
                resets[bits[0]] += 1
    copies = 0
    for name, cell in list(cells.items()):
        if cell["type"] != "TRELLIS_FF" or resets[cell["connections"]["Q"][0]] <= MANY:
            continue
        units = defaultdict(list)
        for reader in readers[cell["connections"]["Q"][0]]:
            units[".".join(reader[0].split(".")[:LEVELS])].append(reader)
        for unit, places in units.items():
            if len(places) < FEW:
                continue
            own = copy.deepcopy(cell)
            own["connections"]["Q"] = [free]
            cells[f"{name}${unit}"] = own
            for reader, port, place in places:
                cells[reader]["connections"][port][place] = free
            free += 1
            copies += 1
    return copies

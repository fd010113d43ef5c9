"""Copies of a register that resets many others, so that each reaches those of one unit only."""

from __future__ import annotations

from collections import defaultdict

from .connections import Connections, is_register

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
    connections = Connections(module)
    copies = 0
    for name, cell in list(connections.cells.items()):
        if not is_register(cell):
            continue
        readers = connections.readers[cell["connections"]["Q"][0]]
        if sum(reader.port == "LSR" for reader in readers) <= MANY:
            continue
        units = defaultdict(list)
        for reader in readers:
            units[".".join(reader.cell.split(".")[:LEVELS])].append(reader)
        for unit, places in units.items():
            if len(places) < FEW:
                continue
            own = connections.copy_register(cell, f"{name}${unit}")
            for reader, port, place in places:
                connections.cells[reader]["connections"][port][place] = own["connections"]["Q"][0]
            copies += 1
    return copies

"""The slowest path of a routed netlist, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CriticalPath", "critical_path"]

#: Ends of the names that Yosys makes from a net and the cells around it.
_CELLS = r"(TRELLIS|LUT4|PFUMX|CCU2C|L6MUX|MULT18X18D|DP16KD|\$|_D_|_Q_)"


@dataclass(frozen=True)
class CriticalPath:
    """From one register to the next.

    Parameters
    ----------
    begin, end : str
        Cell and port where it begins and ends, with the units around: ``core.array.product.Q``.
    luts, carries, blocks, wires : int
        LUTs and multiplexers, bits of carry chains, multipliers on the way, and wires
        between places.
    logic_ns, wire_ns : float
        Delay of cells, setup included, and of wires.
    """

    begin: str
    end: str
    luts: int
    carries: int
    blocks: int
    wires: int
    logic_ns: float
    wire_ns: float

    @property
    def total_ns(self) -> float:
        """Delay of the whole path."""
        return self.logic_ns + self.wire_ns

    def __str__(self) -> str:
        through = [_count(self.luts, "LUT")]
        through += [_count(self.carries, "carry bit")] if self.carries else []
        through += [_count(self.blocks, "multiplier")] if self.blocks else []
        return (
            f"from {_place(self.begin)} through {', '.join(through)} and "
            f"{_count(self.wires, 'wire')}, {self.logic_ns:.1f} ns logic, {self.wire_ns:.1f} ns "
            f"wire, to {_place(self.end)}"
        )


def critical_path(steps: list[dict]) -> CriticalPath:
    """Return the summary of a path of nextpnr's report.

    Parameters
    ----------
    steps : list of dict
        The member ``path`` of an entry of ``critical_paths``: steps of type ``clk-to-q``,
        ``logic``, ``routing`` and ``setup``, with nanoseconds and what is at both ends.
    """
    luts = carries = blocks = 0
    for step in steps:
        if step["type"] == "logic":
            ports = step["from"]["port"], step["to"]["port"]
            if "FCI" in ports or "FCO" in ports:
                carries += 1
            elif re.fullmatch("P[0-9]+", ports[1]):
                blocks += 1
            else:
                luts += 1
    moves = [s for s in steps if s["type"] == "routing" and s["from"]["loc"] != s["to"]["loc"]]
    wire = sum(step["delay"] for step in steps if step["type"] == "routing")
    return CriticalPath(
        begin=_name(steps[0]["from"]),
        end=_name(steps[-1]["to"]),
        luts=luts,
        carries=carries,
        blocks=blocks,
        wires=len(moves),
        logic_ns=sum(step["delay"] for step in steps) - wire,
        wire_ns=wire,
    )


def _name(end: dict) -> str:
    """Return a cell's name up to where Yosys appended those of cells, and the port."""
    cell = re.split(f"_{_CELLS}|{_CELLS}", end["cell"], maxsplit=1)[0]
    return f"{cell or end['cell']}.{end['port']}"


def _place(name: str) -> str:
    *units, cell, port = name.rsplit(".")
    unit = f" of unit {'.'.join(units)}" if units else ""
    return f"{cell} (port {port}){unit}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"

"""What drives and what reads each bit of a netlist, and what its registers are like."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Connections", "Reader", "enable", "is_register", "reset", "rises"]


class Reader(NamedTuple):
    """A place that reads a bit: name of the cell ("" for an output of the module), port, index."""

    cell: str
    port: str
    place: int


class Connections:
    """A flat module of a JSON netlist of Yosys, as it is when this is made.

    Parameters
    ----------
    module : dict
        Is changed by `copy_register`.

    Attributes
    ----------
    cells : dict
        Those of the module.
    readers : dict of bit to list of Reader
    driver : dict of bit to cell
    """

    def __init__(self, module: dict):
        self.cells = module["cells"]
        self.readers: dict[object, list[Reader]] = defaultdict(list)
        self.driver: dict[object, dict] = {}
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for place, bit in enumerate(bits):
                    if cell["port_directions"][port] == "output":
                        self.driver[bit] = cell
                    else:
                        self.readers[bit].append(Reader(name, port, place))
        for port, entry in module.get("ports", {}).items():
            if entry["direction"] != "input":
                for place, bit in enumerate(entry["bits"]):
                    self.readers[bit].append(Reader("", port, place))
        self._free = 1 + max(
            (bit for bit in (*self.driver, *self.readers) if isinstance(bit, int)), default=1
        )

    def new_bit(self) -> int:
        """Return a bit that is not in use."""
        self._free += 1
        return self._free - 1

    def copy_register(self, register: dict, name: str) -> dict:
        """Add a copy of a register under a name, with an output of its own, and return it."""
        own = copy.deepcopy(register)
        own["connections"]["Q"] = [self.new_bit()]
        self.cells[name] = own
        return own


def is_register(cell: Mapping) -> bool:
    """Tell whether a cell is a register."""
    return cell["type"] == "TRELLIS_FF"


def rises(register: Mapping) -> bool:
    """Tell whether a register takes its data at the rising edge."""
    return register["parameters"].get("CLKMUX", "CLK") == "CLK"


def reset(register: Mapping) -> object | None:
    """Return the bit that resets a register, or None."""
    (bit,) = register["connections"].get("LSR", ["0"])
    return bit if isinstance(bit, int) else None


def enable(register: Mapping) -> tuple | None:
    """Return how a register is enabled ("CE" or "INV") and by which bit; None if always."""
    kind = register["parameters"].get("CEMUX", "CE").strip()
    return None if kind == "1" else (kind, *register["connections"]["CE"])

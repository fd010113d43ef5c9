"""Registers of ECP5's block RAMs and multipliers, which Yosys leaves in the fabric.

Data leave a block RAM late in a cycle (5.7 ns of 10 at speed grade 6), and a product takes 3.9 ns:
with a register in the block instead of the fabric the way to the fabric has a cycle of its own
(Lattice FPGA-TN-02204, ECP5 Memory Usage Guide; FPGA-TN-02205, ECP5 sysDSP Usage Guide).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .connections import Connections, enable, is_register, reset, rises

__all__ = ["move_into_blocks"]

_CONSTANT = ("0", "x")


def move_into_blocks(module: dict) -> Counter[str]:
    """Move registers into the block RAMs and multipliers that they are next to.

    Behind a block, each output that is used must go to one register and to nothing else; all of
    them are moved, or none. A register in front of multipliers must go to nothing else. Registers
    with a reset or an initial value of one stay, and so do those in front of or behind a multiplier
    that have an enable; those behind a block RAM must share it.

    Parameters
    ----------
    module : dict
        Flat module of a JSON netlist of Yosys for ECP5; is changed.

    Returns
    -------
    Counter
        Bits that were moved: ``block RAM``, ``product`` and ``factor``.
    """
    netlist = _Netlist(module)
    moved: Counter[str] = Counter()
    for cell in list(module["cells"].values()):
        if cell["type"] == "DP16KD":
            for letters, clock in _read_ports(cell):
                moved["block RAM"] += _move_behind_memory(netlist, cell, letters, clock)
        elif cell["type"] == "MULT18X18D":
            moved["product"] += _move_behind_multiplier(netlist, cell)
    moved["factor"] = _move_in_front(netlist)
    return +moved


@dataclass(frozen=True)
class _Register:
    """A register that may be moved, with what the others must share."""

    name: str
    data: object
    output: object
    clock: object
    enable: object | None


class _Netlist(Connections):
    """A module with its registers."""

    def __init__(self, module: dict):
        super().__init__(module)
        found = [_register(name, cell) for name, cell in self.cells.items()]
        self.behind = {register.data: register for register in found if register}
        self.by_output = {register.output: register for register in found if register}

    def registers_behind(self, cell: Mapping, ports: Iterable[str]) -> dict[str, _Register] | None:
        """Return the register behind each output that is used, or None if one has none."""
        found = {}
        for port in ports:
            (bit,) = cell["connections"].get(port, ["x"])
            readers = self.readers[bit] if isinstance(bit, int) else []
            if not readers:
                continue
            if len(readers) > 1 or bit not in self.behind:
                return None
            found[port] = self.behind[bit]
        return found if len({(r.clock, r.enable) for r in found.values()}) == 1 else None

    def take_over(self, cell: dict, registers: Mapping[str, _Register]) -> None:
        """Let outputs of a block be those of the registers behind them, which are removed."""
        for port, register in registers.items():
            cell["connections"][port] = [register.output]
            del self.cells[register.name]


def _register(name: str, cell: Mapping) -> _Register | None:
    """Return a cell as a register if it is one that a block can be given."""
    if not is_register(cell) or not rises(cell) or reset(cell) is not None:
        return None
    kind, by = enable(cell) or ("CE", None)
    if kind == "INV" or cell["parameters"].get("REGSET", "RESET") != "RESET":
        return None
    data, output, clock = (cell["connections"][port][0] for port in ("DI", "Q", "CLK"))
    return _Register(name, data, output, clock, by)


def _number(cell: Mapping, parameter: str) -> int:
    return int(cell["parameters"][parameter], 2)


def _read_ports(memory: Mapping) -> list[tuple[str, str]]:
    """Return which outputs belong together, by their letters, and the port that they are of."""
    if _number(memory, "DATA_WIDTH_B") == 36:
        return [("AB", "B")]
    return [("A", "A"), ("B", "B")]


def _move_behind_memory(netlist: _Netlist, cell: dict, letters: str, port: str) -> int:
    if any(cell["parameters"].get(f"REGMODE_{letter}", "NOREG") != "NOREG" for letter in letters):
        return 0
    outputs = [f"DO{letter}{k}" for letter in letters for k in range(18)]
    registers = netlist.registers_behind(cell, outputs)
    if registers is None:
        return 0
    any_register = next(iter(registers.values()))
    clock, enabled_by = any_register.clock, any_register.enable
    same_edge = cell["parameters"].get(f"CLK{port}MUX", f"CLK{port}") == f"CLK{port}"
    if not same_edge or cell["connections"][f"CLK{port}"] != [clock]:
        return 0
    for letter in letters:
        cell["parameters"][f"REGMODE_{letter}"] = "OUTREG"
        cell["connections"][f"OCE{letter}"] = ["1" if enabled_by is None else enabled_by]
        cell["port_directions"][f"OCE{letter}"] = "input"
    netlist.take_over(cell, registers)
    return len(registers)


def _give_register(cell: dict, register: str, clock: object) -> bool:
    """Switch a register of a multiplier on; return False if it has another clock already."""
    connections = cell["connections"]
    if connections.get("CLK0", ["0"])[0] not in (*_CONSTANT, clock):
        return False
    for port, bit in (("CLK0", clock), ("CE0", "1"), ("RST0", "0")):
        connections[port], cell["port_directions"][port] = [bit], "input"
        cell["parameters"][f"REG_{register}_{port[:-1]}"] = port
    return True


def _has_register(cell: Mapping, register: str) -> bool:
    return cell["parameters"].get(f"REG_{register}_CLK", "NONE") != "NONE"


def _move_behind_multiplier(netlist: _Netlist, cell: dict) -> int:
    registers = netlist.registers_behind(cell, [f"P{k}" for k in range(36)])
    if registers is None or _has_register(cell, "OUTPUT"):
        return 0
    any_register = next(iter(registers.values()))
    clock, enabled_by = any_register.clock, any_register.enable
    if enabled_by is not None or not _give_register(cell, "OUTPUT", clock):
        return 0
    netlist.take_over(cell, registers)
    return len(registers)


def _factor_bits(cell: Mapping, letter: str) -> set[object]:
    bits = {cell["connections"].get(f"{letter}{k}", ["0"])[0] for k in range(18)}
    return bits - set(_CONSTANT)


def _move_in_front(netlist: _Netlist) -> int:
    """Move registers whose readers are factors of multipliers, as long as all of these can."""
    factors = {
        (name, letter)
        for name, cell in netlist.cells.items()
        if cell["type"] == "MULT18X18D"
        for letter in "AB"
        if not _has_register(cell, f"INPUT{letter}") and _factor_bits(cell, letter)
    }

    def can_be_moved(name: str, letter: str) -> bool:
        registers = [
            netlist.by_output.get(bit) for bit in _factor_bits(netlist.cells[name], letter)
        ]
        if any(r is None or r.enable is not None or r.name not in netlist.cells for r in registers):
            return False
        readers = {reader for r in registers if r for reader in netlist.readers[r.output]}
        return all((reader.cell, reader.port[:1]) in factors for reader in readers)

    while stay := {factor for factor in factors if not can_be_moved(*factor)}:
        factors -= stay
    moved = set()
    for name, letter in factors:
        cell = netlist.cells[name]
        registers = {netlist.by_output[bit] for bit in _factor_bits(cell, letter)}
        (clock,) = {register.clock for register in registers}
        if not _give_register(cell, f"INPUT{letter}", clock):
            raise ValueError(f"{name} has several clocks")
        for k in range(18):
            (bit,) = cell["connections"].get(f"{letter}{k}", ["0"])
            if bit in netlist.by_output:
                cell["connections"][f"{letter}{k}"] = [netlist.by_output[bit].data]
        moved |= {register.name for register in registers}
    for name in moved:
        del netlist.cells[name]
    return len(moved)

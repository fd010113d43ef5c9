"""Registers in the pads of ECP5, so that every pin of a memory changes at the same time.

nextpnr puts a register into a pad's logic only if it bears the attributes ``syn_useioff`` and
``ioff_dir``. Amaranth's ``io.FFBuffer`` instantiates such registers, but they would come behind
those that the SDRAM controller has already, and take a cycle more. This finds the controller's own
in the netlist.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping

from .connections import Connections, enable, is_register, reset, rises

__all__ = ["mark_pad_registers"]

#: Ports of a pad at the fabric's side: data out, output disabled, data in.
_PORTS = {"output": "I", "tristate": "T", "input": "O"}


def mark_pad_registers(module: dict, prefix: str = "") -> Counter[str]:
    """Mark every register behind a pad, so that nextpnr puts it there.

    An output register that drives other things as well is copied. An input must drive nothing but
    its register. A register that enables the outputs of many pads, with an inverter between as pads
    are *disabled* by a one, is copied: each pad gets a register of the inverted enable.

    Registers of one pad share clock and reset, those of its output and its enable also the clock
    enable. One that cannot agree with the others stays where it is, as does one of the falling edge
    behind an output. If only one of output and enable has a reset, both get it.

    Parameters
    ----------
    module : dict
        Flat module of a JSON netlist of Yosys; is changed.
    prefix : str
        Only pads whose cell's name begins so.

    Returns
    -------
    Counter
        Registers in pads as ``input``, ``output`` and ``tristate``.
    """
    netlist = _Netlist(module)
    marked: Counter[str] = Counter()
    for name, cell in list(module["cells"].items()):
        if cell["type"] != "TRELLIS_IO" or not name.startswith(prefix):
            continue
        inside: dict[str, dict] = {}
        for direction, port in _PORTS.items():
            register = None
            if port in cell["connections"]:
                register = netlist.register(name, port, direction)
            if register is None or not (direction == "input" or rises(register)):
                continue
            if _agrees(register, direction, inside):
                inside[direction] = register
        _share_reset(inside)
        for direction, register in inside.items():
            register.setdefault("attributes", {}).update(
                syn_useioff="1", ioff_dir="input" if direction == "input" else "output"
            )
        marked.update(inside.keys())
    return marked


class _Netlist:
    """A module whose pads are given registers."""

    def __init__(self, module: dict):
        self._connections = Connections(module)
        self._cells = self._connections.cells
        self._readers = Counter({b: len(r) for b, r in self._connections.readers.items()})
        self._by_input = {
            c["connections"]["DI"][0]: c for c in self._cells.values() if is_register(c)
        }
        self._inverters: dict[object, int] = {}

    def register(self, pad: str, port: str, direction: str) -> dict | None:
        """Return the register of a pad, a copy if it has other uses, or None."""
        (bit,) = self._cells[pad]["connections"][port]
        if direction == "input":
            return self._by_input.get(bit) if self._readers[bit] == 1 else None
        register = self._connections.driver.get(bit)
        if register is not None and is_register(register):
            if self._readers[bit] == 1:
                return register
            self._readers[bit] -= 1
            return self._copy(pad, port, register)
        return self._inverted_copy(pad, port, bit) if direction == "tristate" else None

    def _copy(self, pad: str, port: str, register: dict) -> dict:
        """Give a pad a copy of a register."""
        own = self._connections.copy_register(register, f"{pad}${port}")
        self._cells[pad]["connections"][port] = own["connections"]["Q"]
        return own

    def _inverted_copy(self, pad: str, port: str, bit: object) -> dict | None:
        """Give a pad whose port is the inverse of a register one of its own, already inverted."""
        inverter = self._connections.driver.get(bit)
        source = _inverted(inverter) if inverter is not None else None
        register = self._connections.driver.get(source)
        if register is None or not is_register(register):
            return None
        data = register["connections"]["DI"][0]
        if data not in self._inverters:
            self._inverters[data] = self._connections.new_bit()
            self._cells[f"{pad}$inverter"] = {
                **copy.deepcopy(inverter),
                "connections": {
                    name: [self._inverters[data]] if name == "Z" else [data if b == source else b]
                    for name, (b,) in inverter["connections"].items()
                },
            }
        own = self._copy(pad, port, register)
        opposite = {"RESET": "SET", "SET": "RESET"}
        own["parameters"]["REGSET"] = opposite[own["parameters"].get("REGSET", "RESET")]
        own["connections"]["DI"] = [self._inverters[data]]
        return own


def _inverted(cell: Mapping) -> object | None:
    """Return the bit whose inverse a cell gives; None if it gives anything else."""
    if cell["type"] != "LUT4":
        return None
    inputs = {name: cell["connections"][name][0] for name in "ABCD"}
    signals = {bit for bit in inputs.values() if isinstance(bit, int)}
    if len(signals) != 1:
        return None
    table = int(cell["parameters"]["INIT"], 2)

    def output(value: bool) -> int:
        index = 0
        for k, bit in enumerate(inputs.values()):
            index |= (value if isinstance(bit, int) else bit == "1") << k
        return table >> index & 1

    return signals.pop() if (output(False), output(True)) == (1, 0) else None


def _agrees(register: Mapping, direction: str, inside: Mapping[str, Mapping]) -> bool:
    """Tell whether a register can be in a pad that others are in."""
    for other_direction, other in inside.items():
        if register["connections"]["CLK"] != other["connections"]["CLK"]:
            return False
        resets = {reset(register), reset(other)} - {None}
        enables = {enable(register), enable(other)}
        if "input" in (direction, other_direction):
            enables -= {None}  # has an "always" of its own
        if len(resets) > 1 or len(enables) > 1:
            return False
    return True


def _share_reset(inside: Mapping[str, dict]) -> None:
    """Give registers of a pad that have no reset the form that nextpnr accepts beside one."""
    resets = {d: r for d, r in inside.items() if reset(r) is not None}
    for direction, register in inside.items():
        if direction in resets:
            continue
        outputs = [r for d, r in resets.items() if d != "input"]
        if direction != "input" and outputs:
            register["connections"]["LSR"] = outputs[0]["connections"]["LSR"]
            register["parameters"]["SRMODE"] = outputs[0]["parameters"].get("SRMODE", "ASYNC")
            continue
        register["connections"].pop("LSR", None)
        register["port_directions"].pop("LSR", None)
        if resets:
            (other, *_) = resets.values()
            register["parameters"]["SRMODE"] = other["parameters"].get("SRMODE", "ASYNC")

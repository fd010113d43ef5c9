"""A netlist that Yosys wrote as JSON, as Verilog that is quick to translate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["invert_table", "netlist_verilog"]

#: What says something about the source, and is no cell.
_NOT_CELLS = {"$scopeinfo"}
_WIRES_A_LINE = 12


def netlist_verilog(netlist: Mapping[str, Any], name: str) -> str:
    """Return a module of a netlist as Verilog: instances of primitives, and a wire for each bit.

    Yosys' own `write_verilog` keeps names of hundreds of letters and wires of several bits, of
    which Verilator makes twice the code.

    Parameters
    ----------
    netlist : mapping
        What Yosys' `write_json` wrote; flat.
    name : str
        Name of the module.
    """
    module = netlist["modules"][name]
    lines = [f"module {name} ("]
    ports = module["ports"]
    lines += [
        f"    {port['direction']} [{len(port['bits']) - 1}:0] \\{key} ,"
        for key, port in ports.items()
    ]
    lines[-1] = lines[-1].removesuffix(",")
    lines.append(");")
    cells = [cell for cell in module["cells"].values() if cell["type"] not in _NOT_CELLS]
    nets = sorted(_nets(ports, cells))
    for k in range(0, len(nets), _WIRES_A_LINE):
        lines.append(f"    wire {', '.join(map(_bit, nets[k : k + _WIRES_A_LINE]))};")
    for key, port in ports.items():
        for k, bit in enumerate(port["bits"]):
            pair = (_bit(bit), f"\\{key} [{k}]")
            left, right = pair if port["direction"] == "input" else reversed(pair)
            lines.append(f"    assign {left} = {right};")
    lines += [_instance(k, cell) for k, cell in enumerate(cells)]
    return "\n".join([*lines, "endmodule", ""])


def invert_table(netlist: Mapping[str, Any], name: str, cell: str) -> None:
    """Invert the table of a LUT4 in a netlist: a fault, for tests.

    Parameters
    ----------
    netlist : mapping
        Changed in place.
    name : str
        Name of the module.
    cell : str
        Name of the cell.

    Raises
    ------
    ValueError
        If there is no such LUT4.
    """
    found = netlist["modules"][name]["cells"].get(cell)
    if found is None or found["type"] != "LUT4":
        raise ValueError(f"the netlist has no LUT4 {cell!r}")
    table = found["parameters"]["INIT"]
    found["parameters"]["INIT"] = table.translate(str.maketrans("01", "10"))


def _nets(ports: Mapping[str, Any], cells: list[Any]) -> set[int]:
    connections = [port["bits"] for port in ports.values()]
    connections += [bits for cell in cells for bits in cell["connections"].values()]
    return {bit for bits in connections for bit in bits if isinstance(bit, int)}


def _bit(bit: int | str) -> str:
    """Return a bit of a connection: nets are numbers, constants are letters."""
    return f"n{bit}" if isinstance(bit, int) else f"1'b{bit}"


def _instance(number: int, cell: Mapping[str, Any]) -> str:
    parameters = ", ".join(
        f".{key}({_parameter(value)})" for key, value in cell["parameters"].items()
    )
    pins = ", ".join(_pins(cell["connections"]))
    return f"    {cell['type']} #({parameters}) c{number} ({pins});"


def _pins(connections: Mapping[str, list[int | str]]) -> Iterator[str]:
    for key, bits in connections.items():
        if len(bits) == 1:
            yield f".{key}({_bit(bits[0])})"
        else:
            yield f".{key}({{{', '.join(map(_bit, reversed(bits)))}}})"


def _parameter(value: str) -> str:
    """Return a parameter; Yosys adds a space to a text that could be taken for bits."""
    if re.fullmatch("[01xz]+", value):
        return f"{len(value)}'b{value}"
    text = value.removesuffix(" ") if re.fullmatch("[01xz]* +", value) else value
    return f'"{text}"'

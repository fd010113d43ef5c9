"""Registers that are moved into block RAMs and multipliers."""

import copy

import pytest

from trirow_hw.synthesis.block_registers import move_into_blocks

CLOCK, OTHER, ENABLE = 2, 3, 4


def cell(kind, outputs, parameters, connections):
    return {
        "type": kind,
        "parameters": dict(parameters),
        "port_directions": {p: "output" if p in outputs else "input" for p in connections},
        "connections": {p: [bit] for p, bit in connections.items()},
    }


def register(d, q, *, clock=CLOCK, enable=None, lsr="0", regset="RESET"):
    parameters = {"CLKMUX": "CLK", "CEMUX": "1 " if enable is None else "CE", "REGSET": regset}
    connections = {"CLK": clock, "DI": d, "LSR": lsr, "Q": q}
    if enable is not None:
        connections["CE"] = enable
    return cell("TRELLIS_FF", {"Q"}, parameters, connections)


def memory(width, outputs):
    parameters = {"DATA_WIDTH_A": f"{width:032b}", "DATA_WIDTH_B": f"{width:032b}"}
    parameters |= {"CLKBMUX": "CLKB", "REGMODE_A": "NOREG", "REGMODE_B": "NOREG"}
    return cell("DP16KD", set(outputs), parameters, {"CLKB": CLOCK, "CLKA": CLOCK, **outputs})


def multiplier(**connections):
    return cell("MULT18X18D", {p for p in connections if p[0] == "P"}, {}, connections)


def module(**cells):
    return {"ports": {}, "cells": copy.deepcopy(cells)}


@pytest.mark.parametrize("enable", [None, ENABLE])
@pytest.mark.parametrize(("width", "ports"), [(18, ["DOB0", "DOB1"]), (36, ["DOA3", "DOB17"])])
def test_behind_a_memory(width, ports, enable):
    design = module(
        ram=memory(width, dict(zip(ports, (10, 11), strict=True))),
        r0=register(10, 20, enable=enable),
        r1=register(11, 21, enable=enable),
    )
    assert move_into_blocks(design) == {"block RAM": 2}
    (ram,) = design["cells"].values()
    assert [ram["connections"][port] for port in ports] == [[20], [21]]
    letters = "AB" if width == 36 else "B"
    for letter in letters:
        assert ram["parameters"][f"REGMODE_{letter}"] == "OUTREG"
        assert ram["connections"][f"OCE{letter}"] == ["1" if enable is None else ENABLE]
    if width == 18:
        assert ram["parameters"]["REGMODE_A"] == "NOREG"


@pytest.mark.parametrize(
    "changed",
    [
        {"r1": register(11, 21, lsr=30)},
        {"r1": register(11, 21, regset="SET")},
        {"r1": register(11, 21, clock=OTHER)},
        {"r1": register(11, 21, enable=ENABLE)},
        {"reader": register(11, 22)},
        {"r1": cell("LUT4", {"Z"}, {}, {"A": 11, "Z": 21})},
    ],
)
def test_what_stays_behind_a_memory(changed):
    cells = {
        "ram": memory(18, {"DOB0": 10, "DOB1": 11}),
        "r0": register(10, 20),
        "r1": register(11, 21),
    }
    design = module(**(cells | changed))
    before = copy.deepcopy(design)
    assert move_into_blocks(design) == {}
    assert design == before


def test_around_a_multiplier():
    """Also registers that are factors of several multipliers."""
    design = module(
        a=register(10, 11), b=register(12, 13),
        m0=multiplier(A0=11, A17=11, B0=13, P0=14),
        m1=multiplier(A0=11, B0="0", P0=15),
        p0=register(14, 20), p1=register(15, 21, lsr=30),
    )  # fmt: skip
    assert move_into_blocks(design) == {"product": 1, "factor": 2}
    cells = design["cells"]
    assert set(cells) == {"m0", "m1", "p1"}
    first, second = cells["m0"], cells["m1"]
    assert [first["connections"][p] for p in ("A0", "A17", "B0", "P0")] == [[10], [10], [12], [20]]
    assert second["connections"]["A0"] == [10]
    assert [first["parameters"].get(f"REG_{r}_CLK") for r in ("INPUTA", "INPUTB", "OUTPUT")] == [
        "CLK0", "CLK0", "CLK0",
    ]  # fmt: skip
    assert [second["parameters"].get(f"REG_{r}_CLK") for r in ("INPUTA", "OUTPUT")] == [
        "CLK0", None,
    ]  # fmt: skip


def test_a_factor_with_another_reader_stays_and_what_is_beside_it():
    design = module(
        a=register(10, 11), b=register(12, 13), c=register(16, 17),
        m0=multiplier(A0=11, A1=13, B0=17, P0=14), m1=multiplier(A0=13, P0=15),
        other=cell("LUT4", {"Z"}, {}, {"A": 11, "Z": 18}),
    )  # fmt: skip
    # `b` is beside `a` in m0, which has to stay; so it stays in m1, too.
    assert move_into_blocks(design) == {"factor": 1}
    assert set(design["cells"]) == {"a", "b", "m0", "m1", "other"}

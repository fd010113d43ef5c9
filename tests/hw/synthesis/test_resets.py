"""Copies of a register that resets many others."""

import copy

from trirow_hw.synthesis import resets
from trirow_hw.synthesis.resets import spread_resets

CLOCK = 2


def register(d, q, lsr):
    return {
        "type": "TRELLIS_FF",
        "parameters": {"REGSET": "SET"},
        "port_directions": {"CLK": "input", "DI": "input", "LSR": "input", "Q": "output"},
        "connections": {"CLK": [CLOCK], "DI": [d], "LSR": [lsr], "Q": [q]},
    }


def design(units):
    """A register that resets so many of each unit."""
    cells = {"top.reset": register(3, 4, "0")}
    for unit, count in units.items():
        for k in range(count):
            cells[f"{unit}.r{k}"] = register(3, 10 + len(cells), 4)
    return {"cells": cells}


def source(module, name):
    """The register that resets another."""
    (lsr,) = module["cells"][name]["connections"]["LSR"]
    (driver,) = [n for n, c in module["cells"].items() if c["connections"]["Q"] == [lsr]]
    return driver


def test_each_large_unit_gets_its_own():
    few = resets.FEW
    module = design({"top.core.a": 600, "top.core.b.inner": 500, "top.core.c": few - 1})
    before = copy.deepcopy(module["cells"])
    assert spread_resets(module) == 2
    cells = module["cells"]
    a, b, c = (
        source(module, f"{unit}.r0") for unit in ("top.core.a", "top.core.b.inner", "top.core.c")
    )
    assert len({a, b, c}) == 3
    assert c == "top.reset"
    for k in range(500):
        assert source(module, f"top.core.a.r{k}") == a
        assert source(module, f"top.core.b.inner.r{k}") == b
    for name in (a, b):
        own, original = cells[name], before["top.reset"]
        assert own["parameters"] == original["parameters"]
        assert own["connections"] == original["connections"] | {"Q": own["connections"]["Q"]}
    # Nothing else changes, and no bit is driven twice.
    outputs = [entry["connections"]["Q"][0] for entry in cells.values()]
    assert len(outputs) == len(set(outputs))
    for name, entry in before.items():
        for port in ("CLK", "DI", "Q"):
            assert cells[name]["connections"][port] == entry["connections"][port]


def test_what_resets_few_stays():
    module = design({"top.core.a": resets.MANY - 10, "top.core.b": 10})
    before = copy.deepcopy(module)
    assert spread_resets(module) == 0
    assert module == before

"""Layers on the netlist after synthesis for ECP5: outputs equal golden's, cycles those of the RTL.

Synthesis and build of the whole core take minutes; tests/sim/netlist has what takes seconds.
"""

import json
from functools import partial

import pytest

from trirow_hw.config import PRESETS
from trirow_sim.accelerate import RunError
from trirow_sim.case import Case
from trirow_sim.compiled import ToolchainError, find_toolchain
from trirow_sim.netlist import engine as netlist_engine
from trirow_sim.netlist.build import build_netlist, netlist_cells, synthesised
from trirow_sim.netlist.core import CORE
from trirow_sim.simulate import simulate_graph

pytestmark = pytest.mark.slow

TINY = PRESETS["tiny"]
PAD = (1, 1, 1, 1)
CASES = [
    (Case(shape=(7, 6, 5), out=9, pad=PAD, seed=1), "ddr"),
    (Case(shape=(6, 7, 5), out=6, pad=PAD, mode="fixed", seed=2), "random"),
    (Case("depthwise", (6, 5, 7), pad=PAD, stride=(2, 1), seed=3), "random"),
    (Case("depthwise", (5, 5, 4), pad=PAD, mode="fixed", activation="relu6", seed=4), "ideal"),
    (Case("maxpool", (7, 7, 6), stride=(2, 2), seed=5), "ddr"),
    (Case("add", (5, 6, 7), mode="fixed", seed=6), "random"),
    (Case(shape=(5, 5, 8), out=4, pad=PAD, mode="fixed", residual=True, seed=7), "ddr"),
    (Case(shape=(5, 5, 4), out=8, activation="hardswish", seed=8), "sdram16"),
]
#: What differs from run to run, or says which engine it was.
_RUN = ("seconds", "cycles_per_second", "engine")


@pytest.fixture(autouse=True)
def tools():
    pytest.importorskip("pyosys")
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))


def counted(simulation):
    return [
        {key: value for key, value in layer.to_dict().items() if key not in _RUN}
        for layer in simulation.report.layers
    ]


def test_netlist_has_the_primitives():
    """Else the layers below would say nothing about them."""
    cells = netlist_cells(TINY)
    for kind in ("MULT18X18D", "DP16KD", "TRELLIS_DPR16X4", "CCU2C", "PFUMX", "L6MUX21"):
        assert cells[kind], kind
    assert cells["MULT18X18D"] >= TINY.multipliers


@pytest.mark.parametrize(("case", "memory"), CASES, ids=lambda value: str(value)[:60])
def test_netlist_equals_golden_and_rtl(case, memory):
    nodes, features, slices = case.build()
    options = {"slices": slices, "memory": memory, "seed": 3}
    netlist = simulate_graph(nodes, features, TINY, engine="netlist", **options)
    assert netlist.ok
    rtl = simulate_graph(nodes, features, TINY, engine="compiled", **options)
    assert counted(netlist) == counted(rtl)


def test_wrong_table_is_noticed(monkeypatch):
    """One LUT of the requantiser is inverted, in a build of its own."""
    cells = json.loads(synthesised(TINY).read_text())["modules"][CORE]["cells"]
    names = sorted(
        name
        for name, cell in cells.items()
        if cell["type"] == "LUT4"
        and ".requantiser" in name
        and all(isinstance(cell["connections"][port][0], int) for port in "ABCD")
    )
    nodes, features, _ = CASES[0][0].build()
    faulty = partial(build_netlist, fault=names[len(names) // 2])
    monkeypatch.setattr(netlist_engine, "build_netlist", faulty)
    try:
        found = simulate_graph(nodes, features, TINY, engine="netlist")
    except RunError:
        return
    assert not found.ok

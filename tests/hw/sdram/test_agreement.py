"""Whole layers behind the controller and its chip, against the memory model `sdram16`."""

import pytest

import trirow_sim.engines
from trirow_hw.config import PRESETS
from trirow_sim.case import Case
from trirow_sim.simulate import simulate_graph

from .rtl_memory import RtlMemory

WIDE = PRESETS["tiny"].override(bus_bytes=8)
UP5K = PRESETS["up5k"].override(out_lanes=4)
CASES = [
    ("conv", Case(shape=(6, 6, 8), out=8, pad=(1, 1, 1, 1)), WIDE),
    ("pointwise", Case(shape=(6, 8, 16), out=8, kernel=(1, 1)), PRESETS["tiny"]),
    ("add", Case(op="add", shape=(6, 6, 16)), WIDE),
    ("conv narrow", Case(shape=(5, 5, 8), out=8, pad=(1, 1, 1, 1)), UP5K),
]


def cycles(case, config, monkeypatch, *, rtl):
    """Run a layer; return its cycles and its output."""
    models = []
    if rtl:

        def make(name, storage, bus_bytes, seed):
            models.append(RtlMemory(storage, bus_bytes))
            return models[-1]

        monkeypatch.setattr(trirow_sim.engines, "make_memory", make)
    nodes, features, slices = case.build()
    result = simulate_graph(
        nodes, features, config, slices=slices, memory="sdram16", engine="pysim"
    )
    monkeypatch.undo()
    assert result.ok
    assert bool(models) == rtl
    return result.report.to_dict()["network"]["cycles"], models


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case", "config"), CASES)
def test_cycles(name, case, config, monkeypatch):
    expected, _ = cycles(case, config, monkeypatch, rtl=False)
    real, (model,) = cycles(case, config, monkeypatch, rtl=True)
    print(f"{name}, bus of {config.bus_bytes}: {real} cycles, {expected} in the model")
    assert model.chip.refreshes >= 8 + real // 800
    assert real == pytest.approx(expected, rel=0.05)

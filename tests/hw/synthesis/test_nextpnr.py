import json

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.synthesis.devices import DEVICES
from trirow_hw.synthesis.nextpnr import read_report, route_ecp5
from trirow_hw.synthesis.tools import MissingTool, find_nextpnr, find_yosys
from trirow_hw.synthesis.yosys import synthesise_ecp5


class Accumulator(wiring.Component):
    """32 registers whose sum with the input goes round: a carry chain of 16 cells."""

    def __init__(self):
        super().__init__({"i": In(32), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        total = Signal(32)
        m.d.sync += total.eq(total + self.i)
        m.d.comb += self.o.eq(total[31])
        return m


class Two(wiring.Component):
    """The accumulator as a unit, with registers at its input."""

    def __init__(self):
        super().__init__({"i": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = Accumulator()
        shift = Signal(32)
        m.d.sync += shift.eq(shift << 1 | self.i)
        m.d.comb += [unit.i.eq(shift), self.o.eq(unit.o ^ shift[0])]
        return m


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    try:
        find_yosys()
        find_nextpnr()
    except MissingTool as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("routed")
    netlist = synthesise_ecp5(Two(), folder, name="two")
    result = route_ecp5(
        netlist.path, target_mhz=50, device=DEVICES["LFE5U-25F"], package="CABGA256", seed=3
    )
    return netlist, result


def test_counts(routed):
    netlist, result = routed
    assert netlist.cells["TRELLIS_FF"] == 64
    assert 16 <= netlist.cells["CCU2C"] <= 17
    usage = result.usage
    assert usage["registers"].used == 64
    assert 33 <= usage["luts"].used <= 64  # both halves of the carry cells, and what nextpnr adds
    assert [usage[name].used for name in ("dsps", "block_rams", "lut_rams")] == [0, 0, 0]
    assert {name: entry.available for name, entry in usage.items()} == DEVICES[
        "LFE5U-25F"
    ].available


def test_available_is_what_nextpnr_says(routed):
    report = json.loads(routed[1].text.with_suffix(".report.json").read_text())["utilization"]
    available = DEVICES["LFE5U-25F"].available
    assert report["TRELLIS_COMB"]["available"] == available["luts"]
    assert report["TRELLIS_FF"]["available"] == available["registers"]
    assert report["MULT18X18D"]["available"] == available["dsps"]
    assert report["DP16KD"]["available"] == available["block_rams"]
    assert report["TRELLIS_RAMW"]["available"] == available["lut_rams"]


def test_path(routed):
    result = routed[1]
    path = result.path
    assert result.fmax_mhz == pytest.approx(1e3 / path.total_ns, rel=0.01)
    assert path.begin in ("unit.i.Q", "unit.total.Q", "shift.Q")
    assert path.end.endswith(".DI")
    assert path.carries > 1
    assert path.blocks == 0
    assert "carry bits" in str(path)


def test_the_clock_that_misses_most_counts():
    end = {"cell": "b_TRELLIS_FF_Q", "port": "DI", "loc": [0, 0]}

    def path(clock, delay):
        edge = f"posedge {clock}"
        step = {"type": "setup", "from": end, "to": end, "delay": delay}
        return {"from": edge, "to": edge, "path": [step]}

    names = ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "MULT18X18D", "DP16KD")
    report = {
        "fmax": {
            "slow": {"achieved": 30.0, "constraint": 25.0},
            "fast": {"achieved": 90.0, "constraint": 100.0},
        },
        "critical_paths": [path("slow", 33.0), path("fast", 11.0)],
        "utilization": {name: {"used": k + 1, "available": 100} for k, name in enumerate(names)},
    }
    fmax, slowest, usage = read_report(report, DEVICES["LFE5U-25F"])
    assert (fmax, slowest.total_ns) == (90.0, 11.0)
    # Two LUTs for the write port of each of the three LUT RAMs.
    assert [entry.used for entry in usage.values()] == [1 + 2 * 3, 2, 4, 5, 3]


def test_nothing_to_report():
    report = {"fmax": {}, "critical_paths": [], "utilization": {}}
    with pytest.raises(ValueError, match="no path from register to register"):
        read_report(report, DEVICES["LFE5U-25F"])

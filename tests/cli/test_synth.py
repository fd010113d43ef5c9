import json
import re

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Module, Signal
from amaranth.lib import io
from click.testing import CliRunner

import trirow.synth
from trirow.synth import synth
from trirow_hw.boards.board import BOARDS
from trirow_hw.boards.pll import Pll, pll_dividers
from trirow_hw.synthesis import flow
from trirow_hw.synthesis.critical_path import CriticalPath
from trirow_hw.synthesis.devices import Usage
from trirow_hw.synthesis.flow import Elaborated
from trirow_hw.synthesis.nextpnr import Routed
from trirow_hw.synthesis.tools import (
    MissingTool,
    Tool,
    ToolFailed,
    find_ecppack,
    find_nextpnr,
    find_yosys,
)
from trirow_hw.synthesis.yosys import Netlist


class Counter(Elaboratable):
    """A counter behind a PLL, whose uppermost bit is on a LED."""

    def __init__(self, dividers):
        self._dividers = dividers

    def elaborate(self, platform):
        m = Module()
        m.submodules.pin = pin = io.Buffer("i", platform.request("clk25", 0, dir="-"))
        m.submodules.pll = pll = Pll(dividers=self._dividers)
        m.domains.sync = ClockDomain(reset_less=True)
        m.d.comb += [pll.i.eq(pin.i), ClockSignal().eq(pll.o)]
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        count = Signal(24)
        m.d.sync += count.eq(count + 1)
        m.d.comb += led.o.eq(count[-1])
        return m


def small_design(board, *, config, clock_mhz, chip):
    """Stand in for `elaborate_board` with a design that is routed in seconds."""
    dividers = pll_dividers(board.oscillator_mhz, clock_mhz or board.clock_mhz)
    plan = board.platform_class()().build(Counter(dividers), name="top", do_build=False)
    return Elaborated(plan.files["top.il"], plan.files["top.lpf"], dividers)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Make the command build the small design; return how to run it."""
    monkeypatch.setattr(trirow.synth, "elaborate_board", small_design)
    monkeypatch.chdir(tmp_path)
    return run


@pytest.fixture
def pretended(small, monkeypatch):
    """The same without any tool: nextpnr finds 90 MHz with seed 1, 10 MHz more with each other."""
    log = []

    def synthesise(source, folder, *, name):
        netlist = folder / f"{name}.json"
        netlist.write_text(
            '{"modules": {"top": {"ports": {}, "cells": {"a": {"type": "LUT4", '
            '"port_directions": {"A": "input"}, "connections": {"A": [2]}}}}}}'
        )
        log.append("yosys")
        return Netlist(netlist, {"LUT4": 7, "CCU2C": 1}, Tool("Yosys", ("yosys",), "Yosys 1"))

    def route(netlist, *, seed, **options):
        text = netlist.with_suffix(".config")
        text.write_text(f"seed {seed}")
        log.append((seed, options["target_mhz"]))
        path = CriticalPath("a.Q", "b.DI", 1, 0, 0, 2, 4.0, 6.0)
        usage = {"luts": Usage(10, 24_288), "dsps": Usage(7, 28)}
        tool = Tool("nextpnr-ecp5", ("nextpnr-ecp5",), "nextpnr 2")
        return Routed(80.0 + 10 * seed, path, usage, text, tool, seed)

    def run_tool(tool, arguments, folder, _log):
        log.append((tool.name, arguments))
        if tool.name == "ecppack":
            (folder / "top.bit").write_bytes(b"bits")

    monkeypatch.setattr(flow, "synthesise_rtlil", synthesise)
    monkeypatch.setattr(flow, "route_ecp5", route)
    monkeypatch.setattr(flow, "run", run_tool)
    for name in ("yosys", "nextpnr", "ecppack", "loader"):
        tool = Tool(name, (name,), f"{name} 3")
        monkeypatch.setattr(flow, f"find_{name}", lambda tool=tool: tool)
    return log


def run(*arguments):
    return CliRunner().invoke(synth, list(arguments))


def test_from_board_to_bitstream(small, tmp_path):
    try:
        for find in (find_yosys, find_nextpnr, find_ecppack):
            find()
    except MissingTool as error:
        pytest.skip(str(error))
    result = small("ulx3s-25f", "--clock", "66.6", "--output", "out", "--json", "report.json")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["board"] == "ulx3s-25f"
    assert report["config"] == BOARDS["ulx3s-25f"].config.to_dict()
    assert report["resources"]["registers"] == {"used": 24, "available": 24_288}
    assert report["target_mhz"] == 66.25
    assert report["met"] is True
    assert report["fmax_mhz"] > 100
    assert report["peak_gops"] == pytest.approx(2 * 24 * report["fmax_mhz"] / 1000)
    assert set(report["tools"]) == {"Yosys", "nextpnr-ecp5", "ecppack"}
    bitstream = tmp_path / "out" / "ulx3s-25f.bit"
    assert report["bitstream"] == {
        "path": "out/ulx3s-25f.bit",
        "bytes": bitstream.stat().st_size,
    }
    assert b"LFE5U-25F" in bitstream.read_bytes()
    assert f"{report['fmax_mhz']:.1f} MHz, target 66.25 MHz: met." in result.stdout
    assert re.search(r"registers +24 +24,288 +0\.1 %", result.stdout)
    # What nextpnr constrained is what the PLL makes of 25 MHz.
    routed = json.loads((tmp_path / "out" / "top.report.json").read_text())
    assert [entry["constraint"] for entry in routed["fmax"].values()] == [
        pytest.approx(66.25, rel=1e-3)
    ]


def test_missed_clock(pretended, tmp_path):
    result = run("ulx3s-25f", "--clock", "100", "--json", "report.json")
    assert result.exit_code == 1
    assert "90.0 MHz, target 100 MHz: missed." in result.stdout
    assert "Slowest path: from a (port Q) through 1 LUT and 2 wires, 4.0 ns logic" in result.stdout
    assert result.stderr.startswith("Error: 90.0 MHz, less than 100: try --seeds 4")
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["met"], "bitstream" in report) == (False, False)
    assert not list(tmp_path.rglob("*.bit"))


def test_missed_clock_allowed(pretended, tmp_path):
    result = run("ulx3s-25f", "--clock", "100", "--allow-timing-failure")
    assert result.exit_code == 0
    assert "missed" in result.stdout
    assert (tmp_path / "build" / "ulx3s-25f" / "ulx3s-25f.bit").read_bytes() == b"bits"


def test_seeds_until_met(pretended, tmp_path):
    assert run("ulx3s-25f", "--clock", "100", "--seeds", "5").exit_code == 0
    assert [entry[0] for entry in pretended if entry[1:] == (100.0,)] == [1, 2]
    assert (tmp_path / "build/ulx3s-25f/top.best.config").read_text() == "seed 2"


def test_one_seed(pretended):
    assert run("ulx3s-25f", "--clock", "100", "--seed", "4").exit_code == 0
    assert (4, 100.0) in pretended


def test_until(pretended, tmp_path):
    result = run("ulx3s-25f", "--until", "yosys")
    assert result.exit_code == 0
    assert pretended == ["yosys"]
    assert re.search(r"LUT4 +9 +24,288", result.stdout)  # a carry cell is two
    result = run("ulx3s-25f", "--until", "route")
    assert result.exit_code == 0
    assert pretended[1:] == ["yosys", (1, 80.0)]


def test_program(pretended):
    assert run("ulx3s-25f", "--program").exit_code == 0
    assert pretended[-1] == ("loader", ["--board", "ulx3s", "ulx3s-25f.bit"])


def test_configuration(pretended, tmp_path):
    def config(*arguments):
        assert run("ulx3s-25f", "--until", "yosys", "--json", "r.json", *arguments).exit_code == 0
        return json.loads((tmp_path / "r.json").read_text())["config"]

    assert config("--config", "tiny")["name"] == "tiny"
    assert config("--set", "bus_bytes=2")["bus_bytes"] == 2
    own = config("--config", "tiny", "--set", "out_lanes=3")
    assert (own["in_lanes"], own["out_lanes"]) == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["none"], "'none' is not one of"),
        (["icebreaker"], "icebreaker is not supported: "),
        (["ulx3s-25f", "--seed", "1", "--seeds", "2"], "give --seed or --seeds, not both"),
        (["ulx3s-25f", "--until", "yosys", "--program"], "--program needs the bitstream"),
        (["ulx3s-25f", "--clock", "500"], "the clock must be from 3.125 to 400 MHz, not 500"),
        (["ulx3s-25f", "--clock", "fast"], "'fast' is not a number"),
        (["ulx3s-25f", "--set", "in_lanes=1"], "in_lanes must be an integer from 2 to 64, not 1"),
        (["ulx3s-25f", "--output", "file"], "file"),
        (["ulx3s-25f", "--output", "file/below"], "file/below: "),
    ],
)
def test_bad_usage(pretended, tmp_path, arguments, text):
    (tmp_path / "file").write_text("")
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert pretended == []


def test_missing_tool(pretended, monkeypatch):
    def missing():
        raise MissingTool("nextpnr-ecp5 is missing: pip install it")

    monkeypatch.setattr(flow, "find_nextpnr", missing)
    result = run("ulx3s-25f")
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: nextpnr-ecp5 is missing: pip install it\n",
    )
    assert pretended == []
    assert run("ulx3s-25f", "--until", "yosys").exit_code == 0  # which does not need it


def test_missing_loader(pretended, monkeypatch):
    def missing():
        raise MissingTool("openFPGALoader is missing")

    monkeypatch.setattr(flow, "find_loader", missing)
    assert run("ulx3s-25f", "--program").exit_code == 2
    assert pretended == []
    assert run("ulx3s-25f").exit_code == 0


def test_failed_tool(pretended, monkeypatch):
    def fails(*arguments, **options):
        raise ToolFailed("nextpnr-ecp5 failed, see x: ERROR: no room")

    monkeypatch.setattr(flow, "route_ecp5", fails)
    result = run("ulx3s-25f")
    assert result.exit_code == 1
    assert "no room" in result.stderr


def test_help():
    result = run("--help")
    assert result.exit_code == 0
    assert "--allow-timing-failure" in result.stdout

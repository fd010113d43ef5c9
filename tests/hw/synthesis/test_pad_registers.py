import copy
import json

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib import io
from amaranth_boards.ulx3s import ULX3S_25F_Platform

from trirow_hw.synthesis.pad_registers import mark_pad_registers
from trirow_hw.synthesis.tools import MissingTool, find_yosys
from trirow_hw.synthesis.yosys import synthesise_rtlil

FF = {"CLKMUX": "CLK", "CEMUX": "1 ", "LSRMUX": "LSR", "REGSET": "RESET", "SRMODE": "LSR_OVER_CE"}
CLOCK, PIN = 2, 3


def cell(kind, parameters=None, **connections):
    return {
        "type": kind,
        "parameters": dict(parameters or {}),
        "port_directions": {p: "output" if p in "QOZ" else "input" for p in connections},
        "connections": {p: [bit] for p, bit in connections.items()},
    }


def register(d, q, **parameters):
    return cell("TRELLIS_FF", {**FF, **parameters}, CLK=CLOCK, LSR="0", DI=d, Q=q)


def module(**cells):
    ports = {"clk": {"direction": "input", "bits": [CLOCK]}}
    return {"ports": ports, "cells": copy.deepcopy(cells)}


def marks(design):
    return {
        name: entry["attributes"]["ioff_dir"]
        for name, entry in design["cells"].items()
        if "syn_useioff" in entry.get("attributes", {})
    }


def test_output_and_input():
    design = module(
        out=register(10, 11),
        pad=cell("TRELLIS_IO", I=11, T="0", O=12, B=PIN),
        into=register(12, 13),
        user=cell("LUT4", {"INIT": "10"}, A=13, B="0", C="0", D="0", Z=10),
    )
    assert mark_pad_registers(design) == {"output": 1, "input": 1}
    assert marks(design) == {"out": "output", "into": "input"}


@pytest.mark.parametrize(
    "extra",
    [
        {"reader": cell("LUT4", {"INIT": "10"}, A=11, B="0", C="0", D="0", Z=20)},
        {"second": cell("TRELLIS_IO", I=11, B=21)},
    ],
)
def test_shared_output_is_copied(extra):
    design = module(out=register(10, 11), pad=cell("TRELLIS_IO", I=11, B=PIN), **extra)
    readers = sum(entry["type"] == "TRELLIS_IO" for entry in design["cells"].values())
    assert mark_pad_registers(design) == {"output": readers}
    cells = design["cells"]
    for name in marks(design):
        assert cells[name]["connections"]["DI"] == [10]
    outputs = [entry["connections"].get("Q", [0])[0] for entry in cells.values()]
    for pad in (entry for entry in cells.values() if entry["type"] == "TRELLIS_IO"):
        assert outputs.count(pad["connections"]["I"][0]) == 1
    if "reader" in cells:
        assert cells["reader"]["connections"]["A"] == cells["out"]["connections"]["Q"]


def test_other_pads_stay():
    design = module(out=register(10, 11), led=cell("TRELLIS_IO", I=11, B=PIN))
    assert mark_pad_registers(design, "sdram") == {}
    assert marks(design) == {}


def test_input_with_another_reader_stays():
    design = module(
        pad=cell("TRELLIS_IO", O=12, B=PIN), into=register(12, 13), other=register(12, 14)
    )
    assert mark_pad_registers(design) == {}


def test_falling_edge():
    """An input has an inverter of its own in front of the clock; of outputs it is not used."""
    design = module(pad=cell("TRELLIS_IO", O=12, B=PIN), into=register(12, 13, CLKMUX="INV"))
    assert mark_pad_registers(design) == {"input": 1}
    design = module(pad=cell("TRELLIS_IO", I=12, B=PIN), out=register(11, 12, CLKMUX="INV"))
    assert mark_pad_registers(design) == {}


def with_enable(entry, bit):
    entry["parameters"]["CEMUX"] = "CE"
    entry["connections"]["CE"], entry["port_directions"]["CE"] = [bit], "input"
    return entry


def with_reset(entry, bit):
    entry["connections"]["LSR"] = [bit]
    return entry


PAD = cell("TRELLIS_IO", I=11, T=12, O=13, B=PIN)


def three(out, enable, into):
    """A pad with registers for output, enable (already inverted) and input."""
    return module(pad=PAD, out=out, enable=enable, into=into)


@pytest.mark.parametrize(
    ("out", "enable", "into", "inside"),
    [
        # Input and output each can be always enabled, or share what enables them.
        (with_enable(register(10, 11), 40), with_enable(register(20, 12), 40), register(13, 30),
         ["output", "tristate", "input"]),
        (with_enable(register(10, 11), 40), with_enable(register(20, 12), 40),
         with_enable(register(13, 30), 40), ["output", "tristate", "input"]),
        (with_enable(register(10, 11), 40), with_enable(register(20, 12), 40),
         with_enable(register(13, 30), 41), ["output", "tristate"]),
        # Output and its enable share one.
        (with_enable(register(10, 11), 40), register(20, 12), register(13, 30),
         ["output", "input"]),
        (register(10, 11), with_enable(register(20, 12), 40), register(13, 30),
         ["output", "input"]),
        # There is one reset.
        (with_reset(register(10, 11), 50), with_reset(register(20, 12), 51),
         with_reset(register(13, 30), 50), ["output", "input"]),
    ],
)  # fmt: skip
def test_registers_of_a_pad_share(out, enable, into, inside):
    design = three(out, enable, into)
    assert sorted(mark_pad_registers(design)) == sorted(inside)
    names = {"output": "out", "tristate": "enable", "input": "into"}
    assert set(marks(design)) == {names[direction] for direction in inside}


def test_other_clock_stays():
    into = register(13, 30)
    into["connections"]["CLK"] = [60]
    assert mark_pad_registers(three(register(10, 11), register(20, 12), into)) == {
        "output": 1,
        "tristate": 1,
    }


def test_reset_of_the_enable_is_also_the_output_s():
    """They share it in the pad; the input has a switch of its own, which is off."""
    enable = with_reset(register(20, 12, SRMODE="ASYNC"), 50)
    design = three(register(10, 11), enable, register(13, 30))
    assert mark_pad_registers(design) == {"output": 1, "tristate": 1, "input": 1}
    cells = design["cells"]
    assert cells["out"]["connections"]["LSR"] == [50]
    assert "LSR" not in cells["into"]["connections"]
    assert {cells[n]["parameters"]["SRMODE"] for n in ("out", "enable", "into")} == {"ASYNC"}


@pytest.mark.parametrize("init", ["0101010101010101", "0000000000000101", "1111000011110101"])
def test_enable_is_copied_inverted(init):
    # As far as B, C and D are zero, all of these give the inverse of A.
    design = module(
        enable=register(10, 11),
        inverter=cell("LUT4", {"INIT": init}, A=11, B="0", C="0", D="0", Z=12),
        pad0=cell("TRELLIS_IO", I=20, T=12, O=30, B=PIN),
        pad1=cell("TRELLIS_IO", I=21, T=12, O=31, B=4),
        state=cell("LUT4", {"INIT": "10"}, A=11, B="0", C="0", D="0", Z=40),
    )
    assert mark_pad_registers(design) == {"tristate": 2}
    cells = design["cells"]
    for pad in ("pad0", "pad1"):
        (bit,) = cells[pad]["connections"]["T"]
        (own,) = [c for c in cells.values() if c["connections"].get("Q") == [bit]]
        assert own["parameters"]["REGSET"] == "SET"  # the inverse of what the enable begins with
        (data,) = own["connections"]["DI"]
        (inverter,) = [c for c in cells.values() if c["connections"].get("Z") == [data]]
        assert inverter["connections"]["A"] == [10]
        assert inverter["parameters"]["INIT"] == init
    bits = [cells[pad]["connections"]["T"][0] for pad in ("pad0", "pad1")]
    assert len({*bits, 2, 3, 4, 10, 11, 12, 20, 21, 30, 31, 40}) == 13
    assert cells["state"]["connections"]["A"] == [11]


def test_what_is_no_inverter_is_not_copied():
    for init in ("1010101010101010", "0000000000000000", "1111111111111111"):
        design = module(
            enable=register(10, 11),
            lut=cell("LUT4", {"INIT": init}, A=11, B="0", C="0", D="0", Z=12),
            pad=cell("TRELLIS_IO", I="0", T=12, B=PIN),
        )
        before = copy.deepcopy(design)
        assert mark_pad_registers(design) == {}
        assert design == before


class Pads(Elaboratable):
    """Sixteen bits that go out, are enabled and come in through registers."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.dq = dq = io.Buffer("io", platform.request("sdram", 0, dir="-").dq)
        out, enable, come = Signal(16), Signal(), Signal(16, reset_less=True)
        m.d.sync += [
            out.eq(come + 1),
            enable.eq(come[3] ^ enable),
            come.eq(dq.i),
        ]  # two have a reset
        m.d.comb += [dq.o.eq(Cat(out[8:], out[:8])), dq.oe.eq(enable)]
        return m


def test_netlist_of_yosys(tmp_path):
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    plan = ULX3S_25F_Platform().build(Pads(), do_build=False)
    netlist = synthesise_rtlil(plan.files["top.il"], tmp_path, name="top")
    content = json.loads(netlist.path.read_text())
    found = mark_pad_registers(content["modules"]["top"])
    assert found == {"output": 16, "tristate": 16, "input": 16}

import json

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.boards import ecp5_top
from trirow_hw.boards.board import BOARDS
from trirow_hw.config import PRESETS
from trirow_hw.sdram.chips import CHIPS
from trirow_hw.sdram.pins import SdramPins
from trirow_hw.synthesis.flow import elaborate_board
from trirow_hw.synthesis.pad_registers import mark_pad_registers
from trirow_hw.synthesis.tools import MissingTool, find_yosys
from trirow_hw.synthesis.yosys import synthesise_rtlil

ECP5 = [name for name, board in BOARDS.items() if board.family == "ecp5"]


class Stub(wiring.Component):
    """Has the ports of a `BoardTop`; a shift register, fed by the inputs, drives all outputs."""

    def __init__(self, *, config, chip, clock_hz):
        self.clock_hz = clock_hz
        super().__init__({"rx": In(1), "tx": Out(1), "sdram": Out(SdramPins(chip)), "leds": Out(4)})

    def elaborate(self, platform):
        m = Module()
        pins = self.sdram
        captured = Signal(len(pins.dq_i), reset_less=True)
        outputs = [
            *(pins.cke, pins.cs_n, pins.ras_n, pins.cas_n, pins.we_n, pins.ba, pins.a),
            *(pins.dqm, pins.dq_o, pins.dq_oe, self.leds, self.tx),
        ]
        shift = Signal(len(Cat(outputs)), reset_less=True)
        m.d.sync += [
            captured.eq(pins.dq_i),
            shift.eq(Cat(captured.xor() ^ self.rx, shift)),
            Cat(outputs).eq(shift),
        ]
        return m


@pytest.fixture(scope="module")
def netlists(tmp_path_factory):
    """Netlists of the boards around the stub, by name."""
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    made = {}

    def get(name, clock_mhz=66.6):
        key = name, clock_mhz
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ecp5_top, "BoardTop", Stub)
                design = elaborate_board(BOARDS[name], clock_mhz=clock_mhz)
            netlist = synthesise_rtlil(design.rtlil, folder, name="top")
            made[key] = json.loads(netlist.path.read_text())["modules"]["top"], design
        return made[key]

    return get


def drivers(module):
    """What drives each bit: the cell."""
    return {
        bit: cell
        for cell in module["cells"].values()
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "output"
        for bit in bits
    }


def pad(module, port, index=0):
    """The pad cell of a bit of a port of the top module."""
    bit = module["ports"][port]["bits"][index]
    return next(
        cell
        for cell in module["cells"].values()
        if cell["type"] == "TRELLIS_IO" and cell["connections"]["B"] == [bit]
    )


@pytest.mark.parametrize("name", ECP5)
def test_every_port_has_a_pin(netlists, name):
    module, design = netlists(name)
    for port, entry in module["ports"].items():
        bits = len(entry["bits"])
        for bit in [port] if bits == 1 else [f"{port}[{k}]" for k in range(bits)]:
            assert f'LOCATE COMP "{bit}" SITE ' in design.constraints
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ' in design.constraints


@pytest.mark.parametrize("name", ECP5)
def test_every_pin_of_the_memory_has_a_register_in_its_pad(netlists, name):
    module, _ = netlists(name)
    chip = CHIPS[BOARDS[name].chips[0]]
    sdram = {port: len(e["bits"]) for port, e in module["ports"].items() if "sdram" in port}
    pins = sum(sdram.values()) - 1  # without the clock
    control = 5 + chip.bank_bits + chip.row_bits + chip.data_bytes
    if name == "colorlight-5a75b":  # CKE, CS# and the masks have no pins
        control -= 2 + chip.data_bytes
    assert pins == chip.data_bits + control
    marked = mark_pad_registers(json.loads(json.dumps(module)))
    assert marked["input"] == chip.data_bits
    assert marked["tristate"] == chip.data_bits + 1  # the clock's is always on
    assert marked["output"] >= pins


def test_levels_of_the_memory_are_those_of_the_controller(netlists):
    """Registers, with their values after reset, drive the pads: nothing inverts between."""
    module, _ = netlists("ulx3s-25f")
    driver = drivers(module)
    for port, after_reset in (
        *(("clk_en", "RESET"), ("cs", "SET"), ("ras", "SET"), ("cas", "SET"), ("we", "SET")),
        *(("dqm", "SET"), ("ba", "RESET"), ("a", "RESET")),
    ):
        (bit,) = pad(module, f"sdram_0__{port}__io")["connections"]["I"]
        assert driver[bit]["type"] == "TRELLIS_FF"
        assert driver[bit]["parameters"]["REGSET"] == after_reset, port


def test_clock_of_the_memory_is_the_inverse(netlists):
    module, design = netlists("ulx3s-25f")
    (bit,) = pad(module, "sdram_0__clk__io")["connections"]["I"]
    cell = drivers(module)[bit]
    assert cell["type"] == "ODDRX1F"
    # D0 leaves while the clock is high, D1 while it is low.
    assert cell["connections"]["D0"] == ["0"]
    assert cell["connections"]["D1"] == ["1"]
    (pll,) = [c for c in module["cells"].values() if c["type"] == "EHXPLLL"]
    (gate,) = [c for c in module["cells"].values() if c["type"] == "DCCA"]
    assert cell["connections"]["SCLK"] == gate["connections"]["CLKO"]
    assert gate["connections"]["CLKI"] == pll["connections"]["CLKOS"]
    assert gate["connections"]["CE"] == pll["connections"]["LOCK"]
    parameters = {name: int(pll["parameters"][name], 2) for name in ("CLKI_DIV", "CLKOS_DIV")}
    assert parameters == {
        "CLKI_DIV": design.dividers.reference,
        "CLKOS_DIV": design.dividers.output,
    }


@pytest.mark.parametrize(("clock_mhz", "edge"), [(86, "INV"), (100, "CLK")])
def test_edge_that_takes_the_data(netlists, clock_mhz, edge):
    module, _ = netlists("ulx3s-25f", clock_mhz)
    mark_pad_registers(module)
    marked = [c for c in module["cells"].values() if c.get("attributes", {}).get("ioff_dir")]
    inputs = [c for c in marked if c["attributes"]["ioff_dir"] == "input"]
    assert [c["parameters"]["CLKMUX"] for c in inputs] == [edge] * 16


def test_the_radio_of_the_ulx3s_stays_on(netlists):
    module, design = netlists("ulx3s-25f")
    assert 'LOCATE COMP "esp32_0__gpio0__io" SITE "L2"' in design.constraints
    assert pad(module, "esp32_0__gpio0__io")["connections"]["I"] == ["1"]


@pytest.mark.parametrize(("name", "leds"), [("ulx3s-25f", 4), ("icesugar-pro", 3)])
def test_leds(netlists, name, leds):
    module, _ = netlists(name)
    assert sum("led" in port for port in module["ports"]) == leds


def test_refuses():
    with pytest.raises(ValueError, match="there is no design for icebreaker: "):
        elaborate_board(BOARDS["icebreaker"])
    with pytest.raises(ValueError, match="unknown SDRAM chip 'none'; known: IS42S16160G-7, "):
        elaborate_board(BOARDS["ulx3s-25f"], chip="none")
    with pytest.raises(ValueError, match="clock_hz of IS42S16160G-7 must be from 1 MHz to 143"):
        elaborate_board(BOARDS["ulx3s-25f"], config=PRESETS["tiny"], clock_mhz=200)
    with pytest.raises(ValueError, match="t_refi must be at least"):
        elaborate_board(BOARDS["ulx3s-25f"], config=PRESETS["tiny"], clock_mhz=25)
    wide = PRESETS["tiny"].override(bus_bytes=32)
    with pytest.raises(ValueError, match="bus_bytes must be 2, 4, 8 or 16, not 32"):
        elaborate_board(BOARDS["ulx3s-25f"], config=wide)


@pytest.mark.parametrize("name", ECP5)
def test_whole_design_elaborates(name):
    design = elaborate_board(BOARDS[name], config=PRESETS["tiny"])
    assert design.dividers.output_mhz == BOARDS[name].clock_mhz
    for part in ("accelerator", "bridge", "arbiter", "memory"):
        assert f"module \\top.board.{part}\n" in design.rtlil

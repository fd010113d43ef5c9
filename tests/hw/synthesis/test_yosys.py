import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trirow_hw.synthesis.tools import MissingTool, find_yosys
from trirow_hw.synthesis.yosys import synthesise_ecp5


class Store(wiring.Component):
    """A memory of 8 bits whose read port has no register."""

    def __init__(self, places):
        self._places = places
        bits = (places - 1).bit_length()
        super().__init__({"a": In(bits), "d": In(8), "we": In(1), "q": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = Memory(shape=8, depth=self._places, init=[])
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            write.addr.eq(self.a),
            write.data.eq(self.d),
            write.en.eq(self.we),
            read.addr.eq(self.a),
            self.q.eq(read.data),
        ]
        return m


@pytest.mark.parametrize(("places", "lut_rams", "registers"), [(2, 0, 16), (4, 2, 0), (16, 2, 0)])
def test_two_places_are_registers(tmp_path, places, lut_rams, registers):
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    netlist = synthesise_ecp5(Store(places), tmp_path, name="store")
    assert netlist.cells["TRELLIS_DPR16X4"] == lut_rams
    assert netlist.cells["TRELLIS_FF"] == registers
    assert not any(kind.startswith("$") for kind in netlist.cells)
    assert netlist.path == tmp_path / "store.json"


class Elements(wiring.Component):
    """The second element of an array, and the second bit of a signal with the array's name."""

    def __init__(self):
        super().__init__({"a": In(2), "q": Out(2)})

    def elaborate(self, platform):
        m = Module()
        wide = Signal(2, name="same")
        element = Signal(2, name="same[1]")
        m.d.sync += [wide.eq(self.a + element), element.eq(wide ^ self.a)]
        m.d.comb += self.q.eq(wide & element)
        return m


def test_names_of_elements_are_no_names_of_bits(tmp_path):
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    assert synthesise_ecp5(Elements(), tmp_path, name="elements").cells["TRELLIS_FF"] == 4
    assert "\\same<1>" in (tmp_path / "elements.il").read_text()

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.queue import Queue
from trirow_hw.synthesis.tools import MissingTool, find_yosys
from trirow_hw.synthesis.yosys import synthesise_ecp5


@pytest.mark.parametrize(("places", "lut_rams", "data_registers"), [(2, 0, 16), (4, 2, 0)])
def test_two_places_are_registers(tmp_path, places, lut_rams, data_registers):
    """LUT RAM would take six LUTs for four bits, and could hold 16 places."""
    try:
        find_yosys()
    except MissingTool as error:
        pytest.skip(str(error))
    netlist = synthesise_ecp5(Queue(8, depth=places), tmp_path, name="queue")
    assert netlist.cells["TRELLIS_DPR16X4"] == lut_rams
    control = netlist.cells["TRELLIS_FF"] - data_registers
    assert 2 <= control <= 8
    assert not any(kind.startswith("$") for kind in netlist.cells)
    assert netlist.path == tmp_path / "queue.json"


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

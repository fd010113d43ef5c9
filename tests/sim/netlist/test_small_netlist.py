"""A few units through Yosys and Verilator as netlist: the way that whole cores go, in seconds."""

import json
from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.block_memory import BlockMemory
from trirow_hw.multiplier import multiply_pairs
from trirow_sim.netlist.build import MODELS
from trirow_sim.netlist.cell_bench import Cell, CellBench
from trirow_sim.netlist.verilog import invert_table, netlist_verilog

INPUTS = {"clk": 1, "rst": 1, "a": 9, "b": 9, "write": 9, "read": 9, "enable": 1, "place": 4}
OUTPUTS = {"product": 18, "total": 24, "word": 18, "nibble": 4, "odd": 1}


class Small(wiring.Component):
    """Multiplier, accumulator, block RAM, LUT RAM and a LUT."""

    def __init__(self):
        shapes = {"a": signed(9), "b": signed(9), "product": signed(18), "total": signed(24)}
        members = {
            name: In(shapes.get(name, width))
            for name, width in INPUTS.items()
            if name not in ("clk", "rst")
        }
        members |= {name: Out(shapes.get(name, width)) for name, width in OUTPUTS.items()}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        vector = data.ArrayLayout(signed(9), 1)
        a, b = (data.View(vector, Signal(9)) for _ in range(2))
        m.d.comb += [a[0].eq(self.a), b[0].eq(self.b)]
        (product,) = multiply_pairs(m, a, b, platform)
        m.d.comb += self.product.eq(product)
        m.d.sync += self.total.eq(self.total + product)
        m.submodules.block = block = BlockMemory(bits=18, depth=512)
        m.submodules.lutram = lutram = memory.Memory(shape=4, depth=16, init=[])
        write, read = lutram.write_port(), lutram.read_port(domain="comb")
        m.d.comb += [
            block.write_address.eq(self.write),
            block.write_data.eq(product),
            block.write_enable.eq(self.enable),
            block.read_address.eq(self.read),
            self.word.eq(block.read_data),
            write.addr.eq(self.place),
            write.data.eq(self.a),
            write.en.eq(self.enable),
            read.addr.eq(self.read),
            self.nibble.eq(read.data),
            self.odd.eq(self.a[0] ^ self.b[0] ^ self.enable ^ self.place[0]),
        ]
        return m


@pytest.fixture(scope="module")
def netlist(tmp_path_factory):
    pytest.importorskip("pyosys")
    from trirow_hw.synthesis.yosys import synthesise_ecp5

    folder = tmp_path_factory.mktemp("small")
    made = synthesise_ecp5(Small(), folder, name="little")
    # What carries the test: each of these kinds, and no register in the multiplier's place.
    for kind in ("MULT18X18D", "DP16KD", "TRELLIS_DPR16X4", "CCU2C", "TRELLIS_FF", "LUT4"):
        assert made.cells[kind], kind
    return json.loads(made.path.read_text())


def build(netlist, folder):
    source = folder / "small.v"
    source.write_text(netlist_verilog(netlist, "little"))
    places, at = {}, 0
    for name, width in INPUTS.items():
        places[name], at = at, at + width
    cell = Cell("little", places, list(OUTPUTS), widths=INPUTS | OUTPUTS)
    return CellBench([cell], at, [source, *MODELS], folder)


def signed_value(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


def expected(steps):
    """Outputs after each clock edge, while the inputs are still there."""
    products, words = deque([0] * 3), deque([0] * 2)
    total, block, lutram = 0, {}, {}
    for step in steps:
        product = products[0]
        total = (total + product) % (1 << 24)
        # A read that meets a write of its word gives anything, and only the old word counts here.
        met = step["enable"] and step["read"] == step["write"]
        words.append(None if met else block.get(step["read"], 0))
        words.popleft()
        if step["enable"]:
            block[step["write"]] = product % (1 << 18)
            lutram[step["place"]] = step["a"] % 16
        products.append(signed_value(step["a"], 9) * signed_value(step["b"], 9))
        products.popleft()
        odd = (step["a"] ^ step["b"] ^ step["enable"] ^ step["place"]) & 1
        yield {
            "product": products[0] % (1 << 18),
            "total": total,
            "word": words[0],
            "nibble": lutram.get(step["read"] % 16),
            "odd": odd,
        }


def differences(bench, seed, cycles=600):
    """Return the outputs that differ from what is expected, by name."""
    rng = np.random.default_rng(seed)
    inputs = {name: width for name, width in INPUTS.items() if name not in ("clk", "rst")}
    steps, rows = [], np.zeros((2 * cycles, sum(INPUTS.values())), bool)
    for cycle in range(cycles):
        step = {name: int(rng.integers(0, 1 << width)) for name, width in inputs.items()}
        step["write"], step["read"] = step["write"] % 40, step["read"] % 40
        steps.append(step)
        bits = [0, 0] + [step[n] >> k & 1 for n, width in inputs.items() for k in range(width)]
        rows[2 * cycle : 2 * cycle + 2] = bits
    rows[1::2, 0] = True
    (got,) = bench.run(rows)
    wrong = set()
    for after, wanted in zip(got[1::2], expected(steps), strict=True):
        at = 0
        for name, width in OUTPUTS.items():
            value = sum(1 << k for k in range(width) if after[at + k])
            if wanted[name] is not None and value != wanted[name]:
                wrong.add(name)
            at += width
    return wrong


@pytest.mark.parametrize("seed", [1])
def test_netlist_computes_the_same(netlist, tmp_path, seed):
    assert differences(build(netlist, tmp_path), seed) == set()


def test_wrong_table_is_noticed(netlist, tmp_path):
    """One entry of the one LUT that drives the output `odd`."""
    module = netlist["modules"]["little"]
    (net,) = module["ports"]["odd"]["bits"]
    (name,) = (
        name
        for name, cell in module["cells"].items()
        if cell["type"] == "LUT4" and cell["connections"]["Z"] == [net]
    )
    changed = json.loads(json.dumps(netlist))
    invert_table(changed, "little", name)
    assert differences(build(changed, tmp_path), 1) == {"odd"}


def test_fault_needs_a_table(netlist):
    with pytest.raises(ValueError, match="the netlist has no LUT4 'nothing'"):
        invert_table(netlist, "little", "nothing")

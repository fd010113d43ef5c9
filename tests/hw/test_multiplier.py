# amaranth: UnusedElaboratable=no
"""The registered multiplier: products, latency, and what is built for an ECP5."""

import random
import re

import pytest
from amaranth import Module
from amaranth.back import rtlil
from amaranth.hdl import Cat, Elaboratable, Signal, signed
from amaranth.lib import data

from trirow_hw import multiplier
from trirow_sim.unit_kit import feed, pack, unpack

LENGTH = 3
WIDTHS = [(9, 8), (8, 8), (1, 1), (18, 18), (24, 17), (2, 13)]


class Bench(Elaboratable):
    """The products of vectors of ``LENGTH`` elements, in a row of bits."""

    def __init__(self, a_bits, b_bits):
        self.a = Signal(data.ArrayLayout(signed(a_bits), LENGTH))
        self.b = Signal(data.ArrayLayout(signed(b_bits), LENGTH))
        self.o = Signal(data.ArrayLayout(signed(a_bits + b_bits), LENGTH))

    def elaborate(self, platform):
        m = Module()
        products = multiplier.multiply_pairs(m, self.a, self.b, platform)
        assert len(products) == LENGTH
        for k, product in enumerate(products):
            assert product.shape() == self.o[k].shape()
            m.d.comb += self.o[k].eq(product)
        return m


def check(a_bits, b_bits, pairs):
    """Feed a pair to each element in turn, all elements at once; compare every product."""
    bench = Bench(a_bits, b_bits)
    rows = [[pairs[(k + j) % len(pairs)] for j in range(LENGTH)] for k in range(len(pairs))]
    words = [
        pack(bench.a.shape(), [a for a, _ in row])
        | pack(bench.b.shape(), [b for _, b in row]) << LENGTH * a_bits
        for row in rows
    ]
    inputs = Cat(bench.a.as_value(), bench.b.as_value())
    outputs = feed(bench, inputs, words, bench.o, after=multiplier.latency(None))
    for row, output in zip(rows, outputs[multiplier.latency(None) :], strict=True):
        assert unpack(bench.o.shape(), output) == [a * b for a, b in row]


@pytest.mark.parametrize(("a_bits", "b_bits"), WIDTHS)
def test_ends(a_bits, b_bits):
    def ends(bits):
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        return sorted({low, low + 1, -1, 0, 1, high - 1, high} & set(range(low, high + 1)))

    check(a_bits, b_bits, [(a, b) for a in ends(a_bits) for b in ends(b_bits)])


@pytest.mark.parametrize(("a_bits", "b_bits"), WIDTHS)
def test_random(a_bits, b_bits):
    generator = random.Random(f"{a_bits} {b_bits}")
    check(
        a_bits,
        b_bits,
        [
            (
                generator.randrange(1 << a_bits) - (1 << a_bits - 1),
                generator.randrange(1 << b_bits) - (1 << b_bits - 1),
            )
            for _ in range(500)
        ],
    )


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("LFE5U-85F", True),
        ("lfe5u-25f", True),
        ("LFE5UM5G-85F", True),
        ("iCE40UP5K", False),
        ("xc7z045", False),
        (None, False),
    ],
)
def test_is_ecp5(device, expected):
    platform = type("Platform", (), {} if device is None else {"device": device})()
    assert multiplier.is_ecp5(platform) is expected


def test_simulation_has_no_device():
    assert not multiplier.is_ecp5(None)


def test_ecp5_has_a_block_for_each_pair():
    platform = type("Platform", (), {"device": "LFE5U-85F"})()
    bench = Bench(9, 8)
    ports = [bench.a.as_value(), bench.b.as_value(), bench.o.as_value()]
    text = rtlil.convert(bench, platform=platform, ports=ports)
    assert len(re.findall(r"cell \\MULT18X18D ", text)) == LENGTH
    pins = re.findall(r"connect \\([A-Z]+[0-9]+) ", text)
    for side, bits in (("A", 18), ("B", 18), ("P", 36)):
        assert all(pins.count(f"{side}{k}") == LENGTH for k in range(bits))
    # The registers before and behind the multiplier are inside the block.
    for stage in ("INPUTA", "INPUTB", "OUTPUT"):
        assert text.count(f'parameter \\REG_{stage}_CLK "CLK0"') == LENGTH

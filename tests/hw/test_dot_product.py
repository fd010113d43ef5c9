# amaranth: UnusedElaboratable=no
"""Dot products against plain sums."""

import random

import pytest
from amaranth.hdl import Cat

from trirow_hw.dot_product import DotProduct, dot_product_latency
from trirow_sim.unit_kit import feed, pack

LANES = [1, 2, 3, 4, 5, 8, 13, 16, 17, 64]
WEIGHT_BITS = [8, 9]


def check(lanes, vectors, weight_bits=8):
    """Feed a pair of vectors a cycle; compare every result."""
    unit = DotProduct(lanes=lanes, weight_bits=weight_bits)
    words = [pack(unit.a.shape(), a) | pack(unit.b.shape(), b) << 9 * lanes for a, b in vectors]
    inputs = Cat(unit.a.as_value(), unit.b.as_value())
    outputs = feed(unit, inputs, words, unit.o, after=unit.latency)
    expected = [sum(x * y for x, y in zip(a, b, strict=True)) for a, b in vectors]
    assert outputs[unit.latency :] == expected
    assert unit.latency == dot_product_latency(lanes)


@pytest.mark.parametrize("weight_bits", WEIGHT_BITS)
@pytest.mark.parametrize("lanes", LANES)
def test_ends(lanes, weight_bits):
    least, most = {8: (-128, 127), 9: (-255, 255)}[weight_bits]
    ends = [(a, b) for a in (-256, -255, -1, 0, 1, 255) for b in (least, -1, 0, 1, most)]
    check(lanes, [([a] * lanes, [b] * lanes) for a, b in ends], weight_bits)


@pytest.mark.parametrize("lanes", LANES)
def test_each_lane_counts_once(lanes):
    """A single pair that is not zero, in each lane in turn, cycle after cycle."""
    vectors = []
    for lane in range(lanes):
        a, b = [0] * lanes, [0] * lanes
        a[lane], b[lane] = 255, -128
        vectors.append((a, b))
    check(lanes, vectors)


@pytest.mark.parametrize("weight_bits", WEIGHT_BITS)
@pytest.mark.parametrize("lanes", LANES)
def test_random(lanes, weight_bits):
    generator = random.Random(f"{lanes} {weight_bits}")
    least, most = {8: (-128, 127), 9: (-255, 255)}[weight_bits]

    def vector(least, most):
        return [
            generator.choice([least, most, generator.randint(least, most)]) for _ in range(lanes)
        ]

    vectors = [(vector(-255, 255), vector(least, most)) for _ in range(150)]
    check(lanes, vectors, weight_bits)


@pytest.mark.parametrize("lanes", [0, -1])
def test_lanes(lanes):
    with pytest.raises(ValueError, match=f"^lanes must be at least 1, not {lanes}$"):
        DotProduct(lanes=lanes, weight_bits=8)

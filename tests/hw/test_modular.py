"""Arithmetic on ring addresses against Python's own modulo."""

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from trirow_hw.config import PRESETS
from trirow_hw.modular import add_carry, wrap, wrap_add

SMALL = range(1, 20)
RINGS = sorted(
    {config.line_bank_words for config in PRESETS.values()}
    | {config.weight_words for config in PRESETS.values()}
)


def evaluate(function, bits, values):
    """Return the function of each tuple of values of signals with so many bits."""
    m = Module()
    inputs = [Signal(width, name=f"i{k}") for k, width in enumerate(bits)]
    result = function(*inputs)
    output = Signal(len(result))
    m.d.comb += output.eq(result)
    outputs = []

    async def testbench(ctx):
        for row in values:
            for signal, value in zip(inputs, row, strict=True):
                ctx.set(signal, value)
            outputs.append(ctx.get(output))

    simulator = Simulator(m)
    simulator.add_testbench(testbench)
    simulator.run()
    return outputs


def bits_of(depth):
    return max(1, (depth - 1).bit_length())


@pytest.mark.parametrize("depth", SMALL)
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_wrap(depth, extra):
    values = [(value,) for value in range(2 * depth)]
    bits = (2 * depth - 1).bit_length() + extra
    results = evaluate(lambda value: wrap(value, depth), [bits], values)
    assert results == [value % depth for (value,) in values]


@pytest.mark.parametrize("depth", SMALL)
def test_wrap_add(depth):
    values = [(a, b) for a in range(depth) for b in range(depth)]
    bits = [bits_of(depth)] * 2
    results = evaluate(lambda a, b: wrap_add(a, b, depth), bits, values)
    assert results == [(a + b) % depth for a, b in values]


@pytest.mark.parametrize("depth", RINGS)
def test_wrap_add_in_the_rings_of_the_presets(depth):
    edges = sorted({0, 1, 2, depth // 2, depth - 3, depth - 2, depth - 1} & set(range(depth)))
    values = [(a, b) for a in edges for b in edges]
    # The second may be a field of 16 bits.
    results = evaluate(lambda a, b: wrap_add(a, b, depth), [bits_of(depth), 16], values)
    assert results == [(a + b) % depth for a, b in values]


@pytest.mark.parametrize("depth", [*SMALL, *RINGS])
def test_width_is_that_of_an_address(depth):
    assert len(wrap(Signal(range(2 * depth)), depth)) == bits_of(depth)


def test_value_narrower_than_the_ring():
    results = evaluate(lambda value: wrap(value, 100), [3], [(value,) for value in range(8)])
    assert results == list(range(8))
    results = evaluate(lambda value: wrap(value, 128), [3], [(value,) for value in range(8)])
    assert results == list(range(8))


@pytest.mark.parametrize("depth", [2, 3, 5, 8, 13, 16, 19])
def test_sum_with_the_difference_known_beforehand(depth):
    values = [(a, b, b - depth) for a in range(depth) for b in range(depth)]
    bits = bits_of(depth)
    results = evaluate(
        lambda a, b, less: wrap_add(a, b, depth, less=less), [bits, bits, signed(bits + 1)], values
    )
    assert results == [(a + b) % depth for a, b, _ in values]


def test_sum_with_carry():
    values = [(a, b, c) for a in range(-8, 8) for b in range(-4, 4) for c in (0, 1)]
    results = evaluate(
        lambda a, b, carry: (add_carry(a, b, carry) + 16)[:6], [signed(4), signed(3), 1], values
    )
    assert results == [a + b + c + 16 for a, b, c in values]

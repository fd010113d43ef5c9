"""Delay lines."""

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal, Value, signed
from amaranth.lib import data

from trirow_hw.delay import delay
from trirow_sim.stream_kit import run

PAIR = data.StructLayout({"low": signed(5), "high": 9})


@pytest.mark.parametrize("cycles", [0, 1, 2, 7])
@pytest.mark.parametrize("shape", [1, 8, signed(6), PAIR])
def test_value_of_so_many_cycles_ago(cycles, shape):
    m = Module()
    m.d.sync += Signal().eq(0)
    value = Signal(shape)
    delayed = delay(m, value, cycles, name="it")
    if isinstance(value, data.View):
        assert delayed.shape() == shape
    bits, delayed_bits = Value.cast(value), Value.cast(delayed)
    if cycles:
        assert delayed_bits.name == f"it_{cycles}"
    rng = random.Random(cycles)
    sent = []

    async def testbench(ctx):
        for k in range(60):
            sent.append(rng.getrandbits(len(bits)))
            ctx.set(bits.as_unsigned(), sent[-1])
            if k >= cycles:
                assert ctx.get(delayed_bits.as_unsigned()) == sent[k - cycles]
            await ctx.tick()

    run(m, testbench)


@pytest.mark.parametrize("reset_less", [False, True])
def test_reset(reset_less):
    m = Module()
    value, reset = Signal(8), Signal()
    delayed = delay(m, value, 3, name="it", reset_less=reset_less)

    async def testbench(ctx):
        ctx.set(value, 7)
        for _ in range(4):
            await ctx.tick()
        assert ctx.get(delayed) == 7
        ctx.set(reset, 1)
        await ctx.tick()
        assert ctx.get(delayed) == (7 if reset_less else 0)

    run(ResetInserter(reset)(m), testbench)

# amaranth: UnusedElaboratable=no
"""The queue in block RAM: order, capacity, latency and throughput."""

import random

import pytest

from trirow_hw.block_memory import BlockQueue
from trirow_sim.stream_kit import collect, run, send

DEPTHS = [4, 8, 16]
STALLS = [(None, None), (1, None), (None, 2), (3, 4), (5, 6)]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("i_stall", "o_stall"), STALLS)
def test_order(depth, i_stall, o_stall):
    dut = BlockQueue(8, depth=depth)
    rng = random.Random(depth)
    values = [rng.getrandbits(8) for _ in range(120)]

    async def sender(ctx):
        await send(ctx, dut.i, values, i_stall)

    async def collector(ctx):
        assert await collect(ctx, dut.o, len(values), o_stall) == values
        for _ in range(4):
            assert not ctx.get(dut.o.valid)
            await ctx.tick()

    run(dut, sender, collector)


@pytest.mark.parametrize("depth", DEPTHS)
def test_capacity(depth):
    dut = BlockQueue(8, depth=depth)

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        taken = 0
        for _ in range(depth + 8):
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            taken += ready
        assert taken == depth

    run(dut, testbench)


@pytest.mark.parametrize("depth", DEPTHS)
def test_latency_and_throughput(depth):
    dut = BlockQueue(8, depth=depth)

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        moved = []
        for _ in range(3 + 20):
            _, _, ready, valid = await ctx.tick().sample(dut.i.ready, dut.o.valid)
            moved.append((ready, valid))
        assert moved == [(1, 0)] * 3 + [(1, 1)] * 20

    run(dut, testbench)


@pytest.mark.parametrize("depth", [0, 2, 3, 12])
def test_wrong_depth(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two from 4 on, not {depth}"):
        BlockQueue(8, depth=depth)

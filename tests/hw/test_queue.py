# amaranth: UnusedElaboratable=no
"""The queue: order, capacity, latency and throughput."""

import random

import pytest
from amaranth.hdl import Value, signed
from amaranth.lib import data

from trirow_hw.queue import Queue
from trirow_sim.stream_kit import collect, run, send

DEPTHS = [1, 2, 3, 5, 8, 16]
STALLS = [(None, None), (1, None), (None, 2), (3, 4), (5, 6)]
KINDS = {
    "plain": {},
    "registered": {"registered": True},
}
PAIR = data.StructLayout({"low": signed(5), "high": 9})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("i_stall", "o_stall"), STALLS)
def test_order(depth, kind, i_stall, o_stall):
    dut = Queue(8, depth=depth, **KINDS[kind])
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_capacity(depth, kind):
    dut = Queue(8, depth=depth, **KINDS[kind])

    async def testbench(ctx):
        ctx.set(dut.i.valid, 1)
        taken = 0
        for _ in range(2 * depth + 8):
            _, _, ready = await ctx.tick().sample(dut.i.ready)
            taken += ready
        assert taken == depth + KINDS[kind].get("registered", False)

    run(dut, testbench)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_latency(depth, kind):
    dut = Queue(8, depth=depth, **KINDS[kind])

    async def testbench(ctx):
        await ctx.tick()
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        assert not ctx.get(dut.o.valid)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        if KINDS[kind].get("registered", False):
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
        assert ctx.get(dut.o.valid)

    run(dut, testbench)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_throughput(depth, kind):
    dut = Queue(8, depth=depth, **KINDS[kind])

    async def sender(ctx):
        await send(ctx, dut.i, range(100))

    async def collector(ctx):
        await collect(ctx, dut.o, 100)

    options = KINDS[kind]
    turns = 2 if depth == 1 else 1
    latency = 2 + options.get("registered", False)
    assert run(dut, sender, collector) <= 100 * turns + latency


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("shape", [1, 40, signed(7), PAIR, data.ArrayLayout(signed(9), 3)])
def test_payloads(shape, depth, kind):
    dut = Queue(shape, depth=depth, **KINDS[kind])
    rng = random.Random(1)
    size = len(Value.cast(dut.i.payload))
    values = [rng.getrandbits(size) for _ in range(20)]
    taken = []

    async def sender(ctx):
        await send(ctx, dut.i, values)

    async def collector(ctx):
        for payload in await collect(ctx, dut.o, len(values)):
            taken.append(payload.as_bits() if isinstance(payload, data.Const) else payload)

    run(dut, sender, collector)
    assert [value % (1 << size) for value in taken] == values


@pytest.mark.parametrize("depth", [0, -1])
def test_wrong_depth(depth):
    with pytest.raises(ValueError, match=rf"^depth must be at least 1, not {depth}$"):
        Queue(8, depth=depth)


def test_attributes():
    assert Queue(8, depth=3).depth == 3

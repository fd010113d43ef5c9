# amaranth: UnusedElaboratable=no
"""Registers across a bus: all beats pass in order, one a cycle, a cycle later."""

import random

import pytest

from trirow_hw.axi_slice import AxiSlice
from trirow_sim.memory import Memory, make_memory
from trirow_sim.stream_kit import AxiMemory, run
from trirow_sim.testing_axi import ScriptedMaster

from .sdram.kit import AxiDriver, stalls
from .test_axi_arbiter import AREA, traffic


@pytest.mark.parametrize(("bus_bytes", "model", "seed"), [(4, "random", 1), (8, "ddr", 2)])
def test_random_traffic(bus_bytes, model, seed):
    dut = AxiSlice(bus_bytes=bus_bytes)
    dice = random.Random(seed)
    memory = Memory(AREA)
    memory.data[:] = dice.randbytes(AREA)
    content = bytes(memory.data)
    axi = AxiMemory(dut.bus, make_memory(model, memory, bus_bytes, seed))
    master = ScriptedMaster(
        bus_bytes,
        r_ready=stalls(dice.random(), 0.6),
        b_ready=stalls(dice.random(), 0.6),
        w_valid=stalls(dice.random(), 0.6),
    )
    expected, written = traffic(master, dice, 0, content, bus_bytes, 20)
    driver = AxiDriver(dut.manager)
    run(dut, lambda ctx: driver.play(ctx, master), background=[axi], max_cycles=30_000)
    assert b"".join(beat.data for beat in master.r) == expected
    assert memory.data[:AREA] == written
    assert driver.checker.idle
    assert axi.checker.idle


@pytest.mark.parametrize("channel", ["aw", "w", "ar", "r", "b"])
def test_latency_and_throughput(channel):
    """With both sides ready, a beat goes through in one cycle, and one a cycle."""
    dut = AxiSlice(bus_bytes=4)
    forward = channel in ("aw", "w", "ar")
    source, sink = (dut.manager, dut.bus) if forward else (dut.bus, dut.manager)

    async def testbench(ctx):
        ctx.set(getattr(source, f"{channel}valid"), 1)
        ctx.set(getattr(sink, f"{channel}ready"), 1)
        assert not ctx.get(getattr(sink, f"{channel}valid"))
        for _ in range(6):
            assert ctx.get(getattr(source, f"{channel}ready"))
            await ctx.tick()
            assert ctx.get(getattr(sink, f"{channel}valid"))

    run(dut, testbench)


def test_places():
    """A side that waits is given two beats, then the other side is told to wait."""
    dut = AxiSlice(bus_bytes=4)

    async def testbench(ctx):
        ctx.set(dut.bus.rvalid, 1)
        taken = 0
        for _ in range(5):
            _, _, ready = await ctx.tick().sample(dut.bus.rready)
            taken += ready
        assert taken == 2

    run(dut, testbench)

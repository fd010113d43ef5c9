# amaranth: UnusedElaboratable=no
import random

import pytest

from trirow_hw.bridge.frame_buffer import FrameBuffer
from trirow_sim.stream_kit import collect, run


@pytest.mark.parametrize("seed", range(4))
def test_committed_bytes_come_out_and_others_never(seed):
    rng = random.Random(seed)
    dut = FrameBuffer(depth=16)
    frames = [(rng.randbytes(rng.randint(1, 15)), rng.random() < 0.6) for _ in range(40)]
    wanted = b"".join(frame for frame, good in frames if good)
    lost = []

    async def push(ctx):
        for frame, good in frames:
            for byte in frame:
                while ctx.get(dut.full):
                    await ctx.tick()
                ctx.set(dut.data, byte)
                ctx.set(dut.push, 1)
                await ctx.tick()
                ctx.set(dut.push, 0)
                ctx.set(dut.data, rng.getrandbits(8))
                await ctx.tick()
            await ctx.tick().repeat(3)
            strobe = dut.commit if good else dut.discard
            ctx.set(strobe, 1)
            await ctx.tick()
            ctx.set(strobe, 0)
            lost.append(good)

    async def take(ctx):
        taken = await collect(ctx, dut.o, len(wanted), stall=seed)
        assert bytes(taken) == wanted

    run(dut, push, take, max_cycles=6000)
    assert len(lost) == len(frames)


def test_a_byte_every_four_cycles():
    dut = FrameBuffer(depth=64)

    async def testbench(ctx):
        for byte in range(30):
            ctx.set(dut.data, byte)
            ctx.set(dut.push, 1)
            await ctx.tick()
            ctx.set(dut.push, 0)
            await ctx.tick()
        await ctx.tick().repeat(3)
        ctx.set(dut.commit, 1)
        await ctx.tick()
        ctx.set(dut.commit, 0)
        assert await collect(ctx, dut.o, 30) == [*range(30)]

    assert run(dut, testbench, max_cycles=300) <= 64 + 30 * 4 + 2


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_wrong_depth(depth):
    with pytest.raises(ValueError, match=f"depth must be a power of two, at least 2, not {depth}"):
        FrameBuffer(depth=depth)

# amaranth: UnusedElaboratable=no
import random
import zlib

from trirow_hw.bridge.crc import ByteCrc
from trirow_sim.stream_kit import run


def test_equals_zlib():
    rng = random.Random(1)
    dut = ByteCrc()

    async def testbench(ctx):
        for size in (0, 1, 2, 9):
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            data = rng.randbytes(size)
            assert ctx.get(dut.crc) == 0
            for end, byte in enumerate(data, 1):
                ctx.set(dut.data, byte)
                ctx.set(dut.valid, 1)
                await ctx.tick()
                ctx.set(dut.valid, 0)
                ctx.set(dut.data, rng.getrandbits(8))
                cycles = 0
                while ctx.get(dut.busy):
                    await ctx.tick()
                    cycles += 1
                assert cycles == 8
                assert ctx.get(dut.crc) == zlib.crc32(data[:end])

    run(dut, testbench, max_cycles=200)

from amaranth.sim import Simulator

from trirow_hw.boards.top import BoardTop
from trirow_hw.config import PRESETS
from trirow_hw.sdram.chips import CHIPS

READY, ACTIVITY = 1, 8
#: So that a bit is 8 cycles.
CLOCK_HZ, BAUD = 40_000_000, 5_000_000


def test_leds():
    """Ready comes up with the memory, activity with a byte from the host."""
    dut = BoardTop(
        config=PRESETS["tiny"],
        chip=CHIPS["IS42S16160G-7"],
        clock_hz=CLOCK_HZ,
        baud=BAUD,
        startup_us=1.0,
    )

    async def bench(ctx):
        ctx.set(dut.rx, 1)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.leds) == 0
        assert ctx.get(dut.tx) == 1
        for _ in range(400):
            await ctx.tick()
            if ctx.get(dut.leds) & READY:
                break
        assert ctx.get(dut.leds) == READY
        for bit in (0, 1, 0, 1, 0, 1, 0, 1, 0, 1):
            ctx.set(dut.rx, bit)
            await ctx.tick().repeat(CLOCK_HZ // BAUD)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.leds) == READY | ACTIVITY

    simulator = Simulator(dut)
    simulator.add_clock(1 / CLOCK_HZ)
    simulator.add_testbench(bench)
    simulator.run()

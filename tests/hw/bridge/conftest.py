# amaranth: UnusedElaboratable=no
"""A bridge with what it is connected to, driven at its pins."""

import pytest

from trirow_hw.bridge.bridge import HostBridge
from trirow_sim.bridge_kit import LiteRegisters, SleepyMemory
from trirow_sim.bridge_model import Answer, find_answers
from trirow_sim.memory import Memory
from trirow_sim.stream_kit import run
from trirow_sim.uart_kit import UartPins

#: The fewest cycles that a bit may take: what follows the line waits for it anyway.
CLOCK_HZ = 24_000_000
CYCLES_PER_BIT = 8


class BridgeBench:
    """A bridge at 8 cycles a bit, 64 KB of memory at 0x1000, some registers.

    A frame that has begun is forgotten after 2,400 cycles, 30 bytes.
    """

    def __init__(self, *, bus_bytes=4, seed=None):
        self.dut = HostBridge(bus_bytes=bus_bytes, clock_hz=CLOCK_HZ, silence=1e-4)
        self.pins = UartPins(self.dut, CYCLES_PER_BIT)
        self.memory = Memory(65536, base=0x1000)
        self.port = SleepyMemory(self.dut.memory, self.memory, seed)
        self.registers = LiteRegisters(self.dut.control, {0: 0x57495254, 0x10: 0, 0x14: 7})
        self.background = [self.pins.drive, self.pins.watch, self.port, self.registers]

    def exchange(self, *items, answers, max_bytes=1500):
        """Send frames, pauses in cycles (float) and bytes without stop bit (None).

        Returns all answers, when so many have come and everything is sent.
        """
        for item in items:
            if isinstance(item, bytes):
                self.pins.send(item)
            else:
                self.pins.to_board.append(item)

        async def testbench(ctx):
            await ctx.delay(1e-4)
            while self.pins.to_board or len(self.answers) < answers:
                await ctx.delay(2e-4)
            await ctx.delay(6e-4)  # nothing else comes

        run(self.dut, testbench, background=self.background, max_cycles=max_bytes * 80)
        assert self.pins.failures == 0
        return self.answers

    @property
    def answers(self) -> list[Answer]:
        """What has been answered so far."""
        return find_answers(bytes(self.pins.received))


@pytest.fixture
def bench():
    """Give what makes a bench."""
    return BridgeBench

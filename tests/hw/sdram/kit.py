"""A controller, its chip and a scripted AXI4 manager in Amaranth's simulator."""

import random
from dataclasses import replace

from amaranth.hdl import Cat
from amaranth.sim import Simulator

from trirow_hw.sdram.axi_sdram import AxiSdram
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.axi import AxiChecker, AxiSlave
from trirow_sim.memory import Memory
from trirow_sim.sdram_chip import ChipModel, attach
from trirow_sim.testing_axi import ScriptedMaster

CLOCK_HZ = 100e6
REQUEST = ("addr", "len", "size", "burst", "valid")


class AxiDriver:
    """Connects a scripted manager to a subordinate, and checks the rules of the bus."""

    def __init__(self, bus, *, checked=True, max_burst_bytes=4096):
        self.bus = bus
        self.checker = AxiChecker(
            bus.signature.data_bytes, max_burst_bytes=max_burst_bytes, max_outstanding=200
        )
        self.checked = checked
        self.slave = AxiSlave()
        self.flags = Cat(
            bus.arready, bus.rvalid, bus.rlast, bus.awready, bus.wready, bus.bvalid, bus.rresp,
            bus.bresp,
        )  # fmt: skip
        names = [c + n for c in ("ar", "aw") for n in REQUEST]
        self.names = [*names, "wdata", "wstrb", "wlast", "wvalid", "rready", "bready"]
        self.driven = dict.fromkeys(self.names, 0)
        self.promised = 0  # beats of the addresses that were taken

    async def play(self, ctx, master, *, limit=60_000):
        """Run until the manager is done; cycles are counted from 0."""
        sample = ctx.tick().sample(self.flags, self.bus.rdata)
        slave = self.slave
        for cycle in range(limit):
            seen = master.drive(cycle)
            if self.checked and not self.promised:
                # The manager sends data when it likes; the checker wants their address first.
                seen = replace(seen, wvalid=0)
            for name in self.names:
                value = getattr(seen, name)
                if value != self.driven[name]:
                    self.driven[name] = value
                    ctx.set(getattr(self.bus, name), value)
            _, _, flags, slave.rdata = await sample
            slave.arready, slave.rvalid, slave.rlast = flags & 1, flags >> 1 & 1, flags >> 2 & 1
            slave.awready, slave.wready, slave.bvalid = (
                flags >> 3 & 1, flags >> 4 & 1, flags >> 5 & 1,
            )  # fmt: skip
            slave.rresp, slave.bresp = flags >> 6 & 3, flags >> 8
            slave.wready &= seen.wvalid
            if seen.awvalid and slave.awready:
                self.promised += seen.awlen + 1
            self.promised -= slave.wready
            if self.checked:
                self.checker.check(seen, slave)
            master.observe(cycle, slave)
            if master.done:
                await ctx.tick().repeat(2)  # a write is answered when its last word is on its way
                return cycle
        raise TimeoutError(f"the manager is not done after {limit} cycles")


class Bench:
    """An `AxiSdram` with its chip.

    ``run`` takes coroutine functions of (ctx, driver) that play one after the other.
    """

    def __init__(self, chip="IS42S16160G-7", bus_bytes=8, clock_hz=CLOCK_HZ, **options):
        self.chip = CHIPS[chip]
        self.bus_bytes = bus_bytes
        self.dut = AxiSdram(
            chip=self.chip, clock_hz=clock_hz, bus_bytes=bus_bytes, startup_us=1, **options
        )
        self.memory = Memory(self.chip.capacity)
        self.model = ChipModel(self.chip, clock_hz, self.memory.data, startup_us=1)
        self.driver = AxiDriver(self.dut.bus)

    def run(self, *plays, background=()):
        async def testbench(ctx):
            for play in plays:
                await play(ctx, self.driver)

        async def chip(ctx):
            await attach(ctx, self.dut.pins, self.model)

        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(testbench)
        for process in (chip, *background):
            simulator.add_testbench(process, background=True)
        simulator.run()

    def master(self, **ready):
        return ScriptedMaster(self.bus_bytes, **ready)

    async def until_ready(self, ctx, driver):
        """Wait until the chip is initialised."""
        await ctx.tick().until(self.dut.ready)


def stalls(seed, chance):
    """Return a function of the cycle that is true with a chance."""
    dice = random.Random(seed)
    return lambda cycle: dice.random() < chance

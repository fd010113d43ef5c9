"""The controller and its chip as a memory model, so that whole layers can run behind them."""

from amaranth.hdl import Cat
from amaranth.sim import Simulator

from trirow_hw.sdram.axi_sdram import AxiSdram
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.memory import MemoryModel
from trirow_sim.sdram_chip import ChipModel, attach

from .kit import CLOCK_HZ, REQUEST

PERIOD = 1 / CLOCK_HZ


class Window:
    """The bytes of a chip, of which only those of a memory may be touched."""

    def __init__(self, memory, size):
        self.memory, self.size = memory, size

    def __len__(self):
        return self.size

    def __getitem__(self, part):
        """Return bytes; those beyond the memory, which surplus words of a burst touch, are 0."""
        inside = self.memory.contains(part.start, part.stop - part.start)
        return self.memory.read(part.start, part.stop - part.start) if inside else bytes(2)

    def __setitem__(self, address, value):
        self.memory.write(address, bytes([value]))


class RtlMemory(MemoryModel):
    """An `AxiSdram` and its chip in a simulator of their own, a cycle with each step.

    All outputs of `AxiSdram` come from registers, so the two simulators need not be one.
    """

    __slots__ = ("_edge", "_master", "_ready", "_simulator", "chip", "dut")

    def __init__(self, memory, bus_bytes, chip="IS42S16160G-7"):
        super().__init__(memory, bus_bytes)
        part = CHIPS[chip]
        self.dut = AxiSdram(chip=part, clock_hz=CLOCK_HZ, bus_bytes=bus_bytes, startup_us=0.1)
        self.chip = ChipModel(part, CLOCK_HZ, Window(memory, part.capacity), startup_us=0.1)
        self._edge = self._ready = 0
        self._simulator = Simulator(self.dut)
        self._simulator.add_clock(PERIOD, phase=0)
        self._simulator.add_testbench(self._chip, background=True)
        self._master = None
        self._simulator.add_testbench(self._bus, background=True)
        while not self._ready:
            self.step(None)
        self.cycle = 0

    def step(self, master):
        self._master = master
        self._edge += 1
        self.cycle += 1
        self._simulator.run_until(self._edge * PERIOD + PERIOD / 4)

    async def _chip(self, ctx):
        await attach(ctx, self.dut.pins, self.chip)

    async def _bus(self, ctx):
        bus, slave = self.dut.bus, self.slave
        names = [c + n for c in ("ar", "aw") for n in REQUEST]
        names += ["wdata", "wstrb", "wlast", "wvalid", "rready", "bready"]
        driven = dict.fromkeys(names, 0)
        flags = Cat(
            self.dut.ready, bus.arready, bus.rvalid, bus.rlast, bus.awready, bus.wready, bus.bvalid,
            bus.rresp, bus.bresp,
        )  # fmt: skip
        await ctx.delay(PERIOD / 2)
        while True:
            if self._master is not None:
                for name in names:
                    value = getattr(self._master, name)
                    if value != driven[name]:
                        driven[name] = value
                        ctx.set(getattr(bus, name), value)
            await ctx.tick()
            bits = ctx.get(flags)
            self._ready = bits & 1
            slave.arready, slave.rvalid, slave.rlast = bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1
            slave.awready, slave.wready, slave.bvalid = bits >> 4 & 1, bits >> 5 & 1, bits >> 6 & 1
            slave.rresp, slave.bresp = bits >> 7 & 3, bits >> 9
            if slave.rvalid:
                slave.rdata = ctx.get(bus.rdata)
            await ctx.delay(PERIOD / 2)

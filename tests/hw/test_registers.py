"""The registers over AXI4-Lite: the map, strobes, undefined offsets, interrupt."""

import random

import pytest
from amaranth.hdl import Cat

from trirow_hw.config import PRESETS
from trirow_hw.registers import DEFAULT_WATCHDOG, ID, REGISTERS, VERSION, Registers
from trirow_hw.supervisor import COUNTERS
from trirow_sim.stream_kit import run, stalls

CONFIGS = ["tiny", "odd", "ecp5-85f", "edgeboard"]
#: Seeds of the stalls of addresses, of data, and of the host's ready.
STALLS = [(None, None, None), (1, None, None), (None, 2, None), (None, None, 3), (4, 5, 6)]
OFFSETS = {
    "id": 0x00,
    "version": 0x04,
    "control": 0x08,
    "status": 0x0C,
    "error": 0x10,
    "descriptor": 0x14,
    "base": 0x18,
    "limit": 0x1C,
    "watchdog": 0x20,
    "passes": 0x24,
    "cycles": 0x40,
    "busy": 0x44,
    "stall_features": 0x48,
    "stall_weights": 0x4C,
    "stall_output": 0x50,
    "stall_dependency": 0x54,
    "beats_read": 0x58,
    "beats_written": 0x5C,
    "lanes": 0x80,
    "line_buffer_bytes": 0x84,
    "weight_buffer_bytes": 0x88,
    "bus_bytes": 0x8C,
}
WRITABLE = ("descriptor", "base", "limit", "watchdog")
UNDEFINED = [offset for offset in range(0, 0x100, 4) if offset not in OFFSETS.values()]


class Host:
    """A host with stalls of its own; counts the strobes that come out of the registers."""

    def __init__(self, ctx, unit, seeds=(None, None, None)):
        self.ctx, self.unit, self.bus = ctx, unit, unit.bus
        self.held = [stalls(seed) for seed in seeds]
        self.starts = self.resets = 0
        bus = unit.bus
        self.sampler = ctx.tick().sample(
            Cat(bus.awready, bus.wready, bus.bvalid, bus.arready, bus.rvalid, bus.bresp, bus.rresp),
            bus.rdata,
            Cat(unit.start, unit.reset),
        )

    async def cycle(self):
        *_, flags, data, strobes = await self.sampler
        self.starts += strobes & 1
        self.resets += strobes >> 1
        return flags, data

    async def write(self, offset, value, strobes=0xF):
        ctx, bus = self.ctx, self.bus
        address, data = True, True
        ctx.set(bus.awaddr, offset)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, strobes)
        offered = [False, False]
        while address or data:
            for k, (valid, left) in enumerate(((bus.awvalid, address), (bus.wvalid, data))):
                # Once offered, it stays.
                offered[k] = left and (offered[k] or not next(self.held[k]))
                ctx.set(valid, offered[k])
            flags, _ = await self.cycle()
            assert not flags >> 2 & 1
            address = address and not (offered[0] and flags & 1)
            data = data and not (offered[1] and flags >> 1 & 1)
        ctx.set(bus.awvalid, 0)
        ctx.set(bus.wvalid, 0)
        await self.answer(bus.bready, 2, 5)

    async def read(self, offset):
        ctx, bus = self.ctx, self.bus
        while next(self.held[0]):
            await self.cycle()
        ctx.set(bus.araddr, offset)
        ctx.set(bus.arvalid, 1)
        while not (await self.cycle())[0] >> 3 & 1:
            pass
        ctx.set(bus.arvalid, 0)
        return await self.answer(bus.rready, 4, 7)

    async def answer(self, ready, valid, response):
        """Wait for an answer, hold it back for a while, and take it; it must not change."""
        seen = None
        while True:
            takes = not next(self.held[2])
            self.ctx.set(ready, takes)
            flags, data = await self.cycle()
            if flags >> valid & 1:
                assert flags >> response & 3 == 0
                assert seen in (None, data)
                seen = data
                if takes:
                    self.ctx.set(ready, 0)
                    return data
            else:
                assert seen is None


def simulate(testbench, config="tiny", seeds=(None, None, None)):
    unit = Registers(config=PRESETS[config])

    async def wrapped(ctx):
        await testbench(ctx, unit, Host(ctx, unit, seeds))

    run(unit, wrapped, max_cycles=20_000)


def test_offsets():
    assert {name: register.offset for name, register in REGISTERS.items()} == OFFSETS
    writable = {name for name, register in REGISTERS.items() if register.access == "rw"}
    assert writable == {"control", *WRITABLE}
    assert all(register.meaning for register in REGISTERS.values())


@pytest.mark.parametrize("seeds", STALLS)
@pytest.mark.parametrize("config", CONFIGS)
def test_values_after_reset(config, seeds):
    parameters = PRESETS[config]

    async def testbench(ctx, unit, host):
        expected = dict.fromkeys(OFFSETS, 0) | {
            "id": int.from_bytes(b"TRIW", "little"),
            "version": 2,
            "watchdog": DEFAULT_WATCHDOG,
            "lanes": parameters.in_lanes
            + (parameters.out_lanes << 8)
            + (parameters.post_lanes << 16),
            "line_buffer_bytes": parameters.line_buffer_bytes,
            "weight_buffer_bytes": parameters.weight_buffer_bytes,
            "bus_bytes": parameters.bus_bytes + (8 << 8),
        }
        assert (expected["id"], expected["version"]) == (ID, VERSION)
        assert {name: await host.read(at) for name, at in OFFSETS.items()} == expected
        assert REGISTERS["watchdog"].init == DEFAULT_WATCHDOG

    simulate(testbench, config, seeds)


@pytest.mark.parametrize("seeds", STALLS)
def test_write_and_read_back(seeds):
    generator = random.Random(repr(seeds))

    async def testbench(ctx, unit, host):
        values = dict.fromkeys(WRITABLE, 0) | {"watchdog": DEFAULT_WATCHDOG}
        for _ in range(40):
            name, value = generator.choice(WRITABLE), generator.getrandbits(32)
            strobes = generator.choice([0xF, generator.randrange(16)])
            mask = sum(0xFF << 8 * k for k in range(4) if strobes >> k & 1)
            values[name] = values[name] & ~mask | value & mask
            await host.write(OFFSETS[name], value, strobes)
            for other in WRITABLE:
                assert ctx.get(getattr(unit, other)) == values[other]
            name = generator.choice(WRITABLE)
            assert await host.read(OFFSETS[name]) == values[name]
        assert host.starts == host.resets == 0

    simulate(testbench, seeds=seeds)


@pytest.mark.parametrize("seeds", STALLS)
def test_what_the_supervisor_says(seeds):
    generator = random.Random(repr(seeds))

    async def testbench(ctx, unit, host):
        for _ in range(5):
            error = {
                "code": generator.randrange(6),
                "unit": generator.randrange(5),
                "index": generator.getrandbits(16),
            }
            for name, value in error.items():
                ctx.set(unit.error[name], value)
            busy, done = generator.randrange(2), generator.randrange(2)
            ctx.set(unit.busy, busy)
            ctx.set(unit.done, done)
            passes = generator.getrandbits(16)
            ctx.set(unit.passes_landed, passes)
            counters = [generator.getrandbits(32) for _ in COUNTERS]
            for counter, value in zip(unit.counters, counters, strict=True):
                ctx.set(counter, value)
            assert await host.read(OFFSETS["status"]) == busy | done << 1 | (error["code"] > 0) << 2
            word = error["code"] | error["unit"] << 8 | error["index"] << 16
            assert await host.read(OFFSETS["error"]) == word
            assert await host.read(OFFSETS["passes"]) == passes
            for name, value in zip(COUNTERS, counters, strict=True):
                assert await host.read(OFFSETS[name]) == value

    simulate(testbench, seeds=seeds)


@pytest.mark.parametrize("seeds", [STALLS[0], STALLS[-1]])
def test_undefined_offsets(seeds):
    async def testbench(ctx, unit, host):
        for offset in UNDEFINED:
            assert await host.read(offset) == 0
            await host.write(offset, 0xFFFF_FFFF)
            assert await host.read(offset) == 0
        assert host.starts == host.resets == 0
        for name in WRITABLE:
            assert ctx.get(getattr(unit, name)) == REGISTERS[name].init

    simulate(testbench, seeds=seeds)


def test_read_only_registers():
    async def testbench(ctx, unit, host):
        for name, register in REGISTERS.items():
            if register.access == "ro":
                before = await host.read(register.offset)
                await host.write(register.offset, ~before & 0xFFFF_FFFF)
                assert await host.read(register.offset) == before, name
        assert host.starts == host.resets == 0

    simulate(testbench)


@pytest.mark.parametrize("seeds", STALLS)
def test_start_and_reset(seeds):
    """One cycle each, once for each write, and only by the byte that holds the bits."""

    async def testbench(ctx, unit, host):
        expected = [0, 0]
        for value, strobes in [
            (1, 0xF),
            (2, 0xF),
            (0x100, 0xF),
            (3, 1),
            (1, 0xE),
            (2, 0),
            (0, 0xF),
        ]:
            await host.write(OFFSETS["control"], value, strobes)
            if strobes & 1:
                expected[0] += value & 1
                expected[1] += value >> 1 & 1
            assert [host.starts, host.resets] == expected
            # They are not kept.
            assert await host.read(OFFSETS["control"]) & 0xFF == 0

    simulate(testbench, seeds=seeds)


def test_interrupt():
    async def testbench(ctx, unit, host):
        async def expect(interrupt):
            assert ctx.get(unit.interrupt) == interrupt
            assert (await host.read(OFFSETS["status"])) >> 3 & 1 == interrupt

        await expect(0)
        ctx.set(unit.done, 1)
        await expect(0)  # not enabled
        await host.write(OFFSETS["control"], 1 << 8)
        assert await host.read(OFFSETS["control"]) == 1 << 8
        await expect(1)
        ctx.set(unit.done, 0)
        await expect(0)
        ctx.set(unit.error.code, 3)
        await expect(1)
        # A write to the other byte leaves the enable as it is.
        await host.write(OFFSETS["control"], 0, 0x1)
        await expect(1)
        await host.write(OFFSETS["control"], 0, 0x2)
        await expect(0)
        ctx.set(unit.error.code, 0)
        await host.write(OFFSETS["control"], 1 << 8 | 1)
        assert host.starts == 1
        await expect(0)

    simulate(testbench)


def test_reads_and_writes_at_the_same_time():
    """The two directions do not wait for each other."""

    async def testbench(ctx, unit, host):
        bus = unit.bus
        ctx.set(bus.awaddr, OFFSETS["base"])
        ctx.set(bus.wdata, 0x1234_5678)
        ctx.set(bus.wstrb, 0xF)
        ctx.set(bus.araddr, OFFSETS["id"])
        for port in (bus.awvalid, bus.wvalid, bus.arvalid):
            ctx.set(port, 1)
        flags, _ = await host.cycle()
        assert flags & 0b1011 == 0b1011
        for port in (bus.awvalid, bus.wvalid, bus.arvalid):
            ctx.set(port, 0)
        ctx.set(bus.rready, 1)
        flags, _ = await host.cycle()
        assert flags & 0b10100 == 0b00100
        flags, data = await host.cycle()
        assert flags & 0b10100 == 0b10100
        assert data == ID
        # The write's answer waits on, the read's is gone.
        flags, _ = await host.cycle()
        assert flags & 0b10100 == 0b00100
        assert ctx.get(unit.base) == 0x1234_5678

    simulate(testbench)


def test_a_write_waits_until_the_answer_is_taken():
    async def testbench(ctx, unit, host):
        bus = unit.bus
        ctx.set(bus.awaddr, OFFSETS["base"])
        ctx.set(bus.wstrb, 0xF)
        ctx.set(bus.wdata, 1)
        ctx.set(bus.awvalid, 1)
        ctx.set(bus.wvalid, 1)
        await host.cycle()
        ctx.set(bus.wdata, 2)
        for _ in range(5):
            flags, _ = await host.cycle()
            assert flags & 0b111 == 0b100
            assert ctx.get(unit.base) == 1
        ctx.set(bus.bready, 1)
        await host.cycle()
        flags, _ = await host.cycle()
        assert flags & 0b11 == 0b11
        assert ctx.get(unit.base) == 2

    simulate(testbench)

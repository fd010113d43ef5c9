# amaranth: UnusedElaboratable=no
"""The controller behind AXI4, against the chip model that checks every rule."""

import random

import pytest

from trirow_hw.axi import Burst
from trirow_hw.sdram.axi_sdram import AxiSdram
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.axi import DECERR, OKAY, SLVERR

from .kit import Bench, stalls

BLOCK = 512
PHASES = 3
AREA = 1 << 15  # bytes from each of some addresses on that the traffic touches

SETTINGS = [
    ("IS42S16160G-7", 8, 100e6),
    ("IS42S16160G-7", 2, 100e6),
    ("IS42S16160G-7", 16, 50e6),
    ("AS4C32M16SB-7", 4, 100e6),
    ("IS42S16160B-7", 8, 133e6),
    ("M12L64322A-6", 8, 100e6),
    ("M12L64322A-6", 2, 80e6),
    ("M12L64322A-6", 4, 100e6),
    ("2x M12L16161A-7", 16, 80e6),
]


def random_burst(dice, block, bus_bytes):
    """Return address and beats of a burst in a block of 2 segments."""
    most = min(2 * BLOCK // bus_bytes, 256)
    beats = min(dice.choice((1, 2, 3, most, dice.randint(1, most))), most)
    return block + bus_bytes * dice.randint(0, 2 * BLOCK // bus_bytes - beats), beats


def random_phase(bench, dice, reference):
    """Return a manager with bursts that do not touch each other's blocks, and what is read."""
    bus_bytes, full = bench.bus_bytes, (1 << bench.bus_bytes) - 1
    busy = dice.choice((1.0, 0.7, 0.2))
    master = bench.master(
        r_ready=stalls(dice.random(), busy),
        b_ready=stalls(dice.random(), busy),
        w_valid=stalls(dice.random(), dice.choice((1.0, 0.5))),
    )
    places = [base + b for base in reference for b in range(0, AREA, 2 * BLOCK)]
    expected = []
    for block in dice.sample(places, 14):
        address, beats = random_burst(dice, block, bus_bytes)
        base = max(base for base in reference if base <= address)
        part = slice(address - base, address - base + beats * bus_bytes)
        at = dice.choice((0, dice.randrange(600)))
        if dice.random() < 0.5:
            master.read(address, beats, at=at)
            expected.append(bytes(reference[base][part]))
            continue
        data = dice.randbytes(beats * bus_bytes)
        strobes = [dice.choice((full, full, dice.getrandbits(bus_bytes), 0)) for _ in range(beats)]
        master.write(address, data, strobes=strobes, at=at)
        for i, byte in enumerate(data):
            if strobes[i // bus_bytes] >> i % bus_bytes & 1:
                reference[base][part.start + i] = byte
    return master, expected


@pytest.mark.slow
@pytest.mark.parametrize(("chip", "bus_bytes", "clock_hz"), SETTINGS)
def test_random_traffic(chip, bus_bytes, clock_hz):
    bench = Bench(chip, bus_bytes, clock_hz)
    dice = random.Random(f"{chip} {bus_bytes}")
    reference = {}
    for base in (0, bench.chip.capacity // 2 - AREA // 2 & -4096, bench.chip.capacity - AREA):
        reference[base] = bytearray(dice.randbytes(AREA))
        bench.memory.data[base : base + AREA] = reference[base]

    async def traffic(ctx, driver):
        for _ in range(PHASES):
            master, expected = random_phase(bench, dice, reference)
            await driver.play(ctx, master)
            assert b"".join(beat.data for beat in master.r) == b"".join(expected)
            assert {beat.resp for beat in master.r} | {b.resp for b in master.b} == {OKAY}

    bench.run(traffic)
    for base, data in reference.items():
        assert bench.memory.data[base : base + AREA] == data
    assert bench.driver.checker.idle


@pytest.mark.parametrize("seed", [1, 2])
def test_read_after_write(seed):
    """Blocks are written, read when the response is there, and written again."""
    bench, dice = Bench(bus_bytes=4), random.Random(seed)

    async def traffic(ctx, driver):
        for _ in range(8):
            address = dice.randrange(1 << 12) * 4
            address -= max(0, address % 4096 + 64 - 4096)
            data = dice.randbytes(64)
            master = bench.master()
            master.write(address, data)
            await driver.play(ctx, master)
            master = bench.master()
            master.read(address, 16)
            await driver.play(ctx, master)
            assert b"".join(beat.data for beat in master.r) == data

    bench.run(traffic)


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes", [2, 8])
def test_streams(bus_bytes):
    """A word a cycle, whether bursts are of 512 or of 64 bytes, but for rows and refresh."""
    bench = Bench(bus_bytes=bus_bytes)
    bench.memory.data[:8192] = content = random.Random(1).randbytes(8192)

    async def traffic(ctx, driver):
        for size in (512, 64):
            master = bench.master()
            for address in range(0, 8192, size):
                master.read(address, size // bus_bytes)
            await driver.play(ctx, master)
            assert b"".join(beat.data for beat in master.r) == content
            assert 4096 <= master.r_cycles[-1] - master.r_cycles[0] + bus_bytes // 2 <= 1.03 * 4096
            master = bench.master()
            for address in range(0, 8192, size):
                master.write(address, content[address : address + size])
            await driver.play(ctx, master)
            assert master.b[-1].cycle - master.w_cycles[0] <= 1.03 * 4096 + 512 / bus_bytes

    bench.run(bench.until_ready, traffic)


def test_both_directions():
    """Reads and writes take turns, and the chip is busy nearly all the time."""
    bench = Bench()

    async def traffic(ctx, driver):
        master = bench.master()
        for i in range(8):
            master.read(512 * i, 64)
            master.write(65536 + 512 * i, bytes(512))
        assert await driver.play(ctx, master) <= 1.05 * 16 * 256

    bench.run(bench.until_ready, traffic)


@pytest.mark.parametrize(("chip", "latency"), [("IS42S16160G-7", 17), ("M12L64322A-6", 15)])
def test_latency(chip, latency):
    """As documented: 12 cycles, the CAS latency and the words of a beat after the first."""
    bench = Bench(chip)

    async def traffic(ctx, driver):
        master = bench.master()
        for at in (0, 100):
            master.read(0, 1, at=at)
        await driver.play(ctx, master)
        assert master.r_cycles[1] - master.ar_cycles[1] == latency

    bench.run(bench.until_ready, traffic)


@pytest.mark.parametrize("ready", [0.0, 1.0])
def test_refresh(ready):
    """Refreshes come on time when nothing happens, under load, and when nobody takes the data."""
    bench = Bench()
    seen = []

    async def traffic(ctx, driver):
        first, start = bench.model.refreshes, bench.model.cycle
        master = bench.master(r_ready=lambda cycle: cycle > 4000 or ready == 1)
        for i in range(20):
            master.read(1024 * i, 64)
        end = await driver.play(ctx, master)
        seen.append((bench.model.refreshes - first, bench.model.cycle - start))
        assert end > 4000
        await ctx.tick().repeat(4000)

    bench.run(bench.until_ready, traffic)
    ((count, cycles),) = seen
    assert abs(count - cycles / 781.25) <= 1


def test_requests_before_the_chip_is_ready():
    bench = Bench()

    async def traffic(ctx, driver):
        assert not ctx.get(bench.dut.ready)
        master = bench.master()
        master.write(64, bytes(range(64)))
        await driver.play(ctx, master)
        assert ctx.get(bench.dut.ready)

    bench.run(traffic)
    assert bench.memory.data[64:128] == bytes(range(64))


def test_beyond_the_capacity():
    bench = Bench()
    end = bench.chip.capacity
    before = bytes(bench.memory.data[:4096])

    async def traffic(ctx, driver):
        master = bench.master()
        for address in (end - 512, end, 0x8000_0000, 0):
            master.read(address, 64)
            master.write(address + 512 if address != end - 512 else 4096, bytes(64))
        await driver.play(ctx, master)
        assert [b.resp for b in master.r] == [OKAY] * 64 + [DECERR] * 128 + [OKAY] * 64
        assert [b.resp for b in master.b] == [OKAY, DECERR, DECERR, OKAY]

    bench.run(traffic)
    assert bench.memory.data[:4096] == before


@pytest.mark.parametrize("change", [{"burst": Burst.FIXED}, {"burst": Burst.WRAP}, {"size": 2}])
def test_unsupported_bursts(change):
    bench = Bench()
    bench.memory.data[:64] = before = bytes(range(64))
    bench.driver.checked = False

    async def traffic(ctx, driver):
        master = bench.master()
        for name, value in change.items():
            setattr(master._master, f"ar{name}", int(value))
            setattr(master._master, f"aw{name}", int(value))
        master.read(0, 4)
        master.write(0, bytes(64))
        await driver.play(ctx, master)
        assert [b.resp for b in master.r] == [SLVERR] * 4
        assert [b.last for b in master.r] == [0, 0, 0, 1]
        assert [b.resp for b in master.b] == [SLVERR]

    bench.run(traffic)
    assert bench.memory.data[:64] == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bus_bytes": 32}, "bus_bytes must be 2, 4, 8 or 16, not 32"),
        ({"clock_hz": 150e6}, r"clock_hz of IS42S16160G-7 must be from 1 MHz to 143 MHz, not 1500"),
        ({"clock_hz": 38e6}, "t_refi must be at least 300 cycles, not 296: slow clock"),
        ({"capture_delay": 2}, "capture_delay must be -1, 0 or 1, not 2"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        AxiSdram(**{"chip": CHIPS["IS42S16160G-7"], "clock_hz": 1e8, "bus_bytes": 8, **options})

# amaranth: UnusedElaboratable=no
"""Several managers in front of one memory: nothing lost, nothing mixed up, everybody served."""

import random

import pytest

from trirow_hw.axi_arbiter import AxiArbiter
from trirow_sim.memory import Memory, make_memory
from trirow_sim.stream_kit import AxiMemory, run
from trirow_sim.testing_axi import ScriptedMaster

from .sdram.kit import AxiDriver, stalls

AREA = 1 << 13  # bytes of each manager


def traffic(master, dice, base, content, bus_bytes, count):
    """Give a manager reads from the first half of its bytes and writes to the second."""
    expected, written = b"", bytearray(content)
    for _ in range(count):
        beats = dice.choice((1, 2, dice.randint(1, 512 // bus_bytes)))
        offset = 512 * dice.randrange(AREA // 1024) + 512 - beats * bus_bytes
        master.read(base + offset, beats, at=dice.randrange(400))
        expected += content[offset : offset + beats * bus_bytes]
        data = dice.randbytes(beats * bus_bytes)
        full = (1 << bus_bytes) - 1
        strobes = [dice.choice((full, dice.randint(0, full))) for _ in range(beats)]
        offset += AREA // 2
        master.write(base + offset, data, strobes=strobes, at=dice.randrange(400))
        for i, byte in enumerate(data):
            if strobes[i // bus_bytes] >> i % bus_bytes & 1:
                written[offset + i] = byte
    return expected, bytes(written)


@pytest.mark.parametrize(
    ("managers", "bus_bytes", "model", "seed"),
    [(2, 4, "random", 1), (2, 8, "random", 2), (3, 4, "random", 3), (2, 16, "ddr", 4)],
)
def test_random_traffic(managers, bus_bytes, model, seed):
    dut = AxiArbiter(bus_bytes=bus_bytes, managers=managers, outstanding=8)
    dice = random.Random(seed)
    memory = Memory(managers * AREA)
    memory.data[:] = dice.randbytes(managers * AREA)
    axi = AxiMemory(dut.bus, make_memory(model, memory, bus_bytes, seed))
    results, plays = [], []
    for k in range(managers):
        busy = dice.choice((1.0, 0.8, 0.4))
        master = ScriptedMaster(
            bus_bytes,
            r_ready=stalls(dice.random(), busy),
            b_ready=stalls(dice.random(), busy),
            w_valid=stalls(dice.random(), busy),
        )
        content = bytes(memory.data[k * AREA : (k + 1) * AREA])
        expected, written = traffic(master, dice, k * AREA, content, bus_bytes, 10)
        driver = AxiDriver(dut.managers[k])
        results.append((master, driver, expected, written))

        async def play(ctx, master=master, driver=driver):
            await driver.play(ctx, master)

        plays.append(play)
    run(dut, *plays, background=[axi], max_cycles=30_000)
    for k, (master, driver, expected, written) in enumerate(results):
        assert b"".join(beat.data for beat in master.r) == expected
        assert memory.data[k * AREA : (k + 1) * AREA] == written
        assert driver.checker.idle
    assert axi.checker.idle


def test_turns_and_throughput():
    """Two busy managers get a burst in turn, and no cycle of the memory is lost."""
    dut = AxiArbiter(bus_bytes=4)
    axi = AxiMemory(dut.bus, make_memory("ideal", Memory(1 << 14), 4))
    masters = [ScriptedMaster(4) for _ in range(2)]
    plays = []
    for k, master in enumerate(masters):
        for i in range(20):
            master.read(8192 * k + 64 * i, 8)
            master.write(8192 * k + 4096 + 64 * i, bytes(32))

        driver = AxiDriver(dut.managers[k])

        async def play(ctx, driver=driver, master=master):
            await driver.play(ctx, master)

        plays.append(play)
    run(dut, *plays, background=[axi], max_cycles=2000)
    for bursts in (axi.reads, axi.writes):
        owners = [address // 8192 for address, _ in bursts]
        assert owners == [owners[0], 1 - owners[0]] * 20
    beats = sorted(cycle for master in masters for cycle in master.r_cycles)
    assert beats == list(range(beats[0], beats[0] + 320))
    beats = sorted(cycle for master in masters for cycle in master.w_cycles)
    assert beats == list(range(beats[0], beats[0] + 320))


def test_a_lone_manager_need_not_wait_for_the_other():
    dut = AxiArbiter(bus_bytes=4, managers=2)
    axi = AxiMemory(dut.bus, make_memory("ideal", Memory(1 << 14), 4))
    master = ScriptedMaster(4)
    for i in range(10):
        master.read(64 * i, 2)
    driver = AxiDriver(dut.managers[1])

    async def play(ctx):
        await driver.play(ctx, master)

    run(dut, play, background=[axi], max_cycles=200)
    assert master.r_cycles == list(range(master.r_cycles[0], master.r_cycles[0] + 20))


@pytest.mark.parametrize(("name", "least"), [("managers", 1), ("outstanding", 2)])
def test_wrong_parameters(name, least):
    with pytest.raises(ValueError, match=f"{name} must be at least {least}, not 0"):
        AxiArbiter(bus_bytes=4, **{name: 0})

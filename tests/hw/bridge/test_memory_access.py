# amaranth: UnusedElaboratable=no
import random

import pytest

from trirow_hw.bridge.memory_access import MemoryAccess
from trirow_sim.memory import FaultyMemory, Memory, make_memory
from trirow_sim.stream_kit import AxiMemory, collect, run, send

SIZE = 8192


def access(dut, model, jobs, seed=None):
    """Do jobs: address, data to write or size to read; return responses, bytes read, the port."""
    port = AxiMemory(dut.bus, model, max_outstanding=1)
    responses, read = [], []

    async def testbench(ctx):
        for address, what in jobs:
            writes = isinstance(what, bytes)
            ctx.set(dut.write, writes)
            ctx.set(dut.address, address)
            ctx.set(dut.length, len(what) if writes else what)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.address, 0)
            ctx.set(dut.length, 0)
            if writes:
                await send(ctx, dut.i, [*what], stall=seed)
            else:
                read.append(bytes(await collect(ctx, dut.o, what, stall=seed)))
            while ctx.get(dut.busy):
                await ctx.tick()
            responses.append(ctx.get(dut.response))

    run(dut, testbench, background=[port], max_cycles=30_000)
    return responses, read, port


@pytest.mark.parametrize("bus_bytes", [2, 4, 16, 128])
@pytest.mark.parametrize("seed", range(2))
def test_any_address_and_length(bus_bytes, seed):
    rng = random.Random(100 * bus_bytes + seed)
    memory = Memory(SIZE, base=0x1000)
    expected = bytearray(rng.randbytes(SIZE))
    memory.write(0x1000, expected)
    jobs, wanted = [], []
    for _ in range(5):
        length = rng.choice((1, 2, 3, rng.randint(4, 60), rng.randint(60, 300)))
        start = rng.choice((0x200, 0x1000)) - rng.randint(0, 40)
        start = max(0, min(start, SIZE - length))
        if rng.random() < 0.5:
            data = rng.randbytes(length)
            expected[start : start + length] = data
            jobs.append((0x1000 + start, data))
        jobs.append((0x1000 + start, length))
        wanted.append(bytes(expected[start : start + length]))
    model = make_memory("random", memory, bus_bytes, seed=seed)
    responses, read, port = access(MemoryAccess(bus_bytes=bus_bytes), model, jobs, seed)
    assert read == wanted
    assert memory.read(0x1000, SIZE) == expected
    assert set(responses) == {0}
    for address, beats in port.reads + port.writes:
        assert beats * bus_bytes <= 512
        assert address // 512 == (address + beats * bus_bytes - 1) // 512


def test_512_bytes_at_an_odd_address_are_two_bursts():
    memory = Memory(SIZE)
    data = random.Random(1).randbytes(512)
    dut = MemoryAccess(bus_bytes=8)
    jobs = [(0xF0D, data), (0xF0D, 512)]
    responses, read, port = access(dut, make_memory("ideal", memory, 8), jobs)
    assert read == [data]
    assert responses == [0, 0]
    assert port.writes == port.reads == [(0xF08, 31), (0x1000, 34)]


def test_no_bytes():
    responses, read, port = access(
        MemoryAccess(bus_bytes=4), make_memory("ideal", Memory(64), 4), [(8, b""), (8, 0)]
    )
    assert (responses, read, port.reads, port.writes) == ([0, 0], [b""], [], [])


def test_errors_are_told_and_do_not_stick():
    memory = Memory(SIZE)
    model = FaultyMemory(
        make_memory("ideal", memory, 4),
        read_errors=range(0x104, 0x108),
        write_errors=range(0x1FC, 0x200),
    )
    jobs = [(0x100, 8), (0x108, 8), (0x1F0, bytes(40)), (0x200, b"12"), (0x100, 4)]
    responses, _, _ = access(MemoryAccess(bus_bytes=4), model, jobs)
    assert responses == [2, 0, 2, 0, 0]


@pytest.mark.parametrize("bus_bytes", [0, 1, 3, 256])
def test_wrong_bus(bus_bytes):
    message = f"bus_bytes must be a power of two from 2 to 128, not {bus_bytes}"
    with pytest.raises(ValueError, match=message):
        MemoryAccess(bus_bytes=bus_bytes)

from itertools import chain

import pytest

from trirow_sim.axi import DECERR, OKAY, SLVERR, AxiMaster
from trirow_sim.memory import MEMORY_MODELS, FaultyMemory, Memory, make_memory
from trirow_sim.memory.random import xorshift32
from trirow_sim.testing_axi import ScriptedMaster, run

NAMES = ["ideal", "ddr", "sdram16", "nngen", "random"]


def cycles(*parts):
    """Join single cycles and (first, last) ranges to a list."""
    return list(
        chain.from_iterable(range(p[0], p[1] + 1) if isinstance(p, tuple) else [p] for p in parts)
    )


def play(name, reads=(), writes=(), *, bus_bytes=4, **ready):
    """Run reads (addr, beats, at) and writes (addr, beats, at[, data_at]); return the master."""
    master = ScriptedMaster(bus_bytes, **ready)
    for addr, beats, at in reads:
        master.read(addr, beats, at=at)
    for addr, beats, *at in writes:
        master.write(addr, bytes(beats * bus_bytes), at=at[0], data_at=at[-1])
    checker = run(make_memory(name, Memory(1 << 16), bus_bytes), master)
    assert checker.idle
    return master


def b_cycles(master):
    return [response.cycle for response in master.b]


class TestStorage:
    def test_read_write(self):
        memory = Memory(16, base=0x100)
        memory.write(0x104, b"abcd")
        memory.write(0x10C, b"wxyz", 0b1010)
        assert memory.read(0x100, 16) == b"\0\0\0\0abcd\0\0\0\0\0x\0z"
        assert bytes(memory.data) == memory.read(0x100, 16)
        assert (memory.base, memory.size) == (0x100, 16)

    @pytest.mark.parametrize("addr", [0xFF, 0x10D, 0x1000])
    def test_out_of_range(self, addr):
        memory = Memory(16, base=0x100)
        assert not memory.contains(addr, 4)
        with pytest.raises(IndexError, match=f"4 bytes at {addr:#x} are not within 0x100 to 0x110"):
            memory.read(addr, 4)
        with pytest.raises(IndexError):
            memory.write(addr, b"abcd", 0)
        assert not any(bytes(memory.data))

    def test_wrong_parameters(self):
        with pytest.raises(ValueError, match="size must be a positive number of bytes, not 0"):
            Memory(0)
        with pytest.raises(ValueError, match="base must not be negative, not -4"):
            Memory(4, base=-4)


class TestIdeal:
    def test_read(self):
        master = play("ideal", reads=[(0, 4, 0), (0x200, 4, 1), (0, 1, 20)])
        assert master.ar_cycles == [0, 1, 20]
        assert master.r_cycles == cycles((2, 9), 22)

    def test_write(self):
        master = play("ideal", writes=[(0, 4, 0), (16, 4, 1), (32, 1, 20)])
        assert master.aw_cycles == [0, 1, 20]
        assert master.w_cycles == cycles((1, 8), 21)
        assert b_cycles(master) == [5, 9, 22]

    def test_directions_do_not_hinder_each_other(self):
        master = play("ideal", reads=[(0, 64, 0)], writes=[(0x400, 64, 0)])
        assert master.r_cycles == cycles((2, 65))
        assert master.w_cycles == cycles((1, 64))

    def test_sixteen_reads_are_queued(self):
        master = play("ideal", reads=[(0, 16, 0)] * 17)
        assert master.ar_cycles == cycles((0, 15), 18)
        assert master.r_cycles == cycles((2, 273))

    def test_sixteen_writes_are_queued(self):
        master = play("ideal", writes=[(0, 1, 0)] * 17, b_ready=lambda cycle: cycle >= 40)
        assert master.aw_cycles == cycles((0, 15), 41)
        assert b_cycles(master) == cycles((40, 56))

    def test_beat_that_waits(self):
        master = play("ideal", reads=[(0, 3, 0)], r_ready=lambda cycle: cycle >= 10)
        assert master.r_offered == [2, 11, 12]
        assert master.r_cycles == [10, 11, 12]

    def test_data_wait_for_address(self):
        master = play("ideal", writes=[(0, 2, 10, 0)])
        assert master.aw_cycles == [10]
        assert master.w_cycles == [11, 12]

    @pytest.mark.parametrize(("at", "seen"), [(4, b"\0\0\0\0"), (5, b"abcd")])
    def test_bytes_land_with_the_response(self, at, seen):
        master = ScriptedMaster(4)
        master.write(0, b"abcd" * 4)
        master.read(12, 1, at=at)
        run(make_memory("ideal", Memory(64), 4), master)
        assert b_cycles(master) == [5]
        assert master.r[0].data == seen


class TestDdr:
    def test_read(self):
        master = play("ddr", reads=[(0, 4, 0), (0x200, 4, 1), (0, 1, 100)])
        assert master.r_cycles == cycles((30, 37), 130)

    def test_write(self):
        master = play("ddr", writes=[(0, 4, 0), (0, 1, 1)])
        assert master.w_cycles == [1, 2, 3, 4, 5]
        assert b_cycles(master) == [14, 15]

    def test_refresh(self):
        assert play("ddr", reads=[(0, 128, 700)]).r_cycles == cycles((730, 759), (780, 877))
        master = play("ddr", writes=[(0, 20, 750)])
        assert master.w_cycles == cycles((751, 759), (780, 790))
        assert b_cycles(master) == [800]

    def test_beat_that_waits_is_taken_in_refresh(self):
        master = play("ddr", reads=[(0, 2, 729)], r_ready=lambda cycle: cycle >= 770)
        assert master.r_offered == [759, 780]
        assert master.r_cycles == [770, 780]

    def test_throughput(self):
        reads = play("ddr", reads=[(0x200 * i, 128, 0) for i in range(30)]).r_cycles
        assert sum(780 <= c < 3120 for c in reads) == 3 * 760
        writes = play("ddr", writes=[(0x200 * i, 128, 0) for i in range(30)]).w_cycles
        assert sum(780 <= c < 3120 for c in writes) == 3 * 760

    def test_alternation(self):
        master = play("ddr", reads=[(0, 8, 0)], writes=[(0x200, 8, 29)])
        assert master.r_cycles == list(range(30, 46, 2))
        assert master.w_cycles == list(range(31, 47, 2))
        assert b_cycles(master) == [55]

    def test_read_joins_writes(self):
        master = play("ddr", reads=[(0, 4, 0)], writes=[(0x200, 128, 0)])
        assert master.r_cycles == [30, 32, 34, 36]
        assert master.w_cycles == cycles((1, 29), 31, 33, 35, (37, 132))

    def test_shared_throughput(self):
        master = play(
            "ddr",
            reads=[(0x200 * i, 128, 0) for i in range(20)],
            writes=[(0x200 * i, 128, 0) for i in range(20)],
        )
        assert sum(780 <= c < 3120 for c in master.r_cycles) == 3 * 380
        assert sum(780 <= c < 3120 for c in master.w_cycles) == 3 * 380

    def test_read_that_waits_leaves_the_slots_to_writes(self):
        master = play(
            "ddr", reads=[(0, 4, 0)], writes=[(0x200, 40, 20)], r_ready=lambda cycle: cycle >= 60
        )
        assert master.w_cycles == cycles((21, 29), (31, 60), 62)
        assert master.r_cycles == [60, 61, 63, 64]

    def test_write_without_data_leaves_the_slots_to_reads(self):
        master = play("ddr", reads=[(0, 4, 0)], writes=[(0x200, 1, 0, 100)])
        assert master.r_cycles == [30, 31, 32, 33]
        assert master.w_cycles == [100]

    def test_write_data_joins_reads(self):
        master = play("ddr", reads=[(0, 4, 0)], writes=[(0x200, 1, 0, 31)])
        assert master.r_cycles == [30, 31, 33, 34]
        assert master.w_cycles == [32]


class TestSdram16:
    @pytest.mark.parametrize(
        ("bus_bytes", "expected"),
        [(2, [11, 12, 13, 14]), (4, [12, 14, 16, 18]), (8, [14, 18, 22, 26]), (64, [42, 74])],
    )
    def test_read(self, bus_bytes, expected):
        master = play("sdram16", reads=[(0, len(expected), 0)], bus_bytes=bus_bytes)
        assert master.r_cycles == expected

    def test_write(self):
        master = play("sdram16", writes=[(0, 4, 0)], bus_bytes=2)
        assert master.w_cycles == [1, 2, 3, 4]
        assert b_cycles(master) == [19]  # 4 for the direction, 6 for the row, 4 beats: 5 to 18

    def test_open_row(self):
        master = play("sdram16", reads=[(0, 4, 0), (8, 4, 1), (1022, 1, 100)], bus_bytes=2)
        assert master.r_cycles == cycles((11, 18), 105)

    def test_banks_keep_their_rows(self):
        reads = [(0, 4, 0), (1024, 4, 0), (0, 4, 0), (1024, 4, 0)]
        master = play("sdram16", reads=reads, bus_bytes=2)
        assert master.r_cycles == cycles((11, 14), (21, 24), (25, 32))

    def test_row_conflict(self):
        reads = [(0, 4, 0), (4096, 4, 0), (0, 4, 0)]
        master = play("sdram16", reads=reads, bus_bytes=2)
        assert master.r_cycles == cycles((11, 14), (21, 24), (31, 34))

    def test_row_change_within_a_burst(self):
        master = play("sdram16", reads=[(1020, 4, 0)], bus_bytes=2)
        assert master.r_cycles == [11, 12, 19, 20]

    def test_directions_take_turns(self):
        master = play(
            "sdram16",
            reads=[(0, 4, 0), (8, 4, 0)],
            writes=[(16, 4, 0), (24, 4, 0)],
            bus_bytes=2,
        )
        # First write: 5 to 18 with direction and row; 4 for each change after that.
        assert b_cycles(master) == [19, 35]
        assert master.r_cycles == cycles((23, 26), (39, 42))

    def test_refresh(self):
        master = play("sdram16", reads=[(0, 4, 760)], bus_bytes=2)
        assert master.r_cycles == [771, 780, 781, 782]

    def test_row_opens_in_refresh(self):
        master = play("sdram16", reads=[(0, 2, 764)], bus_bytes=2)
        assert master.r_cycles == [780, 781]

    def test_stream(self):
        reads = [(512 * i, 256, 0) for i in range(5)]
        r = play("sdram16", reads=reads, bus_bytes=2).r_cycles
        assert r[:1024] == cycles((11, 522), (529, 771), (780, 1048))
        assert r[1024] == 1055

    def test_write_buffer(self):
        master = play("sdram16", writes=[(512 * i, 128, 0) for i in range(3)])
        # Taken at one a cycle, moved at one in two from 139 on: 256 places are full after 373.
        assert master.w_cycles == cycles((1, 373)) + list(range(375, 396, 2))
        assert b_cycles(master) == [395, 651, 921]

    def test_beat_that_waits_stops_the_chip(self):
        master = play("sdram16", reads=[(0, 3, 0)], r_ready=lambda cycle: cycle >= 50)
        assert master.r_offered == [12, 50 + 1, 53]
        assert master.r_cycles == [50, 51, 53]

    def test_wrong_bus_bytes(self):
        with pytest.raises(ValueError, match="bus_bytes of sdram16 must be at least 2, not 1"):
            make_memory("sdram16", Memory(64), 1)


class TestNngen:
    def test_read(self):
        master = play("nngen", reads=[(0, 4, 0), (16, 4, 1), (0, 2, 100)])
        assert master.r_cycles == [13, 14, 19, 20, 33, 38, 39, 40, 114, 115]

    def test_read_throughput(self):
        r = play("nngen", reads=[(0, 128, 6)]).r_cycles
        assert r == cycles(*((19 * k, 19 * k + 14) for k in range(1, 9)), (171, 178))

    def test_write(self):
        master = play("nngen", writes=[(0, 4, 0)] * 3)
        assert master.w_cycles == cycles(13, 14, 19, 20, (25, 28), (38, 41))
        assert b_cycles(master) == [21, 29, 42]

    def test_address_overlaps_one_burst_only(self):
        master = play("nngen", writes=[(0, 20, 0), (0, 2, 0), (0, 2, 0)])
        assert master.w_cycles == cycles(13, 14, (19, 33), (38, 42), 57, 58)

    def test_directions_do_not_hinder_each_other(self):
        master = play("nngen", reads=[(0, 4, 0)] * 2, writes=[(64, 4, 0)] * 3)
        assert master.r_cycles == [13, 14, 19, 20, 33, 38, 39, 40]
        assert master.w_cycles == cycles(13, 14, 19, 20, (25, 28), (38, 41))

    def test_read_taken_late(self):
        master = play("nngen", reads=[(0, 1, 0), (0, 1, 0)], r_ready=lambda cycle: cycle >= 16)
        assert master.r_offered == [13, 29]  # 16 + 13
        assert master.r_cycles == [16, 29]


class TestRandom:
    def test_xorshift32(self):
        x, draws = 1, []
        for _ in range(4):
            draws.append(x := xorshift32(x))
        assert draws == [270369, 67634689, 2647435461, 307599695]

    @staticmethod
    def trace(seed):
        """Return what the memory drives over a busy run, as a list of tuples."""
        model = make_memory("random", Memory(4096), 4, seed)
        master = ScriptedMaster(4)
        for i in range(40):
            master.read(64 * i, 16)
            master.write(64 * i, bytes(64))
        driven = []
        while not master.done:
            cycle = model.cycle
            master.drive(cycle)
            s = model.slave
            driven.append((s.arready, s.rvalid, s.rlast, s.awready, s.wready, s.bvalid))
            model.step(master.observe(cycle, s))
        return driven

    def test_seeds(self):
        traces = [self.trace(seed) for seed in range(4)]
        assert traces[1] == self.trace(1)
        assert all(traces[i] != traces[j] for i in range(4) for j in range(i))

    @staticmethod
    def schedule(seed, channel, count):
        """Return draws and stalls of a channel by cycle, worked out from the description."""
        d = (seed * 0x9E3779B9 + channel * 0x85EBCA6B) % 2**32 or 1
        left, draws, stalled = 0, [], [False]
        for _ in range(count):
            d = xorshift32(d)
            draws.append(d)
            if left:
                left -= 1
            elif d % 8 == 0:
                left = 1 + d // 256 % 8 if d // 8 % 32 else 32 + d // 256 % 128
            stalled.append(left > 0)
        return draws, stalled

    @pytest.mark.parametrize(("channel", "name"), [(0, "arready"), (2, "awready")])
    @pytest.mark.parametrize("seed", [0, 7])
    def test_stalls(self, seed, channel, name):
        model = make_memory("random", Memory(64), 4, seed)
        ready = []
        for _ in range(20_000):
            ready.append(getattr(model.slave, name))
            model.step(AxiMaster())
        _, stalled = self.schedule(seed, channel, 20_000)
        assert ready == [int(not stall) for stall in stalled[:-1]]
        assert 0.4 < sum(ready) / len(ready) < 0.65
        runs = [len(stall) for stall in "".join(map(str, ready)).split("1") if stall]
        assert min(runs) == 1
        assert 100 < max(runs) < 160

    def test_latencies(self):
        master = ScriptedMaster(4)
        for i in range(400):
            master.read(0, 1, at=400 * i)
            master.write(0, bytes(4), at=400 * i)
        run(make_memory("random", Memory(64), 4, seed=9), master, limit=200_000)
        for channel, asked, answered in (
            (1, master.ar_cycles, master.r_cycles),
            (4, master.w_cycles, b_cycles(master)),
        ):
            draws, stalled = self.schedule(9, channel, 170_000)
            latencies = [1 + draws[cycle] // 65536 % 60 for cycle in asked]
            assert set(latencies) == set(range(1, 61))
            for cycle, latency, answer in zip(asked, latencies, answered, strict=True):
                assert answer == stalled.index(False, cycle + latency)

    @pytest.mark.parametrize("seed", [-1, 1 << 32])
    def test_wrong_seed(self, seed):
        with pytest.raises(ValueError, match=f"seed must be from 0 to 2\\^32 - 1, not {seed}"):
            make_memory("random", Memory(64), 4, seed)


class Dice:
    """Numbers for traffic, from the generator under test elsewhere."""

    def __init__(self, seed):
        self._x = seed * 7919 + 12345

    def __call__(self, bound):
        self._x = xorshift32(self._x)
        return (self._x >> 4) % bound


def traffic(model, memory, bus_bytes, seed, bursts=60):
    """Write random bursts with ragged strobes, then read them all; return both masters."""
    dice = Dice(seed)
    busy = Dice(seed + 1)
    expected = bytearray(memory.data)

    def burst():
        beats = 1 + dice(min(512 // bus_bytes, 24))
        page = memory.base + 4096 * dice(memory.size // 4096)
        return page + bus_bytes * dice(4096 // bus_bytes - beats + 1), beats

    writer = ScriptedMaster(
        bus_bytes, w_valid=lambda cycle: busy(3) > 0, b_ready=lambda cycle: busy(2) > 0
    )
    for _ in range(bursts):
        addr, beats = burst()
        data = bytes(dice(256) for _ in range(beats * bus_bytes))
        first, last = dice(bus_bytes), dice(bus_bytes)
        full = (1 << bus_bytes) - 1
        strobes = [full] * beats
        strobes[0] &= full << first
        strobes[-1] &= full >> last
        writer.write(addr, data, strobes=strobes, at=dice(2000))
        offset = addr - memory.base
        for i, byte in enumerate(data):
            if strobes[i // bus_bytes] >> i % bus_bytes & 1:
                expected[offset + i] = byte
    checker = run(model, writer)
    assert bytes(memory.data) == expected
    assert [b.resp for b in writer.b] == [OKAY] * bursts

    reader = ScriptedMaster(bus_bytes, r_ready=lambda cycle: busy(3) > 0)
    wanted = []
    for _ in range(bursts):
        addr, beats = burst()
        reader.read(addr, beats, at=model.cycle + dice(2000))
        start = addr - memory.base
        wanted += [
            (expected[start + i * bus_bytes : start + (i + 1) * bus_bytes], OKAY, i == beats - 1)
            for i in range(beats)
        ]
    run(model, reader, checker=checker)
    assert [(r.data, r.resp, r.last) for r in reader.r] == wanted
    assert checker.idle
    assert checker.read_bursts == checker.write_bursts == bursts
    assert checker.read_beats == len(wanted)
    return writer, reader


@pytest.mark.parametrize("bus_bytes", [2, 4, 16, 64])
@pytest.mark.parametrize("name", NAMES)
def test_data(name, bus_bytes):
    memory = Memory(4 * 4096, base=0x8000_0000)
    traffic(make_memory(name, memory, bus_bytes), memory, bus_bytes, seed=3)


@pytest.mark.parametrize("seed", range(8))
def test_data_random(seed):
    memory = Memory(2 * 4096)
    traffic(make_memory("random", memory, 8, seed), memory, 8, seed)


@pytest.mark.parametrize("name", NAMES)
def test_both_directions(name):
    memory = Memory(4096 * 4)
    memory.data[:] = bytes(i * 7 & 255 for i in range(memory.size))
    dice = Dice(5)
    master = ScriptedMaster(
        4,
        r_ready=lambda cycle: dice(4) > 0,
        w_valid=lambda c: dice(4) > 0,
        b_ready=lambda c: dice(2),
    )
    for i in range(32):
        master.read(256 * i, 64)
        master.write(0x2000 + 256 * i, bytes([i]) * 256)
    model = make_memory(name, memory, 4)
    checker = run(model, master)
    assert b"".join(r.data for r in master.r) == bytes(i * 7 & 255 for i in range(0x2000))
    assert memory.data[0x2000:] == b"".join(bytes([i]) * 256 for i in range(32))
    assert (checker.read_beats, checker.write_beats) == (2048, 2048)


class TestErrors:
    @pytest.mark.parametrize("name", NAMES)
    def test_outside(self, name):
        memory = Memory(0x100, base=0x1000)
        memory.data[:] = b"\x11" * 0x100
        master = ScriptedMaster(4)
        master.write(0x10F8, b"\x22" * 16)
        master.write(0x1000, b"\x33" * 4)
        master.read(0x10F4, 4, at=500)
        master.read(0, 1, at=500)
        run(make_memory(name, memory, 4), master)
        assert [b.resp for b in master.b] == [DECERR, OKAY]
        assert [r.resp for r in master.r] == [OKAY, OKAY, OKAY, DECERR, DECERR]
        assert [r.data[0] for r in master.r] == [0x11, 0x22, 0x22, 0, 0]

    @pytest.mark.parametrize("name", NAMES)
    def test_ranges(self, name):
        memory = Memory(0x100)
        memory.data[:] = b"\x11" * 0x100
        model = FaultyMemory(
            make_memory(name, memory, 4), read_errors=range(7, 8), write_errors=range(0x4B, 0x4D)
        )
        master = ScriptedMaster(4)
        master.write(0x40, b"\x22" * 20)
        master.write(0x50, b"\x22" * 4)
        master.write(0x4C, b"\x33" * 256)
        master.read(0, 4)
        master.read(8, 1)
        run(model, master)
        assert [b.resp for b in master.b] == [SLVERR, OKAY, DECERR]
        assert memory.read(0x40, 16) == b"\x22" * 8 + b"\x11" * 8
        assert [r.resp for r in master.r] == [OKAY, SLVERR, OKAY, OKAY, OKAY]
        assert master.r[1].data == bytes(4)

    @pytest.mark.parametrize("errors", [range(4, 4), range(0, 8, 2)])
    def test_wrong_range(self, errors):
        with pytest.raises(ValueError, match="read_errors must be a range of step 1 that is not"):
            FaultyMemory(make_memory("ideal", Memory(64), 4), read_errors=errors)


class TestStop:
    def make(self, **kwargs):
        return FaultyMemory(make_memory("ideal", Memory(256), 4), **kwargs)

    def test_for_ever(self):
        master = ScriptedMaster(4)
        master.read(0, 8)
        master.write(0, bytes(32))
        model = self.make(stop_at=4)
        run(model, master, cycles=200)
        assert master.r_cycles == [2, 3]
        assert master.w_cycles == [1, 2, 3]
        assert not any((model.slave.arready, model.slave.awready, model.slave.wready))
        assert not any((model.slave.rvalid, model.slave.bvalid))

    def test_resume(self):
        master = ScriptedMaster(4)
        for at in (0, 5):
            master.read(0, 4, at=at)
            master.write(0, bytes(16), at=at)
        run(self.make(stop_at=4, resume_at=50), master)
        assert master.ar_cycles == [0, 50]
        assert master.r_cycles == cycles(2, 3, (50, 55))
        assert master.w_cycles == cycles(1, 2, 3, (50, 54))
        assert b_cycles(master) == [51, 55]

    def test_what_waits_stays(self):
        master = ScriptedMaster(4, r_ready=lambda c: c >= 8, b_ready=lambda c: c >= 9)
        master.read(0, 2)
        master.write(0, bytes(4))
        master.write(0, bytes(4))
        run(self.make(stop_at=4, resume_at=20), master)
        assert master.r_cycles == [8, 20]
        assert b_cycles(master) == [9, 20]

    def test_from_the_start(self):
        master = ScriptedMaster(4)
        master.read(0, 1)
        run(self.make(stop_at=0, resume_at=7), master)
        assert master.ar_cycles == [7]
        assert master.r_cycles == [9]

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("stop_at", range(0, 300, 23))
    def test_data_survive(self, name, stop_at):
        memory = Memory(2 * 4096)
        model = FaultyMemory(make_memory(name, memory, 4), stop_at=stop_at, resume_at=stop_at + 99)
        traffic(model, memory, 4, seed=stop_at, bursts=8)

    @pytest.mark.parametrize("stop_at", [None, 9])
    def test_wrong_cycles(self, stop_at):
        with pytest.raises(ValueError, match="resume_at must be later than stop_at, not 9"):
            self.make(stop_at=stop_at, resume_at=9)

    def test_wrong_model(self):
        with pytest.raises(TypeError, match="model must not be a FaultyMemory itself"):
            FaultyMemory(self.make())


class TestMakeMemory:
    def test_names(self):
        assert list(MEMORY_MODELS) == NAMES
        assert all(text and "\n" not in text for text in MEMORY_MODELS.values())

    def test_unknown_name(self):
        message = "^memory must be one of ideal, ddr, sdram16, nngen, random, not 'sram'$"
        with pytest.raises(ValueError, match=message):
            make_memory("sram", Memory(64), 4)

    @pytest.mark.parametrize("name", NAMES)
    def test_wrong_bus_bytes(self, name):
        with pytest.raises(
            ValueError, match="bus_bytes must be a power of two from 1 to 128, not 6"
        ):
            make_memory(name, Memory(64), 6)

    @pytest.mark.parametrize("name", NAMES)
    def test_attributes(self, name):
        memory = Memory(64)
        model = make_memory(name, memory, 16)
        assert (model.bus_bytes, model.cycle, model.memory) == (16, 0, memory)


class TestScriptedMaster:
    def test_limit(self):
        master = ScriptedMaster(4, r_ready=lambda cycle: False)
        master.read(0, 1)
        with pytest.raises(TimeoutError, match="the master is not done after 50 cycles"):
            run(make_memory("ideal", Memory(64), 4), master, limit=50)

    def test_cycles(self):
        model = make_memory("ideal", Memory(64), 4)
        assert run(model, ScriptedMaster(4), cycles=10).cycle == 10
        assert model.cycle == 10

"""The weight reader against a model of the ring of lane groups and of the places of tables."""

import itertools
import random

import pytest
from amaranth.hdl import Value

from trirow_hw.config import CONSTANT_BYTES, CONSTANT_GROUPS, PRESETS, WIDE_CONSTANT_BYTES
from trirow_hw.weight_reader import WeightReader
from trirow_sim.memory import Memory
from trirow_sim.stream_kit import ReadServer, run, send, span_beats
from trirow_sim.unit_kit import unpack

SIZE = 1 << 16
TABLE_PLACES = 2
#: Rings of few words, so that they wrap: 16, 19, 17, 16, 16, 18 and 21 words.
CONFIGS = {
    "tiny, 16 words": PRESETS["tiny"].override(weight_buffer_bytes=16 * 16),
    "odd, 19 words": PRESETS["odd"].override(weight_buffer_bytes=19 * 15),
    "ecp5-85f, 17 words": PRESETS["ecp5-85f"].override(weight_buffer_bytes=17 * 128),
    "tiny, bus 16": PRESETS["tiny"].override(weight_buffer_bytes=16 * 16, bus_bytes=16),
    "up5k, 16 words": PRESETS["up5k"].override(weight_buffer_bytes=16 * 4),
    "m256, 18 words": PRESETS["m256"].override(weight_buffer_bytes=18 * 256),
    "odd, 9 bits, 21 words": PRESETS["odd"].override(weight_buffer_bytes=21 * 15, weight_bits=9),
}
#: Configurations that cut the entries of tables in different ways, and seeds of stalls.
TABLE_CASES = [
    ("tiny, bus 16", None),
    ("odd, 9 bits, 21 words", 1),
    ("up5k, 16 words", None),
    ("m256, 18 words", 2),
]


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def make_chunk(
    config, index, address, channels, steps, run_bytes, *, wide=0, tables=0, lanes=None, zero=0
):
    """Return what the reader is told of a chunk."""
    lanes = lanes or config.out_lanes
    run_words = -(-run_bytes // config.in_lanes)
    channel_bytes = (WIDE_CONSTANT_BYTES if wide else CONSTANT_BYTES) + steps * run_bytes
    return {
        "address": address,
        "bytes": 1024 * tables + channels * channel_bytes,
        "group_bytes": min(channels, lanes) * channel_bytes,
        "table_bytes": 1024 * tables,
        "wide": wide,
        "groups": -(-channels // lanes),
        "group_words": steps * run_words,
        "chunk_steps": steps,
        "chunk_run": run_words,
        "chunk_tail": (run_bytes - 1) % config.in_lanes + 1,
        "group_lanes": lanes,
        "last_lanes": (channels - 1) % lanes + 1,
        "zero_weight": zero,
        "index": index,
    }


def random_chunks(rng, config, count, most_words):
    """Return chunks of up to so many words, which a pass would use at once."""
    chunks = []
    for index in range(count):
        steps = rng.randint(1, 3)
        run_bytes = rng.randint(1, most_words // steps * config.in_lanes)
        group_words = steps * -(-run_bytes // config.in_lanes)
        groups = rng.randint(1, most_words // group_words)
        lanes = rng.choice([config.out_lanes, config.depthwise_lanes])
        channels = max(1, groups * lanes - rng.randint(0, lanes - 1))
        chunks.append(
            make_chunk(
                config,
                index,
                rng.randint(0, SIZE // 4),
                channels,
                steps,
                run_bytes,
                wide=rng.randint(0, 1),
                lanes=lanes,
                zero=rng.randint(-128, 127) if config.weight_bits == 9 else 0,
            )
        )
    return chunks


class Bench:
    """Plays memory and array; checks all that is written, and that nothing is overwritten."""

    def __init__(self, config, chunks, *, stall=None):
        self.config = config
        self.dut = WeightReader(config=config)
        self.chunks = chunks
        memory = Memory(SIZE)
        memory.data[:] = random.Random(0).randbytes(SIZE)
        self.server = ReadServer(self.dut.request, self.dut.answer, memory, stall=stall)
        self.groups = []  # words of each group of all chunks
        self.events = []  # what is written, in order
        self.parts = []  # groups and tables in order: kind and bytes
        for chunk in chunks:
            self._lay_out(chunk, iter(memory.read(chunk["address"], chunk["bytes"])))
        self.group_ends = [0, *itertools.accumulate(self.groups)]
        self.beats = [
            beat for chunk in chunks for beat in span_beats(self._spans(chunk), config.bus_bytes)
        ]
        self.ends = [0, *itertools.accumulate(count for *_, count in self.beats)]
        self.done = self.loaded = self.released = self.tables_released = self.requested = 0
        self.pending = []  # cycles in which groups ended
        self.cycle = 0

    @staticmethod
    def _spans(chunk):
        total = chunk["bytes"]
        spans = {"address": chunk["address"], "total": total, "first": total}
        return spans | {"span": 1, "gap": 0, "line": total, "turn": 0}

    def _lay_out(self, chunk, data):
        """Follow the format of a chunk, byte by byte."""
        place, steps, run_words = sum(self.groups), chunk["chunk_steps"], chunk["chunk_run"]
        if chunk["table_bytes"]:
            number = sum(kind == "tables" for kind, _ in self.parts)
            for k in range(chunk["table_bytes"] // 4):
                entry = int.from_bytes(itertools.islice(data, 4), "little")
                self.events.append(("table", number, k // 256, k % 256, entry))
            self.parts.append(("tables", chunk["table_bytes"]))
        for group in range(chunk["groups"]):
            number, count = len(self.groups), 0
            last = group == chunk["groups"] - 1
            lanes = chunk["last_lanes"] if last else chunk["group_lanes"]
            size = 12 if chunk["wide"] else 8
            for lane in range(lanes):
                constant = int.from_bytes(itertools.islice(data, size), "little")
                self.events.append(("constant", number, lane, constant))
                count += size
            for step, word in itertools.product(range(steps), range(run_words)):
                size = chunk["chunk_tail"] if word == run_words - 1 else self.config.in_lanes
                for lane in range(lanes):
                    weights = self._weights(itertools.islice(data, size), chunk["zero_weight"])
                    self.events.append(("weight", place + step * run_words + word, lane, weights))
                    count += size
            self.events.append(("end",))
            place += steps * run_words
            self.groups.append(steps * run_words)
            self.parts.append(("group", count))
        assert next(data, None) is None

    def _weights(self, data, zero):
        """Return a word of weights: signed bytes less the zero point, 0 where there are none."""
        bits = self.config.weight_bits
        values = [(byte - 256 if byte > 127 else byte) - zero for byte in data]
        return sum((value % (1 << bits)) << bits * k for k, value in enumerate(values))

    def room(self):
        """Return the bytes of the groups and tables for which there has been room so far."""
        groups = tables = total = 0
        for kind, count in self.parts:
            if kind == "tables":
                tables += 1
                if tables > self.tables_released + TABLE_PLACES:
                    break
            else:
                groups += 1
                words = self.group_ends[groups] - self.group_ends[self.released]
                if groups > self.released + CONSTANT_GROUPS or words > self.config.weight_words:
                    break
            total += count
        return total

    async def monitor(self, ctx):
        """Check what the reader does in every cycle."""
        dut, config = self.dut, self.config
        writes = {"weight": dut.weight, "constant": dut.constant, "table": dut.table}
        sampler = ctx.tick().sample(
            *(dut.weight_valid, dut.constant_valid, dut.table_valid),
            *(Value.cast(write) for write in writes.values()),
            *(dut.groups_loaded, dut.release, dut.table_release),
            *(dut.request.valid, dut.request.ready, dut.request.payload.beats),
        )
        waited = False
        while True:
            values = (await sampler)[2:]
            groups_loaded, release, table_release, asks, taken, beats = values[6:]
            # A group is complete when its last word can be read: 1 cycle behind its write.
            while self.loaded < len(self.pending) and self.pending[self.loaded] < self.cycle:
                self.loaded += 1
            assert groups_loaded == self.loaded & 0xFFFF
            assert sum(values[:3]) <= 1
            for (kind, write), valid, bits in zip(
                writes.items(), values[:3], values[3:6], strict=True
            ):
                if valid:
                    self.check_write(kind, unpack(write.shape(), bits))
            if asks and not waited:
                self.requested += beats
                assert self.ends[self.requested] <= self.room() + config.bus_bytes - 1
            waited = asks and not taken
            # What was asked for is taken: words of a byte need a cycle each.
            assert self.server.blocked <= 2 * config.bus_bytes + 8
            self.released += release
            self.tables_released += table_release
            self.cycle += 1

    def check_write(self, kind, write):
        assert self.done < len(self.events), "more than all was written"
        expected_kind, where, *expected = self.events[self.done]
        assert kind == expected_kind
        if kind == "weight":
            place, size, first = "word", self.config.weight_words, self.group_ends[self.released]
        elif kind == "constant":
            place, size, first = "group", CONSTANT_GROUPS, self.released
        else:
            place, size, first = "place", TABLE_PLACES, self.tables_released
        assert write.pop(place) == where % size
        assert where < first + size, f"a place of a {kind} that is in use"
        assert list(write.values()) == expected
        self.done += 1
        if self.events[self.done] == ("end",):
            self.done += 1
            self.pending.append(self.cycle)

    def sender(self, stall=None):
        async def sends_chunks(ctx):
            await send(ctx, self.dut.i, self.chunks, stall)

        return sends_chunks

    async def release(self, ctx):
        await self.strobe(ctx, self.dut.release)

    async def strobe(self, ctx, signal):
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)

    async def until_loaded(self, ctx, count):
        while self.loaded < count:
            await ctx.tick()

    def consumer(self, seed=None):
        """Return a testbench that uses one chunk after the other and frees its groups."""
        rng = random.Random(seed)

        async def idle(ctx):
            while seed is not None and rng.random() < 0.6:
                await ctx.tick()

        async def consumes(ctx):
            done = 0
            for chunk in self.chunks:
                ctx.set(self.dut.active, chunk["index"])
                done += chunk["groups"]
                # Every pixel needs all groups; the last one frees them one by one.
                await self.until_loaded(ctx, done)
                for _ in range(chunk["groups"]):
                    await idle(ctx)
                    await self.release(ctx)
                if chunk["table_bytes"]:
                    await idle(ctx)
                    await self.strobe(ctx, self.dut.table_release)
            for _ in range(4):
                await ctx.tick()

        return consumes

    def streamer(self, seed=None, groups=None):
        """Return a testbench that frees each group once it is there, as a single pixel does."""
        rng = random.Random(seed)

        async def streams(ctx):
            for done in range(groups or len(self.groups)):
                await self.until_loaded(ctx, done + 1)
                while seed is not None and rng.random() < 0.8:
                    await ctx.tick()
                await self.release(ctx)
            for _ in range(4):
                await ctx.tick()

        return streams

    def run(self, *testbenches, max_cycles=20_000):
        return run(
            self.dut, *testbenches, background=[self.server, self.monitor], max_cycles=max_cycles
        )

    def check_all(self):
        assert self.done == len(self.events)
        assert self.requested == len(self.beats)
        assert self.server.beats == 0


@pytest.mark.parametrize(("share", "stall"), [(1, None), (1, 1), (2, 2)])
def test_chunks(config, share, stall):
    """Chunks of up to all of the buffer, or half of it, so that the next fits beside."""
    seed = share * 10 + (stall or 0)
    print("seed", seed)
    chunks = random_chunks(random.Random(seed), config, 4, config.weight_words // share)
    bench = Bench(config, chunks, stall=stall)
    bench.run(bench.sender(stall), bench.consumer(stall))
    bench.check_all()


def test_full_size_and_last_channel(config):
    """One group as large as the buffer; groups of one channel, of one byte."""
    words, lanes = config.weight_words, config.in_lanes
    chunks = [
        make_chunk(config, 0, 3, config.out_lanes, 1, words * lanes),
        make_chunk(config, 1, 7, 1, 1, words * lanes - lanes + 1),
        make_chunk(config, 2, 1, 1, 1, 1),
        make_chunk(config, 3, 0, words * config.out_lanes, 1, 1),
        make_chunk(config, 4, 2, config.out_lanes + 1, 3, lanes + 1),
    ]
    bench = Bench(config, chunks)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()


@pytest.mark.parametrize("name", ["odd, 19 words", "odd, 9 bits, 21 words"])
def test_run_tails(name):
    """Words that lack bytes are filled up with weights of 0, whatever the zero point."""
    config = CONFIGS[name]
    zeros = (-128, 127, 0, -1) if config.weight_bits == 9 else (0,)
    cases = itertools.product(range(1, 8), (1, 5, 6))
    chunks = [
        make_chunk(config, index, index, channels, 2, size, zero=zeros[index % len(zeros)])
        for index, (size, channels) in enumerate(cases)
    ]
    bench = Bench(config, chunks)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()


@pytest.mark.parametrize("in_lanes", [2, 3, 5, 7, 11])
def test_wide_and_narrow_constants(in_lanes):
    """Constants of 8 and 12 bytes in turn, in every cut into pieces; few lanes are used."""
    size = {"weight_buffer_bytes": 16 * 5 * in_lanes, "line_buffer_bytes": 3 * 16 * in_lanes}
    config = PRESETS["odd"].override(in_lanes=in_lanes, **size)
    chunks = [
        make_chunk(config, index, 3 * index, 7, 1, in_lanes + 1, wide=index % 2, lanes=lanes)
        for index, lanes in enumerate((5, 5, 2, 3, 1, 1))
    ]
    bench = Bench(config, chunks, stall=in_lanes)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()


def test_every_offset_of_the_bus(config):
    chunks = [
        make_chunk(config, index, 480 + index, 1 + index % config.out_lanes, 1, 3)
        for index in range(2 * config.bus_bytes)
    ]
    bench = Bench(config, chunks)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()


def test_a_full_buffer_waits(config):
    """Without a release, what fits is loaded, and no more; all that was asked for is taken."""
    lanes = config.in_lanes
    chunks = [make_chunk(config, index, 100 * index, 1, 2, lanes) for index in range(12)]
    bench = Bench(config, chunks)
    fit = config.weight_words // 2

    async def waits(ctx):
        # Chunks that wait in the unit are limited too.
        for count in range(12):
            for _ in range(150):
                await ctx.tick()
            assert bench.server.beats == 0
            assert bench.loaded <= min(count + fit, 12)
            assert bench.loaded >= min(count + 4, count + fit, 12)
            await bench.release(ctx)

    bench.run(bench.sender(), waits)
    bench.check_all()


def test_constants_of_few_groups_at_once():
    """Groups of a word each: the constants run out before the weights do."""
    config = PRESETS["tiny"]
    chunk = make_chunk(config, 0, 5, 4 * (CONSTANT_GROUPS - 4), 1, 1)
    more = make_chunk(config, 1, 9, 4 * 10, 1, 4)
    bench = Bench(config, [chunk, more])

    async def waits(ctx):
        while bench.loaded < CONSTANT_GROUPS:
            await ctx.tick()
        for _ in range(100):
            await ctx.tick()
        assert bench.loaded == CONSTANT_GROUPS
        for _ in range(CONSTANT_GROUPS):
            await bench.release(ctx)
        while bench.loaded < len(bench.groups):
            await ctx.tick()

    bench.run(bench.sender(), waits)
    bench.check_all()


def test_a_group_comes_as_soon_as_there_is_room_for_it(config):
    """All of it, even if the end of its last burst belongs to a group that has no room yet."""
    words = config.weight_words
    # Two groups that do not fit together.
    chunk = make_chunk(config, 0, 5, 2 * config.out_lanes, 1, (words // 2 + 1) * config.in_lanes)
    bench = Bench(config, [chunk])

    async def waits(ctx):
        for loaded in (1, 2):
            for _ in range(2000):
                if bench.loaded == loaded:
                    break
                await ctx.tick()
            assert bench.loaded == loaded
            await bench.release(ctx)

    bench.run(bench.sender(), waits)
    bench.check_all()


def test_urgent_for_the_active_pass():
    config = CONFIGS["tiny, 16 words"]
    bench = Bench(config, [make_chunk(config, 7, 0, 4, 1, 4)])
    dut = bench.dut

    async def testbench(ctx):
        await send(ctx, dut.i, bench.chunks)
        while not ctx.get(dut.request.valid):
            await ctx.tick()
        for active in (6, 7, 8):
            ctx.set(dut.active, active)
            assert ctx.get(dut.request.payload.urgent) == (active == 7)
            assert ctx.get(dut.request.payload.index) == 7

    run(dut, testbench)


def test_throughput():
    """A word a cycle, as far as the bus delivers."""
    config = PRESETS["ecp5-85f"]
    chunk = make_chunk(config, 0, 0, 16, 3, 64)
    bench = Bench(config, [chunk])

    async def waits(ctx):
        while not bench.loaded:
            await ctx.tick()

    cycles = bench.run(bench.sender(), waits)
    assert cycles <= chunk["bytes"] // config.bus_bytes + 22


def test_a_large_chunk():
    """Whole bursts, a preset's own buffer, a partial last group."""
    config = PRESETS["ecp5-85f"]
    bench = Bench(config, [make_chunk(config, 0, 77, 37, 3, 100)], stall=4)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()
    assert max(beats for _, beats, *_ in bench.server.requests) == 512 // config.bus_bytes


@pytest.mark.parametrize(("name", "stall"), TABLE_CASES)
def test_tables(name, stall):
    """Chunks with a table, with two and with none; the groups wait for room now and then."""
    config = CONFIGS[name]
    words = config.weight_words
    chunks = [
        make_chunk(config, 0, 3, 2, 1, words * config.in_lanes, tables=1),
        make_chunk(config, 1, 5, 1, 1, 1),
        make_chunk(config, 2, 9, 2, 1, words // 2 * config.in_lanes, tables=2, wide=1),
        make_chunk(config, 3, 2, 1, 1, words * config.in_lanes, tables=1),
    ]
    bench = Bench(config, chunks, stall=stall)
    bench.run(bench.sender(stall), bench.consumer(stall))
    bench.check_all()


@pytest.mark.parametrize("name", ["odd, 19 words", "tiny, bus 16", "m256, 18 words"])
def test_third_tables_wait_for_a_place(name):
    """Neither they nor their groups are loaded, although the ring has room for them."""
    config, tables = CONFIGS[name], (1, 0, 2, 1, 0, 1)
    # The first burst of a chunk is so short that a wide bus fetches it before there is room.
    chunks = [
        make_chunk(config, index, 1024 - 8, 1, 1, 1, tables=count)
        for index, count in enumerate(tables)
    ]
    bench = Bench(config, chunks)

    async def waits(ctx):
        for reached in (3, 5, 6):
            while bench.loaded < reached:
                await ctx.tick()
                for _ in range(bench.loaded - bench.released):
                    await bench.release(ctx)
            done = bench.done
            for _ in range(100):
                await ctx.tick()
            assert bench.loaded == reached
            assert bench.done == done
            assert bench.server.beats == 0
            await bench.strobe(ctx, bench.dut.table_release)

    bench.run(bench.sender(), waits)
    bench.check_all()


@pytest.mark.parametrize("name", ["tiny, 16 words", "odd, 9 bits, 21 words", "m256, 18 words"])
def test_groups_stream_through_a_small_ring(name):
    """A chunk far larger than the ring, as a pass with a single pixel has it, then another."""
    config = CONFIGS[name]
    chunks = [
        make_chunk(config, 0, 13, 200, 1, 4 * config.in_lanes - 1, lanes=1),
        make_chunk(config, 1, 6, 4 * config.out_lanes, 2, 2 * config.in_lanes, wide=1),
    ]
    assert chunks[0]["groups"] == 200
    bench = Bench(config, chunks, stall=5)
    bench.run(bench.sender(5), bench.streamer(5))
    bench.check_all()


def test_streaming_rate():
    """Groups that are freed at once come nearly at the speed of the bus."""
    config = PRESETS["m256"].override(weight_buffer_bytes=128 * 256)
    chunk = make_chunk(config, 0, 0, 16 * 7, 1, 16 * 32)
    bench = Bench(config, [chunk])
    cycles = bench.run(bench.sender(), bench.streamer())
    assert chunk["bytes"] / cycles >= 0.96 * config.bus_bytes

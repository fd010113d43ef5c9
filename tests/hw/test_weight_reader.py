"""The weight reader against a model of the ring of lane groups."""

import itertools
import random

import pytest

from trirow_hw.config import CONSTANT_BYTES, CONSTANT_GROUPS, PRESETS
from trirow_hw.weight_reader import WeightReader
from trirow_sim.memory import Memory
from trirow_sim.stream_kit import ReadServer, run, send, span_beats

SIZE = 1 << 15
#: Rings of few words, so that they wrap: 16, 19, 17 and 16 words.
CONFIGS = {
    "tiny, 16 words": PRESETS["tiny"].override(weight_buffer_bytes=16 * 16),
    "odd, 19 words": PRESETS["odd"].override(weight_buffer_bytes=19 * 15),
    "ecp5-85f, 17 words": PRESETS["ecp5-85f"].override(weight_buffer_bytes=17 * 128),
    "tiny, bus 16": PRESETS["tiny"].override(weight_buffer_bytes=16 * 16, bus_bytes=16),
    "up5k, 16 words": PRESETS["up5k"].override(weight_buffer_bytes=16 * 4),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def make_chunk(config, index, address, channels, kernel_rows, run_bytes):
    """Return what the reader is told of a chunk."""
    run_words = -(-run_bytes // config.in_lanes)
    channel_bytes = CONSTANT_BYTES + kernel_rows * run_bytes
    return {
        "address": address,
        "bytes": channels * channel_bytes,
        "group_bytes": min(channels, config.out_lanes) * channel_bytes,
        "groups": -(-channels // config.out_lanes),
        "group_words": kernel_rows * run_words,
        "kernel_rows": kernel_rows,
        "run_words": run_words,
        "run_tail": (run_bytes - 1) % config.in_lanes + 1,
        "last_lanes": (channels - 1) % config.out_lanes + 1,
        "index": index,
    }


def random_chunks(rng, config, count, most_words):
    """Return chunks of up to so many words, which a pass would use at once."""
    chunks = []
    for index in range(count):
        kernel_rows = rng.randint(1, 3)
        run_bytes = rng.randint(1, most_words // kernel_rows * config.in_lanes)
        group_words = kernel_rows * -(-run_bytes // config.in_lanes)
        groups = rng.randint(1, most_words // group_words)
        channels = max(1, groups * config.out_lanes - rng.randint(0, config.out_lanes - 1))
        address = rng.randint(0, SIZE // 4)
        chunks.append(make_chunk(config, index, address, channels, kernel_rows, run_bytes))
    return chunks


class Bench:
    """Plays memory and array; checks every word and constant, and that nothing is overwritten."""

    def __init__(self, config, chunks, *, stall=None):
        self.config = config
        self.dut = WeightReader(config=config)
        self.chunks = chunks
        memory = Memory(SIZE)
        memory.data[:] = random.Random(0).randbytes(SIZE)
        self.server = ReadServer(self.dut.request, self.dut.answer, memory, stall=stall)
        self.groups = []  # words of each group of all chunks
        self.events = []  # what is written, in order
        self.bytes_of_group = []
        self._lay_out(memory)
        self.beats = [
            beat for chunk in chunks for beat in span_beats(self._spans(chunk), config.bus_bytes)
        ]
        self.ends = [0, *itertools.accumulate(count for *_, count in self.beats)]
        self.done = self.loaded = self.released = self.requested = 0
        self.pending = []  # cycles in which groups ended
        self.cycle = 0

    @staticmethod
    def _spans(chunk):
        total = chunk["bytes"]
        return {"address": chunk["address"], "total": total, "first": total, "span": 1, "gap": 0}

    def _lay_out(self, memory):
        """Follow the format of a chunk, byte by byte."""
        config, place = self.config, 0
        for chunk in self.chunks:
            data = iter(memory.read(chunk["address"], chunk["bytes"]))
            for group in range(chunk["groups"]):
                number = len(self.groups)
                last = group == chunk["groups"] - 1
                lanes = chunk["last_lanes"] if last else config.out_lanes
                count = 0
                for lane in range(lanes):
                    constant = bytes(itertools.islice(data, CONSTANT_BYTES))
                    self.events.append(("constant", number % CONSTANT_GROUPS, lane, constant))
                    count += CONSTANT_BYTES
                for row in range(chunk["kernel_rows"]):
                    for word in range(chunk["run_words"]):
                        tail = word == chunk["run_words"] - 1
                        size = chunk["run_tail"] if tail else config.in_lanes
                        for lane in range(lanes):
                            where = place + row * chunk["run_words"] + word
                            weights = bytes(itertools.islice(data, size))
                            self.events.append(("weight", where, lane, weights))
                            count += size
                self.events.append(("end",))
                place += chunk["group_words"]
                self.groups.append(chunk["group_words"])
                self.bytes_of_group.append(count)
            assert next(data, None) is None
        self.group_ends = [0, *itertools.accumulate(self.groups)]
        self.byte_ends = [0, *itertools.accumulate(self.bytes_of_group)]

    def room(self):
        """Return the number of groups for which there has been room so far."""
        count = self.released
        while (
            count < len(self.groups)
            and count < self.released + CONSTANT_GROUPS
            and self.group_ends[count + 1]
            <= self.group_ends[self.released] + self.config.weight_words
        ):
            count += 1
        return count

    async def monitor(self, ctx):
        """Check what the reader does in every cycle."""
        dut, config = self.dut, self.config
        sampler = ctx.tick().sample(
            dut.weight_valid,
            dut.weight.word,
            dut.weight.lane,
            dut.weight.data,
            dut.constant_valid,
            dut.constant.group,
            dut.constant.lane,
            dut.constant.data,
            dut.groups_loaded,
            dut.release,
            dut.request.valid,
            dut.request.ready,
            dut.request.payload.beats,
        )
        waited = False
        while True:
            _, _, weight, word, lane, data, constant, group, c_lane, c_data, *rest = await sampler
            groups_loaded, release, asks, taken, beats = rest
            # A group is complete when its last word can be read: 1 cycle behind its write.
            self.loaded = sum(cycle < self.cycle for cycle in self.pending)
            assert groups_loaded == self.loaded & 0xFFFF
            assert not (weight and constant)
            if weight or constant:
                assert self.done < len(self.events), "more than all was written"
                kind, where, expected_lane, expected = self.events[self.done]
                value = int.from_bytes(expected, "little")
                if weight:
                    assert (kind, word, lane) == (
                        "weight",
                        where % config.weight_words,
                        expected_lane,
                    )
                    assert data & ((1 << 8 * len(expected)) - 1) == value
                    used = self.group_ends[self.released] + config.weight_words
                    assert where < used, "a place that is in use"
                else:
                    assert (kind, group, c_lane) == ("constant", where, expected_lane)
                    assert c_data == value
                    begun = len(self.pending)
                    assert begun < self.released + CONSTANT_GROUPS, "constants that are in use"
                self.done += 1
                if self.events[self.done] == ("end",):
                    self.done += 1
                    self.pending.append(self.cycle)
            if asks and not waited:
                self.requested += beats
                room = self.byte_ends[self.room()]
                assert self.ends[self.requested] <= room + config.bus_bytes - 1
            waited = asks and not taken
            self.released += release
            self.cycle += 1

    def sender(self, stall=None):
        async def sends_chunks(ctx):
            await send(ctx, self.dut.i, self.chunks, stall)

        return sends_chunks

    async def release(self, ctx):
        ctx.set(self.dut.release, 1)
        await ctx.tick()
        ctx.set(self.dut.release, 0)

    def consumer(self, seed=None):
        """Return a testbench that uses one chunk after the other and frees its groups."""
        rng = random.Random(seed)

        async def consumes(ctx):
            done = 0
            for chunk in self.chunks:
                ctx.set(self.dut.active, chunk["index"])
                done += chunk["groups"]
                # Every pixel needs all groups; the last one frees them one by one.
                while self.loaded < done:
                    await ctx.tick()
                for _ in range(chunk["groups"]):
                    while seed is not None and rng.random() < 0.6:
                        await ctx.tick()
                    await self.release(ctx)
            for _ in range(4):
                await ctx.tick()

        return consumes

    def run(self, *testbenches, max_cycles=20_000):
        return run(
            self.dut, *testbenches, background=[self.server, self.monitor], max_cycles=max_cycles
        )

    def check_all(self):
        assert self.done == len(self.events)
        assert self.requested == len(self.beats)
        assert self.server.beats == 0


@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize("stall", [None, 1, 2])
def test_chunks(config, share, stall):
    """Chunks of up to all of the buffer, or half of it, so that the next fits beside."""
    rng = random.Random(share * 10 + (stall or 0))
    chunks = random_chunks(rng, config, 6, config.weight_words // share)
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


@pytest.mark.parametrize("run_bytes", range(1, 10))
def test_run_tails(run_bytes):
    config = CONFIGS["odd, 19 words"]
    chunks = [
        make_chunk(config, index, index, channels, 2, run_bytes)
        for index, channels in enumerate((1, 4, 5, 6, 10))
    ]
    bench = Bench(config, chunks)
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
    assert cycles <= chunk["bytes"] // config.bus_bytes + 20


def test_a_large_chunk():
    """Whole bursts, a preset's own buffer, a partial last group."""
    config = PRESETS["ecp5-85f"]
    bench = Bench(config, [make_chunk(config, 0, 77, 37, 3, 100)], stall=4)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()
    assert max(beats for _, beats, *_ in bench.server.requests) == 512 // config.bus_bytes

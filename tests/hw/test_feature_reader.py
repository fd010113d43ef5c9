"""The feature reader against a model of the ring of places in the three banks."""

import itertools
import random

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.feature_reader import FeatureReader
from trirow_sim.memory import Memory
from trirow_sim.stream_kit import ReadServer, run, send
from trirow_sim.unit_kit import add_lines, address_beats, make_spans, span_addresses

SIZE = 1 << 14
#: Small banks, so that rows wrap: 8, 10, 12 and 10 words; a bus wider than a word; a full preset.
CONFIGS = {
    "tiny, 8 words": PRESETS["tiny"].override(line_buffer_bytes=96),
    "tiny, 10 words": PRESETS["tiny"].override(line_buffer_bytes=120),
    "odd, 12 words": PRESETS["odd"].override(line_buffer_bytes=108),
    "ecp5-85f, 10 words": PRESETS["ecp5-85f"].override(line_buffer_bytes=240),
    "tiny, bus 16": PRESETS["tiny"].override(line_buffer_bytes=120, bus_bytes=16),
    "odd, bus 2": PRESETS["odd"].override(line_buffer_bytes=108, bus_bytes=2),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def make_pass(config, index, address, rows, row_bytes, *, span_rows=None, first_rows=None, gap=0):
    """Return what the reader is told of a pass; spans of ``span_rows`` rows with gaps between."""
    span_rows = rows if span_rows is None else span_rows
    first_rows = min(rows, span_rows if first_rows is None else first_rows)
    spans = make_spans(
        address,
        rows * row_bytes,
        first=first_rows * row_bytes,
        span=span_rows * row_bytes,
        gap=gap,
    )
    return rows_of(config, index, spans, rows)


def rows_of(config, index, spans, rows):
    """Return what the reader is told of a pass, its spans cut into so many rows."""
    row_bytes = spans["total"] // rows
    row_words = -(-row_bytes // config.in_lanes)
    return {
        "spans": spans,
        "rows": rows,
        "row_words": row_words,
        "row_tail": (row_bytes - 1) % config.in_lanes + 1,
        "row_pitch": (row_words + row_words % 2) % config.line_bank_words,
        "row_bytes": row_bytes,
        "wait": 0,
        "index": index,
    }


class Bench:
    """Plays memory and array; checks every word that is written and every request.

    Places are counted from the start of the run without wrapping: place p of a bank may be written
    once ``p < depth + released``.
    """

    def __init__(self, config, passes, *, stall=None):
        self.config = config
        self.dut = FeatureReader(config=config)
        self.passes = passes
        self.depth = config.line_bank_words
        memory = Memory(SIZE)
        memory.data[:] = random.Random(0).randbytes(SIZE)
        self.server = ReadServer(self.dut.request, self.dut.answer, memory, stall=stall)
        self.words = self._place(memory)  # bank, place, data, bytes, ends its row
        self.rows = []  # bank, words, places
        for number, item in enumerate(each for each in passes for _ in range(each["rows"])):
            words = item["row_words"]
            self.rows.append((number % 3, words, words + words % 2))
        self.beats = [
            beat for item in passes for beat in address_beats(item["spans"], config.bus_bytes)
        ]
        self.ends = [0, *itertools.accumulate(count for *_, count in self.beats)]
        self.released = [0, 0, 0]
        self.release_cycles = [[], [], []]  # released so far, and when
        self.written = self.rows_written = self.words_in_row = 0
        self.requested = 0
        self.least_gap = 99
        self.cycle = 0

    def _place(self, memory):
        words, starts, number = [], [0, 0, 0], 0
        for item in self.passes:
            data = bytes(
                memory.data[byte] for piece in span_addresses(item["spans"]) for byte in piece
            )
            row_bytes, lanes = item["row_bytes"], self.config.in_lanes
            for start in range(0, len(data), row_bytes):
                row, bank = data[start : start + row_bytes], number % 3
                for word in range(item["row_words"]):
                    piece = row[word * lanes : (word + 1) * lanes]
                    ends = word == item["row_words"] - 1
                    words.append((bank, starts[bank] + word, piece, len(words), ends))
                starts[bank] += item["row_words"] + item["row_words"] % 2
                number += 1
        return words

    async def monitor(self, ctx):
        """Check what the reader does in every cycle."""
        dut, bus_bytes = self.dut, self.config.bus_bytes
        sampler = ctx.tick().sample(
            dut.write_valid,
            dut.write.bank,
            dut.write.word,
            dut.write.data,
            dut.rows_loaded,
            dut.words_loaded,
            dut.release_valid,
            dut.release.bank,
            dut.release.words,
            dut.request.valid,
            dut.request.ready,
            dut.request.payload.beats,
        )
        waited = False
        byte_of_word = [0, *itertools.accumulate(len(piece) for _, _, piece, _, _ in self.words)]
        word_of_byte = [
            number
            for number, (start, end) in enumerate(itertools.pairwise(byte_of_word))
            for _ in range(start, end)
        ]
        passes_end = [0, *itertools.accumulate(item["spans"]["total"] for item in self.passes)]
        while True:
            _, _, valid, bank, word, data, rows, words, *rest = await sampler
            release, release_bank, release_words, asks, taken, beats = rest
            # Progress shows what was written before this cycle, exactly.
            assert (rows, words) == (self.rows_written & 0xFFFF, self.words_in_row)
            if valid:
                assert self.written < len(self.words), "more than all was written"
                expected_bank, place, piece, _, ends = self.words[self.written]
                assert (bank, word) == (expected_bank, place % self.depth)
                assert data & ((1 << 8 * len(piece)) - 1) == int.from_bytes(piece, "little")
                assert place < self.depth + self.released[bank], "a place that is in use"
                if place >= self.depth:
                    freed = next(
                        cycle
                        for total, cycle in self.release_cycles[bank]
                        if total > place - self.depth
                    )
                    self.least_gap = min(self.least_gap, self.cycle - freed)
                self.written += 1
                self.words_in_row += 1
                if ends:
                    self.rows_written += 1
                    self.words_in_row = 0
            if asks and not waited:
                self.requested += beats
                end = self.ends[self.requested]
                # The bytes beyond the room are less than a beat, and of one pass.
                begun = max(total for total in passes_end if total < end)
                last = end - (bus_bytes - 1) - 1
                if last >= begun:
                    bank, place, *_ = self.words[word_of_byte[last]]
                    assert place < self.depth + self.released[bank], "requested without room"
            waited = asks and not taken
            if release:
                self.released[release_bank] += release_words
                self.release_cycles[release_bank].append((self.released[release_bank], self.cycle))
            self.cycle += 1

    async def release(self, ctx, bank, words):
        ctx.set(self.dut.release, {"bank": bank, "words": words})
        ctx.set(self.dut.release_valid, 1)
        await ctx.tick()
        ctx.set(self.dut.release_valid, 0)

    def sender(self, stall=None):
        async def sends_passes(ctx):
            await send(ctx, self.dut.i, self.passes, stall)

        return sends_passes

    def consumer(self, *, hold=1, by_words=False, seed=None):
        """Return a testbench that uses ``hold`` rows at a time and gives them back."""
        rng = random.Random(seed)

        async def consumes(ctx):
            for number, (bank, _, places) in enumerate(self.rows):
                freed = 0
                idle = 0
                needed = min(number + hold, len(self.rows))
                while True:
                    ready = self.rows_written >= needed
                    # The array asks for features when it can do nothing else.
                    idle = 0 if ready else idle + 1
                    ctx.set(self.dut.starving, idle > 4)
                    if ready:
                        break
                    done = self.words_in_row if self.rows_written == number else 0
                    if by_words and done > freed and (seed is None or rng.random() < 0.4):
                        count = rng.randint(1, done - freed) if seed else done - freed
                        freed += count
                        idle = 0
                        await self.release(ctx, bank, count)
                    else:
                        await ctx.tick()
                while seed is not None and rng.random() < 0.5:
                    await ctx.tick()
                await self.release(ctx, bank, places - freed)
            for _ in range(4):
                await ctx.tick()

        return consumes

    def run(self, *testbenches, max_cycles=20_000):
        cycles = run(
            self.dut, *testbenches, background=[self.server, self.monitor], max_cycles=max_cycles
        )
        return cycles

    def check_all(self):
        assert self.written == len(self.words)
        assert self.requested == len(self.beats)
        assert self.server.beats == 0


def random_passes(rng, config, count, longest):
    """Return passes whose rows take at most so many words."""
    passes = []
    for index in range(count):
        row_bytes = rng.randint(1, longest * config.in_lanes)
        rows = rng.randint(1, 9)
        span_rows = rng.choice([rows, 1, 2, 3])
        item = make_pass(
            config,
            index,
            rng.randint(0, SIZE // 2),
            rows,
            row_bytes,
            span_rows=span_rows,
            first_rows=rng.choice([span_rows, rng.randint(1, span_rows)]),
            gap=rng.choice([0, 1, row_bytes, rng.randint(0, 40)]),
        )
        passes.append(item | {"spans": add_lines(rng, item["spans"])})
    return passes


def pixel_spans(address, rows, columns, pixel_bytes, *, gap, pitch, line_pixels=None):
    """Return one span for each pixel; ``pitch`` from the beginning of a line to the next."""
    line_pixels = columns if line_pixels is None else line_pixels
    line_bytes = line_pixels * pixel_bytes + (line_pixels - 1) * gap
    return make_spans(
        address,
        rows * columns * pixel_bytes,
        span=pixel_bytes,
        gap=gap,
        line=line_pixels * pixel_bytes,
        turn=pitch - line_bytes,
    )


def random_pixels(rng, config, index, longest, pixel_bytes):
    """Return a pass of rows of pixels, at most so many words each.

    A line is a row, and the rows are taken from the top or from the bottom; or a line has any
    number of pixels, and rows end inside.
    """
    columns = rng.randint(1, max(1, longest * config.in_lanes // pixel_bytes))
    rows, gap = rng.randint(1, 4), rng.choice([0, 1, 3 * pixel_bytes, rng.randint(0, 20)])
    pitch = rng.choice([0, 1, columns * (pixel_bytes + gap), rng.randint(0, 400)])
    address = rng.randint(0, 2000)
    if rng.random() < 0.5:
        address, pitch = address + 4 * pitch, -pitch
    line_pixels = None
    if pitch >= 0 and rng.random() < 0.5:
        line_pixels, pitch = rng.randint(1, 2 * columns + 1), rng.randint(0, 60)
    spans = pixel_spans(
        address, rows, columns, pixel_bytes, gap=gap, pitch=pitch, line_pixels=line_pixels
    )
    return rows_of(config, index, spans, rows)


@pytest.mark.parametrize("hold", [1, 3, 6])
@pytest.mark.parametrize("stall", [None, 1, 2])
def test_rows(config, hold, stall):
    """Windows of some rows; a row is given back when the window has gone beyond it."""
    rng = random.Random(hold * 10 + (stall or 0))
    longest = config.line_bank_words // (2 if hold > 3 else 1)
    longest -= longest % 2
    bench = Bench(config, random_passes(rng, config, 7, longest), stall=stall)
    bench.run(bench.sender(stall), bench.consumer(hold=hold, seed=stall))
    bench.check_all()


@pytest.mark.parametrize("stall", [None, 1, 2])
def test_rows_longer_than_a_bank(config, stall):
    """A single row streams through its bank, given back word by word."""
    rng = random.Random(stall or 0)
    depth, lanes = config.line_bank_words, config.in_lanes
    passes = []
    for index, words in enumerate((3 * depth + 1, depth + 1, 2 * depth, depth - 1, depth + 2)):
        row_bytes = words * lanes - rng.randint(0, lanes - 1)
        passes.append(
            make_pass(
                config,
                index,
                rng.randint(0, 2000),
                rng.randint(1, 4),
                row_bytes,
                span_rows=rng.randint(1, 2),
                gap=rng.randint(0, 50),
            )
        )
    bench = Bench(config, passes, stall=stall)
    bench.run(bench.sender(stall), bench.consumer(by_words=True, seed=stall))
    bench.check_all()


@pytest.mark.parametrize(("hold", "stall"), [(1, None), (3, 1)])
def test_a_span_for_each_pixel(config, hold, stall):
    """Spans are shorter than rows, of odd lengths and at odd addresses; lines end anywhere."""
    rng = random.Random(hold * 100 + (stall or 0))
    longest = config.line_bank_words
    sizes = [1, 2, 3, 5, config.in_lanes, config.bus_bytes, 16]
    passes = [
        random_pixels(rng, config, index, longest, min(size, longest * config.in_lanes))
        for index, size in enumerate(rng.sample(sizes, len(sizes)))
    ]
    bench = Bench(config, passes, stall=stall)
    bench.run(bench.sender(stall), bench.consumer(hold=hold, seed=stall))
    bench.check_all()


def test_pixels_in_rows_longer_than_a_bank(config):
    """They are requested word by word while the row streams through its bank."""
    rng = random.Random(1)
    passes = []
    for index, pixel_bytes in enumerate((3, config.bus_bytes + 1, 16)):
        columns = (config.line_bank_words + 3) * config.in_lanes // pixel_bytes
        gap = rng.randint(0, 9)
        pitch = rng.choice([0, columns * (pixel_bytes + gap) + 5])
        spans = pixel_spans(rng.randint(0, 2000), 2, columns, pixel_bytes, gap=gap, pitch=pitch)
        passes.append(rows_of(config, index, spans, 2))
    bench = Bench(config, passes, stall=1)
    bench.run(bench.sender(1), bench.consumer(by_words=True, seed=1))
    bench.check_all()


def test_bytes_of_a_slice_of_channels():
    """Channels 4 to 6 of 8, rows 1 and 3 of 4 from the bottom up: each byte by its coordinates."""
    config = CONFIGS["odd, 12 words"]
    height, width, channels, base = 4, 5, 8, 771
    spans = pixel_spans(
        base + (3 * width) * channels + 4,
        2,
        width,
        3,
        gap=channels - 3,
        pitch=-2 * width * channels,
    )
    bench = Bench(config, [rows_of(config, 0, spans, 2)])
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()
    memory = random.Random(0).randbytes(SIZE)
    expected = [
        memory[base + (y * width + x) * channels + c]
        for y in (height - 1, height - 3)
        for x in range(width)
        for c in (4, 5, 6)
    ]
    assert list(b"".join(piece for _, _, piece, _, _ in bench.words)) == expected


@pytest.mark.parametrize("gap", [0, 48])
def test_cycles_of_a_pixel(gap):
    """A span of 16 bytes takes 4 cycles, as long as its words do not take longer."""
    config = PRESETS["m256"].override(line_buffer_bytes=3 * 64 * 16)
    spans = pixel_spans(0, 4, 60, 16, gap=gap, pitch=60 * (16 + gap) // 2)
    bench = Bench(config, [rows_of(config, 0, spans, 4)])
    cycles = bench.run(bench.sender(), bench.consumer())
    bench.check_all()
    assert cycles <= 4 * 240 + 40


def test_places_are_not_overwritten_too_soon():
    """A word is written at least 11 cycles behind the strobe that frees its place.

    The array's last read of the place is at most 3 cycles behind it. Bytes that wait in the reader
    for a place come first: with a wide bus they may be whole words.
    """
    config = CONFIGS["tiny, bus 16"]
    depth, lanes = config.line_bank_words, config.in_lanes
    bench = Bench(config, [make_pass(config, 0, 3, 1, 4 * depth * lanes)])

    async def frees_word_by_word(ctx):
        ctx.set(bench.dut.starving, 1)
        for _ in range(2 * depth):
            for _ in range(30):
                await ctx.tick()
            await bench.release(ctx, 0, 1)
        for _ in range(30):
            await ctx.tick()

    bench.run(bench.sender(), frees_word_by_word)
    assert bench.written == 3 * depth
    assert bench.least_gap == 11


def test_every_offset_of_the_bus(config):
    """Rows that begin and end anywhere in a beat."""
    passes = [
        make_pass(config, 0, 32 + offset, 3, 2 * config.bus_bytes + 1 - offset)
        for offset in range(config.bus_bytes)
    ]
    longest = config.line_bank_words * config.in_lanes
    passes = [item for item in passes if item["row_bytes"] <= longest]
    bench = Bench(config, passes)
    bench.run(bench.sender(), bench.consumer(hold=1))
    bench.check_all()


def test_full_preset():
    """Rows as wide as in a real layer, with whole bursts."""
    config = PRESETS["ecp5-85f"]
    passes = [
        make_pass(config, 0, 5, 4, 700),
        make_pass(config, 1, 100, 3, 1000, span_rows=1, gap=77),
    ]
    bench = Bench(config, passes, stall=3)
    bench.run(bench.sender(), bench.consumer(hold=3))
    bench.check_all()
    assert max(beats for _, beats, *_ in bench.server.requests) == 512 // config.bus_bytes


def test_throughput():
    """A word a cycle."""
    config = PRESETS["ecp5-85f"]
    bench = Bench(config, [make_pass(config, 0, 0, 3, 2048)])

    async def waits(ctx):
        while bench.rows_written < 3:
            await ctx.tick()

    cycles = bench.run(bench.sender(), waits)
    assert cycles <= 3 * 256 + 20


def test_next_pass_is_requested_while_this_one_is_used(config):
    """As far as there is room, without a place given back."""
    lanes = config.in_lanes
    passes = [make_pass(config, index, 64 * index, 3, 2 * lanes) for index in range(4)]
    bench = Bench(config, passes)

    async def waits(ctx):
        ctx.set(bench.dut.starving, 1)
        for _ in range(400):
            await ctx.tick()

    bench.run(bench.sender(), waits)
    # Each pass takes two words of each bank.
    assert bench.rows_written >= 3 * min(4, config.line_bank_words // 2)
    assert {index for _, _, index, *_ in bench.server.requests} >= {0, 1, 2, 3}


def test_wait_for_earlier_outputs():
    """A pass is not requested before ``landed`` is its index."""
    config = CONFIGS["tiny, 10 words"]
    passes = [make_pass(config, index, 64 * index, 2, 8) for index in range(4)]
    passes[1]["wait"] = passes[3]["wait"] = 1
    bench = Bench(config, passes)
    dut = bench.dut

    def asked():
        return {index for _, _, index, *_ in bench.server.requests}

    async def testbench(ctx):
        ctx.set(dut.starving, 1)
        for landed, expected, waits in (
            (0, {0}, 1),
            (1, {0, 1, 2}, 1),
            (2, {0, 1, 2}, 1),
            (3, {0, 1, 2, 3}, 0),
        ):
            ctx.set(dut.landed, landed)
            for _ in range(80):
                await ctx.tick()
            assert asked() == expected
            assert ctx.get(dut.waits) == waits

    bench.run(bench.sender(), testbench)
    bench.check_all()


def test_urgent_only_if_nothing_is_on_the_way():
    config = CONFIGS["tiny, 10 words"]
    bench = Bench(config, [make_pass(config, 0, 0, 1, 8)])
    dut = bench.dut

    async def testbench(ctx):
        await send(ctx, dut.i, bench.passes)
        while not ctx.get(dut.request.valid):
            await ctx.tick()
        for starving, on_the_way in itertools.product((0, 1), (0, 1)):
            ctx.set(dut.starving, starving)
            ctx.set(dut.on_the_way, on_the_way)
            assert ctx.get(dut.request.payload.urgent) == (starving and not on_the_way)

    run(dut, testbench)


@pytest.mark.parametrize("row_bytes", [1, 2, 3, 5])
def test_full_banks_do_not_block_the_bus(config, row_bytes):
    """All beats that were asked for are taken, even if no place is ever given back.

    With spans of a few bytes those beyond the room come in many beats.
    """
    rows, gap = 3 * config.line_bank_words, 2 * config.bus_bytes
    spans = pixel_spans(3, rows, 1, row_bytes, gap=gap, pitch=3 * gap, line_pixels=2)
    bench = Bench(config, [rows_of(config, 0, spans, rows)])

    async def waits(ctx):
        ctx.set(bench.dut.starving, 1)
        for _ in range(600):
            await ctx.tick()
        assert bench.server.requests
        assert bench.server.beats == 0

    bench.run(bench.sender(), waits)
    assert bench.written < len(bench.words)


def test_bank_follows_over_passes():
    """Row i of the run, not of the pass, is in bank i mod 3."""
    config = CONFIGS["odd, 12 words"]
    passes = [make_pass(config, index, 50 * index, 1 + index % 2, 7) for index in range(5)]
    bench = Bench(config, passes)
    bench.run(bench.sender(), bench.consumer())
    bench.check_all()
    assert [bank for bank, *_ in bench.rows] == [0, 1, 2, 0, 1, 2, 0]

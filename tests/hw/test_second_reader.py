# amaranth: UnusedElaboratable=no
"""The reader of the second operand: columns in order, room before requests, waiting, urgency."""

import itertools
import random

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.second_reader import WORD_QUEUE, SecondReader, beat_places
from trirow_hw.unpacker import Unpacker
from trirow_sim.memory import Memory
from trirow_sim.stream_kit import ReadServer, run, send, stalls

SIZE = 1 << 14
CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "m256")},
    "column as wide as the bus": PRESETS["tiny"].override(post_lanes=4),
    "ragged column": PRESETS["tiny"].override(out_lanes=7, post_lanes=3),
    "wide bus": PRESETS["odd"].override(bus_bytes=128),
}


def random_spans(generator, total):
    """Return spans of ``total`` bytes, and the address of each byte: one span, or lines of them."""
    address = generator.randint(0, 4000)
    if generator.random() < 0.3:
        fields = {"address": address, "total": total, "first": total}
        return fields, list(range(address, address + total))
    span, spans = generator.choice([1, 2, 7, 40]), generator.randint(1, 5)
    gap, turn = generator.choice([0, 1, 30]), generator.choice([0, 5, 64, -20])
    span = min(span, total)
    addresses, position = [], address
    for number in itertools.count(1):
        addresses += range(position, position + span)
        position += span + (turn if number % spans == 0 else gap)
        if len(addresses) >= total or position < 0 or position + span > SIZE:
            break
    if len(addresses) < total:
        return random_spans(generator, total)
    fields = {"address": address, "total": total, "first": span, "span": span, "gap": gap}
    return {**fields, "line": span * spans, "turn": turn & 0xFFFF_FFFF}, addresses[:total]


def random_pass(generator, config, index):
    """Return the fields of a pass, the address of each byte, and the values of each column."""
    four_bytes, groups = generator.randint(0, 1), generator.randint(1, 3)
    group_lanes, last_lanes = (generator.randint(1, config.out_lanes) for _ in "ab")
    columns = []
    for _, group in itertools.product(range(generator.randint(1, 6)), range(groups)):
        lanes = last_lanes if group == groups - 1 else group_lanes
        columns += [min(config.post_lanes, lanes - k) for k in range(0, lanes, config.post_lanes)]
    spans, addresses = random_spans(generator, sum(columns) << 2 * four_bytes)
    fields = {"four_bytes": four_bytes, "groups": groups, "index": index}
    fields["loops"] = generator.randint(0, 7)
    return (
        {**fields, "spans": spans, "group_lanes": group_lanes, "last_lanes": last_lanes},
        addresses,
        columns,
    )


def plain_pass(config, pixels, *, index=0, four_bytes=0, **fields):
    """Return a pass over adjacent bytes, with one group that has all lanes."""
    total = pixels * config.out_lanes << 2 * four_bytes
    lanes = {"groups": 1, "group_lanes": config.out_lanes, "last_lanes": config.out_lanes}
    spans = {"address": 0, "total": total, "first": total}
    return {"spans": spans, "four_bytes": four_bytes, "index": index, **lanes, **fields}


class Bench:
    """A reader and its memory."""

    def __init__(self, config, passes, *, stall=None, latency=2):
        self.unit = SecondReader(config=config)
        self.passes, self.config = passes, config
        self.memory = Memory(SIZE)
        self.memory.data[:] = random.Random(0).randbytes(SIZE)
        self.server = ReadServer(
            self.unit.request, self.unit.answer, self.memory, stall=stall, latency=latency
        )
        self.columns, self.cycles, self.loops = [], [], []

    async def sender(self, ctx):
        shape = self.unit.i.payload.shape()
        await send(ctx, self.unit.i, [shape.const(fields) for fields in self.passes])

    def collector(self, counts, sizes, stall=None):
        """Take as many columns as ``counts`` has; keep the values of each as bytes."""

        async def collector(ctx):
            held = stalls(stall)
            sampler = ctx.tick().sample(self.unit.o.valid, self.unit.o.payload.as_value())
            while len(self.columns) < len(counts):
                ready = not next(held)
                ctx.set(self.unit.o.ready, ready)
                *_, valid, payload = await sampler
                if valid and ready:
                    number = len(self.columns)
                    width, size = 4 * self.config.post_lanes, sizes[number]
                    raw = (payload & (1 << 8 * width) - 1).to_bytes(width, "little")
                    self.loops.append(payload >> 8 * width)
                    self.columns.append([raw[4 * k : 4 * k + size] for k in range(counts[number])])
                    self.cycles.append(self.server.cycle)
                # The queue has room for all that was requested.
                assert self.server.blocked == 0
            ctx.set(self.unit.o.ready, 0)
            for _ in range(20):
                *_, valid, _ = await sampler
                assert not valid, "more columns than there are"

        return collector


@pytest.mark.parametrize(("memory_stall", "o_stall"), [(1, None), (None, 2)])
@pytest.mark.parametrize("name", CONFIGS)
def test_columns(name, memory_stall, o_stall):
    """Passes of both sizes of values, ragged groups, spans and lines of any length."""
    config = CONFIGS[name]
    generator = random.Random(f"{name} {memory_stall} {o_stall}")
    passes = [random_pass(generator, config, k) for k in range(8)]
    bench = Bench(config, [fields for fields, *_ in passes], stall=memory_stall)
    expected, counts, sizes, loops = [], [], [], []
    for fields, addresses, columns in passes:
        size, data = 1 + 3 * fields["four_bytes"], iter(addresses)
        for count in columns:
            expected.append(
                [bytes(bench.memory.data[next(data)] for _ in range(size)) for _ in range(count)]
            )
            counts.append(count)
            loops.append(fields["loops"])
            sizes.append(size)
    limit = 2000 + 20 * sum(len(addresses) for _, addresses, _ in passes)
    run(
        bench.unit,
        *(bench.sender, bench.collector(counts, sizes, o_stall)),
        background=[bench.server],
        max_cycles=limit,
    )
    assert bench.columns == expected
    assert bench.loops == loops
    indices = [index for _, _, index, _, _ in bench.server.requests]
    assert indices == sorted(indices)
    assert set(indices) == set(range(len(passes)))


@pytest.mark.parametrize("name", ["tiny", "m256", "column as wide as the bus"])
def test_column_a_cycle(name):
    """As long as the bus gives the bytes, there is a column in each cycle."""
    config = CONFIGS[name]
    pixels = 1600 // config.out_lanes
    bench = Bench(config, [plain_pass(config, pixels)])
    count = pixels * config.stages
    widths = [config.post_lanes] * count
    run(
        bench.unit,
        *(bench.sender, bench.collector(widths, [1] * count)),
        background=[bench.server],
        max_cycles=4000,
    )
    assert bench.cycles[-1] - bench.cycles[0] < count * 1.02 + 4


@pytest.mark.parametrize("name", ["tiny", "wide bus"])
def test_reads_ahead(name):
    """With nobody taking columns it requests what its queue holds, of several passes, and stops."""
    config = CONFIGS[name]
    pixels = beat_places(config) * config.bus_bytes // 3 // config.out_lanes
    bench = Bench(config, [plain_pass(config, pixels, index=k) for k in range(40)], stall=3)

    async def testbench(ctx):
        await ctx.tick().repeat(1500)
        beats = sum(beats for _, beats, *_ in bench.server.requests)
        assert bench.server.beats == 0, "something requested was not accepted"
        # The unpacker and the words behind it hold more; there may be no room for a whole burst.
        word_bytes = min(4 * config.post_lanes, config.bus_bytes)
        most = Unpacker(bus_bytes=config.bus_bytes, word_bytes=word_bytes).most_beats
        behind = WORD_QUEUE + 2 + 4 * config.post_lanes // config.bus_bytes
        assert beats <= beat_places(config) + most + behind
        assert beats > beat_places(config) - config.burst_beats
        assert len({index for _, _, index, *_ in bench.server.requests}) > 1

    run(bench.unit, testbench, background=[bench.server, bench.sender], max_cycles=2000)


def test_waits_for_earlier_outputs():
    """A pass with ``wait`` requests nothing before its own number of passes has landed."""
    config = CONFIGS["tiny"]
    passes = [plain_pass(config, 2, index=2), plain_pass(config, 2, index=5, wait=1)]
    bench = Bench(config, passes)
    unit = bench.unit

    async def testbench(ctx):
        for landed in (0, 2, 4, 6):
            ctx.set(unit.landed, landed)
            await ctx.tick().repeat(30)
            assert ctx.get(unit.waits)
            assert {index for _, _, index, *_ in bench.server.requests} == {2}
        ctx.set(unit.landed, 5)
        await ctx.tick().repeat(30)
        assert not ctx.get(unit.waits)
        assert {index for _, _, index, *_ in bench.server.requests} == {2, 5}

    run(unit, testbench, background=[bench.server, bench.sender], max_cycles=500)


@pytest.mark.parametrize(
    ("starving", "on_the_way", "urgent"), [(0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 1)]
)
def test_urgent(starving, on_the_way, urgent):
    """A request is urgent if the array waits and nothing is on the way; not with a column there."""
    config = CONFIGS["tiny"]
    bench = Bench(config, [plain_pass(config, 600)], latency=20)
    unit = bench.unit

    async def testbench(ctx):
        ctx.set(unit.starving, starving)
        ctx.set(unit.on_the_way, on_the_way)
        await ctx.tick().repeat(100)
        assert [request[3] for request in bench.server.requests] == [urgent, urgent]
        ctx.set(unit.o.ready, 1)
        while len(bench.server.requests) == 2:
            await ctx.tick()
        assert bench.server.requests[2][3] == 0

    run(unit, testbench, background=[bench.server, bench.sender], max_cycles=1000)

"""The output writer: bytes to beats, beats to bursts."""

import itertools
import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from trirow_hw.config import BURST_BYTES, PRESETS
from trirow_hw.output_writer import TAIL_BEATS, OutputWriter
from trirow_hw.write_port import WritePort
from trirow_sim.stream_kit import collect, run, send
from trirow_sim.unit_kit import add_lines, address_beats, make_spans, span_addresses

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f")},
    "tiny, wide bus": PRESETS["tiny"].override(bus_bytes=16),
    "odd, narrow bus": PRESETS["odd"].override(bus_bytes=2),
    "m256": PRESETS["m256"],
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def layer_columns(config, channels, pixels):
    """Return how many channels are in each column that the array gives for a chunk."""
    counts = []
    for _ in range(pixels):
        for first in range(0, channels, config.out_lanes):
            lanes = min(config.out_lanes, channels - first)
            for column in range(config.stages):
                rest = lanes - column * config.post_lanes
                counts.append(max(0, min(config.post_lanes, rest)))
    return counts


def strided(address, channels, all_channels, pixels):
    """Return the spans of a chunk of a layer's channels."""
    return make_spans(address, channels * pixels, span=channels, gap=all_channels - channels)


def free_columns(rng, config, spans):
    """Return columns of any size that do not go beyond the end of a span."""
    counts = []
    for length in map(len, span_addresses(spans)):
        while length:
            counts.append(min(length, rng.randint(0, config.post_lanes)))
            length -= counts[-1]
    return counts


def expected_beats(config, passes, data):
    """Return the data and strobes of all beats; ``data`` are the bytes of all passes."""
    beats, position = [], 0
    for spans in passes:
        for _, offset, count in address_beats(spans, config.bus_bytes):
            word = int.from_bytes(data[position : position + count], "little")
            beats.append((word << 8 * offset, ((1 << count) - 1) << offset))
            position += count
    assert position == len(data)
    return beats


def expected_requests(config, passes):
    """Return address, beats, index and last of all bursts."""
    requests = []
    tail_bytes = TAIL_BEATS * config.bus_bytes
    for index, spans in enumerate(passes):
        left = spans["total"]
        for piece in span_addresses(spans):
            address, length = piece.start, len(piece)
            while length:
                size = BURST_BYTES if left > BURST_BYTES else tail_bytes
                count = min(length, size - address % size)
                offset = address % config.bus_bytes
                beats = -(-(offset + count) // config.bus_bytes)
                left -= count
                requests.append((address - offset, beats, index, int(left == 0)))
                address, length = address + count, length - count
    return requests


def write(config, passes, columns, *, seed=1, stalls=(None, None, None, None)):
    """Run passes through the unit; check all beats and requests, return the cycles."""
    dut = OutputWriter(config=config)
    rng = random.Random(seed)
    data, outputs = bytearray(), []
    for count in columns:
        # Bytes behind the last channel are whatever the requantisers make of it.
        column = rng.randbytes(config.post_lanes)
        data += column[:count]
        outputs.append({"data": int.from_bytes(column, "little"), "count": count})
    # Columns without channels behind the last one stay where they are until another pass comes.
    while outputs[-1]["count"] == 0:
        outputs.pop()
    beats = expected_beats(config, passes, bytes(data))
    requests = expected_requests(config, passes)
    assert sum(burst[1] for burst in requests) == len(beats)
    taken_beats, taken_requests = [], []

    async def sends_passes(ctx):
        items = [{"spans": spans, "index": index} for index, spans in enumerate(passes)]
        await send(ctx, dut.i, items, stalls[0])

    async def sends_outputs(ctx):
        await send(ctx, dut.outputs, outputs, stalls[1])

    async def takes_requests(ctx):
        await collect(ctx, dut.request, len(requests), stalls[2], taken=taken_requests)

    async def takes_beats(ctx):
        await collect(ctx, dut.beats, len(beats), stalls[3], taken=taken_beats)
        while len(taken_requests) < len(requests):
            await ctx.tick()
        for _ in range(6):
            assert not ctx.get(dut.beats.valid)
            assert not ctx.get(dut.request.valid)
            await ctx.tick()

    cycles = run(dut, sends_passes, sends_outputs, takes_requests, takes_beats, max_cycles=8_000)
    assert [(r.address, r.beats, r.index, r.last) for r in taken_requests] == requests
    for beat, (word, strobe) in zip(taken_beats, beats, strict=True):
        mask = sum(0xFF << 8 * k for k in range(config.bus_bytes) if strobe >> k & 1)
        assert beat.strobe == strobe
        assert beat.data & mask == word
    return cycles


STALLS = [
    (None, None, None, None),
    (1, 2, None, None),
    (None, None, 3, None),
    (None, None, None, 4),
    (5, 6, 7, 8),
]


@pytest.mark.parametrize("stalls", STALLS)
def test_layers(config, stalls):
    """Whole layers and chunks of them, with and without a partial last group, back to back."""
    lanes = config.out_lanes
    cases = [
        (make_spans(0x1000, 7 * lanes), lanes, 7),
        (make_spans(0x2003, 5 * (lanes + 1)), lanes + 1, 5),
        (strided(0x3001, lanes, 2 * lanes + 3, 6), lanes, 6),
        (strided(0x3001 + 2 * lanes, 3, 2 * lanes + 3, 6), 3, 6),
        (make_spans(0x4FFF, 1), 1, 1),
        (strided(0x5002, 2 * lanes - 1, 2 * lanes + 3, 3), 2 * lanes - 1, 3),
    ]
    passes = [spans for spans, _, _ in cases]
    columns = [
        count for _, channels, pixels in cases for count in layer_columns(config, channels, pixels)
    ]
    write(config, passes, columns, stalls=stalls)


@pytest.mark.parametrize("seed", range(1, 5))
def test_random_spans(config, seed):
    """Spans of any kind, the last of a pass cut short, columns of any size."""
    rng = random.Random(seed)
    passes = []
    for _ in range(6):
        span = rng.choice([1, 2, config.bus_bytes, config.bus_bytes + 1, rng.randint(1, 90)])
        total = min(300, rng.choice([1, 2, 7]) * span + rng.randint(0, span))
        spans = {
            "address": rng.randint(0, 0x4000),
            "total": total,
            "first": min(total, rng.choice([span, rng.randint(1, 2 * span)])),
            "span": span,
            "gap": rng.choice([0, 1, config.bus_bytes, rng.randint(0, 99)]),
        }
        passes.append(add_lines(rng, spans))
    columns = [count for spans in passes for count in free_columns(rng, config, spans)]
    stalls = (None,) * 4 if seed == 1 else tuple(seed * 10 + k for k in range(4))
    write(config, passes, columns, seed=seed, stalls=stalls)


@pytest.mark.parametrize("name", ["tiny", "odd", "ecp5-85f"])
def test_every_first_and_last_byte_of_the_bus(name):
    config = CONFIGS[name]
    bus = config.bus_bytes
    passes = [
        make_spans(64 + offset, 3 * length, span=length, gap=gap, line=2 * length, turn=turn)
        for offset in range(bus)
        for length in range(1, bus + 2)
        for gap, turn in ((0, 1), (1, 0))
    ]
    rng = random.Random(1)
    columns = [count for spans in passes for count in free_columns(rng, config, spans)]
    write(config, passes, columns)


def test_long_spans(config):
    """Bursts of full length, cut at multiples of 512 bytes; short ones at the end."""
    passes = [make_spans(0x1F3, 1900), strided(0xFF0, 700, 1111, 2)]
    columns = [count for spans in passes for count in full_columns(config, spans)]
    write(config, passes, columns)


def full_columns(config, spans):
    """Return columns that are full, except at the end of a span."""
    return [
        min(config.post_lanes, length - start)
        for length in map(len, span_addresses(spans))
        for start in range(0, length, config.post_lanes)
    ]


@pytest.mark.parametrize("offset", [0, 3])
def test_throughput(config, offset):
    """A column a cycle within a span; at the end of a span that ends in a beat, one more."""
    spans = make_spans(64 + offset, 100 * config.post_lanes)
    cycles = write(config, [spans], [config.post_lanes] * 100)
    # The last bursts leave, of at most 128 bytes each.
    tail = TAIL_BEATS
    assert cycles <= 100 + tail + 20


def test_beats_are_there_when_they_are_requested(config):
    """From the request on, a burst's beats can be taken without a gap."""
    dut = OutputWriter(config=config)
    spans = [make_spans(0x105, 777), strided(0x1FA, 13, 29, 9)]
    requests = expected_requests(config, spans)
    rng = random.Random(3)
    columns = [count for item in spans for count in free_columns(rng, config, item)]

    async def sends_passes(ctx):
        await send(ctx, dut.i, [{"spans": item, "index": 0} for item in spans])

    async def sends_outputs(ctx):
        await send(ctx, dut.outputs, [{"data": 0, "count": count} for count in columns], 5)

    async def takes(ctx):
        for address, beats, *_ in requests:
            (request,) = await collect(ctx, dut.request, 1)
            assert (request.address, request.beats) == (address, beats)
            ctx.set(dut.beats.ready, 1)
            for _ in range(beats):
                assert ctx.get(dut.beats.valid)
                await ctx.tick()
            ctx.set(dut.beats.ready, 0)

    run(dut, sends_passes, sends_outputs, takes, max_cycles=8_000)


class _WithPort(wiring.Component):
    """A writer at a write port, whose memory takes everything at once."""

    def __init__(self, config):
        self.writer = OutputWriter(config=config)
        self.port = WritePort(bus_bytes=config.bus_bytes)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = self.writer
        m.submodules.port = port = self.port
        wiring.connect(m, self.writer.request, port.request)
        wiring.connect(m, self.writer.beats, port.beats)
        m.d.comb += [
            port.limit.eq(1 << 31),
            port.axi.awready.eq(1),
            port.axi.wready.eq(1),
            port.axi.bvalid.eq(1),
        ]
        return m


@pytest.mark.parametrize(("name", "post_lanes"), [("ecp5-85f", 4), ("m256", 8)])
def test_cycles_of_a_short_span(name, post_lanes):
    """Spans of 16 bytes, one for each pixel of a line: 4 cycles each at the write port."""
    count = 40
    config = CONFIGS[name].override(post_lanes=post_lanes)
    dut = _WithPort(config)
    spans = make_spans(0, 16 * count, span=16, gap=48, line=16 * 8, turn=112)
    cycles = []

    async def sends_passes(ctx):
        await send(ctx, dut.writer.i, [{"spans": spans, "index": 0}])

    async def sends_outputs(ctx):
        column = {"data": 0, "count": config.post_lanes}
        await send(ctx, dut.writer.outputs, [column] * (spans["total"] // config.post_lanes))

    async def watches(ctx):
        cycle = 0
        while len(cycles) < count:
            if ctx.get(dut.port.axi.awvalid):
                cycles.append(cycle)
            await ctx.tick()
            cycle += 1

    run(dut, sends_passes, sends_outputs, watches)
    assert {later - cycle for cycle, later in itertools.pairwise(cycles)} == {4}


def test_lines():
    """Two spans of 3 bytes in a line: the turn comes behind the second, forwards or backwards."""
    config = CONFIGS["tiny"]
    passes = [
        make_spans(64, 15, span=3, gap=2, line=6, turn=7),
        make_spans(64, 9, span=3, gap=13, line=6, turn=-17),
    ]
    assert [piece.start for spans in passes for piece in span_addresses(spans)] == [
        *(64, 69, 79, 84, 94),
        *(64, 80, 66),
    ]
    write(config, passes, [1] * 24)


def test_the_last_burst_is_requested_when_the_last_byte_is_there():
    """Nothing waits for bytes that do not come."""
    config = CONFIGS["tiny"]
    write(config, [make_spans(2, 3)], [1, 1, 0, 1])

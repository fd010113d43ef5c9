# amaranth: UnusedElaboratable=no
"""The fetcher requests what there is room for, all of it, and no more."""

import itertools
import random

import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from trirow_hw.config import BURST_BYTES
from trirow_hw.fetcher import Fetcher
from trirow_hw.read_port import ReadPort, ReadRequest
from trirow_sim.stream_kit import StreamRule, run, stalls
from trirow_sim.unit_kit import add_lines, address_beats, make_spans

URGENT = 1 << ReadRequest["urgent"].offset
#: Cycles without a request after which none will come.
QUIET = 12


def random_spans(rng, bus_bytes):
    span = rng.choice([1, 3, bus_bytes, 2 * bus_bytes + 1, 511, 513, rng.randint(1, 700)])
    total = min(2500, rng.choice([1, 2, 5]) * span + rng.randint(0, span))
    spans = {
        "address": 0xE00 + rng.randint(0, 2 * BURST_BYTES),
        "total": total,
        "first": min(total, rng.choice([span, rng.randint(1, 2 * span)])),
        "span": span,
        "gap": rng.choice([0, 0, 1, bus_bytes, rng.randint(0, 600)]),
    }
    return add_lines(rng, spans)


def random_grants(rng, total):
    """Return pieces of room that add up to ``total``."""
    grants = []
    while total:
        grants.append(min(total, rng.choice([1, 2, 7, 30, 200, 512, 3000])))
        total -= grants[-1]
    return grants


class Harness:
    """Grants room and compares what is requested with what may and what must be."""

    def __init__(self, bus_bytes, *, stall=None):
        self.dut = Fetcher(bus_bytes=bus_bytes)
        self.bus_bytes = bus_bytes
        self.granted = 0
        self.requests = []  # address, beats and index of those taken
        self.beats = 0  # including a request that waits
        self.quiet = 0
        self._held = stalls(stall)
        self._rule = StreamRule("request", mask=~URGENT)

    def begin(self, spans):
        self.expected = address_beats(spans, self.bus_bytes)
        self.ends = [0, *itertools.accumulate(count for *_, count in self.expected)]
        self.granted = self.beats = 0
        self.requests = []

    async def cycle(self, ctx, grant=0):
        """Let a cycle pass in which so much room is granted."""
        request, ready = self.dut.request, not next(self._held)
        ctx.set(request.ready, ready)
        ctx.set(self.dut.bursts.ready, 1)
        ctx.set(self.dut.grant, grant)
        _, _, valid, bits = await ctx.tick().sample(request.valid, Value.cast(request.payload))
        ctx.set(self.dut.grant, 0)
        self._rule.check(valid, ready, bits)
        if valid:
            payload = ReadRequest.from_bits(bits)
            beats = self.beats_taken() + payload.beats
            # Room that is granted in this cycle comes too late for it.
            assert self.ends[beats] <= self.granted + self.bus_bytes - 1
            end = payload.address + payload.beats * self.bus_bytes - 1
            assert payload.address // BURST_BYTES == end // BURST_BYTES
            if ready:
                self.requests.append((payload.address, payload.beats, payload.index))
        self.quiet = 0 if valid else self.quiet + 1
        self.granted += grant

    def beats_taken(self):
        return sum(beats for _, beats, _ in self.requests)

    def requested(self):
        """Return the bytes of the spans that have been requested."""
        return self.ends[self.beats_taken()]

    def next_burst(self):
        """Return the bytes up to the end of the burst that comes next, if taken whole."""
        last = self.beats_taken()
        while last + 1 < len(self.expected):
            here, there = self.expected[last], self.expected[last + 1]
            adjacent = here[0] + self.bus_bytes == there[0] and sum(here[1:]) == self.bus_bytes
            if not adjacent or there[1] or there[0] % BURST_BYTES == 0:
                break
            last += 1
        return self.ends[last + 1]

    def check_beats(self):
        """Check that the requests are the beats of the spans, in order."""
        addresses = [
            address + k * self.bus_bytes
            for address, beats, _ in self.requests
            for k in range(beats)
        ]
        assert addresses == [address for address, *_ in self.expected[: len(addresses)]]


async def start(ctx, harness, spans, grant=0):
    """Hand over a sequence of spans."""
    harness.begin(spans)
    ctx.set(harness.dut.i.payload, spans)
    ctx.set(harness.dut.i.valid, 1)
    while not ctx.get(harness.dut.i.ready):
        await harness.cycle(ctx)
    await harness.cycle(ctx, grant)
    ctx.set(harness.dut.i.valid, 0)


@pytest.mark.parametrize("bus_bytes", [2, 4, 8, 64])
@pytest.mark.parametrize("stall", [None, 5])
@pytest.mark.parametrize("starving", [0, 1])
@pytest.mark.parametrize("seed", [1, 2])
def test_requests_follow_the_room(bus_bytes, stall, starving, seed):
    harness = Harness(bus_bytes, stall=stall)
    dut = harness.dut
    rng = random.Random(seed * 100 + bus_bytes)

    async def testbench(ctx):
        ctx.set(dut.starving, starving)
        for index in range(6):
            spans = random_spans(rng, bus_bytes)
            ctx.set(dut.index, index)
            assert ctx.get(dut.done)
            grants = random_grants(rng, spans["total"])
            # Room may be granted in the very cycle in which the spans are taken.
            await start(ctx, harness, spans, grants.pop(0) if rng.random() < 0.5 else 0)
            for grant in grants:
                harness.quiet = 0
                while harness.quiet < QUIET and rng.random() < 0.99:
                    await harness.cycle(ctx)
                if harness.quiet == QUIET and starving:
                    # All that there is room for, to the byte.
                    assert harness.requested() >= harness.granted
                elif harness.quiet == QUIET and harness.requested() < spans["total"]:
                    # All bursts that there is room for.
                    assert harness.next_burst() > harness.granted + bus_bytes - 1
                await harness.cycle(ctx, grant)
            while not ctx.get(dut.done):
                await harness.cycle(ctx)
            harness.check_beats()
            assert harness.requested() == spans["total"]
            assert {which for *_, which in harness.requests} == {index}

    run(dut, testbench, max_cycles=40_000)


@pytest.mark.parametrize("bus_bytes", [4, 16])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_starving_changes_at_any_time(bus_bytes, seed):
    harness = Harness(bus_bytes, stall=seed)
    dut = harness.dut
    rng = random.Random(seed)

    async def testbench(ctx):
        for _ in range(5):
            spans = random_spans(rng, bus_bytes)
            await start(ctx, harness, spans)
            grants = random_grants(rng, spans["total"])
            while not ctx.get(dut.done):
                if rng.random() < 0.1:
                    ctx.set(dut.starving, rng.random() < 0.5)
                grant = grants.pop(0) if grants and rng.random() < 0.1 else 0
                await harness.cycle(ctx, grant)
            harness.check_beats()
            assert harness.requested() == spans["total"]

    run(dut, testbench, max_cycles=40_000)


@pytest.mark.parametrize("bus_bytes", [2, 4, 8])
def test_byte_by_byte(bus_bytes):
    """A starving array gets each byte for which there is room, from every offset of the bus."""
    harness = Harness(bus_bytes)
    dut = harness.dut

    async def testbench(ctx):
        ctx.set(dut.starving, 1)
        for offset in range(bus_bytes):
            total = 3 * bus_bytes + 1
            spans = make_spans(64 + offset, total)
            await start(ctx, harness, spans)
            for granted in range(1, total + 1):
                await harness.cycle(ctx, 1)
                for _ in range(QUIET):
                    await harness.cycle(ctx)
                assert harness.requested() >= granted
            harness.check_beats()

    run(dut, testbench)


def test_nothing_is_requested_without_room():
    harness = Harness(8)
    dut = harness.dut

    async def testbench(ctx):
        spans = make_spans(64, 100)
        await start(ctx, harness, spans)
        for starving in (0, 1):
            ctx.set(dut.starving, starving)
            for _ in range(30):
                await harness.cycle(ctx)
        assert not harness.requests

    run(dut, testbench)


def test_urgent_follows_while_a_request_waits():
    harness = Harness(4)
    dut = harness.dut

    async def testbench(ctx):
        spans = make_spans(64, 4)
        await start(ctx, harness, spans, 4)
        ctx.set(dut.request.ready, 0)
        while not ctx.get(dut.request.valid):
            await ctx.tick()
        for urgent in (0, 1, 0):
            ctx.set(dut.urgent, urgent)
            assert ctx.get(dut.request.payload.urgent) == urgent
            await ctx.tick()

    run(dut, testbench)


def test_cycles_of_a_burst():
    harness = Harness(8)

    async def testbench(ctx):
        total = 8 * BURST_BYTES
        spans = make_spans(0, total)
        await start(ctx, harness, spans, total)
        for _ in range(4 * 8 + 2):
            await harness.cycle(ctx)
        assert len(harness.requests) == 8

    run(harness.dut, testbench)


class _WithPort(wiring.Component):
    """A fetcher alone at a read port, whose memory takes every address and answers at once."""

    def __init__(self, bus_bytes):
        self.fetcher = Fetcher(bus_bytes=bus_bytes)
        self.port = ReadPort(bus_bytes=bus_bytes, clients=1)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetcher = self.fetcher
        m.submodules.port = port = self.port
        wiring.connect(m, self.fetcher.request, port.requests[0])
        m.d.comb += [
            port.limit.eq(1 << 31),
            port.answers[0].ready.eq(1),
            port.axi.arready.eq(1),
            port.axi.rvalid.eq(1),
            port.axi.rlast.eq(1),
        ]
        return m


@pytest.mark.parametrize("bus_bytes", [4, 16, 64])
@pytest.mark.parametrize("offset", [0, 16])
def test_cycles_of_a_short_span(bus_bytes, offset):
    """Spans of 16 bytes, one for each pixel of a line: 4 cycles each, as at the read port."""
    count = 24
    spans = make_spans(offset, 16 * count, span=16, gap=48, line=16 * 8, turn=112)

    def request_cycles(dut, fetcher, valid):
        cycles = []

        async def testbench(ctx):
            if dut is fetcher:
                ctx.set(fetcher.request.ready, 1)
            ctx.set(fetcher.bursts.ready, 1)
            ctx.set(fetcher.i.payload, spans)
            ctx.set(fetcher.i.valid, 1)
            ctx.set(fetcher.grant, spans["total"])
            await ctx.tick()
            ctx.set(fetcher.i.valid, 0)
            ctx.set(fetcher.grant, 0)
            for cycle in range(5 * count):
                if ctx.get(valid):
                    cycles.append(cycle)
                await ctx.tick()

        run(dut, testbench)
        return [later - cycle for cycle, later in itertools.pairwise(cycles)]

    alone = Fetcher(bus_bytes=bus_bytes)
    assert request_cycles(alone, alone, alone.request.valid) == [4] * (count - 1)
    both = _WithPort(bus_bytes)
    assert request_cycles(both, both.fetcher, both.port.axi.arvalid) == [4] * (count - 1)


@pytest.mark.parametrize("room", [(1 << 26) - 128, (1 << 26) + 600])
def test_count_of_the_room_in_the_largest_buffers(room):
    """A whole weight buffer and its constants may be granted while requests wait."""
    harness = Harness(128)
    request = harness.dut.request

    async def testbench(ctx):
        spans = make_spans(0, room)
        await start(ctx, harness, spans)
        ctx.set(request.ready, 0)
        for grant in (1 << 25, room - (1 << 25)):
            ctx.set(harness.dut.grant, grant)
            await ctx.tick()
        ctx.set(harness.dut.grant, 0)
        ctx.set(request.ready, 1)
        requested = 0
        for _ in range(120):
            _, _, valid, beats = await ctx.tick().sample(request.valid, request.payload.beats)
            requested += valid * beats
        assert requested > 100

    run(harness.dut, testbench)


@pytest.mark.parametrize("value", [0, -4, 3, 12, 1024])
def test_wrong_bus_bytes(value):
    text = rf"^bus_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        Fetcher(bus_bytes=value)

# amaranth: UnusedElaboratable=no
"""The wanted bytes, cut out of their beats; which bytes of the beats of a burst are wanted."""

import random

import pytest

from trirow_hw.config import BURST_BYTES
from trirow_hw.unpacker import BeatMarker, Unpacker
from trirow_sim.stream_kit import collect, run, send
from trirow_sim.unit_kit import add_lines, address_beats, make_spans

SIZES = [(2, 2), (4, 3), (4, 4), (8, 3), (8, 8), (4, 16), (16, 4), (64, 8)]


def random_spans(rng, bus_bytes):
    span = rng.choice([1, 2, 3, bus_bytes, 2 * bus_bytes + 1, rng.randint(1, 60)])
    total = min(400, rng.choice([1, 2, 5]) * span + rng.randint(0, span))
    spans = {
        "address": rng.randint(0, 1 << 20),
        "total": total,
        "first": min(total, rng.choice([span, rng.randint(1, 2 * span)])),
        "span": span,
        "gap": rng.choice([0, 0, 1, bus_bytes - 1, bus_bytes, rng.randint(0, 99)]),
    }
    return add_lines(rng, spans)


def beats_of(rng, sequences, bus_bytes):
    """Return the marked beats of sequences of spans, and the bytes of the spans in them."""
    beats, inside = [], bytearray()
    for spans in sequences:
        for _, offset, count in address_beats(spans, bus_bytes):
            beat = rng.randbytes(bus_bytes)
            data = int.from_bytes(beat, "little")
            beats.append({"data": data, "first": offset, "last": offset + count - 1})
            inside += beat[offset : offset + count]
    return beats, bytes(inside)


def unpack(dut, beats, wants, *, i_stall=None, stall=None):
    """Ask for words of the given lengths; return their bytes and the cycles simulated."""
    taken = bytearray()

    async def beats_sender(ctx):
        await send(ctx, dut.i, beats, i_stall)

    async def asker(ctx):
        asked = [{"bytes": want, "tag": k % 256} for k, want in enumerate(wants)]
        await send(ctx, dut.want, asked, stall)

    async def taker(ctx):
        for number, want in enumerate(wants):
            *_, word, tag = await ctx.tick().sample(dut.data, dut.tag).until(dut.valid)
            assert tag == number % 256
            taken.extend((word & ((1 << 8 * want) - 1)).to_bytes(want, "little"))
        await ctx.tick()
        assert not ctx.get(dut.valid), "more words than were asked for"

    cycles = run(dut, beats_sender, asker, taker, max_cycles=20_000)
    return bytes(taken), cycles


def random_wants(rng, total, word_bytes):
    wants = []
    while total:
        wants.append(min(total, rng.choice([1, word_bytes, rng.randint(1, word_bytes)])))
        total -= wants[-1]
    return wants


@pytest.mark.parametrize(("bus_bytes", "word_bytes"), SIZES)
@pytest.mark.parametrize(("i_stall", "stall"), [(None, None), (2, None), (None, 3), (5, 6)])
def test_random_spans_and_words(bus_bytes, word_bytes, i_stall, stall):
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=word_bytes, tag=8)
    rng = random.Random(bus_bytes * 100 + word_bytes)
    sequences = [random_spans(rng, bus_bytes) for _ in range(8)]
    beats, expected = beats_of(rng, sequences, bus_bytes)
    wants = random_wants(rng, len(expected), word_bytes)
    taken, _ = unpack(dut, beats, wants, i_stall=i_stall, stall=stall)
    assert taken == expected


@pytest.mark.parametrize(("bus_bytes", "word_bytes"), [(2, 3), (4, 4), (8, 3)])
def test_every_first_and_last_byte_of_the_bus(bus_bytes, word_bytes):
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=word_bytes, tag=8)
    rng = random.Random(1)
    sequences = [
        make_spans(offset, 3 * length, span=length, gap=gap, line=2 * length, turn=turn)
        for offset in range(bus_bytes)
        for length in range(1, 2 * bus_bytes + 1)
        for gap, turn in ((0, 1), (1, 0), (1, -1))
    ]
    beats, expected = beats_of(rng, sequences, bus_bytes)
    wants = random_wants(rng, len(expected), word_bytes)
    taken, _ = unpack(dut, beats, wants)
    assert taken == expected


@pytest.mark.parametrize(("bus_bytes", "word_bytes"), SIZES)
@pytest.mark.parametrize("offset", [0, 1])
def test_throughput(bus_bytes, word_bytes, offset):
    """A beat and a word a cycle, whichever is the shorter."""
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=word_bytes, tag=8)
    total = 60 * word_bytes
    spans = make_spans(offset, total)
    beats, expected = beats_of(random.Random(1), [spans], bus_bytes)
    taken, cycles = unpack(dut, beats, [word_bytes] * 60)
    assert taken == expected
    assert cycles <= max(60, len(beats)) + 14


@pytest.mark.parametrize(("bus_bytes", "spans"), [(4, 60), (16, 60)])
@pytest.mark.parametrize("line", [1, 2, 7])
def test_throughput_of_short_spans(bus_bytes, spans, line):
    """A beat a cycle where every beat is a span, and some or all of them end lines."""
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=bus_bytes, tag=8)
    sequence = make_spans(
        0,
        spans * bus_bytes,
        span=bus_bytes,
        gap=3 * bus_bytes,
        line=line * bus_bytes,
        turn=9 * bus_bytes,
    )
    beats, expected = beats_of(random.Random(1), [sequence], bus_bytes)
    assert len(beats) == spans
    taken, cycles = unpack(dut, beats, [bus_bytes] * spans)
    assert taken == expected
    assert cycles <= spans + 10


@pytest.mark.parametrize(("bus_bytes", "word_bytes"), [*SIZES, (16, 3), (32, 4), (128, 2)])
@pytest.mark.parametrize("span", [1, 2, 3, 5])
def test_bytes_of_less_than_a_beat_never_wait(bus_bytes, word_bytes, span):
    """Beats that hold up to ``bus_bytes - 1`` bytes together are taken, even if no word is.

    A fetcher may ask for as many bytes beyond the room that was granted.
    """
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=word_bytes)
    total = bus_bytes - 1
    span = min(span, total)
    spans = make_spans(0, total, span=span, gap=bus_bytes, line=2 * span, turn=2 * bus_bytes)
    beats, _ = beats_of(random.Random(1), [spans], bus_bytes)

    async def beats_sender(ctx):
        await send(ctx, dut.i, beats)

    run(dut, beats_sender, max_cycles=len(beats) + 1)


@pytest.mark.parametrize(("bus_bytes", "word_bytes"), SIZES)
def test_whole_beats_wait_at_last(bus_bytes, word_bytes):
    """No more than ``most_beats`` are taken while no word is, and hardly less."""
    dut = Unpacker(bus_bytes=bus_bytes, word_bytes=word_bytes, tag=8)
    total = (dut.most_beats + 2) * bus_bytes
    beats, _ = beats_of(random.Random(1), [make_spans(0, total)], bus_bytes)
    taken = 0

    async def counts(ctx):
        nonlocal taken
        ctx.set(dut.i.valid, 1)
        for _ in range(2 * dut.most_beats + 20):
            ctx.set(dut.i.payload, beats[min(taken, len(beats) - 1)])
            taken += ctx.get(dut.i.ready)
            await ctx.tick()

    run(dut, counts)
    assert dut.most_beats - 2 <= taken <= dut.most_beats


def random_bursts(rng, bus_bytes, count):
    """Return bursts, and for each of their beats the first and the last wanted byte."""
    bursts, marks = [], []
    for _ in range(count):
        beats = rng.choice([1, 1, 2, 3, rng.randint(1, BURST_BYTES // bus_bytes)])
        first, last = sorted(rng.choices(range(bus_bytes), k=2))
        if beats > 1 and rng.random() < 0.5:
            first, last = last, first
        bursts.append({"first": first, "last": last, "beats": beats})
        ends = [bus_bytes - 1] * (beats - 1)
        marks += zip([first] + [0] * (beats - 1), [*ends, last], strict=True)
    return bursts, marks


@pytest.mark.parametrize("bus_bytes", [2, 8, 64])
@pytest.mark.parametrize("stall_seeds", [(None, None, None), (1, 2, 3)])
def test_marks(bus_bytes, stall_seeds):
    dut = BeatMarker(bus_bytes=bus_bytes)
    rng = random.Random(bus_bytes)
    bursts, marks = random_bursts(rng, bus_bytes, 40)
    beats = [rng.getrandbits(8 * bus_bytes) for _ in marks]
    bursts_stall, i_stall, o_stall = stall_seeds

    async def bursts_sender(ctx):
        await send(ctx, dut.bursts, bursts, bursts_stall)

    async def beats_sender(ctx):
        await send(ctx, dut.i, beats, i_stall)

    async def taker(ctx):
        marked = await collect(ctx, dut.o, len(beats), o_stall)
        for beat, (first, last), got in zip(beats, marks, marked, strict=True):
            assert (got["data"], got["first"], got["last"]) == (beat, first, last)

    cycles = run(dut, bursts_sender, beats_sender, taker, max_cycles=20_000)
    if stall_seeds == (None, None, None):
        assert cycles <= len(beats) + 5


@pytest.mark.parametrize("value", [0, -4, 3, 12, 1024])
def test_wrong_bus_bytes(value):
    text = rf"^bus_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        Unpacker(bus_bytes=value, word_bytes=4)


@pytest.mark.parametrize("value", [0, -1])
def test_wrong_word_bytes(value):
    with pytest.raises(ValueError, match=rf"^word_bytes must be at least 1, not {value}$"):
        Unpacker(bus_bytes=4, word_bytes=value)

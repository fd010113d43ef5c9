# amaranth: UnusedElaboratable=no
"""Bursts that cover spans, against a model that counts bytes."""

import itertools
import random

import pytest

from trirow_hw.config import BURST_BYTES
from trirow_hw.spans import BurstSplitter
from trirow_sim.stream_kit import run, send, stalls
from trirow_sim.unit_kit import add_lines, make_spans, span_addresses

WIDTHS = [2, 4, 8, 16, 64, 128]


def random_spans(rng, bus_bytes):
    span = rng.choice([1, 2, 3, bus_bytes, 2 * bus_bytes + 1, 511, 512, 513, rng.randint(1, 900)])
    total = min(4000, rng.choice([1, 2, 5, 9]) * span + rng.randint(0, span))
    spans = {
        "address": rng.choice([0, 0xF00, 0x1FFC0]) + rng.randint(0, 2 * BURST_BYTES),
        "total": total,
        "first": min(total, rng.choice([span, rng.randint(1, 2 * span)])),
        "span": span,
        "gap": rng.choice([0, 1, bus_bytes - 1, bus_bytes, rng.randint(0, 600)]),
    }
    return add_lines(rng, spans)


def expected_bursts(sequences, bus_bytes, tail_bytes):
    """Return address, beats, bytes and last of all bursts, if all are taken whole."""
    bursts = []
    for spans in sequences:
        left = spans["total"]
        for piece in span_addresses(spans):
            address, length = piece.start, len(piece)
            while length:
                size = BURST_BYTES
                if tail_bytes and left <= BURST_BYTES:
                    size = max(tail_bytes, bus_bytes)
                count = min(length, size - address % size)
                beats = -(-(address % bus_bytes + count) // bus_bytes)
                left -= count
                bursts.append((address, beats, count, left == 0))
                address, length = address + count, length - count
    return bursts


def split(dut, sequences, count, *, i_stall=None, stall=None, partial=None, bus_bytes=4):
    """Take bursts until the last of so many sequences; return those taken, and their cycles.

    ``partial``: seed of how many of the beats are taken.
    """
    rng = None if partial is None else random.Random(partial)
    taken, cycles = [], []

    async def sender(ctx):
        await send(ctx, dut.i, sequences, i_stall)

    async def taker(ctx):
        held, waits, left = stalls(stall), None, count
        offer = ctx.tick().sample(dut.valid, dut.address, dut.beats, dut.bytes)
        cycle = 0
        while left:
            # `valid` is a register's output, and so are the others: they show before the edge.
            valid, take = ctx.get(dut.valid), False
            now = tuple(ctx.get(x) for x in (dut.address, dut.beats, dut.bytes))
            if waits is not None:
                assert valid, "the offer was dropped"
                assert now == waits
            last = 0
            if valid and not next(held):
                take = True
                address, beats, amount = now
                if rng and beats > 1 and rng.random() < 0.6:
                    beats = rng.randint(1, beats - 1)
                    amount = beats * bus_bytes - address % bus_bytes
                ctx.set(dut.take_beats, beats)
                ctx.set(dut.take_bytes, amount)
                ctx.set(dut.take_part, amount != now[2])
                ctx.set(dut.take, 1)
                last = ctx.get(dut.last)
                taken.append((address, beats, amount, bool(last)))
                cycles.append(cycle)
            await offer
            ctx.set(dut.take, 0)
            waits = now if valid and not take else None
            left -= last
            cycle += 1

    run(dut, sender, taker, max_cycles=40_000)
    return taken, cycles


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("tail_bytes", [None, 32, 128])
@pytest.mark.parametrize(("i_stall", "stall"), [(None, None), (1, 2)])
def test_random_spans(bus_bytes, tail_bytes, i_stall, stall):
    dut = BurstSplitter(bus_bytes=bus_bytes, tail_bytes=tail_bytes)
    rng = random.Random(bus_bytes + (i_stall or 0))
    sequences = [random_spans(rng, bus_bytes) for _ in range(12)]
    taken, _ = split(dut, sequences, 12, i_stall=i_stall, stall=stall)
    assert taken == expected_bursts(sequences, bus_bytes, tail_bytes)
    for address, beats, _, _ in taken:
        start = address // bus_bytes * bus_bytes
        assert start // BURST_BYTES == (start + beats * bus_bytes - 1) // BURST_BYTES
        assert beats * bus_bytes <= BURST_BYTES


@pytest.mark.parametrize("bus_bytes", [2, 4, 8])
def test_every_first_and_last_byte_of_the_bus(bus_bytes):
    dut = BurstSplitter(bus_bytes=bus_bytes)
    sequences = [
        make_spans(base + offset, total)
        for base, offset in itertools.product((64, BURST_BYTES - bus_bytes), range(bus_bytes))
        for total in range(1, 2 * bus_bytes + 2)
    ]
    taken, _ = split(dut, sequences, len(sequences))
    assert taken == expected_bursts(sequences, bus_bytes, None)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_partial_takes(bus_bytes, seed):
    """What is not taken is offered again; together it is the spans, byte for byte."""
    dut = BurstSplitter(bus_bytes=bus_bytes)
    rng = random.Random(seed)
    sequences = [random_spans(rng, bus_bytes) for _ in range(8)]
    taken, _ = split(dut, sequences, 8, stall=seed, partial=seed, bus_bytes=bus_bytes)
    ends = iter([k for k, (*_, last) in enumerate(taken) if last])
    start = 0
    for spans in sequences:
        end = next(ends) + 1
        covered = [
            byte
            for address, beats, amount, _ in taken[start:end]
            for byte in range(address, address + amount)
        ]
        assert covered == list(itertools.chain(*span_addresses(spans)))
        for address, beats, amount, _ in taken[start:end]:
            assert beats == -(-(address % bus_bytes + amount) // bus_bytes)
            assert address // BURST_BYTES == (address + amount - 1) // BURST_BYTES
        start = end
    assert start == len(taken)


def test_cycles_of_a_burst():
    """3, whether a span or a line ends there or not."""
    dut = BurstSplitter(bus_bytes=4)
    spans = make_spans(2, 4000, span=1000, gap=24, line=2000, turn=30)
    taken, cycles = split(dut, [spans], 1)
    assert len(taken) == 8
    assert [after - before for before, after in itertools.pairwise(cycles)] == [3] * (
        len(taken) - 1
    )


def test_lines():
    """Two spans of 6 bytes in a line: the turn comes behind the second, forwards or backwards."""
    dut = BurstSplitter(bus_bytes=8)
    forwards = make_spans(64, 30, span=6, gap=4, line=12, turn=100)
    backwards = make_spans(64, 15, span=6, gap=4, line=12, turn=-16)
    taken, _ = split(dut, [forwards, backwards], 2)
    assert [(address, count) for address, _, count, _ in taken] == [
        (64, 6),
        (74, 6),
        (180, 6),
        (190, 6),
        (296, 6),
        (64, 6),
        (74, 6),
        (64, 3),
    ]


def test_a_sequence_begins_a_line():
    """What is left of a line is forgotten with its sequence."""
    dut = BurstSplitter(bus_bytes=4)
    sequences = [
        make_spans(0x100, 8 * n, span=8, gap=8, line=24, turn=0x100) for n in (1, 2, 3, 4, 5, 7)
    ]
    sequences += [make_spans(0x2000, 5), make_spans(0x3000, 18, first=2, span=8, gap=9)]
    taken, _ = split(dut, sequences, len(sequences), i_stall=4)
    assert taken == expected_bursts(sequences, 4, None)


def test_a_turn_wraps():
    """From the lowest addresses to the highest, and back."""
    dut = BurstSplitter(bus_bytes=8)
    spans = make_spans(16, 64, span=16, line=16, turn=-0x420)
    taken, _ = split(dut, [spans], 1)
    assert [address for address, *_ in taken] == [0x10, 0xFFFF_FC00, 0xFFFF_F7F0, 0xFFFF_F3E0]
    spans = make_spans(0xFFFF_FF00, 64, span=32, line=32, turn=0x1E0)
    taken, _ = split(dut, [spans], 1)
    assert [address for address, *_ in taken] == [0xFFFF_FF00, 0x100]


def test_address_ends_at_the_top():
    dut = BurstSplitter(bus_bytes=8)
    spans = make_spans((1 << 32) - 600, 600)
    taken, _ = split(dut, [spans], 1)
    assert taken == expected_bursts([spans], 8, None)


@pytest.mark.parametrize("bus_bytes", [4, 64])
def test_spans_of_a_large_feature_map(bus_bytes):
    """Numbers above 16 bits: the spans of a strip of a large map."""
    dut = BurstSplitter(bus_bytes=bus_bytes)
    spans = make_spans(
        0x8123_4567, 5 * 70_001, span=70_001, gap=0x12_3456, line=2 * 70_001, turn=-0x112_3456
    )
    taken, _ = split(dut, [spans], 1)
    assert taken == expected_bursts([spans], bus_bytes, None)


@pytest.mark.parametrize("value", [0, -4, 3, 12, 1024])
def test_wrong_bus_bytes(value):
    text = rf"^bus_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        BurstSplitter(bus_bytes=value)


@pytest.mark.parametrize("value", [0, 100, 1024])
def test_wrong_tail_bytes(value):
    text = rf"^tail_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        BurstSplitter(bus_bytes=4, tail_bytes=value)

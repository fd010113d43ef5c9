# amaranth: UnusedElaboratable=no
"""The bridge at its pins, against frames that are built from the document."""

import random
import struct

import pytest

from trirow_hw.bridge.bridge import HostBridge
from trirow_sim.bridge_model import Answer, answer_frame, request_frame

READ, WRITE, REGISTER_READ, REGISTER_WRITE, IDENTIFY = range(5)
OKAY, SLVERR, DECERR, SEQUENCE, BAD_REQUEST = 0, 2, 3, 4, 5
#: Longer than the bench's silence.
SILENCE = 3000.0


def identify(sequence=0):
    return request_frame(IDENTIFY, sequence)


def test_identify(bench):
    (answer,) = bench().exchange(request_frame(IDENTIFY, 200, round=9), answers=1)
    identity = struct.pack("<BBBHHI", 1, 4, 16, 512, 2048, 24_000_000)
    assert answer == Answer(IDENTIFY, 9, 200, OKAY, 201, identity)


@pytest.mark.parametrize(("bus_bytes", "seed"), [(2, 1), (8, None), (16, 2)])
def test_memory_and_registers(bench, bus_bytes, seed):
    b = bench(bus_bytes=bus_bytes, seed=seed)
    data = random.Random(seed).randbytes(37)
    answers = b.exchange(
        identify(254),
        request_frame(WRITE, 255, address=0x11F3, data=data),
        request_frame(READ, 0, address=0x11F2, length=39),
        request_frame(REGISTER_WRITE, 1, address=0x14, data=b"\x78\x56\x34\x12"),
        request_frame(REGISTER_READ, 2, address=0x14, length=4),
        answers=5,
    )
    assert answers[1:] == [
        Answer(WRITE, 0, 255, OKAY, 0, b""),
        Answer(READ, 0, 0, OKAY, 1, b"\0" + data + b"\0"),
        Answer(REGISTER_WRITE, 0, 1, OKAY, 2, b""),
        Answer(REGISTER_READ, 0, 2, OKAY, 3, b"\x78\x56\x34\x12"),
    ]
    assert b.registers.writes == [(0x14, 0x12345678)]
    # Nothing but answers has come.
    assert bytes(b.pins.received) == b"".join(map(answer_frame, answers))


def test_bus_errors_are_told_also_to_a_repetition(bench):
    b = bench()
    write = request_frame(WRITE, 1, address=0x100, data=b"12345")
    answers = b.exchange(
        identify(),
        write,
        request_frame(READ, 2, address=0xFFFC, length=1),
        request_frame(REGISTER_WRITE, 3, address=0x50, data=bytes(4)),
        request_frame(WRITE, 4, address=0x1000, data=b"1"),
        write,
        answers=6,
    )
    assert [answer.status for answer in answers] == [OKAY, DECERR, OKAY, SLVERR, OKAY, DECERR]
    assert b.port.writes == [(0x100, 2), (0x1000, 1)]  # the repetition wrote nothing


def test_a_repeated_write_is_not_executed_again_but_a_repeated_read_is(bench):
    b = bench()
    start = request_frame(REGISTER_WRITE, 1, address=0x10, data=b"\1\0\0\0")
    read = request_frame(REGISTER_READ, 2, address=0x10, length=4)
    answers = b.exchange(
        identify(), start, start, read, start, read, request_frame(READ, 3, length=0), answers=7
    )
    assert [answer.status for answer in answers] == [OKAY] * 7
    assert [answer.expected for answer in answers] == [1, 2, 2, 3, 3, 3, 4]
    assert b.registers.writes == [(0x10, 1)]


def test_a_gap_stops_execution(bench):
    b = bench()

    def write(sequence):
        return request_frame(WRITE, sequence, address=0x1000 + sequence, data=bytes((sequence,)))

    answers = b.exchange(
        identify(), write(1), write(3), write(4), write(2), write(3), write(20), answers=7
    )
    expected = [(0, 0, 1), (1, 0, 2), (3, 4, 2), (4, 4, 2), (2, 0, 3), (3, 0, 4), (20, 4, 4)]
    assert [(a.sequence, a.status, a.expected) for a in answers] == expected
    assert [address for address, _, _ in b.port.written] == [0x1000, 0x1000, 0x1000]
    assert b.memory.read(0x1000, 5) == b"\0\1\2\3\0"


def test_the_window_of_repetitions_is_16(bench):
    b = bench()
    answers = b.exchange(
        identify(20),
        request_frame(READ, 5, length=0),
        request_frame(READ, 4, length=0),
        request_frame(READ, 21, length=0),
        answers=4,
    )
    assert [answer.status for answer in answers] == [OKAY, OKAY, SEQUENCE, OKAY]


@pytest.mark.parametrize(
    "wrong",
    [
        request_frame(7, 1, data=b"123"),
        request_frame(8, 1, length=9),
        request_frame(REGISTER_READ, 1, address=0x12, length=4),
        request_frame(REGISTER_READ, 1, address=0x110, length=4),
        request_frame(REGISTER_WRITE, 1, address=0x10, data=b"123"),
    ],
    ids=["kind-with-data", "kind", "unaligned", "address", "length"],
)
def test_requests_that_do_not_exist_are_refused(bench, wrong):
    b = bench()
    answers = b.exchange(identify(), wrong, request_frame(READ, 2, length=0), answers=3)
    assert [answer.status for answer in answers] == [OKAY, BAD_REQUEST, OKAY]
    assert b.registers.writes == []


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_frame_does_nothing_and_the_next_after_silence_is_right(bench, seed):
    """Flip, lose or double a byte of a frame in turn; or cut the frame off."""
    rng = random.Random(seed)
    b = bench()
    items = [identify(), SILENCE]
    for kind in ("flip", "drop", "double", "cut", "stop"):
        frame = bytearray(request_frame(WRITE, 1, address=0x1000, data=rng.randbytes(9)))
        place = rng.randrange(1, len(frame) - 1)
        while kind in ("drop", "double") and frame[place] == frame[place + 1]:
            place = rng.randrange(1, len(frame) - 1)
        if kind == "flip":
            frame[place] ^= 1 << rng.randrange(8)
        elif kind == "drop":
            del frame[place]
        elif kind == "double":
            frame.insert(place, frame[place])
        elif kind == "cut":
            del frame[place:]
        if kind == "stop":
            items += [bytes(frame[:place]), None, bytes(frame[place + 1 :]), SILENCE]
        else:
            items += [bytes(frame), SILENCE]
    garbage = rng.randbytes(20).replace(b"\x5a", b"\0")
    items += [garbage, request_frame(WRITE, 1, address=0x1001, data=b"right")]
    answers = b.exchange(*items, answers=2)
    assert answers == [answers[0], Answer(WRITE, 0, 1, OKAY, 2, b"")]
    assert b.memory.read(0x1000, 16) == b"\0right".ljust(16, b"\0")
    assert len(b.port.writes) == 1


def test_a_frame_with_a_wrong_length_does_not_swallow_the_next(bench):
    b = bench()
    frame = bytearray(request_frame(WRITE, 1, address=0x1000, data=b"12345"))
    frame[4] = 1  # 261 bytes
    right = request_frame(WRITE, 1, address=0x1000, data=b"54321")
    answers = b.exchange(identify(), bytes(frame), right, answers=2)
    assert [answer.status for answer in answers] == [OKAY, OKAY]
    assert b.memory.read(0x1000, 5) == b"54321"


def test_a_length_that_is_too_great_is_ignored(bench):
    b = bench()
    long = request_frame(READ, 1, address=0x1000, length=513)
    answers = b.exchange(identify(), long, request_frame(READ, 1, length=0), answers=2)
    assert [answer.sequence for answer in answers] == [0, 1]


def test_active_follows_the_line(bench):
    b = bench()
    seen = [0]

    async def watch(ctx):
        assert not ctx.get(b.dut.active)
        while True:
            await ctx.edge(b.dut.active, 1 - seen[-1])
            seen.append(1 - seen[-1])

    b.background.append(watch)
    b.exchange(identify(), SILENCE, answers=1)
    assert seen == [0, 1, 0]


def test_wrong_silence():
    with pytest.raises(ValueError, match=r"silence must be at least 6.66667e-05 s, not 1e-06"):
        HostBridge(bus_bytes=4, clock_hz=100_000_000, silence=1e-6)

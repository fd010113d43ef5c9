# amaranth: UnusedElaboratable=no
import random

import pytest

from trirow_hw.bridge.frame_receiver import FrameReceiver
from trirow_sim.bridge_model import request_frame
from trirow_sim.stream_kit import run

#: Cycles between two bytes, the fewest that are allowed.
GAP = 10


def receive(data, *, full_at=None, silent_at=None):
    """Give bytes to a receiver; return what was committed, as a list of frames without checks."""
    dut = FrameReceiver()
    frames, pending = [], bytearray()

    async def testbench(ctx):
        for index, byte in enumerate(data):
            ctx.set(dut.byte, byte)
            ctx.set(dut.valid, 1)
            ctx.set(dut.full, index == full_at)
            _, _, push, commit, discard = await ctx.tick().sample(dut.push, dut.commit, dut.discard)
            assert not (commit and discard)
            if push:
                pending.append(byte)
            if commit:
                frames.append(bytes(pending))
            if commit or discard:
                pending.clear()
            ctx.set(dut.valid, 0)
            ctx.set(dut.silent, index == silent_at)
            _, _, discard = await ctx.tick().sample(dut.discard)
            if discard:
                pending.clear()
            ctx.set(dut.silent, 0)
            await ctx.tick().repeat(GAP - 2)

    run(dut, testbench, max_cycles=GAP * len(data) + 10)
    return frames


def content(frame):
    """Return header and data of a frame: all but the first byte and the checks."""
    return frame[1:9] + frame[11:-4]


FRAMES = [
    request_frame(1, 5, round=3, address=0x12345678, data=b"\x5a\x5a\xa5"),
    request_frame(0, 6, address=0x5A5A5A5A, length=512),
    request_frame(4, 0x5A),
    request_frame(1, 7),
]


def test_frames_behind_each_other():
    assert receive(b"".join(FRAMES)) == [content(frame) for frame in FRAMES]


@pytest.mark.parametrize("seed", range(3))
def test_every_flipped_bit_is_found(seed):
    rng = random.Random(seed)
    frame = FRAMES[0]
    damaged = []
    for place in range(len(frame)):
        wrong = bytearray(frame)
        wrong[place] ^= 1 << rng.randrange(8)
        # What follows is long enough for the frame to end, however long it says that it is.
        damaged += [bytes(wrong), bytes(15)]
    assert receive(b"".join(damaged) + FRAMES[1]) == [content(FRAMES[1])]


def test_a_frame_without_room_is_dropped():
    frame = request_frame(1, 5, address=0x12345678, data=b"\1\2\3")
    assert frame.count(b"\x5a") == 1  # else the rest of it could be taken for another one
    for place in (1, 8, 11, 13):
        assert receive(frame + FRAMES[1], full_at=place) == [content(FRAMES[1])]


def test_silence_ends_a_frame():
    for place in range(len(FRAMES[0]) - 1):
        cut = FRAMES[0][: place + 1]
        assert receive(cut + FRAMES[1], silent_at=place) == [content(FRAMES[1])]


@pytest.mark.parametrize("kind", [0, 1])
def test_lengths_beyond_512_are_dropped_with_the_header(kind):
    for length in (513, 1024, 0xFFFF):
        long = request_frame(kind, 1, length=length)
        assert receive(long[:11] + FRAMES[2]) == [content(FRAMES[2])]

"""Frames, and the link over a line in memory that does what the test says."""

import random

import pytest

from trirow_driver.device.device import DeviceError
from trirow_driver.device.frames import Answer, AnswerParser, Identity, Request
from trirow_driver.device.link import Link
from trirow_hw.bridge.protocol import Kind, identity
from trirow_sim import bridge_model
from trirow_sim.bridge_model import BridgeModel, Noise, answer_frame, request_frame
from trirow_sim.memory import Memory


def test_request_is_the_documents_frame():
    data = bytes(range(40))
    frame = Request(Kind.WRITE, 0xFEDC1234, 40, data).frame(200, 11)
    assert frame == request_frame(1, 200, round=11, address=0xFEDC1234, data=data)
    frame = Request(Kind.READ, 0x1000, 512).frame(0, 0)
    assert frame == request_frame(0, 0, address=0x1000, length=512)


@pytest.mark.parametrize("seed", range(5))
def test_parser_finds_answers_between_anything(seed):
    rng = random.Random(seed)
    answers, received = [], b""
    for _ in range(20):
        numbers = [rng.randrange(16), rng.randrange(16)] + [rng.randrange(256) for _ in range(3)]
        answer = bridge_model.Answer(*numbers, rng.randbytes(rng.choice((0, 4, 11, 200))))
        answers.append(Answer(*answer))
        frame = answer_frame(answer)
        # Garbage that looks like the begin of a frame, and a frame that is cut off.
        received += rng.choice((b"", b"\xa5", b"\xa5\xa5\0", frame[: rng.randrange(len(frame))]))
        received += frame
    found, parser = [], AnswerParser()
    received += bytes(600)  # what was cut off has an end
    while received:
        count = rng.randint(1, 70)
        found += parser.feed(received[:count])
        received = received[count:]
    assert found == answers


def test_identity_is_what_the_board_sends():
    data = identity(bus_bytes=16, clock_hz=80_000_000)
    assert Identity.parse(data) == Identity(1, 16, 16, 512, 2048, 80_000_000)
    with pytest.raises(ValueError, match="speaks protocol 9, not 1"):
        Identity.parse(b"\x09" + data[1:])


class ModelLine:
    """A line to a model; frames can be lost on purpose, and counts what was under way."""

    name = "line"

    def __init__(self, model, *, lose_requests=(), lose_answers=(), noise=None):
        self.model = model
        self.lose_requests = {*lose_requests}
        self.lose_answers = {*lose_answers}
        self.noise = noise
        self.sent = 0
        self.waiting = []
        self.most_waiting = 0

    def send(self, data):
        number = self.sent
        self.sent += 1
        if number in self.lose_requests:
            return
        if self.noise is not None:
            data = self.noise.through(data)
        answer = self.model.feed(data)
        if number not in self.lose_answers:
            self.waiting.append(answer if self.noise is None else self.noise.through(answer))
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def receive(self, seconds):
        if self.waiting:
            return self.waiting.pop(0)
        self.model.silence()
        return b""


def make(**line):
    memory = Memory(1 << 16)
    model = BridgeModel(memory, {})
    return Link(ModelLine(model, **line), timeout=0.001), memory, model


def writes(count):
    return [Request(Kind.WRITE, 4 * n, 4, n.to_bytes(4, "big")) for n in range(count)]


def test_the_window_is_used():
    link, memory, _ = make()
    assert list(link.execute(writes(100))) == [b""] * 100
    assert link._line.most_waiting == 16
    assert link.repeated == 0
    assert memory.read(0, 400) == b"".join(n.to_bytes(4, "big") for n in range(100))


@pytest.mark.parametrize("lost", ["lose_requests", "lose_answers"])
@pytest.mark.parametrize("which", [(0,), (1,), (5,), (40,), (3, 4, 5), range(10, 30), (0, 1, 2, 3)])
def test_lost_frames_are_repeated_and_executed_once(lost, which):
    link, _, model = make(**{lost: which})
    assert list(link.execute(writes(40))) == [b""] * 40
    assert [address for _, address, _ in model.executed] == [4 * n for n in range(40)]


@pytest.mark.parametrize("seed", range(20))
def test_noise_changes_nothing_but_the_time(seed):
    link, _, model = make(noise=Noise(seed, 0.003))
    assert list(link.execute(writes(200))) == [b""] * 200
    assert [address for _, address, _ in model.executed] == [4 * n for n in range(200)]
    reads = [Request(Kind.READ, 4 * n, 4) for n in range(200)]
    assert list(link.execute(reads)) == [n.to_bytes(4, "big") for n in range(200)]
    assert link.repeated > 0


def test_a_failure_ends_the_call_but_not_the_link():
    link, _, model = make()
    requests = [*writes(3), Request(Kind.WRITE, 1 << 20, 4, b"1234"), *writes(50)]
    text = "line: write of 4 bytes at 0x100000 failed: DECERR .*; check the address"
    with pytest.raises(DeviceError, match=text):
        list(link.execute(requests))
    assert len(model.executed) < 30  # those behind were not sent, but for the window
    assert list(link.execute([Request(Kind.READ, 4, 4)])) == [b"\0\0\0\1"]


def test_a_call_that_was_left_does_not_harm_the_next():
    link, _, _ = make()
    next(link.execute(writes(30)))
    assert list(link.execute([Request(Kind.READ, 8, 4)])) == [b"\0\0\0\2"]


def test_a_reset_board_is_noticed():
    link, _, model = make()
    list(link.execute(writes(3)))
    model._expected = (model._expected + 100) % 256
    with pytest.raises(DeviceError, match=r"line: the board was reset, .*; open it again"):
        list(link.execute(writes(1)))


def test_no_answer():
    link, _, _ = make(lose_requests=range(20, 1000))
    with pytest.raises(DeviceError, match="line: the board does not answer; check port"):
        list(link.execute(writes(40)))
    assert link._line.sent < 20 + 16 * 11


def test_another_protocol():
    model = BridgeModel(Memory(16), {}, version=3)
    text = "line: the board speaks protocol 3, not 1; load a bitstream"
    with pytest.raises(DeviceError, match=text):
        Link(ModelLine(model), timeout=0.001)


def test_wrong_timeout():
    with pytest.raises(ValueError, match="timeout must be greater than 0, not 0"):
        Link(ModelLine(BridgeModel(Memory(16), {})), timeout=0)

"""The host bridge of a board in Python, on a pseudo-terminal, with a line that loses bytes.

It is written from ``docs/host-link.md`` and shares no code with gateware and driver, so that each
of them is tested against it.
"""

from __future__ import annotations

import os
import random
import select
import struct
import threading
import tty
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from trirow_sim.memory.storage import Memory

__all__ = [
    "Answer",
    "BridgeModel",
    "Noise",
    "answer_frame",
    "find_answers",
    "on_terminal",
    "request_frame",
]

READ, WRITE, REGISTER_READ, REGISTER_WRITE, IDENTIFY = range(5)
OKAY, SLVERR, DECERR, SEQUENCE, BAD_REQUEST = 0, 2, 3, 4, 5
_MOST = 512
_WINDOW = 16


class Answer(NamedTuple):
    """An answer of the board."""

    kind: int
    round: int
    sequence: int
    status: int
    expected: int
    data: bytes


def request_frame(
    kind: int,
    sequence: int,
    *,
    round: int = 0,
    address: int = 0,
    length: int = 0,
    data: bytes = b"",
) -> bytes:
    """Return a request as the host sends it; the length of ``data`` counts if there are some."""
    header = struct.pack("<BBHI", kind | round << 4, sequence, len(data) or length, address)
    return b"\x5a" + _checked(header, data)


def answer_frame(answer: Answer) -> bytes:
    """Return an answer as the board sends it."""
    kind = answer.kind | answer.round << 4
    header = struct.pack(
        "<BBHBB", kind, answer.sequence, len(answer.data), answer.status, answer.expected
    )
    return b"\xa5" + _checked(header, answer.data)


def _checked(header: bytes, data: bytes) -> bytes:
    check = struct.pack("<H", zlib.crc32(header) % 65536)
    return header + check + data + struct.pack("<I", zlib.crc32(header + data))


def find_answers(received: bytes) -> list[Answer]:
    """Return all right answers in what came from a board, wherever they begin."""
    answers = []
    place = 0
    while (place := received.find(b"\xa5", place)) >= 0:
        if len(received) < place + 13:
            break
        kind, sequence, length, status, expected = struct.unpack_from("<BBHBB", received, place + 1)
        data = received[place + 9 : place + 9 + length]
        answer = Answer(kind & 15, kind >> 4, sequence, status, expected, data)
        frame = answer_frame(answer)
        if received[place : place + len(frame)] == frame:
            answers.append(answer)
            place += len(frame)
        else:
            place += 1
    return answers


class BridgeModel:
    """What the gateware does with the bytes that come to it.

    Parameters
    ----------
    memory : Memory
        An access beyond it is answered with DECERR.
    registers : dict
        Values by offset. Reads of others give 0.
    bus_bytes, clock_hz : int
        What the board says of itself.
    on_write : callable, optional
        Called with offset and value when a register is written.
    version : int
        Of the protocol.

    Attributes
    ----------
    executed : list of tuple
        Writes that were executed: kind, address and data.
    """

    def __init__(
        self,
        memory: Memory,
        registers: dict[int, int],
        *,
        bus_bytes: int = 4,
        clock_hz: int = 100_000_000,
        on_write: Callable[[int, int], None] | None = None,
        version: int = 1,
    ) -> None:
        self.executed: list[tuple[int, int, bytes]] = []
        self._memory = memory
        self._registers = registers
        self._on_write = on_write
        self._identity = struct.pack("<BBBHHI", version, bus_bytes, _WINDOW, _MOST, 2048, clock_hz)
        self._frame = bytearray()
        self._expected = 0
        self._outcomes = [0] * _WINDOW

    def reset(self) -> None:
        """Forget everything but memory and registers, as after the board's reset."""
        self._frame.clear()
        self._expected = 0

    def silence(self) -> None:
        """Forget the frame that has begun: no byte has come for 20 ms."""
        self._frame.clear()

    def feed(self, received: bytes) -> bytes:
        """Take bytes from the host and return those that go back."""
        return b"".join(self._take(byte) for byte in received)

    def _take(self, byte: int) -> bytes:
        frame = self._frame
        if not frame and byte != 0x5A:
            return b""
        frame.append(byte)
        if len(frame) < 11:
            return b""
        kind, sequence, length, address = struct.unpack_from("<BBHI", frame, 1)
        data_bytes = length if kind & 1 else 0
        if len(frame) == 11 and (length > _MOST or not self._is_right(0)):
            frame.clear()
        if len(frame) < 15 + data_bytes:
            return b""
        right = self._is_right(data_bytes)
        data = bytes(frame[11 : 11 + data_bytes])
        frame.clear()
        return self._answer(kind, sequence, length, address, data) if right else b""

    def _is_right(self, data_bytes: int) -> bool:
        """Whether the checks of the frame are right, as far as it has come."""
        frame = bytes(self._frame)
        right = b"\x5a" + _checked(frame[1:9], frame[11 : 11 + data_bytes])
        return right.startswith(frame) if len(frame) > 11 else right[:11] == frame

    def _answer(self, kind: int, sequence: int, length: int, address: int, data: bytes) -> bytes:
        status, result = self._decide(kind & 15, sequence, length, address, data)
        answer = Answer(kind & 15, kind >> 4, sequence, status, self._expected, result)
        return answer_frame(answer)

    def _decide(
        self, kind: int, sequence: int, length: int, address: int, data: bytes
    ) -> tuple[int, bytes]:
        if kind == IDENTIFY:
            self._expected = (sequence + 1) % 256
            self._outcomes[sequence % _WINDOW] = OKAY
            return OKAY, self._identity
        behind = (self._expected - sequence) % 256
        if behind > _WINDOW:
            return SEQUENCE, b""
        if behind and kind & 1 and not self._is_wrong(kind, length, address):
            return self._outcomes[sequence % _WINDOW], b""
        status, result = BAD_REQUEST, b""
        if not self._is_wrong(kind, length, address):
            status, result = self._execute(kind, address, length, data)
        if not behind:
            self._expected = (self._expected + 1) % 256
            self._outcomes[sequence % _WINDOW] = status
        return status, result

    def _is_wrong(self, kind: int, length: int, address: int) -> bool:
        register = kind in (REGISTER_READ, REGISTER_WRITE)
        return kind > IDENTIFY or (register and (length != 4 or address > 255 or address % 4 != 0))

    def _execute(self, kind: int, address: int, length: int, data: bytes) -> tuple[int, bytes]:
        if kind & 1:
            self.executed.append((kind, address, data))
        if kind == REGISTER_WRITE:
            value = int.from_bytes(data, "little")
            if self._on_write is not None:
                self._on_write(address, value)
            else:
                self._registers[address] = value
            return OKAY, b""
        if kind == REGISTER_READ:
            return OKAY, self._registers.get(address, 0).to_bytes(4, "little")
        if not self._memory.contains(address, length):
            return DECERR, bytes(length) if kind == READ else b""
        if kind == READ:
            return OKAY, self._memory.read(address, length)
        self._memory.write(address, data)
        return OKAY, b""


class Noise:
    """A line that flips a bit, loses or doubles bytes, and puts in others.

    Parameters
    ----------
    seed : int
    rate : float
        Probability that something happens to a byte.
    """

    def __init__(self, seed: int, rate: float) -> None:
        self._rng = random.Random(seed)
        self._rate = rate

    def through(self, data: bytes) -> bytes:
        """Return what arrives of these bytes."""
        rng = self._rng
        arrived = bytearray()
        for byte in data:
            what = rng.randrange(4) if rng.random() < self._rate else None
            if what is None:
                arrived.append(byte)
            elif what == 0:
                arrived.append(byte ^ 1 << rng.randrange(8))
            elif what == 1:
                arrived += bytes((byte, byte))
            elif what == 2:
                arrived += bytes((byte, rng.randrange(256)))
        return bytes(arrived)


@contextmanager
def on_terminal(
    model: BridgeModel,
    *,
    to_board: Callable[[bytes], bytes] = bytes,
    to_host: Callable[[bytes], bytes] = bytes,
    silence: float = 0.02,
) -> Iterator[str]:
    """Run a model behind a pseudo-terminal and give the path of the host's end.

    Parameters
    ----------
    model : BridgeModel
    to_board, to_host : callable
        What arrives of bytes that are sent, such as `Noise.through`.
    silence : float
        Seconds without a byte after which the model is told of silence.
    """
    board, host = os.openpty()
    tty.setraw(host)
    wake, stop = os.pipe()

    def serve() -> None:
        while True:
            ready, _, _ = select.select([board, wake], [], [], silence)
            if wake in ready:
                return
            if not ready:
                model.silence()
                continue
            answer = to_host(model.feed(to_board(os.read(board, 4096))))
            while answer:
                _, writable, _ = select.select([wake], [board], [])
                if not writable:
                    return
                answer = answer[os.write(board, answer[:1024]) :]

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield os.ttyname(host)
    finally:
        os.write(stop, b"x")
        thread.join()
        for end in (board, host, wake, stop):
            os.close(end)

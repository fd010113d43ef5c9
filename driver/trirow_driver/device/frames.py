"""Frames of the link to a board, ``docs/host-link.md``: requests into bytes, bytes into answers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from trirow_hw.bridge.protocol import (
    MAX_DATA,
    PROTOCOL_VERSION,
    REQUEST_SYNC,
    RESPONSE_SYNC,
    Kind,
)

__all__ = ["Answer", "AnswerParser", "Identity", "Request"]

_REQUEST = struct.Struct("<BBHI")
_ANSWER = struct.Struct("<BBHBB")
_CHECK_BYTES = 2
_CRC_BYTES = 4


@dataclass(frozen=True)
class Request:
    """What the board is asked for.

    Parameters
    ----------
    kind : Kind
    address : int
        Of the memory, or of the register.
    length : int
        Bytes that are wanted; or the number of those in ``data``.
    data : bytes
        What is written.
    """

    kind: Kind
    address: int = 0
    length: int = 0
    data: bytes = b""

    def frame(self, sequence: int, round_: int) -> bytes:
        """Return the bytes for the line, with a sequence number (8 bits) and a round (4)."""
        kind = int(self.kind) | round_ << 4
        header = _REQUEST.pack(kind, sequence, self.length, self.address)
        return _framed(REQUEST_SYNC, header, self.data)


@dataclass(frozen=True)
class Answer:
    """What the board answered; see the document for the fields."""

    kind: int
    round: int
    sequence: int
    status: int
    expected: int
    data: bytes


@dataclass(frozen=True)
class Identity:
    """Answer to `Kind.IDENTIFY`.

    Parameters
    ----------
    version : int
        Of the protocol.
    bus_bytes : int
        Width of the memory bus.
    window : int
        Requests that may be unanswered.
    max_data : int
        Bytes that a request may read or write.
    buffer_bytes : int
        Bytes of requests that the board can hold.
    clock_hz : int
    """

    version: int
    bus_bytes: int
    window: int
    max_data: int
    buffer_bytes: int
    clock_hz: int

    @classmethod
    def parse(cls, data: bytes) -> Identity:
        """Make it from the data of the answer.

        Raises
        ------
        ValueError
            If the board speaks another version of the protocol.
        """
        if not data or data[0] != PROTOCOL_VERSION:
            version = data[0] if data else "no version"
            raise ValueError(f"speaks protocol {version}, not {PROTOCOL_VERSION}")
        return cls(*struct.unpack("<BBBHHI", data))


class AnswerParser:
    """Find answers in what the board sends, whatever else is between them.

    After a wrong byte it looks for a frame from the next byte on, so nothing right is missed.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, received: bytes) -> Iterator[Answer]:
        """Take bytes and yield the answers that are complete with them."""
        self._bytes += received
        while True:
            start = self._bytes.find(RESPONSE_SYNC)
            del self._bytes[: start if start >= 0 else len(self._bytes)]
            size = self._frame_size()
            if size is None:
                return
            if size and self._is_right(size):
                frame = bytes(self._bytes[:size])
                del self._bytes[:size]
                yield _answer(frame)
            else:
                del self._bytes[0]

    def _frame_size(self) -> int | None:
        """Return the size of the frame that begins; 0: none does; None: more bytes are needed."""
        data = self._bytes
        end = 1 + _ANSWER.size
        if len(data) < end + _CHECK_BYTES:
            return None
        check = int.from_bytes(data[end : end + _CHECK_BYTES], "little")
        length = _ANSWER.unpack_from(data, 1)[2]
        if check != zlib.crc32(data[1:end]) & 0xFFFF or length > MAX_DATA:
            return 0
        size: int = end + _CHECK_BYTES + length + _CRC_BYTES
        return size if len(data) >= size else None

    def _is_right(self, size: int) -> bool:
        frame = self._bytes[:size]
        end = 1 + _ANSWER.size
        crc = zlib.crc32(frame[end + _CHECK_BYTES : -_CRC_BYTES], zlib.crc32(frame[1:end]))
        return crc == int.from_bytes(frame[-_CRC_BYTES:], "little")


def _answer(frame: bytes) -> Answer:
    kind, sequence, _, status, expected = _ANSWER.unpack_from(frame, 1)
    data = frame[1 + _ANSWER.size + _CHECK_BYTES : -_CRC_BYTES]
    return Answer(kind & 0xF, kind >> 4, sequence, status, expected, data)


def _framed(sync: int, header: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(header)
    check = (crc & 0xFFFF).to_bytes(_CHECK_BYTES, "little")
    end = zlib.crc32(data, crc).to_bytes(_CRC_BYTES, "little")
    return bytes((sync,)) + header + check + data + end

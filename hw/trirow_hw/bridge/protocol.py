"""What board and host agree on; ``docs/host-link.md`` has the frames byte by byte."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "BUFFER_BYTES",
    "MAX_DATA",
    "PROTOCOL_VERSION",
    "REQUEST_SYNC",
    "RESPONSE_SYNC",
    "SILENCE",
    "WINDOW",
    "Kind",
    "Status",
    "identity",
]

PROTOCOL_VERSION = 1
#: First byte of a frame, from the host and from the board.
REQUEST_SYNC = 0x5A
RESPONSE_SYNC = 0xA5
#: Most bytes that one request reads or writes.
MAX_DATA = 512
#: Requests that may be unanswered; as many outcomes of writes the board remembers.
WINDOW = 16
#: Bytes of requests that the board can hold.
BUFFER_BYTES = 2048
#: Seconds without a byte after which a frame that has begun is forgotten.
SILENCE = 0.02


class Kind(IntEnum):
    """What is requested. Bit 0: data follow the header; bit 1: registers; bit 2: the link."""

    READ = 0
    WRITE = 1
    REGISTER_READ = 2
    REGISTER_WRITE = 3
    IDENTIFY = 4


class Status(IntEnum):
    """How a request ended. The first values are those of an AXI response."""

    OKAY = 0
    SLVERR = 2
    DECERR = 3
    #: An earlier request has not arrived; this one was not executed.
    SEQUENCE = 4
    #: There is no such request; nothing was executed.
    REQUEST = 5


def identity(*, bus_bytes: int, clock_hz: int) -> bytes:
    """Return the data of the answer to `Kind.IDENTIFY`."""
    fields = (
        (PROTOCOL_VERSION, 1),
        (bus_bytes, 1),
        (WINDOW, 1),
        (MAX_DATA, 2),
        (BUFFER_BYTES, 2),
        (clock_hz, 4),
    )
    return b"".join(value.to_bytes(size, "little") for value, size in fields)

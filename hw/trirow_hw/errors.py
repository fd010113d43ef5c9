"""Error codes and the units that errors name, as the registers hold them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ErrorCode", "Unit"]


class ErrorCode(IntEnum):
    """What ended a run."""

    NONE = 0
    #: A descriptor's version, operation, check or one of its fields is wrong.
    DESCRIPTOR = 1
    #: An address outside the window that the registers allow.
    WINDOW = 2
    #: AXI error response to a read.
    READ_RESPONSE = 3
    #: AXI error response to a write.
    WRITE_RESPONSE = 4
    #: No progress for as many cycles as the watchdog register says.
    WATCHDOG = 5


class Unit(IntEnum):
    """Where it happened. The first four are also the clients of the read port, in this order."""

    SEQUENCER = 0
    FEATURES = 1
    SECOND = 2
    WEIGHTS = 3
    ARRAY = 4
    WRITER = 5

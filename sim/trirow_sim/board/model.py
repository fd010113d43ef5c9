"""A board's compiled model: bytes in and out, cycle by cycle."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from trirow_hw.sdram.chips import SdramChip
from trirow_sim.board.build import BoardDesign
from trirow_sim.memory.storage import Memory

__all__ = ["BoardFault", "BoardModel"]

_WHOLE = ("data_bits", "bank_bits", "row_bits", "column_bits", "refreshes")
_TIMES = (
    *("t_rcd", "t_rp", "t_ras", "t_rc", "t_rrd", "t_rfc", "t_wr", "t_mrd", "t_ras_max"),
    *("refresh_ms", "t_ck2", "t_ck3", "startup_us"),
)
#: Most bytes that are taken from the model at a time.
_PULL = 4096


class BoardFault(RuntimeError):
    """A rule of the chip or of the line was broken; the message is one line that says which."""


class BoardModel:
    """`BoardTop` with an SDRAM chip on its pins and the host's end of its serial line.

    The chip checks every rule of its datasheet in every cycle.

    Parameters
    ----------
    library : path
        Of `build_board`.
    design : BoardDesign
        What it was built of.
    chip : SdramChip, optional
        Chip on the pins, if it is another than the one that the controller was made for.

    Attributes
    ----------
    memory : Memory
        The chip's bytes.
    """

    def __init__(
        self, library: Path, design: BoardDesign, *, chip: SdramChip | None = None
    ) -> None:
        chip = chip or design.chip
        self._library = _load(library)
        self.memory = Memory(chip.capacity)
        # The array shares the bytes of the memory and keeps them where they are.
        self._bytes = (ctypes.c_uint8 * chip.capacity).from_buffer(self.memory.data)
        values = {name: getattr(chip, name) for name in (*_WHOLE, *_TIMES)}
        values["startup_us"] = design.startup_us
        parameters = _Parameters(**values, clock_hz=design.clock_hz)
        bit_cycles = design.clock_hz / design.baud
        self._handle = self._library.board_open(ctypes.byref(parameters), self._bytes, bit_cycles)
        self._buffer = ctypes.create_string_buffer(_PULL)

    def step(self, cycles: int) -> None:
        """Let cycles pass.

        Raises
        ------
        BoardFault
            If a rule was broken; nothing moves any more then.
        """
        if not self._library.board_step(self._handle, cycles):
            raise BoardFault(self._library.board_error(self._handle).decode())

    def push(self, data: bytes) -> None:
        """Let bytes follow on the line to the board."""
        self._library.board_push(self._handle, data, len(data))

    def pull(self) -> bytes:
        """Return bytes that the board has sent; empty if there are none."""
        size = self._library.board_pull(self._handle, self._buffer, _PULL)
        return self._buffer.raw[:size]

    @property
    def waiting(self) -> int:
        """Bytes that the line to the board has not begun with."""
        return int(self._library.board_waiting(self._handle))

    @property
    def quiet(self) -> int:
        """Cycles since anything moved: a byte on the line, a run, the chip's initialisation."""
        return int(self._library.board_quiet(self._handle))

    @property
    def cycles(self) -> int:
        """Cycles since power-up."""
        return int(self._library.board_cycles(self._handle))

    @property
    def refreshes(self) -> int:
        """REFRESH commands so far."""
        return int(self._library.board_refreshes(self._handle))

    @property
    def leds(self) -> int:
        """The LEDs; `trirow_hw.boards.top.LEDS` has their names."""
        return int(self._library.board_leds(self._handle))

    def close(self) -> None:
        """Release the model. No call may follow."""
        if self._handle:
            self._library.board_close(self._handle)
            self._handle = None


class _Parameters(ctypes.Structure):
    """SdramParameters of the chip's header."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in _WHOLE),
        *((name, ctypes.c_double) for name in (*_TIMES, "clock_hz")),
    )


def _load(path: Path) -> Any:
    """Load a library and declare its functions."""
    library = ctypes.CDLL(str(path))
    handle, u64, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "board_open": (handle, [handle, handle, ctypes.c_double]),
        "board_close": (None, [handle]),
        "board_step": (ctypes.c_int, [handle, u64]),
        "board_push": (None, [handle, ctypes.c_char_p, size]),
        "board_pull": (size, [handle, handle, size]),
        "board_waiting": (size, [handle]),
        "board_quiet": (u64, [handle]),
        "board_cycles": (u64, [handle]),
        "board_refreshes": (u64, [handle]),
        "board_leds": (ctypes.c_uint, [handle]),
        "board_error": (ctypes.c_char_p, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library

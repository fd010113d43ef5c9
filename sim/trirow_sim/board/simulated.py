"""A simulated board behind a pseudo-terminal."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable
from types import TracebackType

from trirow_driver.device import DeviceError
from trirow_hw.sdram.chips import SdramChip
from trirow_sim.board.build import BoardDesign, build_board
from trirow_sim.board.model import BoardFault, BoardModel

__all__ = ["SimulatedBoard", "SimulatedBoardError"]

#: Cycles between two looks at the pseudo-terminal.
_CHUNK = 4096
#: Cycles for which nothing must have moved before the clock stops.
_QUIET = 1000
#: Bytes for the line that are kept; more stay in the pseudo-terminal, whose writer then waits.
_ROOM = 1024


class SimulatedBoardError(DeviceError):
    """The simulation broke a rule; the message is one line that says which."""


class SimulatedBoard:
    """A board in the compiled simulator; its serial port is a pseudo-terminal.

    Whatever opens serial ports can open it, again and again. The clock runs in a thread while there
    is something to do: bytes on the line, a run, or a frame that is not complete, which the board
    forgets after 20 ms of its own time. Else it stands still, and so does the board's time.

    When a rule is broken the port hangs up, so that whoever uses it gets an error at once, and the
    end of the context raises `SimulatedBoardError` with the rule.

    Parameters
    ----------
    design : BoardDesign
    chip : SdramChip, optional
        Chip on the pins, if it is another than the one that the controller was made for.
    building : callable, optional
        Called with a few words at each step of a build.

    Attributes
    ----------
    port : str
        Path of the serial port.
    model : BoardModel
        For counters and memory; to be looked at when the clock stands still.

    Raises
    ------
    ToolchainError
        If the library has to be built and a tool is missing or fails.
    ValueError
        If the design's parameters do not suit each other.
    SimulatedBoardError
        At the end of the context, if a rule was broken.
    """

    def __init__(
        self,
        design: BoardDesign,
        *,
        chip: SdramChip | None = None,
        building: Callable[[str], None] | None = None,
    ) -> None:
        self.model = BoardModel(build_board(design, building), design, chip=chip)
        # The other end stays open here too, else the line would hang up with each user that leaves.
        self._line, self._other_end = os.openpty()
        tty.setraw(self._other_end)
        os.set_blocking(self._line, False)
        self.port = os.ttyname(self._other_end)
        self._wake, self._waker = os.pipe()
        self._received = bytearray()
        self._fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="simulated board", daemon=True)
        self._thread.start()

    @property
    def fault(self) -> str | None:
        """What broke a rule and ended the simulation; None if nothing did."""
        return self._fault

    def close(self) -> None:
        """Stop the board and hang up. No call may follow."""
        if self._thread.is_alive():
            os.write(self._waker, b"x")
        self._thread.join()
        for end in (self._other_end, self._wake, self._waker):
            os.close(end)
        self.model.close()

    def __enter__(self) -> SimulatedBoard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if self._fault is not None and (error is None or isinstance(error, DeviceError)):
            raise SimulatedBoardError(f"simulated board: {self._fault}") from error

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BoardFault as fault:
            self._fault = str(fault)
        finally:
            os.close(self._line)

    def _step(self) -> bool:
        """Move bytes and let some cycles pass, if there is a reason to; return whether to go on."""
        model, line = self.model, self._line
        still = model.quiet > _QUIET
        sources = [self._wake, *([line] if model.waiting < _ROOM else [])]
        sinks = [line] if self._received else []
        ready, takes, _ = select.select(sources, sinks, [], None if still else 0)
        if self._wake in ready:
            return False
        if line in ready:
            model.push(os.read(line, _ROOM))
            still = False
        if takes:
            del self._received[: os.write(line, self._received)]
        if not still:
            model.step(_CHUNK)
            self._received += model.pull()
        return True

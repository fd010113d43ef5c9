"""Requests over a line that may lose bytes: many under way, each executed once."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from trirow_driver.device.device import DeviceError
from trirow_driver.device.frames import Answer, AnswerParser, Identity, Request
from trirow_hw.bridge.protocol import WINDOW, Kind, Status

__all__ = ["Line", "Link"]

#: Times that a request is sent before the board counts as lost.
ATTEMPTS = 10

_MEANINGS: dict[int, str] = {
    Status.SLVERR: "SLVERR from the board's bus; check the address",
    Status.DECERR: "DECERR from the board's bus, nothing is there; check the address",
    Status.REQUEST: "the board knows no such request; its bitstream may be older",
}


class Line(Protocol):
    """Bytes to and from the board."""

    name: str

    def send(self, data: bytes) -> None:
        """Send all bytes, or raise `DeviceError`."""

    def receive(self, seconds: float) -> bytes:
        """Return what has come; wait for at most so long if nothing has."""


@dataclass
class _Pending:
    """A request that is not answered."""

    request: Request
    sequence: int
    answer: Answer | None = None


class Link:
    """Execute requests on a board: up to a window of them under way, go back if one is lost.

    Parameters
    ----------
    line : Line
    timeout : float
        Seconds without progress after which what is not answered is sent again. Everything ends:
        at the latest 10 times that long after the last progress.

    Attributes
    ----------
    identity : Identity
        What the board says of itself.
    repeated : int
        Frames that were sent again so far.

    Raises
    ------
    DeviceError
        If the board does not answer or speaks another protocol.
    """

    def __init__(self, line: Line, *, timeout: float) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout must be greater than 0, not {timeout!r}")
        self._line = line
        self._timeout = timeout
        self._parser = AnswerParser()
        self._pending: deque[_Pending] = deque()
        # An answer that an earlier session left behind does not fit these numbers.
        self._round = secrets.randbelow(16)
        self._next = secrets.randbelow(256)
        self.repeated = 0
        self.identity = self._open()

    def execute(self, requests: Iterable[Request]) -> Iterator[bytes]:
        """Send requests and yield the data of their answers, in order.

        All of them must be of one kind, so that one that is read again later gives the same. If
        one fails, those under way are finished, and the rest is not sent.

        Raises
        ------
        DeviceError
            If the board does not answer, or a request fails.
        """
        if self._pending:  # an earlier call was left in the middle
            self.identity = self._open()
        yield from self._execute(requests, self.identity.window)

    def _open(self) -> Identity:
        """Ask who is there; that also begins a new sequence of numbers."""
        self._pending.clear()
        self._next = (self._next + 4 * WINDOW) % 256
        (data,) = self._execute([Request(Kind.IDENTIFY)], 1)
        try:
            return Identity.parse(data)
        except ValueError as error:
            raise DeviceError(
                f"{self._line.name}: the board {error}; load a bitstream of this version of Trirow"
            ) from None

    def _execute(self, requests: Iterable[Request], window: int) -> Iterator[bytes]:
        source = iter(requests)
        failure: DeviceError | None = None
        attempts = 1
        deadline = time.monotonic() + self._timeout
        while True:
            self._fill(source, window)
            if not self._pending:
                break
            received = self._line.receive(max(0.0, deadline - time.monotonic()))
            lost = [self._accept(answer) for answer in self._parser.feed(received)]
            while self._pending and self._pending[0].answer is not None:
                first = self._pending.popleft()
                attempts = 1
                deadline = time.monotonic() + self._timeout
                try:
                    data = self._data(first)
                except DeviceError as error:
                    failure, source = failure or error, iter(())
                if failure is None:
                    yield data
            if self._pending and (any(lost) or time.monotonic() >= deadline):
                attempts += 1
                self._go_back(attempts)
                deadline = time.monotonic() + self._timeout
        if failure is not None:
            raise failure

    def _fill(self, source: Iterator[Request], window: int) -> None:
        """Send requests until the window is full."""
        while len(self._pending) < window and (request := next(source, None)) is not None:
            pending = _Pending(request, self._next)
            self._pending.append(pending)
            self._next = (self._next + 1) % 256
            self._line.send(request.frame(pending.sequence, self._round))

    def _accept(self, answer: Answer) -> bool:
        """Take an answer and return whether an earlier one, or its request, must have been lost.

        Answers come in the order of what was sent. One of an earlier round may be old, so it tells
        nothing of what is missing, but is right all the same.
        """
        if not self._pending:
            return False
        first = self._pending[0].sequence
        place = (answer.sequence - first) % 256
        if place >= len(self._pending) or answer.kind != self._pending[place].request.kind:
            return False
        present = answer.round == self._round
        if answer.status == Status.SEQUENCE:
            if present and (answer.expected - first) % 256 > len(self._pending):
                raise DeviceError(
                    f"{self._line.name}: the board was reset, or another program uses the port; "
                    "open it again and load the memory anew"
                )
            return present
        self._pending[place].answer = answer
        return present and any(earlier.answer is None for earlier in islice(self._pending, place))

    def _go_back(self, attempt: int) -> None:
        """Send all that is not answered again."""
        if attempt > ATTEMPTS:
            raise DeviceError(
                f"{self._line.name}: the board does not answer; "
                "check port, cable and baud rate, and that its bitstream is loaded"
            )
        self._round = (self._round + 1) % 16
        for pending in self._pending:
            if pending.answer is None:
                self.repeated += 1
                self._line.send(pending.request.frame(pending.sequence, self._round))

    def _data(self, pending: _Pending) -> bytes:
        """Return the data of an answer, or raise what its status says."""
        answer, request = pending.answer, pending.request
        assert answer is not None
        if answer.status != Status.OKAY:
            meaning = _MEANINGS.get(answer.status, f"status {answer.status}")
            action = request.kind.name.lower().replace("_", " ")
            raise DeviceError(
                f"{self._line.name}: {action} of {request.length} bytes at "
                f"{request.address:#x} failed: {meaning}"
            )
        return answer.data

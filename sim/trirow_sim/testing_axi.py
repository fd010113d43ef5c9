"""A scripted AXI4 master for tests of memories: what to do is given, when it happened is noted."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from trirow_sim.axi import AxiChecker, AxiMaster, AxiSlave
from trirow_sim.memory import MemoryModel

__all__ = ["ReadBeat", "Response", "ScriptedMaster", "run"]


class ReadBeat(NamedTuple):
    """A read beat that was taken."""

    cycle: int
    data: bytes
    resp: int
    last: int


class Response(NamedTuple):
    """A write response that was taken."""

    cycle: int
    resp: int


def _always(cycle: int) -> bool:
    return True


class ScriptedMaster:
    """Master that issues the bursts it was given, in order, and notes when each handshake was.

    Parameters
    ----------
    bus_bytes : int
        Width of the data bus in bytes.
    r_ready, b_ready : callable
        Whether RREADY (BREADY) is up in a cycle.
    w_valid : callable
        Whether a new write beat may be offered in a cycle; one that waits stays.

    Attributes
    ----------
    ar_cycles, aw_cycles, w_cycles : list of int
        Cycles of the handshakes.
    r_offered : list of int
        Cycle in which each read beat was offered first.
    r : list of ReadBeat
        Read beats taken.
    b : list of Response
        Responses taken.
    """

    def __init__(
        self,
        bus_bytes: int,
        *,
        r_ready: Callable[[int], bool] = _always,
        b_ready: Callable[[int], bool] = _always,
        w_valid: Callable[[int], bool] = _always,
    ) -> None:
        self._bus_bytes = bus_bytes
        self._size = bus_bytes.bit_length() - 1
        self._r_ready = r_ready
        self._b_ready = b_ready
        self._w_valid = w_valid
        self._ar: deque[tuple[int, int, int]] = deque()  # cycle from which, address, beats
        self._aw: deque[tuple[int, int, int]] = deque()
        self._w: deque[tuple[int, int, int, int]] = deque()  # cycle, data, strobes, last
        self._r_left = 0
        self._b_left = 0
        self._r_waits = False
        self._master = AxiMaster(arsize=self._size, awsize=self._size)
        self.ar_cycles: list[int] = []
        self.aw_cycles: list[int] = []
        self.w_cycles: list[int] = []
        self.r_offered: list[int] = []
        self.r: list[ReadBeat] = []
        self.b: list[Response] = []

    @property
    def done(self) -> bool:
        """Whether everything was issued and answered."""
        return not (self._ar or self._aw or self._w or self._r_left or self._b_left)

    @property
    def r_cycles(self) -> list[int]:
        """Cycles in which read beats were taken."""
        return [beat.cycle for beat in self.r]

    def read(self, addr: int, beats: int, *, at: int = 0) -> None:
        """Read a burst; its address is offered from cycle `at` on."""
        self._ar.append((at, addr, beats))
        self._r_left += beats

    def write(
        self,
        addr: int,
        data: bytes,
        *,
        strobes: Sequence[int] | None = None,
        at: int = 0,
        data_at: int | None = None,
    ) -> None:
        """Write a burst; address from cycle `at` on, data from `data_at` on (the same, if None)."""
        size = self._bus_bytes
        beats = len(data) // size
        start = at if data_at is None else data_at
        masks = [(1 << size) - 1] * beats if strobes is None else strobes
        self._aw.append((at, addr, beats))
        for i, mask in enumerate(masks):
            word = int.from_bytes(data[i * size : (i + 1) * size], "little")
            self._w.append((start, word, mask, int(i == beats - 1)))
        self._b_left += 1

    def drive(self, cycle: int) -> AxiMaster:
        """Return what is driven in `cycle`; the same object every time."""
        m = self._master
        if not m.arvalid and self._ar and self._ar[0][0] <= cycle:
            _, m.araddr, beats = self._ar[0]
            m.arlen = beats - 1
            m.arvalid = 1
        if not m.awvalid and self._aw and self._aw[0][0] <= cycle:
            _, m.awaddr, beats = self._aw[0]
            m.awlen = beats - 1
            m.awvalid = 1
        if not m.wvalid and self._w and self._w[0][0] <= cycle and self._w_valid(cycle):
            _, m.wdata, m.wstrb, m.wlast = self._w[0]
            m.wvalid = 1
        m.rready = int(self._r_ready(cycle))
        m.bready = int(self._b_ready(cycle))
        return m

    def observe(self, cycle: int, slave: AxiSlave) -> AxiMaster:
        """Note the handshakes of `cycle`; return what was driven in it."""
        m = self._master
        seen = replace(m)
        if m.arvalid and slave.arready:
            self._ar.popleft()
            self.ar_cycles.append(cycle)
            m.arvalid = 0
        if m.awvalid and slave.awready:
            self._aw.popleft()
            self.aw_cycles.append(cycle)
            m.awvalid = 0
        if m.wvalid and slave.wready:
            self._w.popleft()
            self.w_cycles.append(cycle)
            m.wvalid = 0
        if slave.rvalid and not self._r_waits:
            self.r_offered.append(cycle)
        self._r_waits = bool(slave.rvalid and not m.rready)
        if slave.rvalid and m.rready:
            data = slave.rdata.to_bytes(self._bus_bytes, "little")
            self.r.append(ReadBeat(cycle, data, slave.rresp, slave.rlast))
            self._r_left -= 1
        if slave.bvalid and m.bready:
            self.b.append(Response(cycle, slave.bresp))
            self._b_left -= 1
        return seen


def run(
    model: MemoryModel,
    master: ScriptedMaster,
    *,
    cycles: int | None = None,
    limit: int = 100_000,
    checker: AxiChecker | None = None,
) -> AxiChecker:
    """Run until the master is done, or for `cycles`; every cycle passes the checker.

    Returns
    -------
    AxiChecker
        The checker that was used, with its counts.

    Raises
    ------
    TimeoutError
        If the master is not done after `limit` cycles.
    """
    checker = checker or AxiChecker(model.bus_bytes)
    while model.cycle != cycles and (cycles is not None or not master.done):
        if model.cycle == limit:
            raise TimeoutError(f"the master is not done after {limit} cycles")
        cycle = model.cycle
        checker.check(master.drive(cycle), model.slave)
        model.step(master.observe(cycle, model.slave))
    return checker

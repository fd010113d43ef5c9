"""The two sides of an AXI4 port as plain integers, and a checker of the rules between them.

Nothing here knows of a simulator. An engine samples what the accelerator drives into an
`AxiMaster`, takes what the memory drives from an `AxiSlave`, and shows both to an `AxiChecker` once
each cycle.
"""

from collections import deque
from dataclasses import dataclass

__all__ = [
    "DECERR",
    "INCR",
    "OKAY",
    "SLVERR",
    "AxiChecker",
    "AxiMaster",
    "AxiSlave",
    "AxiViolation",
]

OKAY = 0
SLVERR = 2
DECERR = 3

INCR = 1

BOUNDARY = 4096


@dataclass(slots=True)
class AxiMaster:
    """What the accelerator drives in one cycle.

    One object may be reused from cycle to cycle: neither checker nor models keep it.
    """

    arvalid: int = 0
    araddr: int = 0
    arlen: int = 0
    arsize: int = 0
    arburst: int = INCR
    rready: int = 0
    awvalid: int = 0
    awaddr: int = 0
    awlen: int = 0
    awsize: int = 0
    awburst: int = INCR
    wvalid: int = 0
    wdata: int = 0
    wstrb: int = 0
    wlast: int = 0
    bready: int = 0


@dataclass(slots=True)
class AxiSlave:
    """What the memory drives in one cycle."""

    arready: int = 0
    rvalid: int = 0
    rdata: int = 0
    rresp: int = OKAY
    rlast: int = 0
    awready: int = 0
    wready: int = 0
    bvalid: int = 0
    bresp: int = OKAY


class AxiViolation(AssertionError):
    """A rule of AXI4, or of this accelerator's use of it, is broken.

    Attributes
    ----------
    cycle : int
        Cycle in which it shows, counted from 0 at the first call of `AxiChecker.check`.
    channel : str
        ``AR``, ``R``, ``AW``, ``W`` or ``B``.
    rule : str
        What is wrong, with the values.
    """

    def __init__(self, cycle: int, channel: str, rule: str) -> None:
        super().__init__(f"cycle {cycle}: {channel}: {rule}")
        self.cycle = cycle
        self.channel = channel
        self.rule = rule


class AxiChecker:
    """Checker of one AXI4 port; both sides are checked.

    The rules, by channel:

    - All: once valid is up, it stays up with the same payload until the handshake.
    - AR, AW: the size is that of the bus, the type INCR, the address aligned to the bus, the length
      at most 256 beats and `max_burst_bytes`, no burst crosses 4 KB, and no handshake takes the
      bursts outstanding of its direction above `max_outstanding`. A read is outstanding until its
      last beat is taken, a write until its response is taken.
    - W: a beat is taken in the cycle of its address handshake or later, and WLAST marks exactly the
      last beat of a burst.
    - R: a beat is offered after the cycle of its address handshake, RLAST marks exactly the last.
    - B: a response is offered after the cycle in which the last beat of its burst is taken.

    Parameters
    ----------
    bus_bytes : int
        Width of the data bus in bytes; a power of two from 1 to 128.
    max_burst_bytes : int
        Longest burst allowed.
    max_outstanding : int
        Most bursts outstanding in each direction.

    Attributes
    ----------
    cycle : int
        Cycles checked so far.
    read_beats, write_beats, read_bursts, write_bursts : int
        Handshakes so far on R, W, AR and AW.

    Raises
    ------
    AxiViolation
        By `check`.
    """

    __slots__ = (
        "_ar",
        "_aw",
        "_b",
        "_bus_bytes",
        "_landed",
        "_max_burst_bytes",
        "_max_outstanding",
        "_r",
        "_reads",
        "_size",
        "_w",
        "_writes",
        "cycle",
        "read_beats",
        "read_bursts",
        "write_beats",
        "write_bursts",
    )

    def __init__(
        self, bus_bytes: int, *, max_burst_bytes: int = 512, max_outstanding: int = 16
    ) -> None:
        if bus_bytes not in (1, 2, 4, 8, 16, 32, 64, 128):
            raise ValueError(f"bus_bytes must be a power of two from 1 to 128, not {bus_bytes!r}")
        self._bus_bytes = bus_bytes
        self._size = bus_bytes.bit_length() - 1
        self._max_burst_bytes = max_burst_bytes
        self._max_outstanding = max_outstanding
        # Payloads that waited for ready at the end of the cycle before, else None.
        self._ar: tuple[int, ...] | None = None
        self._aw: tuple[int, ...] | None = None
        self._w: tuple[int, ...] | None = None
        self._r: tuple[int, ...] | None = None
        self._b: tuple[int, ...] | None = None
        # Beats still to come of every burst whose address was taken, oldest first.
        self._reads: deque[int] = deque()
        self._writes: deque[int] = deque()
        self._landed = 0  # writes with all their data, response not yet taken
        self.cycle = 0
        self.read_beats = 0
        self.write_beats = 0
        self.read_bursts = 0
        self.write_bursts = 0

    @property
    def idle(self) -> bool:
        """Whether no burst is outstanding and no valid waits."""
        return not (
            self._reads
            or self._writes
            or self._landed
            or any(p is not None for p in (self._ar, self._aw, self._w, self._r, self._b))
        )

    def check(self, master: AxiMaster, slave: AxiSlave) -> None:
        """Check one cycle: what both sides drive in it."""
        # R and B go first: they answer what was taken in earlier cycles, not in this one.
        if slave.rvalid or self._r is not None:
            self._check_r(master, slave)
        if slave.bvalid or self._b is not None:
            self._check_b(master, slave)
        if master.arvalid or self._ar is not None:
            self._check_ar(master, slave)
        if master.awvalid or self._aw is not None:
            self._check_aw(master, slave)
        if master.wvalid or self._w is not None:
            self._check_w(master, slave)
        self.cycle += 1

    def _check_ar(self, m: AxiMaster, s: AxiSlave) -> None:
        payload = (m.araddr, m.arlen, m.arsize, m.arburst)
        if self._ar is None:
            self._check_burst("AR", *payload)
        else:
            self._check_stable("AR", m.arvalid, self._ar, payload)
        self._ar = None if s.arready else payload
        if s.arready:
            self.read_bursts += 1
            self._reads.append(m.arlen + 1)
            self._check_outstanding("AR", len(self._reads))

    def _check_aw(self, m: AxiMaster, s: AxiSlave) -> None:
        payload = (m.awaddr, m.awlen, m.awsize, m.awburst)
        if self._aw is None:
            self._check_burst("AW", *payload)
        else:
            self._check_stable("AW", m.awvalid, self._aw, payload)
        self._aw = None if s.awready else payload
        if s.awready:
            self.write_bursts += 1
            self._writes.append(m.awlen + 1)
            self._check_outstanding("AW", len(self._writes) + self._landed)

    def _check_w(self, m: AxiMaster, s: AxiSlave) -> None:
        payload = (m.wdata, m.wstrb, m.wlast)
        if self._w is not None:
            self._check_stable("W", m.wvalid, self._w, payload)
        self._w = None if s.wready else payload
        if s.wready:
            if not self._writes:
                self._fail("W", "data before its address, or more beats than promised")
            self.write_beats += 1
            if self._take_beat("W", self._writes, m.wlast):
                self._landed += 1

    def _check_r(self, m: AxiMaster, s: AxiSlave) -> None:
        payload = (s.rdata, s.rresp, s.rlast)
        if self._r is not None:
            self._check_stable("R", s.rvalid, self._r, payload)
        if not self._reads:
            self._fail("R", "data that nobody asked for")
        self._r = None if m.rready else payload
        if m.rready:
            self.read_beats += 1
            self._take_beat("R", self._reads, s.rlast)

    def _check_b(self, m: AxiMaster, s: AxiSlave) -> None:
        payload = (s.bresp,)
        if self._b is not None:
            self._check_stable("B", s.bvalid, self._b, payload)
        if not self._landed:
            self._fail("B", "response before the last beat of its burst")
        self._b = None if m.bready else payload
        if m.bready:
            self._landed -= 1

    def _check_burst(self, channel: str, addr: int, length: int, size: int, burst: int) -> None:
        if size != self._size:
            self._fail(channel, f"size must be {self._size}, not {size}")
        if burst != INCR:
            self._fail(channel, f"burst type must be {INCR} (INCR), not {burst}")
        if addr % self._bus_bytes:
            self._fail(channel, f"address {addr:#x} is not aligned to {self._bus_bytes} bytes")
        if not 0 <= length <= 255:
            self._fail(channel, f"length must be from 0 to 255, not {length}")
        count = (length + 1) * self._bus_bytes
        if count > self._max_burst_bytes:
            self._fail(channel, f"burst of {count} bytes, at most {self._max_burst_bytes} allowed")
        if addr // BOUNDARY != (addr + count - 1) // BOUNDARY:
            self._fail(channel, f"burst of {count} bytes at {addr:#x} crosses 4 KB")

    def _check_stable(
        self, channel: str, valid: int, before: tuple[int, ...], now: tuple[int, ...]
    ) -> None:
        if not valid:
            self._fail(channel, "valid dropped before ready")
        if before != now:
            self._fail(channel, f"payload changed from {before} to {now} before ready")

    def _check_outstanding(self, channel: str, count: int) -> None:
        if count > self._max_outstanding:
            self._fail(
                channel, f"{count} bursts outstanding, at most {self._max_outstanding} allowed"
            )

    def _take_beat(self, channel: str, bursts: deque[int], last: int) -> bool:
        """Count a beat of the oldest burst; return whether the burst is complete."""
        left = bursts[0] - 1
        if bool(last) != (left == 0):
            fault = f"up with {left} beats to come" if last else "missing at the last beat"
            self._fail(channel, f"{channel}LAST {fault}")
        if left:
            bursts[0] = left
        else:
            bursts.popleft()
        return left == 0

    def _fail(self, channel: str, rule: str) -> None:
        raise AxiViolation(self.cycle, channel, rule)

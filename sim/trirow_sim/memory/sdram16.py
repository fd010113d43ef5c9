"""Memory model `sdram16`: a 16-bit SDR SDRAM as on small FPGA boards."""

from collections import deque

from trirow_sim.axi import AxiMaster
from trirow_sim.memory.model import QueuedMemory, Read, Write
from trirow_sim.memory.storage import Memory

__all__ = ["Sdram16Memory"]

ROW_BYTES = 1024
BANKS = 4
ROW_CYCLES = 6
TURN_CYCLES = 4
BUFFER_BYTES = 1024


class Sdram16Memory(QueuedMemory):
    """Two bytes a cycle for reads and writes together, 4 banks of open rows, refresh.

    - The chip moves 2 bytes a cycle, so a beat takes ``bus_bytes / 2`` cycles. A read beat is
      offered in the cycle that moves its last 2 bytes; that cycle is put off while the beat before
      still waits in the output register.
    - Write beats are taken into a buffer of 1,024 bytes, one a cycle: WREADY is up while a burst
      lacks data and the buffer has room. A beat that moves its last 2 bytes in cycle c leaves the
      buffer in c, and WREADY can rise for it in c + 1. A burst of more than 1,024 bytes never ends.
    - The chip serves one burst at a time, to its end. A read can be chosen for cycle c if its
      address was taken in c - 5 or before, a write if its last beat was taken in c - 1 or before.
      If both can, the direction that was not served last is chosen, at first the write. A burst is
      chosen in the first cycle after the last one of the burst before in which one can be.
    - Chosen for cycle c, a burst moves its first 2 bytes in c + 4 if the direction changes, else
      in c. The chip starts in the direction of reads.
    - Address a lies in row a div 1,024, which belongs to bank (a div 1,024) mod 4. Each bank has
      one row open, none at first. A beat in a row that is not open comes 6 cycles later, in the
      middle of a burst too. The costs for direction and row add up.
    - Refresh: in the cycles c with c mod 780 >= 772 no bytes move. WREADY, the cycles for rows and
      for direction are not affected, and rows stay open.
    - Response: last 2 bytes of the burst moved in c, offered in c + 1.
    """

    __slots__ = (
        "_collected",
        "_held",
        "_index",
        "_moved",
        "_now",
        "_part",
        "_parts",
        "_places",
        "_rows",
        "_wait",
        "_writing",
    )

    summary = "16-bit SDR SDRAM: 2 bytes a cycle, rows, turnaround, refresh of 8 in 780 cycles"
    read_latency = 5

    def __init__(self, memory: Memory, bus_bytes: int) -> None:
        super().__init__(memory, bus_bytes)
        if bus_bytes < 2:
            raise ValueError(f"bus_bytes of sdram16 must be at least 2, not {bus_bytes!r}")
        self._parts = bus_bytes // 2
        self._places = BUFFER_BYTES // bus_bytes
        self._held = 0  # beats in the write buffer
        self._collected: deque[Write] = deque()  # writes with all their data, not yet moved
        self._rows = [-1] * BANKS
        self._writing = False  # direction of the chip
        self._now: Read | Write | None = None  # burst being served
        self._index = 0  # beats of it that have moved
        self._part = 0  # parts of 2 bytes of the present beat that have moved
        self._wait = 0  # cycles until the next part may move
        self._moved = 0  # reads at the head of the queue that the chip has done with

    def _read_done(self) -> None:
        self._moved -= 1

    def _write_done(self, write: Write) -> None:
        self._collected.append(write)

    def _move(self, m: AxiMaster) -> None:
        s = self.slave
        if m.wvalid and s.wready:
            self._held += 1
        s.wready = 1 if self._writes and self._held < self._places else 0
        if self._now is None and not self._choose():
            return
        if self._wait:
            self._wait -= 1
            return
        if self.cycle % 780 >= 772:
            return
        if self._part + 1 < self._parts:
            self._part += 1
        elif self._writing or not s.rvalid:
            self._part = 0
            self._end_beat()

    def _choose(self) -> bool:
        """Choose the burst to serve from this cycle on; return whether there is one."""
        reads = self._reads
        read = len(reads) > self._moved and reads[self._moved].due <= self.cycle
        write = bool(self._collected)
        if not read and not write:
            return False
        writing = write and not (read and self._writing)
        self._wait = TURN_CYCLES if writing != self._writing else 0
        self._writing = writing
        self._now = self._collected.popleft() if writing else reads[self._moved]
        self._index = 0
        self._open_row(self._now.addr)
        return True

    def _open_row(self, addr: int) -> None:
        row = addr // ROW_BYTES
        if self._rows[row % BANKS] != row:
            self._rows[row % BANKS] = row
            self._wait += ROW_CYCLES

    def _end_beat(self) -> None:
        """Finish the present beat, whose last part moves in the cycle that begins."""
        burst = self._now
        assert burst is not None
        if self._writing:
            self._held -= 1
        else:
            self._offer()
        self._index += 1
        if self._index < burst.beats:
            self._open_row(burst.addr + self._index * self._bus_bytes)
            return
        self._now = None
        if isinstance(burst, Write):
            burst.due = self.cycle + 1
            self._responses.append(burst)
        else:
            self._moved += 1

"""Memory model `ddr`: a DDR3 controller behind a shared data bus."""

from trirow_sim.axi import AxiMaster
from trirow_sim.memory.model import QueuedMemory
from trirow_sim.memory.storage import Memory

__all__ = ["DdrMemory"]


class DdrMemory(QueuedMemory):
    """Read latency 30, one data beat a cycle for R and W together, refresh.

    - Read: address taken in t, first beat offered in t + 30 or later; the latencies of queued
      bursts overlap.
    - Write: last beat taken in t, response offered in t + 10.
    - Refresh: in the cycles c with c mod 780 >= 760 WREADY is down and no read beat is offered;
      one that was offered before and waits may be taken.
    - Every other cycle is one slot. The slot goes to a read beat, which is then offered in that
      cycle, or else to W: WREADY is up if a burst lacks data.
    - A read beat waits for the slot if it is due and its register is free. A write beat waits for
      it if WVALID was up in the cycle before and a burst lacks data. If both wait, the slot goes to
      the one that did not move last, at first to R. If only the read beat waits, it gets the slot;
      in all other cases W gets it. R moves when a beat is offered, W when a beat is taken.
    """

    __slots__ = ("_write_turn",)

    summary = "latency 30, reads and writes share a beat a cycle, refresh of 20 in 780 cycles"
    read_latency = 30
    write_latency = 10

    def __init__(self, memory: Memory, bus_bytes: int) -> None:
        super().__init__(memory, bus_bytes)
        self._write_turn = False

    def _move(self, m: AxiMaster) -> None:
        s = self.slave
        if m.wvalid and s.wready:
            self._write_turn = False
        s.wready = 0
        if self.cycle % 780 >= 760:
            return
        write = bool(self._writes)
        if (
            self._reads
            and not s.rvalid
            and self._reads[0].due <= self.cycle
            and not (write and m.wvalid and self._write_turn)
        ):
            self._offer()
            self._write_turn = True
        elif write:
            s.wready = 1

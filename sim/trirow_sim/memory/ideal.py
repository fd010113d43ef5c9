"""Memory model `ideal`: nothing ever stands in the way."""

from trirow_sim.axi import AxiMaster
from trirow_sim.memory.model import QueuedMemory

__all__ = ["IdealMemory"]


class IdealMemory(QueuedMemory):
    """Read latency 2, a beat a cycle on R and on W, response one cycle after the last beat.

    - Read: address taken in t, first beat offered in t + 2 or later, a beat a cycle; bursts that
      are queued follow each other without a gap.
    - Write: address taken in t, WREADY from t + 1 on, a beat a cycle. Last beat taken in t,
      response offered in t + 1.
    - R and W do not hinder each other.
    """

    __slots__ = ()

    summary = "latency 2, a beat a cycle on each channel"
    read_latency = 2
    write_latency = 1

    def _move(self, m: AxiMaster) -> None:
        s = self.slave
        s.wready = 1 if self._writes else 0
        if self._reads and not s.rvalid and self._reads[0].due <= self.cycle:
            self._offer()

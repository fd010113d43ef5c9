"""Memory model `nngen`: the memory under which NNgen's accelerators are measured."""

from trirow_sim.axi import AxiMaster
from trirow_sim.memory.model import QueuedMemory, Write
from trirow_sim.memory.storage import Memory

__all__ = ["NngenMemory"]

ADDRESS_CYCLES = 12


class NngenMemory(QueuedMemory):
    """Reads one burst at a time, 12 cycles for every address, data in 15 of 19 cycles.

    - Read: 12 idle cycles lie between the address handshake, or the handshake of the last beat of
      the burst before if that is later, and the first cycle in which data may be offered: either in
      t, data offered in t + 13.
    - Write: every burst has an address phase of 12 cycles, and its data are taken after that. The
      phase of a burst begins in the first cycle that comes after its address handshake and in which
      the burst before may give data: that one's own phase is over, and all data of the burst before
      it are taken. So it overlaps the data of the burst before, never more. A burst alone: address
      taken in t, phase in t + 1 to t + 12, WREADY from t + 13 on.
    - Response: last beat taken in t, offered in t + 1.
    - In the cycles c with c mod 19 >= 15 WREADY is down and no read beat is offered; one that was
      offered before and waits may be taken. Idle cycles and address phases go on.
    - Otherwise reads and writes do not hinder each other.
    """

    __slots__ = ("_addressed", "_phase_end", "_read_free")

    summary = "one read burst at a time, 12 cycles an address, data in 15 of 19 cycles"
    read_latency = ADDRESS_CYCLES + 1
    write_latency = 1

    def __init__(self, memory: Memory, bus_bytes: int) -> None:
        super().__init__(memory, bus_bytes)
        self._read_free = 0  # first cycle in which the burst before lets data be offered
        self._addressed = 0  # writes at the head of the queue whose address phase is over
        self._phase_end = 0  # last cycle of the address phase that runs; 0 if none does

    def _read_done(self) -> None:
        self._read_free = self.cycle - 1 + self.read_latency

    def _write_done(self, write: Write) -> None:
        super()._write_done(write)
        self._addressed -= 1

    def _move(self, m: AxiMaster) -> None:
        s = self.slave
        cycle = self.cycle
        if self._phase_end and self._phase_end < cycle:
            self._phase_end = 0
            self._addressed += 1
        if not self._phase_end and self._addressed < 2 and len(self._writes) > self._addressed:
            self._phase_end = cycle + ADDRESS_CYCLES - 1
        if cycle % 19 >= 15:
            s.wready = 0
            return
        s.wready = 1 if self._addressed else 0
        if (
            self._reads
            and not s.rvalid
            and self._reads[0].due <= cycle
            and self._read_free <= cycle
        ):
            self._offer()

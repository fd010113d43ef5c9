"""Memory model `random`: stalls and latencies drawn from a seed."""

from trirow_sim.axi import AxiMaster
from trirow_sim.memory.model import MAX_QUEUED, QueuedMemory, Read, Write
from trirow_sim.memory.storage import Memory

__all__ = ["RandomMemory", "xorshift32"]

MASK = 0xFFFFFFFF
AR, R, AW, W, B = range(5)


def xorshift32(x: int) -> int:
    """Return the state after `x` of Marsaglia's generator with shifts 13, 17 and 5.

    G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003.
    """
    x ^= x << 13 & MASK
    x ^= x >> 17
    return x ^ (x << 5 & MASK)


class RandomMemory(QueuedMemory):
    """Stalls in runs on each of the five channels, latencies of 1 to 60 cycles.

    - The channels k = 0 to 4 are AR, R, AW, W, B. Each has its own generator, `xorshift32`, whose
      state before the first draw is (seed * 0x9E3779B9 + k * 0x85EBCA6B) mod 2^32, or 1 if that is
      0. The step at the end of every cycle draws one word d for each channel, busy or not.
    - Stalls: each channel has a count of stalled cycles to come, 0 at first. The step at the end of
      cycle t lowers it by one if it is above 0. Else, if d mod 8 = 0, a run begins: the count
      becomes 1 + (d div 256) mod 8, or 32 + (d div 256) mod 128 if also (d div 8) mod 32 = 0.
      If it is above 0 after that, the channel is stalled in t + 1.
    - A stalled AR, AW or W has its ready down. On a stalled R or B nothing is offered; what was
      offered before and waits may be taken.
    - Read: address taken in t, first beat offered in t + 1 + (d div 65,536) mod 60 or later, with
      the d that R draws in that step.
    - Response: last beat taken in t, offered in t + 1 + (d div 65,536) mod 60 or later, with the d
      that B draws in that step.
    - A beat a cycle on R and on W, which do not hinder each other.

    Parameters
    ----------
    memory : Memory
        The bytes behind it.
    bus_bytes : int
        Width of the data bus in bytes.
    seed : int
        From 0 to 2^32 - 1.
    """

    __slots__ = ("_draws", "_stalls")

    summary = "stalls in runs on all five channels and latencies of 1 to 60, from a seed"

    def __init__(self, memory: Memory, bus_bytes: int, *, seed: int = 1) -> None:
        if not 0 <= seed <= MASK:
            raise ValueError(f"seed must be from 0 to 2^32 - 1, not {seed!r}")
        super().__init__(memory, bus_bytes)
        self._draws = [(seed * 0x9E3779B9 + k * 0x85EBCA6B) & MASK or 1 for k in range(5)]
        self._stalls = [0] * 5

    def step(self, master: AxiMaster) -> None:
        """End the present cycle, in which the accelerator drove `master`, and begin the next."""
        self.cycle += 1
        draws = self._draws
        stalls = self._stalls
        for k in range(5):
            draws[k] = d = xorshift32(draws[k])
            if stalls[k]:
                stalls[k] -= 1
            elif not d & 7:
                stalls[k] = 32 + (d >> 8) % 128 if not d >> 3 & 31 else 1 + (d >> 8) % 8
        self._take(master)
        self._drive(master)

    def _drive(self, m: AxiMaster) -> None:
        s = self.slave
        stalls = self._stalls
        s.arready = 1 if len(self._reads) < MAX_QUEUED and not stalls[AR] else 0
        s.awready = 1 if self._open_writes < MAX_QUEUED and not stalls[AW] else 0
        if (
            self._responses
            and not s.bvalid
            and not stalls[B]
            and self._responses[0].due <= self.cycle
        ):
            self._respond()
        self._move(m)

    def _move(self, m: AxiMaster) -> None:
        s = self.slave
        stalls = self._stalls
        s.wready = 1 if self._writes and not stalls[W] else 0
        if self._reads and not s.rvalid and not stalls[R] and self._reads[0].due <= self.cycle:
            self._offer()

    def _fetch(self, addr: int, beats: int) -> Read:
        read = super()._fetch(addr, beats)
        read.due = self.cycle + (self._draws[R] >> 16) % 60
        return read

    def _write_done(self, write: Write) -> None:
        super()._write_done(write)
        write.due = self.cycle + (self._draws[B] >> 16) % 60

"""What all memory models have in common: the queues, the data and the order of a step."""

from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar

from trirow_sim.axi import DECERR, OKAY, SLVERR, AxiMaster, AxiSlave
from trirow_sim.memory.storage import Memory

__all__ = ["MAX_QUEUED", "MemoryModel", "QueuedMemory"]

MAX_QUEUED = 16
"""Reads, and writes, that a model takes before the first of them is complete."""


class MemoryModel(ABC):
    """An AXI4 memory, cycle by cycle.

    `slave` holds what the memory drives in the present cycle. It depends on state alone: all
    outputs are registered. `step` is called at the clock edge that ends the cycle.

    Parameters
    ----------
    memory : Memory
        The bytes behind it.
    bus_bytes : int
        Width of the data bus in bytes; a power of two from 1 to 128.

    Attributes
    ----------
    slave : AxiSlave
        What the memory drives in the present cycle; one object, changed by `step`.
    memory : Memory
        The bytes behind it.
    cycle : int
        Number of the present cycle; 0 is the first one of the run.
    read_errors, write_errors : range or None
        Addresses whose reads (writes) are answered with SLVERR; see `FaultyMemory`.
    """

    __slots__ = ("_bus_bytes", "cycle", "memory", "read_errors", "slave", "write_errors")

    def __init__(self, memory: Memory, bus_bytes: int) -> None:
        if bus_bytes not in (1, 2, 4, 8, 16, 32, 64, 128):
            raise ValueError(f"bus_bytes must be a power of two from 1 to 128, not {bus_bytes!r}")
        self._bus_bytes = bus_bytes
        self.memory = memory
        self.slave = AxiSlave()
        self.cycle = 0
        self.read_errors: range | None = None
        self.write_errors: range | None = None

    @property
    def bus_bytes(self) -> int:
        """Width of the data bus in bytes."""
        return self._bus_bytes

    @abstractmethod
    def step(self, master: AxiMaster) -> None:
        """End the present cycle, in which the accelerator drove `master`, and begin the next."""


class Read:
    """A read burst from its address handshake until its last beat is taken."""

    __slots__ = ("addr", "beat", "beats", "data", "due", "resps")

    def __init__(self, addr: int, beats: int, due: int, data: bytes, resps: list[int] | None):
        self.addr = addr
        self.beats = beats
        self.beat = 0  # beats offered so far
        self.due = due  # first cycle in which data may be offered
        self.data = data
        self.resps = resps  # by beat; None if all are OKAY


class Write:
    """A write burst from its address handshake until its response is taken."""

    __slots__ = ("addr", "beats", "data", "due", "strobes")

    def __init__(self, addr: int, beats: int):
        self.addr = addr
        self.beats = beats
        self.due = 0  # first cycle in which the response may be offered
        self.data: list[int] = []
        self.strobes: list[int] = []


class QueuedMemory(MemoryModel):
    """Base of the models: queues of 16 reads and 16 writes, answered in order.

    In the text below, a handshake in cycle t is seen by the step at the end of cycle t, which
    decides what is driven in cycle t + 1. "Offered in c" means that c is the first cycle in which
    valid is up for that beat or response.

    Addresses. ARREADY is up while fewer than 16 reads are queued, AWREADY while fewer than 16
    writes are; a read leaves its queue when its last beat is taken, a write when its response is
    taken. The handshake that frees a place in cycle t raises ready in t + 1. Address bits below
    the width of the bus are ignored.

    Reads. All data of a burst are read from memory in the step of its address handshake. There is
    one output register: a beat can be offered in cycle t + 1 if the register is empty in t or is
    taken in t. A beat that waits stays, whatever stops data.

    Writes. WREADY is up only while a burst lacks data whose address was taken in an earlier cycle.
    WLAST is ignored; beats are counted. A beat costs a beat, whichever strobes are set. The bytes
    are stored in the step that offers the response, the latest moment that AXI allows: a read
    whose address is taken before the response is up sees the old bytes. Responses have one output
    register like read data.

    Errors. A beat outside the memory is answered with DECERR, one that touches `read_errors` or
    `write_errors` with SLVERR. Such a read beat carries 0, such a write beat is not stored; the
    response of a write is the highest of its beats.

    Parameters
    ----------
    memory : Memory
        The bytes behind it.
    bus_bytes : int
        Width of the data bus in bytes.
    """

    __slots__ = ("_open_writes", "_reads", "_responses", "_writes")

    summary: ClassVar[str]
    """One line for people."""

    read_latency: ClassVar[int] = 1
    """Cycles from the address handshake to the first cycle in which data may be offered."""

    write_latency: ClassVar[int] = 1
    """Cycles from the handshake of the last beat to the first one in which B may be offered."""

    def __init__(self, memory: Memory, bus_bytes: int) -> None:
        super().__init__(memory, bus_bytes)
        self._reads: deque[Read] = deque()
        self._writes: deque[Write] = deque()  # those that lack data
        self._responses: deque[Write] = deque()  # those that lack nothing but the response
        self._open_writes = 0
        self.slave.arready = 1
        self.slave.awready = 1

    def step(self, master: AxiMaster) -> None:
        """End the present cycle, in which the accelerator drove `master`, and begin the next."""
        self.cycle += 1
        if not self._reads and not self._open_writes and not master.arvalid and not master.awvalid:
            return  # all that is driven is ARREADY and AWREADY
        self._take(master)
        self._drive(master)

    def _take(self, m: AxiMaster) -> None:
        """Do the handshakes of the cycle that ends, which is ``self.cycle - 1``."""
        s = self.slave
        if s.rvalid and m.rready:
            s.rvalid = 0
            if s.rlast:
                self._reads.popleft()
                self._read_done()
        if s.bvalid and m.bready:
            s.bvalid = 0
            self._responses.popleft()
            self._open_writes -= 1
        if m.wvalid and s.wready:
            write = self._writes[0]
            write.data.append(m.wdata)
            write.strobes.append(m.wstrb)
            if len(write.data) == write.beats:
                self._writes.popleft()
                self._write_done(write)
        if m.arvalid and s.arready:
            self._reads.append(self._fetch(m.araddr & -self._bus_bytes, m.arlen + 1))
        if m.awvalid and s.awready:
            self._writes.append(Write(m.awaddr & -self._bus_bytes, m.awlen + 1))
            self._open_writes += 1

    def _drive(self, m: AxiMaster) -> None:
        """Work out `slave` for the cycle that begins, which is ``self.cycle``."""
        s = self.slave
        s.arready = 1 if len(self._reads) < MAX_QUEUED else 0
        s.awready = 1 if self._open_writes < MAX_QUEUED else 0
        if self._responses and not s.bvalid and self._responses[0].due <= self.cycle:
            self._respond()
        self._move(m)

    @abstractmethod
    def _move(self, m: AxiMaster) -> None:
        """Set WREADY for the cycle that begins, and offer a read beat if the model allows."""

    def _read_done(self) -> None:
        """Note that the last beat of a read was taken in the cycle that ends."""

    def _write_done(self, write: Write) -> None:
        """Note that the last beat of `write` was taken in the cycle that ends."""
        write.due = self.cycle - 1 + self.write_latency
        self._responses.append(write)

    def _fetch(self, addr: int, beats: int) -> Read:
        size = self._bus_bytes
        due = self.cycle - 1 + self.read_latency
        if self.memory.contains(addr, beats * size) and self.read_errors is None:
            return Read(addr, beats, due, self.memory.read(addr, beats * size), None)
        starts = range(addr, addr + beats * size, size)
        resps = [self._resp(start, self.read_errors) for start in starts]
        data = b"".join(
            bytes(size) if resp else self.memory.read(start, size)
            for start, resp in zip(starts, resps, strict=True)
        )
        return Read(addr, beats, due, data, resps)

    def _offer(self) -> None:
        """Offer the next beat of the oldest read; the register must be empty."""
        s = self.slave
        read = self._reads[0]
        i = read.beat
        size = self._bus_bytes
        s.rvalid = 1
        s.rdata = int.from_bytes(read.data[i * size : i * size + size], "little")
        s.rresp = OKAY if read.resps is None else read.resps[i]
        read.beat = i = i + 1
        s.rlast = 1 if i == read.beats else 0

    def _respond(self) -> None:
        """Store the oldest complete write and offer its response."""
        write = self._responses[0]
        size = self._bus_bytes
        worst = OKAY
        addr = write.addr
        for data, strobes in zip(write.data, write.strobes, strict=True):
            resp = self._resp(addr, self.write_errors)
            if resp:
                worst = max(worst, resp)
            else:
                self.memory.write(addr, data.to_bytes(size, "little"), strobes)
            addr += size
        self.slave.bvalid = 1
        self.slave.bresp = worst

    def _resp(self, addr: int, errors: range | None) -> int:
        """Return the response of the beat at `addr`."""
        if not self.memory.contains(addr, self._bus_bytes):
            return DECERR
        if errors is not None and addr < errors.stop and errors.start < addr + self._bus_bytes:
            return SLVERR
        return OKAY

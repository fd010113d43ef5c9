"""Several AXI4 managers in front of one subordinate."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4
from .queue import Queue

__all__ = ["AxiArbiter"]

_REQUEST = ("addr", "len", "size", "burst", "cache", "prot")


class AxiArbiter(wiring.Component):
    """Give the bus to its managers in turn, a burst at a time; reads and writes on their own.

    The subordinate answers in order, so which manager an answer is for is known from a queue. Write
    data follow in the order of their addresses. All channels move a beat a cycle; R, W and B pass
    without latency, addresses take 1 cycle, one every 2 cycles in each direction. A manager waits
    while ``outstanding`` bursts of the direction are on the way.

    A manager must send the data of a burst whose address was taken, and take the answers to what
    it asked for: as long as it does not, the others wait as well.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    managers : int
        1 or more.
    outstanding : int
        Bursts in each direction, 2 or more.

    Members
    -------
    managers : In(AXI4(data_bytes=bus_bytes)).array(managers)
    bus : Out(AXI4(data_bytes=bus_bytes))
    """

    def __init__(self, *, bus_bytes: int, managers: int = 2, outstanding: int = 16):
        if managers < 1:
            raise ValueError(f"managers must be at least 1, not {managers!r}")
        if outstanding < 2:
            raise ValueError(f"outstanding must be at least 2, not {outstanding!r}")
        self._count = managers
        self._outstanding = outstanding
        super().__init__(
            {
                "managers": In(AXI4(data_bytes=bus_bytes)).array(managers),
                "bus": Out(AXI4(data_bytes=bus_bytes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # The register behind each queue is one of the places: it steers all that passes.
        depth = self._outstanding - 1
        m.submodules.reads = reads = Queue(range(self._count), depth=depth, registered=True)
        m.submodules.data = data = Queue(range(self._count), depth=depth, registered=True)
        m.submodules.writes = writes = Queue(range(self._count), depth=depth, registered=True)
        self._elaborate_addresses(m, "ar", [reads])
        self._elaborate_addresses(m, "aw", [data, writes])
        self._elaborate_answers(m, "r", ("data", "resp", "last"), reads, self.bus.rlast)
        self._elaborate_answers(m, "b", ("resp",), writes, 1)
        self._elaborate_write_data(m, data)
        return m

    def _elaborate_addresses(self, m, channel, queues):
        """Take an address into a register, from the managers in turn, and note whose it is."""
        bus = self.bus
        wanted = [getattr(manager, f"{channel}valid") for manager in self.managers]
        turn, choice = (
            Signal(range(self._count), name=f"{channel}_{n}") for n in ("turn", "choice")
        )
        valid, take = getattr(bus, f"{channel}valid"), Signal(name=f"{channel}_take")
        # Later assignments win: the manager after the one that was served last.
        with m.Switch(turn):
            for last in range(self._count):
                with m.Case(last):
                    for k in range(self._count):
                        with m.If(wanted[(last - k) % self._count]):
                            m.d.comb += choice.eq((last - k) % self._count)
        room = Cat(queue.i.ready for queue in queues).all()
        m.d.comb += take.eq(Cat(wanted).any() & room & ~valid)
        for queue in queues:
            m.d.comb += [queue.i.valid.eq(take), queue.i.payload.eq(choice)]
        for k, manager in enumerate(self.managers):
            m.d.comb += getattr(manager, f"{channel}ready").eq(take & (choice == k))
        with m.If(take):
            m.d.sync += [valid.eq(1), turn.eq(choice)]
            for name in _REQUEST:
                sources = Array(getattr(manager, channel + name) for manager in self.managers)
                m.d.sync += getattr(bus, channel + name).eq(sources[choice])
        with m.Elif(getattr(bus, f"{channel}ready")):
            m.d.sync += valid.eq(0)

    def _elaborate_answers(self, m, channel, fields, owners, last):
        """Hand answers to whose turn it is."""
        bus, owner = self.bus, owners.o.payload
        valid, ready = getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready")
        readies = Array(getattr(manager, f"{channel}ready") for manager in self.managers)
        m.d.comb += [
            ready.eq(owners.o.valid & readies[owner]),
            owners.o.ready.eq(valid & ready & last),
        ]
        for k, manager in enumerate(self.managers):
            mine = owners.o.valid & (owner == k)
            m.d.comb += getattr(manager, f"{channel}valid").eq(valid & mine)
            for name in fields:
                m.d.comb += getattr(manager, channel + name).eq(getattr(bus, channel + name))

    def _elaborate_write_data(self, m, owners):
        """Pass the data of the burst whose turn it is."""
        bus, owner = self.bus, owners.o.payload
        for name in ("wdata", "wstrb", "wlast"):
            sources = Array(getattr(manager, name) for manager in self.managers)
            m.d.comb += getattr(bus, name).eq(sources[owner])
        valids = Array(manager.wvalid for manager in self.managers)
        m.d.comb += [
            bus.wvalid.eq(owners.o.valid & valids[owner]),
            owners.o.ready.eq(bus.wvalid & bus.wready & bus.wlast),
        ]
        for k, manager in enumerate(self.managers):
            m.d.comb += manager.wready.eq(owners.o.valid & (owner == k) & bus.wready)

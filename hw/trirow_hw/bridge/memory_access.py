"""Bytes from and to any address of a memory behind AXI4."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..axi import AXI4, Burst
from ..config import BURST_BYTES
from .protocol import MAX_DATA

__all__ = ["MemoryAccess"]

#: Normal, non-cacheable, bufferable (Arm IHI 0022, table A4-5).
_CACHE = 0b0011


class MemoryAccess(wiring.Component):
    """Write a stream of bytes to a memory, or read one from it.

    Bursts are cut where the address is a multiple of 512. One is on the way at a time; its data
    take 2 cycles for each byte, reads as fast as ``o`` takes them, writes as fast as ``i`` gives
    them. The responses of all bursts are awaited.

    Parameters
    ----------
    bus_bytes : int
        Width of the data bus, a power of two from 2 to 128.

    Members
    -------
    start : In(1)
        Strobe, only when ``busy`` is down.
    write : In(1), address : In(32), length : In(range(MAX_DATA + 1))
        What to do, with ``start``.
    i, o : stream.Signature(8)
        Bytes to write, bytes read.
    busy : Out(1)
    response : Out(2)
        When ``busy`` has gone down: the greatest of the AXI responses.
    bus : Out(AXI4)
    """

    def __init__(self, *, bus_bytes: int):
        if bus_bytes not in (2, 4, 8, 16, 32, 64, 128):
            raise ValueError(f"bus_bytes must be a power of two from 2 to 128, not {bus_bytes!r}")
        self._bus_bytes = bus_bytes
        super().__init__(
            {
                "start": In(1),
                "write": In(1),
                "address": In(32),
                "length": In(range(MAX_DATA + 1)),
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "busy": Out(1),
                "response": Out(2),
                "bus": Out(AXI4(data_bytes=bus_bytes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        lane_bits = exact_log2(self._bus_bytes)
        block, offset = Signal(32 - exact_log2(BURST_BYTES)), Signal(range(BURST_BYTES))
        left = Signal.like(self.length)  # bytes behind this burst
        room = Signal(range(BURST_BYTES + 1))
        burst = _Burst(self._bus_bytes)
        self._elaborate_requests(m, Cat(offset, block), burst)
        self._elaborate_responses(m)
        self._elaborate_data(m, burst)
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [Cat(offset, block).eq(self.address), left.eq(self.length)]
                with m.If(self.start):
                    m.d.sync += [burst.writes.eq(self.write), self.response.eq(0)]
                    m.next = "ROOM"

            with m.State("ROOM"):
                m.d.sync += [room.eq(BURST_BYTES - offset), burst.skip.eq(offset)]
                m.next = "COUNT"
                with m.If(left == 0):
                    m.next = "IDLE"

            with m.State("COUNT"):
                m.d.sync += burst.count.eq(Mux(room < left, room, left))
                m.next = "BEATS"

            with m.State("BEATS"):
                m.d.sync += [
                    left.eq(left - burst.count),
                    burst.used.eq(burst.skip == 0),
                    burst.beats.eq((burst.skip + burst.count - 1) >> lane_bits),
                ]
                m.next = "ADDRESS"

            with m.State("ADDRESS"):
                m.d.comb += [bus.awvalid.eq(burst.writes), bus.arvalid.eq(~burst.writes)]
                with m.If(Mux(burst.writes, bus.awready, bus.arready)):
                    m.next = "BEAT"

            self._elaborate_beats(m, burst)
            with m.State("NEXT"):
                m.d.sync += [block.eq(block + 1), offset.eq(0)]
                m.next = "ROOM"
        return m

    def _elaborate_requests(self, m, address, burst):
        lane_bits = exact_log2(self._bus_bytes)
        fields = {
            "addr": address[lane_bits:] << lane_bits,
            "len": burst.beats,
            "size": lane_bits,
            "burst": Burst.INCR.value,
            "cache": _CACHE,
        }
        for channel in ("aw", "ar"):
            for name, value in fields.items():
                m.d.comb += getattr(self.bus, channel + name).eq(value)

    def _elaborate_data(self, m, burst):
        """Shift one register by a lane in a cycle: bytes come out of it, or go into it."""
        bus = self.bus
        m.d.comb += [
            self.o.payload.eq(burst.data[:8]),
            bus.wdata.eq(burst.data),
            bus.wstrb.eq(burst.strobes),
            bus.wlast.eq(burst.count == 0),
        ]
        with m.If(burst.moved):
            m.d.sync += [
                burst.data.eq(Cat(burst.data[8:], self.i.payload)),
                burst.strobes.eq(Cat(burst.strobes[1:], burst.used)),
                burst.lane.eq(burst.lane + 1),
                burst.skip.eq(burst.skip - (burst.skip != 0)),
                burst.count.eq(burst.count - burst.used),
                # Decided for the next lane: it enables all of the data register.
                burst.used.eq((burst.skip <= 1) & (burst.count > burst.used)),
            ]
        with m.Elif(bus.rvalid & bus.rready):
            m.d.sync += burst.data.eq(bus.rdata)

    def _elaborate_beats(self, m, burst):
        bus, writes, used = self.bus, burst.writes, burst.used
        with m.State("BEAT"):  # a beat is read, or begun
            m.d.comb += bus.rready.eq(~writes)
            with m.If(writes | bus.rvalid):
                m.next = "LANES"

        # Two states for a lane, so that no stream enables all of the data register.
        with m.State("LANES"):
            m.d.comb += self.o.valid.eq(~writes & used)
            with m.If(~used | Mux(writes, self.i.valid, self.o.ready)):
                m.next = "MOVE"

        with m.State("MOVE"):
            m.d.comb += [burst.moved.eq(1), self.i.ready.eq(writes & used)]
            m.next = "LANES"
            with m.If(burst.lane == self._bus_bytes - 1):
                m.next = "END"

        with m.State("END"):
            m.d.comb += bus.wvalid.eq(writes)
            with m.If(~writes | bus.wready):
                m.next = "BEAT"
                with m.If(burst.count == 0):
                    m.next = "NEXT"
                    with m.If(writes):
                        m.next = "RESPONSE"

        with m.State("RESPONSE"):
            m.d.comb += bus.bready.eq(1)
            with m.If(bus.bvalid):
                m.next = "NEXT"

    def _elaborate_responses(self, m):
        bus = self.bus
        for valid, ready, code in (
            (bus.bvalid, bus.bready, bus.bresp),
            (bus.rvalid, bus.rready, bus.rresp),
        ):
            with m.If(valid & ready & (code > self.response)):
                m.d.sync += self.response.eq(code)


class _Burst:
    """Signals of the burst that is on the way."""

    def __init__(self, bus_bytes: int):
        self.writes = Signal()
        self.beats = Signal(8)  # less one
        self.count = Signal(range(BURST_BYTES + 1))  # bytes to come
        self.skip = Signal(range(bus_bytes))  # lanes before the first byte
        self.data = Signal(8 * bus_bytes, reset_less=True)  # the present beat
        self.strobes = Signal(bus_bytes, reset_less=True)
        self.lane = Signal(range(bus_bytes))
        self.used = Signal()  # the lane has a byte
        self.moved = Signal()

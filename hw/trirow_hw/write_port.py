"""The AXI4 write channels."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4, Burst, Response
from .queue import Queue
from .spans import check_power_of_two

__all__ = ["WriteBeat", "WriteError", "WritePort", "WriteRequest"]

#: A burst to be written: first address (aligned to the bus), beats (1 to 256), index of the pass
#: it is of, and whether it is the pass's last.
WriteRequest = data.StructLayout({"address": 32, "beats": 9, "index": 16, "last": 1})

#: What went wrong: address outside the window (1) or an error response (0), in which pass.
WriteError = data.StructLayout({"window": 1, "index": 16})


def WriteBeat(bus_bytes: int):
    """Return the layout of a beat: data, and which of its bytes are written."""
    return data.StructLayout({"data": 8 * bus_bytes, "strobe": bus_bytes})


class WritePort(wiring.Component):
    """Send bursts whose data are there already, and count the passes whose outputs have landed.

    A burst is taken every 4 cycles or more; its address appears 4 cycles later, and its data 3
    cycles behind the address, a beat a cycle, while the next address is sent. Beats that belong to
    a burst must be there when it is requested. A burst of one beat takes 2 cycles.

    After ``stop`` no new burst is sent; the rest of those that were is sent without strobes, so
    that nothing is written, but for the two beats at most that are already under way here. The
    units in front are reset meanwhile; this unit is not.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    outstanding : int
        Bursts that may be on the way, 1 or more.

    Members
    -------
    axi : Out(AXI4)
        Only the write channels are driven.
    base, limit : In(32)
        Window of addresses that may be written: from ``base`` up to ``limit``, exclusive.
    request : In(stream.Signature(WriteRequest)), beats : In(stream.Signature(WriteBeat))
    landed : Out(1)
        Strobe: every output of a pass has been written and acknowledged.
    waits : Out(1), oldest : Out(16)
        Some burst is on the way; the pass of the oldest of them.
    stop : In(1)
    idle : Out(1)
        No burst is on the way.
    error : Out(WriteError), error_valid : Out(1)
        Strobe, a cycle later: what went wrong.
    """

    def __init__(self, *, bus_bytes: int, outstanding: int = 8):
        check_power_of_two("bus_bytes", bus_bytes)
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding!r}")
        self._bus_bytes = bus_bytes
        self._outstanding = outstanding
        self._failed = Signal()
        super().__init__(
            {
                "axi": Out(AXI4(data_bytes=bus_bytes)),
                "base": In(32),
                "limit": In(32),
                "request": In(stream.Signature(WriteRequest)),
                "beats": In(stream.Signature(WriteBeat(bus_bytes))),
                "landed": Out(1),
                "waits": Out(1),
                "oldest": Out(16),
                "stop": In(1),
                "idle": Out(1),
                "error": Out(WriteError),
                "error_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        order_shape = data.StructLayout({"index": 16, "last": 1})
        # The register behind the queue is one of the places.
        m.submodules.order = order = Queue(
            order_shape,
            depth=max(1, self._outstanding - 1),
            registered=self._outstanding > 1,
        )
        m.submodules.lengths = lengths = Queue(8, depth=self._outstanding)
        self._elaborate_addresses(m, order, lengths)
        self._elaborate_data(m, lengths)
        self._elaborate_answers(m, order)
        m.d.comb += [
            self.axi.awsize.eq(self._bus_bytes.bit_length() - 1),
            self.axi.awburst.eq(Burst.INCR.value),
            self.axi.awcache.eq(0b0011),
        ]
        return m

    def _elaborate_addresses(self, m, order, lengths):
        """Check and send one request after another; count the bursts on the way."""
        request = Signal(WriteRequest)
        end = Signal(33)
        below, outside, ready = Signal(), Signal(), Signal()
        count = Signal(range(self._outstanding + 1))
        m.d.comb += [
            order.i.payload.index.eq(request.index),
            order.i.payload.last.eq(request.last),
            lengths.i.payload.eq(self.axi.awlen),
            lengths.i.valid.eq(self.axi.awvalid & self.axi.awready),
            self.error_valid.eq(self._failed & ~self.stop),
        ]
        m.d.sync += [
            self._failed.eq(0),
            count.eq(count + order.i.valid - (order.o.valid & order.o.ready)),
        ]
        with m.If(self.axi.awready):
            m.d.sync += self.axi.awvalid.eq(0)
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += [
                    ready.eq(order.i.ready & ~self.stop),
                    self.idle.eq(count == 0),
                ]
                m.d.sync += request.eq(self.request.payload)
                with m.If(self.request.valid & ready):
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.d.sync += [
                    below.eq(request.address < self.base),
                    end.eq(request.address + request.beats * self._bus_bytes),
                ]
                m.next = "WINDOW"

            with m.State("WINDOW"):
                m.d.sync += outside.eq(below | (end > self.limit))
                m.next = "SEND"

            with m.State("SEND"):
                with m.If(self.stop):
                    m.next = "TAKE"
                with m.Elif(outside):
                    self._report(m, 1, request.index)
                    m.next = "TAKE"
                with m.Elif(~self.axi.awvalid | self.axi.awready):
                    m.d.comb += order.i.valid.eq(1)
                    m.d.sync += [
                        self.axi.awaddr.eq(request.address),
                        self.axi.awlen.eq(request.beats - 1),
                        self.axi.awvalid.eq(1),
                    ]
                    m.next = "TAKE"
        m.d.comb += self.request.ready.eq(ready)

    def _report(self, m, window, index):
        m.d.sync += [self._failed.eq(1), self.error.window.eq(window), self.error.index.eq(index)]

    def _elaborate_data(self, m, lengths):
        """Send a beat of the oldest burst."""
        active, last, sends = Signal(), Signal(), Signal()
        left = Signal(8)  # beats behind the one that is sent next
        # Two places between WREADY and what it would hold up.
        beat = data.StructLayout({"beat": WriteBeat(self._bus_bytes), "last": 1})
        m.submodules.sent = sent = Queue(beat, depth=2)
        m.d.comb += [
            sent.i.valid.eq(active & (self.beats.valid | self.stop)),
            sent.i.payload.beat.data.eq(self.beats.payload.data),
            sent.i.payload.beat.strobe.eq(Mux(self.stop, 0, self.beats.payload.strobe)),
            sent.i.payload.last.eq(last),
            self.beats.ready.eq(active & sent.i.ready & ~self.stop),
            sends.eq(sent.i.ready & sent.i.valid),
            self.axi.wvalid.eq(sent.o.valid),
            self.axi.wdata.eq(sent.o.payload.beat.data),
            self.axi.wstrb.eq(sent.o.payload.beat.strobe),
            self.axi.wlast.eq(sent.o.payload.last),
            sent.o.ready.eq(self.axi.wready),
        ]
        with m.If(sends):
            m.d.sync += [left.eq(left - 1), last.eq(left == 1)]
        # A burst leaves its queue a cycle after its length has been copied.
        fresh = lengths.o.valid & ~lengths.o.ready
        m.d.sync += lengths.o.ready.eq(0)
        with m.If(~active | (sends & last)):
            m.d.sync += [
                active.eq(fresh),
                left.eq(lengths.o.payload),
                last.eq(lengths.o.payload == 0),
                lengths.o.ready.eq(fresh),
            ]

    def _elaborate_answers(self, m, order):
        m.d.comb += [
            self.axi.bready.eq(1),
            order.o.ready.eq(self.axi.bvalid),
            self.waits.eq(order.o.valid),
            self.oldest.eq(order.o.payload.index),
        ]
        with m.If(self.axi.bvalid):
            with m.If(self.axi.bresp != Response.OKAY.value):
                self._report(m, 0, order.o.payload.index)
            with m.Elif(~self.stop):
                m.d.comb += self.landed.eq(order.o.payload.last)

"""Pack output bytes into beats and beats into bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BURST_BYTES, Config
from .post_process import Outputs
from .queue import Queue
from .spans import BurstSplitter, Spans, flag_line_end
from .write_port import WriteBeat, WriteRequest

__all__ = ["OutputSpans", "OutputWriter"]

#: Where the outputs of a pass go.
OutputSpans = data.StructLayout({"spans": Spans, "index": 16})

#: Bursts among the last bytes of a pass are not longer, so that the last one goes out soon.
TAIL_BEATS = 8


class OutputWriter(wiring.Component):
    """Write the outputs of passes, each to its spans of memory.

    A column of outputs a cycle; where the last column of a span lies in two beats, a cycle more. A
    burst is requested when all of its beats are in the queue; it takes 2 cycles, 3 where a span
    ends, if its request is taken at once.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(OutputSpans))
        Passes, in order.
    outputs : In(stream.Signature(Outputs))
    request : Out(stream.Signature(WriteRequest)), beats : Out(stream.Signature(WriteBeat))
        To the write port.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(OutputSpans)),
                "outputs": In(stream.Signature(Outputs(config))),
                "request": Out(stream.Signature(WriteRequest)),
                "beats": Out(stream.Signature(WriteBeat(config.bus_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.beats = beats = Queue(
            WriteBeat(config.bus_bytes), depth=2 * config.burst_beats, block_ram=True
        )
        m.submodules.packing = packing = Queue(Spans, depth=4)
        m.submodules.sending = sending = Queue(OutputSpans, depth=4)
        m.d.comb += [
            packing.i.payload.eq(self.i.payload.spans),
            packing.i.valid.eq(self.i.valid & sending.i.ready),
            sending.i.payload.eq(self.i.payload),
            sending.i.valid.eq(self.i.valid & packing.i.ready),
            self.i.ready.eq(packing.i.ready & sending.i.ready),
        ]
        wiring.connect(m, beats.o, wiring.flipped(self.beats))
        self._elaborate_packing(m, packing.o, beats.i)
        self._elaborate_bursts(m, sending.o, beats.i.valid & beats.i.ready)
        return m

    def _elaborate_packing(self, m, spans, beats):
        """Put the bytes behind those that wait for their beat to be full, or for the span's end."""
        bus_bytes, post_lanes = self._config.bus_bytes, self._config.post_lanes
        size = bus_bytes + post_lanes
        word, strobe = Signal(8 * size), Signal(size)
        position, end = Signal(range(size)), Signal(range(size + post_lanes))
        merged, merged_strobe = Signal(8 * size), Signal(size)
        count = self.outputs.payload.count
        inside = Cat(count > k for k in range(post_lanes))
        inside_bits = Cat((count > k).replicate(8) for k in range(post_lanes))
        full, taken = Signal(), Signal()
        m.d.comb += [
            merged.eq(word | ((self.outputs.payload.data & inside_bits) << (position << 3))),
            merged_strobe.eq(strobe | (inside << position)),
            end.eq(position + count),
            full.eq(end >= bus_bytes),
            taken.eq(self.outputs.valid & self.outputs.ready),
            beats.payload.data.eq(merged),
            beats.payload.strobe.eq(merged_strobe),
        ]
        begins, advances = Signal(), Signal()
        last, left_total, gap = self._elaborate_spans(m, spans.payload, begins, taken, advances)
        span_ends, span_end = Signal(), Signal.like(end)
        m.d.comb += span_ends.eq(last & (count != 0))
        with m.If(taken):
            m.d.sync += [
                word.eq(Mux(full, merged >> 8 * bus_bytes, merged)),
                strobe.eq(Mux(full, merged_strobe >> bus_bytes, merged_strobe)),
                position.eq(Mux(full, end - bus_bytes, end)),
            ]
        with m.If(begins | advances):
            start = Mux(begins, spans.payload.address, span_end + gap)
            m.d.sync += [word.eq(0), strobe.eq(0), position.eq(start % bus_bytes)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += begins.eq(1)
                with m.If(spans.valid):
                    m.next = "PACK"

            with m.State("PACK"):
                m.d.comb += [
                    beats.valid.eq(self.outputs.valid & (full | span_ends)),
                    self.outputs.ready.eq(beats.ready | ~(full | span_ends)),
                    span_end.eq(end),
                ]
                with m.If(taken & span_ends):
                    with m.If(end > bus_bytes):
                        m.next = "REST"
                    with m.Else():
                        m.d.comb += advances.eq(1)
                        with m.If(left_total == count):
                            m.d.comb += spans.ready.eq(1)
                            m.next = "IDLE"

            with m.State("REST"):
                m.d.comb += [
                    beats.payload.data.eq(word),
                    beats.payload.strobe.eq(strobe),
                    beats.valid.eq(1),
                    span_end.eq(position),
                ]
                with m.If(beats.ready):
                    m.d.comb += advances.eq(1)
                    m.next = "PACK"
                    with m.If(left_total == 0):
                        m.d.comb += spans.ready.eq(1)
                        m.next = "IDLE"

    def _elaborate_spans(self, m, spans, begins, taken, advances):
        """Count the bytes; return whether a span ends, what is left of the pass, and the gap."""
        count = self.outputs.payload.count
        left_total, left_span = Signal(32), Signal(32)
        line_end = flag_line_end(m, spans, spans, begins=begins, advances=advances)
        with m.If(taken):
            m.d.sync += [left_total.eq(left_total - count), left_span.eq(left_span - count)]
        with m.If(begins):
            m.d.sync += [left_total.eq(spans.total), left_span.eq(spans.first)]
        with m.Elif(advances):
            m.d.sync += left_span.eq(spans.span)
        ends = (left_span == count) | (left_total == count)
        return ends, left_total, Mux(line_end, spans.turn, spans.gap)

    def _elaborate_bursts(self, m, passes, pushed):
        """Request a burst when its beats are in the queue and not promised to another."""
        config = self._config
        m.submodules.splitter = splitter = BurstSplitter(
            bus_bytes=config.bus_bytes, tail_bytes=min(BURST_BYTES, TAIL_BEATS * config.bus_bytes)
        )
        available = Signal(range(2 * config.burst_beats + 2))
        busy = Signal()
        promised = Mux(splitter.take, splitter.beats, 0)
        m.d.sync += available.eq(available + pushed - promised)
        m.d.comb += [
            splitter.i.payload.eq(passes.payload.spans),
            splitter.i.valid.eq(passes.valid & ~busy),
            splitter.take_beats.eq(splitter.beats),
            splitter.take_bytes.eq(splitter.bytes),
            splitter.take.eq(splitter.valid & (splitter.beats <= available) & ~self.request.valid),
        ]
        with m.If(splitter.i.valid & splitter.i.ready):
            m.d.sync += busy.eq(1)
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(splitter.take):
            m.d.sync += [
                self.request.valid.eq(1),
                self.request.payload.address.eq(splitter.address & ~(config.bus_bytes - 1)),
                self.request.payload.beats.eq(splitter.beats),
                self.request.payload.index.eq(passes.payload.index),
                self.request.payload.last.eq(splitter.last),
            ]
            with m.If(splitter.last):
                m.d.comb += passes.ready.eq(1)
                m.d.sync += busy.eq(0)

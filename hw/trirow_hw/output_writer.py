"""Pack output bytes into beats and beats into bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BURST_BYTES, Config
from .post_process import Outputs
from .queue import Queue
from .spans import BurstSplitter, Spans
from .write_port import WriteBeat, WriteRequest

__all__ = ["OutputSpans", "OutputWriter"]

#: Where the outputs of a pass go.
OutputSpans = data.StructLayout({"spans": Spans, "index": 16})

#: Bursts among the last bytes of a pass are not longer, so that the last one goes out soon.
TAIL_BEATS = 8


class OutputWriter(wiring.Component):
    """Write the outputs of passes, each to its spans of memory.

    A column of outputs a cycle; where a span ends within a beat, a cycle more. A burst is requested
    when all of its beats are in the queue.

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
        size = self._config.bus_bytes + self._config.post_lanes
        word, strobe = Signal(8 * size), Signal(size)
        position, end = Signal(range(size)), Signal(range(size + self._config.post_lanes))
        left_total, left_span = Signal(32), Signal(32)
        merged, merged_strobe = Signal(8 * size), Signal(size)
        count = self.outputs.payload.count
        inside = Cat(count > k for k in range(self._config.post_lanes))
        inside_bits = Cat((count > k).replicate(8) for k in range(self._config.post_lanes))
        span_ends, full = Signal(), Signal()
        m.d.comb += [
            merged.eq(word | ((self.outputs.payload.data & inside_bits) << (position << 3))),
            merged_strobe.eq(strobe | (inside << position)),
            end.eq(position + count),
            full.eq(end >= self._config.bus_bytes),
            span_ends.eq(((left_span == count) | (left_total == count)) & (count != 0)),
            beats.payload.data.eq(merged),
            beats.payload.strobe.eq(merged_strobe),
        ]
        start_span = [word.eq(0), strobe.eq(0)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    *start_span,
                    position.eq(spans.payload.address % self._config.bus_bytes),
                    left_total.eq(spans.payload.total),
                    left_span.eq(spans.payload.first),
                ]
                with m.If(spans.valid):
                    m.next = "PACK"

            with m.State("PACK"):
                m.d.comb += [
                    beats.valid.eq(self.outputs.valid & (full | span_ends)),
                    self.outputs.ready.eq(beats.ready | ~(full | span_ends)),
                ]
                with m.If(self.outputs.valid & self.outputs.ready):
                    m.d.sync += [
                        word.eq(Mux(full, merged >> 8 * self._config.bus_bytes, merged)),
                        strobe.eq(
                            Mux(full, merged_strobe >> self._config.bus_bytes, merged_strobe)
                        ),
                        position.eq(Mux(full, end - self._config.bus_bytes, end)),
                        left_total.eq(left_total - count),
                        left_span.eq(left_span - count),
                    ]
                    with m.If(span_ends):
                        with m.If(end > self._config.bus_bytes):
                            m.next = "REST"
                        with m.Else():
                            self._end_span(
                                m, spans, left_total == count, start_span, position, end, left_span
                            )

            with m.State("REST"):
                m.d.comb += [
                    beats.payload.data.eq(word),
                    beats.payload.strobe.eq(strobe),
                    beats.valid.eq(1),
                ]
                with m.If(beats.ready):
                    self._end_span(
                        m, spans, left_total == 0, start_span, position, position, left_span
                    )

    def _end_span(self, m, spans, pass_ends, start_span, position, end, left_span):
        """Go on with the next span, whose first byte is a gap behind ``end``, or the next pass."""
        m.d.sync += [
            *start_span,
            position.eq((end + spans.payload.gap) % self._config.bus_bytes),
            left_span.eq(spans.payload.span),
        ]
        m.next = "PACK"
        with m.If(pass_ends):
            m.d.comb += spans.ready.eq(1)
            m.next = "IDLE"

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

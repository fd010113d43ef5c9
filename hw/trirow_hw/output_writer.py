"""Pack output bytes into beats and beats into bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockQueue
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

#: Beats that may still come when the packing has been told that the queue is full.
BEATS_BEHIND = 4


def _Stretch(bus_bytes: int, low_bits: int):
    """Return the layout of a span as the packing sees it.

    ``offset``: of its first byte in its beat; ``low`` and ``high``: its bytes; ``short``: ``high``
    is 0.
    """
    offset = range(bus_bytes)
    return data.StructLayout({"offset": offset, "low": low_bits, "high": 32 - low_bits, "short": 1})


def _Step(config: Config):
    """Return the layout of a step of the packing.

    ``bytes``, as ``strobe`` says, go behind those that wait, ``position`` bytes into the beat. With
    ``push`` a beat is complete; with ``clear`` no byte waits any more.
    """
    return data.StructLayout(
        {
            "bytes": 8 * config.post_lanes,
            "strobe": config.post_lanes,
            "position": range(config.bus_bytes),
            "push": 1,
            "clear": 1,
        }
    )


class OutputWriter(wiring.Component):
    """Write the outputs of passes, each to its spans of memory.

    A column of outputs a cycle, a span every 4 cycles at most; where the last column of a span lies
    in two beats, a cycle more. A beat is in its queue 4 cycles behind the column that fills it. A
    burst is requested when all of its beats are in the queue; it takes 4 cycles, if its request is
    taken at once.

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
        # Two bursts and what comes behind them, as a power of two.
        self._places = 1 << (2 * config.burst_beats + BEATS_BEHIND - 1).bit_length()
        # A column that takes from the high bits leaves more of the low ones than the next two need.
        self._low_bits = (3 * config.post_lanes).bit_length()
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
        m.submodules.beats = beats = BlockQueue(WriteBeat(config.bus_bytes), depth=self._places)
        m.submodules.packing = packing = Queue(Spans, depth=4, registered=True)
        m.submodules.sending = sending = Queue(OutputSpans, depth=4, registered=True)
        stretch = _Stretch(config.bus_bytes, self._low_bits)
        m.submodules.stretches = stretches = Queue(stretch, depth=1, registered=True)
        m.d.comb += [
            packing.i.payload.eq(self.i.payload.spans),
            packing.i.valid.eq(self.i.valid & sending.i.ready),
            sending.i.payload.eq(self.i.payload),
            sending.i.valid.eq(self.i.valid & packing.i.ready),
            self.i.ready.eq(packing.i.ready & sending.i.ready),
        ]
        wiring.connect(m, beats.o, wiring.flipped(self.beats))
        self._elaborate_stretches(m, packing.o, stretches.i)
        step = Signal(_Step(config))
        self._elaborate_columns(m, stretches.o, step)
        self._elaborate_beats(m, step, beats.i)
        self._elaborate_bursts(m, sending.o, beats.i.valid)
        return m

    def _elaborate_stretches(self, m, passes, stretches):
        """Work out offset and length of each span, in 3 cycles."""
        spans = passes.payload
        left, length = Signal(32), Signal(32)
        rest = Signal(33)  # what is left of the pass behind the span; negative if that is cut short
        offset = Signal(range(self._config.bus_bytes))
        begins, advances, last = Signal(), Signal(), Signal()
        line_end = flag_line_end(m, spans, spans, begins=begins, advances=advances)
        m.d.comb += [
            stretches.payload.offset.eq(offset),
            Cat(stretches.payload.low, stretches.payload.high).eq(length),
            stretches.payload.short.eq(length[self._low_bits :] == 0),
        ]
        with m.FSM():
            with m.State("BEGIN"):
                m.d.comb += begins.eq(1)
                m.d.sync += [
                    left.eq(spans.total),
                    length.eq(spans.first),
                    offset.eq(spans.address),
                ]
                with m.If(passes.valid):
                    m.next = "MEASURE"

            with m.State("MEASURE"):
                m.d.sync += rest.eq(left - length)
                m.next = "CUT"

            with m.State("CUT"):
                m.d.sync += last.eq(rest[32] | (rest == 0))
                with m.If(rest[32]):
                    m.d.sync += length.eq(left)
                m.next = "OFFER"

            with m.State("OFFER"):
                m.d.comb += stretches.valid.eq(1)
                with m.If(stretches.ready):
                    m.d.comb += advances.eq(1)
                    m.d.sync += [
                        left.eq(rest),
                        length.eq(spans.span),
                        offset.eq(offset + length + Mux(line_end, spans.turn, spans.gap)),
                    ]
                    m.next = "MEASURE"
                    with m.If(last):
                        m.next = "NEXT PASS"

            with m.State("NEXT PASS"):
                m.d.comb += passes.ready.eq(1)
                m.next = "BEGIN"

    def _elaborate_columns(self, m, stretches, step):
        """Decide where each column goes and what it completes; no data are moved yet."""
        config = self._config
        bus_bytes, post_lanes = config.bus_bytes, config.post_lanes
        column = self.outputs.payload
        present = Signal(stretches.payload.shape())  # what is left of the span, from where on
        end = Signal(range(bus_bytes + post_lanes))
        active, rest, borrows = Signal(), Signal(), Signal()
        room, taken, full, ends = Signal(), Signal(), Signal(), Signal()
        used = Signal(range(self._places + 1))
        freed = Signal()
        m.d.comb += [
            self.outputs.ready.eq(active & ~rest & room),
            taken.eq(self.outputs.valid & self.outputs.ready),
            end.eq(present.offset + column.count),
            full.eq(end >= bus_bytes),
            ends.eq(present.short & (present.low == column.count)),
        ]
        m.d.sync += [
            freed.eq(self.beats.valid & self.beats.ready),
            used.eq(used + step.push - freed),
            room.eq(used < self._places - BEATS_BEHIND),
            step.bytes.eq(column.data),
            step.strobe.eq(Cat(taken & (column.count > k) for k in range(post_lanes))),
            step.position.eq(present.offset),
            step.push.eq((taken & (full | ends)) | rest),
            step.clear.eq(rest | (taken & ends & (end <= bus_bytes))),
            rest.eq(taken & ends & (end > bus_bytes)),
            present.short.eq(present.high == 0),
            borrows.eq(taken & (present.low < column.count)),
        ]
        with m.If(borrows):
            m.d.sync += present.high.eq(present.high - 1)
        with m.If(taken):
            m.d.sync += [present.offset.eq(end), present.low.eq(present.low - column.count)]
        # A span leaves its queue a cycle after it has been copied.
        fresh = stretches.valid & ~stretches.ready
        m.d.sync += stretches.ready.eq(0)
        with m.If(~active | (taken & ends)):
            m.d.sync += [
                active.eq(fresh),
                present.eq(stretches.payload),
                stretches.ready.eq(fresh),
            ]

    def _elaborate_beats(self, m, step, beats):
        """Shift the bytes to their places in one cycle, merge them with the others in the next."""
        bus_bytes = self._config.bus_bytes
        size = bus_bytes + self._config.post_lanes
        shifted = Signal(WriteBeat(size))
        push, clear = Signal(), Signal()
        waiting, merged = Signal(WriteBeat(size)), Signal(WriteBeat(size))
        m.d.comb += merged.eq(waiting.as_value() | shifted.as_value())
        chosen = Cat(strobe.replicate(8) for strobe in step.strobe)
        m.d.sync += [
            shifted.data.eq((step.bytes & chosen) << (step.position << 3)),
            shifted.strobe.eq(step.strobe << step.position),
            push.eq(step.push),
            clear.eq(step.clear),
            waiting.data.eq(Mux(push, shifted.data >> 8 * bus_bytes, merged.data)),
            waiting.strobe.eq(Mux(push, shifted.strobe >> bus_bytes, merged.strobe)),
            beats.payload.data.eq(merged.data),
            beats.payload.strobe.eq(merged.strobe),
            beats.valid.eq(push),
        ]
        with m.If(clear):
            m.d.sync += waiting.eq(0)

    def _elaborate_bursts(self, m, passes, pushed):
        """Request a burst when its beats are in the queue and not promised to another."""
        config = self._config
        m.submodules.splitter = splitter = BurstSplitter(
            bus_bytes=config.bus_bytes, tail_bytes=min(BURST_BYTES, TAIL_BEATS * config.bus_bytes)
        )
        available = Signal(range(self._places + 1))
        busy, enough, made = Signal(), Signal(), Signal()
        done = made & self.request.payload.last
        m.d.sync += [
            made.eq(splitter.take),
            available.eq(available + pushed - Mux(made, self.request.payload.beats, 0)),
            enough.eq(splitter.valid & (splitter.beats <= available)),
        ]
        m.d.comb += [
            splitter.i.payload.eq(passes.payload.spans),
            splitter.i.valid.eq(passes.valid & ~busy),
            splitter.take_beats.eq(splitter.beats),
            splitter.take_bytes.eq(splitter.bytes),
            splitter.take.eq(splitter.valid & enough & ~self.request.valid),
            passes.ready.eq(done),
        ]
        with m.If(splitter.i.valid & splitter.i.ready):
            m.d.sync += busy.eq(1)
        with m.Elif(done):
            m.d.sync += busy.eq(0)
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

"""Turn the beats of spans into a stream of bytes that is taken word by word."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .spans import Spans, check_power_of_two, flag_line_end

__all__ = ["Unpacker"]


class Unpacker(wiring.Component):
    """Cut the bytes of spans out of their beats and hand them out in words of any length.

    A beat goes through a register that moves its first byte to the front, then into a buffer of
    ``bus_bytes + word_bytes`` bytes. Latency 2 cycles. Throughput a beat and a word a cycle,
    whichever is the shorter. Beats are taken while their bytes fit: any that hold less than
    ``bus_bytes`` together, even if no word is taken.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    word_bytes : int
        Most bytes taken at once.

    Members
    -------
    spans : In(stream.Signature(Spans))
        What the beats hold, one sequence after the other.
    i : In(stream.Signature(8 * bus_bytes))
        Beats. A span begins anywhere in its first beat and ends anywhere in its last.
    want : In
        Bytes wanted, 1 to ``word_bytes``.
    valid : Out(1)
        As many are there.
    data : Out(8 * word_bytes)
        The bytes; beyond ``want`` they are undefined.
    take : In(1)
        Remove them. Only while ``valid``.
    """

    def __init__(self, *, bus_bytes: int, word_bytes: int):
        check_power_of_two("bus_bytes", bus_bytes)
        if word_bytes < 1:
            raise ValueError(f"word_bytes must be at least 1, not {word_bytes!r}")
        self._bus_bytes = bus_bytes
        self._word_bytes = word_bytes
        super().__init__(
            {
                "spans": In(stream.Signature(Spans)),
                "i": In(stream.Signature(8 * bus_bytes)),
                "want": In(range(word_bytes + 1)),
                "valid": Out(1),
                "data": Out(8 * word_bytes),
                "take": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._bus_bytes + self._word_bytes
        # ``fits``: most bytes that may be in the buffer before these are.
        beat = Signal(
            data.StructLayout(
                {
                    "data": 8 * self._bus_bytes,
                    "bytes": range(self._bus_bytes + 1),
                    "fits": range(size + 1),
                }
            )
        )
        beat_valid, beat_ready = Signal(), Signal()
        self._elaborate_align(m, beat, beat_valid, beat_ready)
        self._elaborate_buffer(m, beat, beat_valid, beat_ready)
        return m

    def _elaborate_align(self, m, beat, beat_valid, beat_ready):
        """Walk the spans beat by beat; move the first byte of the span to the front."""
        spans = Signal(Spans)
        left_total, left_span = Signal(32), Signal(32)
        offset = Signal(range(self._bus_bytes))
        room = Signal(range(self._bus_bytes + 1))
        count = Signal.like(room)
        rest = Signal(32)
        begins, advances = Signal(), Signal()
        line_end = flag_line_end(m, self.spans.payload, spans, begins=begins, advances=advances)
        m.d.comb += [
            rest.eq(left_total - count),
            room.eq(self._bus_bytes - offset),
            count.eq(Mux(left_span < room, left_span, room)),
        ]
        with m.If(beat_ready):
            m.d.sync += beat_valid.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.spans.ready.eq(1), begins.eq(1)]
                m.d.sync += [
                    spans.eq(self.spans.payload),
                    offset.eq(self.spans.payload.address),
                    left_total.eq(self.spans.payload.total),
                    left_span.eq(self.spans.payload.first),
                ]
                with m.If(self.spans.valid):
                    m.next = "BEATS"
            with m.State("BEATS"):
                m.d.comb += self.i.ready.eq(~beat_valid | beat_ready)
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += [
                        beat_valid.eq(1),
                        beat.data.eq(self.i.payload >> (offset << 3)),
                        beat.bytes.eq(count),
                        beat.fits.eq(self._bus_bytes + self._word_bytes - count),
                        left_total.eq(rest),
                        left_span.eq(left_span - count),
                        offset.eq(0),
                    ]
                    with m.If(left_span == count):
                        m.d.comb += advances.eq(1)
                        m.d.sync += [
                            left_span.eq(Mux(rest < spans.span, rest, spans.span)),
                            offset.eq(offset + count + Mux(line_end, spans.turn, spans.gap)),
                        ]
                    with m.If(left_total == count):
                        m.next = "IDLE"

    def _elaborate_buffer(self, m, beat, beat_valid, beat_ready):
        """Keep the bytes in order; those beyond ``fill`` are zero."""
        size = self._bus_bytes + self._word_bytes
        buffer, rest = Signal(8 * size), Signal(8 * size)
        fill, left = Signal(range(size + 1)), Signal(range(size + 1))
        m.d.comb += [
            self.valid.eq(fill >= self.want),
            self.data.eq(buffer),
            left.eq(Mux(self.take, fill - self.want, fill)),
            rest.eq(Mux(self.take, buffer >> (self.want << 3), buffer)),
            beat_ready.eq(beat_valid & (left <= beat.fits)),
        ]
        m.d.sync += [buffer.eq(rest), fill.eq(left)]
        with m.If(beat_ready):
            inside = Cat((beat.bytes > k).replicate(8) for k in range(self._bus_bytes))
            m.d.sync += [
                buffer.eq(rest | ((beat.data & inside) << (left << 3))),
                fill.eq(left + beat.bytes),
            ]

"""Cut spans of bytes in memory into AXI bursts."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BURST_BYTES

__all__ = ["BurstSplitter", "Spans", "check_power_of_two", "flag_line_end"]

#: A sequence of spans: ``first`` bytes at ``address``, then ``span`` bytes after each ``gap``,
#: until ``total`` bytes are covered; the last span may be cut short. ``first`` is at most
#: ``total``. Where ``line`` bytes have been covered since the start or since the line before, which
#: is at the end of a span, the next span comes after ``turn`` in place of ``gap``. Gaps are modulo
#: 2^32, so a turn may lead back. A ``line`` of ``total`` bytes or more never ends; otherwise it is
#: a multiple of ``span``, and ``first`` is ``span``. A sequence of one span, where ``first`` is
#: ``total``, makes no use of the fields behind them.
Spans = data.StructLayout(
    {
        "address": 32,
        "total": 32,
        "first": 32,
        "span": 32,
        "gap": 32,
        "line": 32,
        "turn": 32,
    }
)


def check_power_of_two(name: str, value: int) -> None:
    """Raise ValueError if a number of bytes is not a power of two from 1 to ``BURST_BYTES``."""
    if not 1 <= value <= BURST_BYTES or value & (value - 1):
        raise ValueError(f"{name} must be a power of two from 1 to {BURST_BYTES}, not {value!r}")


def flag_line_end(m: Module, start, spans, *, begins, advances) -> Signal:
    """Return a register that says whether a line ends with the present span.

    It is worked out one span ahead, so that nothing as wide as an address stands in front of it.

    Parameters
    ----------
    m : Module
    start, spans : View of Spans
        The sequence, when it begins and while it advances.
    begins : Value
        The first span is the present one from the next cycle on. May be early: the last cycle
        counts in which it is up.
    advances : Value
        So is the span that follows. May be up in every cycle.
    """
    line_end = Signal()
    behind, rest = Signal(32), Signal(32)  # bytes of the line behind the present span; from its end
    m.d.comb += rest.eq(Mux(line_end, spans.line, behind))
    with m.If(begins):
        m.d.sync += [
            behind.eq(start.line - start.first),
            line_end.eq(start.line == start.first),
        ]
    with m.Elif(advances):
        m.d.sync += [behind.eq(rest - spans.span), line_end.eq(rest == spans.span)]
    return line_end


class BurstSplitter(wiring.Component):
    """Offer the bursts that cover a sequence of spans, in order.

    A burst ends where the address is a multiple of ``BURST_BYTES``, so that none crosses 4 KB.
    The user may take fewer beats than are offered; the rest is offered again. A burst takes
    2 cycles, 3 where a span ends.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    tail_bytes : int or None
        Shorter limit for the bursts among the last ``BURST_BYTES``, so that the end of a transfer
        does not wait for a long burst to fill. A power of two. None: no such limit.

    Members
    -------
    i : In(stream.Signature(Spans))
        Spans; ``total`` and every span must not be empty.
    valid : Out(1)
        A burst is offered.
    address : Out(32)
        Address of its first byte (not aligned to the bus).
    beats, bytes : Out
        Its beats, and how many of their bytes belong to the span.
    last : Out(1)
        It ends the sequence.
    take : In(1)
        It is taken, or its first ``take_beats`` beats with ``take_bytes`` bytes are.
    """

    def __init__(self, *, bus_bytes: int, tail_bytes: int | None = None):
        check_power_of_two("bus_bytes", bus_bytes)
        if tail_bytes is not None:
            check_power_of_two("tail_bytes", tail_bytes)
        self._bus_bytes = bus_bytes
        self._tail_bytes = tail_bytes and max(tail_bytes, bus_bytes)
        beats = range(BURST_BYTES // bus_bytes + 1)
        count = range(BURST_BYTES + 1)
        super().__init__(
            {
                "i": In(stream.Signature(Spans)),
                "valid": Out(1),
                "address": Out(32),
                "beats": Out(beats),
                "bytes": Out(count),
                "last": Out(1),
                "take": In(1),
                "take_beats": In(beats),
                "take_bytes": In(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        spans = Signal(Spans)
        left_total, left_span = Signal(32), Signal(32)
        shift = self._bus_bytes.bit_length() - 1
        begins, advances = Signal(), Signal()
        line_end = flag_line_end(m, self.i.payload, spans, begins=begins, advances=advances)
        m.d.comb += self.last.eq(self.take_bytes == left_total)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), begins.eq(1)]
                m.d.sync += [
                    spans.eq(self.i.payload),
                    self.address.eq(self.i.payload.address),
                    left_total.eq(self.i.payload.total),
                    left_span.eq(self.i.payload.first),
                ]
                with m.If(self.i.valid):
                    m.next = "CUT"

            with m.State("CUT"):
                room = Signal(range(BURST_BYTES + 1))
                m.d.comb += room.eq(BURST_BYTES - self.address % BURST_BYTES)
                if self._tail_bytes:
                    with m.If(left_total <= BURST_BYTES):
                        m.d.comb += room.eq(self._tail_bytes - self.address % self._tail_bytes)
                covered = Signal.like(self.bytes)
                m.d.comb += covered.eq(Mux(left_span < room, left_span, room))
                ends = self.address % self._bus_bytes + covered + self._bus_bytes - 1
                m.d.sync += [self.bytes.eq(covered), self.beats.eq(ends >> shift)]
                m.next = "OFFER"

            with m.State("OFFER"):
                m.d.comb += self.valid.eq(1)
                with m.If(self.take):
                    m.d.sync += [
                        self.address.eq(self.address + self.take_bytes),
                        left_span.eq(left_span - self.take_bytes),
                        left_total.eq(left_total - self.take_bytes),
                    ]
                    with m.If(self.last):
                        m.next = "IDLE"
                    with m.Elif(self.take_bytes == left_span):
                        m.next = "NEXT SPAN"
                    with m.Else():
                        m.next = "CUT"

            with m.State("NEXT SPAN"):
                m.d.comb += advances.eq(1)
                m.d.sync += [
                    self.address.eq(self.address + Mux(line_end, spans.turn, spans.gap)),
                    left_span.eq(Mux(left_total < spans.span, left_total, spans.span)),
                ]
                m.next = "CUT"
        return m

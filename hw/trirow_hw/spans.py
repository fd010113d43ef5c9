"""Cut spans of bytes in memory into AXI bursts."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BURST_BYTES

__all__ = ["BurstBytes", "BurstSplitter", "Spans", "check_power_of_two", "flag_line_end"]

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


def BurstBytes(bus_bytes: int):
    """Return the layout of what is wanted of a burst.

    From byte ``first`` of its first beat to byte ``last`` of its last one, of so many ``beats``.
    """
    place = range(bus_bytes)
    beats = range(BURST_BYTES // bus_bytes + 1)
    return data.StructLayout({"first": place, "last": place, "beats": beats})


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
    3 cycles. What the next span will be is worked out while a burst is offered.

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
    take_part : In(1)
        Not all of it is taken.
    """

    def __init__(self, *, bus_bytes: int, tail_bytes: int | None = None):
        check_power_of_two("bus_bytes", bus_bytes)
        if tail_bytes is not None:
            check_power_of_two("tail_bytes", tail_bytes)
        self._bus_bytes = bus_bytes
        self._tail_bytes = max(tail_bytes or BURST_BYTES, bus_bytes)
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
                "take_part": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        spans = Signal(data.StructLayout({"span": 32, "gap": 32, "line": 32, "turn": 32}))
        # Bytes of the present span that are left, and of the sequence behind it.
        left_span, rest = Signal(32), Signal(32)
        left = Signal(32)  # both together
        begins, advances = Signal(), Signal()
        line_end = flag_line_end(m, self.i.payload, spans, begins=begins, advances=advances)
        after = self._elaborate_next_span(m, spans, left_span, rest, line_end)
        whole, ends_span = Signal(), self._elaborate_cut(m, left_span, left)
        m.d.comb += [
            whole.eq(ends_span & ~self.take_part),
            self.last.eq(whole & after.none),
        ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), begins.eq(1)]
                m.d.sync += [
                    self.address.eq(self.i.payload.address),
                    left_span.eq(self.i.payload.first),
                    left.eq(self.i.payload.total),
                    rest.eq(self.i.payload.total - self.i.payload.first),
                ]
                m.d.sync += [spans[name].eq(self.i.payload[name]) for name in spans.shape().members]
                with m.If(self.i.valid):
                    m.next = "MEASURE"

            with m.State("MEASURE"):
                m.next = "CUT"

            with m.State("CUT"):
                m.next = "OFFER"

            with m.State("OFFER"):
                m.d.comb += self.valid.eq(1)
                with m.If(self.take):
                    m.d.sync += [
                        self.address.eq(self.address + self.take_bytes),
                        left_span.eq(left_span - self.take_bytes),
                        left.eq(left - self.take_bytes),
                    ]
                    m.next = "MEASURE"
                    with m.If(whole):
                        m.d.comb += advances.eq(1)
                        m.d.sync += [
                            self.address.eq(after.address),
                            left_span.eq(after.bytes),
                            rest.eq(after.rest),
                        ]
                    with m.If(self.last):
                        m.next = "IDLE"
        return m

    def _elaborate_next_span(self, m, spans, left_span, rest, line_end):
        """Return the next span and the rest behind it, two cycles behind the present one."""
        after = Signal(data.StructLayout({"address": 32, "bytes": 32, "rest": 32, "none": 1}))
        end, behind, fits, turns = Signal(32), Signal(32), Signal(), Signal()
        m.d.sync += [
            end.eq(self.address + left_span),
            behind.eq(rest - spans.span),
            fits.eq(rest < spans.span),
            turns.eq(line_end),
            after.address.eq(end + Mux(turns, spans.turn, spans.gap)),
            after.bytes.eq(Mux(fits, rest, spans.span)),
            after.rest.eq(Mux(fits, 0, behind)),
            after.none.eq(rest == 0),
        ]
        return after

    def _elaborate_cut(self, m, left_span, left):
        """Cut the present span where the burst must end, two cycles behind it.

        Returns whether the burst ends the span.
        """
        shift = self._bus_bytes.bit_length() - 1
        block, tail = BURST_BYTES - 1, self._tail_bytes - 1
        low = self.address & block
        # Places in the block: the last byte of the span, and the last one that the burst may have.
        span_end, limit = Signal(33), Signal(range(BURST_BYTES))
        room = Signal(range(BURST_BYTES + 1))
        m.d.sync += [
            span_end.eq(low + left_span - 1),
            limit.eq(block),
            room.eq(BURST_BYTES - low),
        ]
        if tail < block:
            with m.If(left <= BURST_BYTES):
                m.d.sync += [limit.eq(low | tail), room.eq(self._tail_bytes - (low & tail))]
        ends, ends_span = Signal(), Signal()
        first = low >> shift
        m.d.comb += ends.eq((span_end[9:] == 0) & (span_end[:9] <= limit))
        m.d.sync += [
            ends_span.eq(ends),
            self.bytes.eq(Mux(ends, left_span, room)),
            self.beats.eq(
                Mux(ends, (span_end[:9] >> shift) - first + 1, (limit >> shift) - first + 1)
            ),
        ]
        return ends_span

"""Request spans of memory burst by burst, each only when there is room for all of its data."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .read_port import ReadRequest
from .spans import BurstSplitter, Spans, check_power_of_two

__all__ = ["Fetcher"]

#: Width of the count of bytes for which there is room: the largest weight buffer, 2^26 bytes, and
#: the constants of its groups.
CREDIT_BITS = 27


class Fetcher(wiring.Component):
    """Turn spans into read requests as room is granted.

    The consumer grants room in bytes of the spans, in order. A request is made when the room
    covers the whole burst; when the array starves, for as many beats as it covers. Beyond the room
    granted up to ``bus_bytes - 1`` bytes may be asked for, since the last beat may hold bytes that
    come later: the consumer's unpacker keeps those. A burst takes 2 cycles, 3 where a span ends,
    if its request is taken at once.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.

    Members
    -------
    i : In(stream.Signature(Spans))
    grant : In(CREDIT_BITS)
        Bytes of room that are added in this cycle.
    starving : In(1)
        The array waits for these data.
    urgent : In(1)
        Passed on with the request.
    index : In(16)
        Index of the pass, passed on with the request.
    request : Out(stream.Signature(ReadRequest))
    done : Out(1)
        Nothing is left to request.
    """

    def __init__(self, *, bus_bytes: int):
        check_power_of_two("bus_bytes", bus_bytes)
        self._bus_bytes = bus_bytes
        super().__init__(
            {
                "i": In(stream.Signature(Spans)),
                "grant": In(CREDIT_BITS),
                "starving": In(1),
                "urgent": In(1),
                "index": In(16),
                "request": Out(stream.Signature(ReadRequest)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = BurstSplitter(bus_bytes=self._bus_bytes)
        shift = self._bus_bytes.bit_length() - 1
        credit, spent = Signal(CREDIT_BITS), Signal.like(splitter.bytes)
        m.d.sync += credit.eq(credit + self.grant - spent)

        offset = splitter.address % self._bus_bytes
        covered = Signal(CREDIT_BITS)
        m.d.comb += [
            covered.eq((offset + credit) >> shift),
            splitter.i.payload.eq(self.i.payload),
            splitter.i.valid.eq(self.i.valid & self.done),
            self.i.ready.eq(splitter.i.ready & self.done),
        ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.done.eq(1)
                with m.If(self.i.valid & self.i.ready):
                    m.d.sync += credit.eq(self._bus_bytes - 1 + self.grant)
                    m.next = "ROOM"

            with m.State("ROOM"):
                m.d.comb += [
                    splitter.take_beats.eq(splitter.beats),
                    splitter.take_bytes.eq(splitter.bytes),
                ]
                with m.If(splitter.valid):
                    with m.If(splitter.bytes <= credit):
                        m.d.comb += splitter.take.eq(1)
                    with m.Elif(self.starving & (covered != 0)):
                        m.d.comb += [
                            splitter.take.eq(1),
                            splitter.take_beats.eq(covered),
                            splitter.take_bytes.eq((covered << shift) - offset),
                        ]
                with m.If(splitter.take):
                    m.d.comb += spent.eq(splitter.take_bytes)
                    m.d.sync += [
                        self.request.payload.address.eq(splitter.address & ~(self._bus_bytes - 1)),
                        self.request.payload.beats.eq(splitter.take_beats),
                        self.request.payload.index.eq(self.index),
                        self.request.valid.eq(1),
                    ]
                    with m.If(splitter.last):
                        m.next = "LAST"
                    with m.Else():
                        m.next = "SEND"

            with m.State("SEND"):
                with m.If(self.request.ready):
                    m.d.sync += self.request.valid.eq(0)
                    m.next = "ROOM"

            with m.State("LAST"):
                with m.If(self.request.ready):
                    m.d.sync += self.request.valid.eq(0)
                    m.next = "IDLE"

        m.d.comb += self.request.payload.urgent.eq(self.urgent)
        return m

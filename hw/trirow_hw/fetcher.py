"""Request spans of memory burst by burst, each only when there is room for all of its data."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .read_port import ReadRequest
from .spans import BurstBytes, BurstSplitter, Spans, check_power_of_two

__all__ = ["Fetcher"]

#: Width of the count of bytes for which there is room: the largest weight buffer, 2^26 bytes, and
#: the constants of its groups.
CREDIT_BITS = 27


class Fetcher(wiring.Component):
    """Turn spans into read requests as room is granted.

    The consumer grants room in bytes of the spans, in order. A request is made when the room
    covers the whole burst; when the array starves, for as many beats as it covers. Beyond the room
    granted up to ``bus_bytes - 1`` bytes may be asked for, since the last beat may hold bytes that
    come later: the consumer's unpacker keeps those. A burst takes 4 cycles if its request is
    taken at once. Room counts from 2 cycles behind its grant on.

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
        The array waits for these data. Counts from the next cycle on.
    urgent : In(1)
        Passed on with the request.
    index : In(16)
        Index of the pass, passed on with the request.
    request : Out(stream.Signature(ReadRequest))
    bursts : Out(stream.Signature(BurstBytes(bus_bytes)))
        What is wanted of each burst, when it is requested. The next one waits until it is taken.
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
                "bursts": Out(stream.Signature(BurstBytes(bus_bytes))),
                "done": Out(1, init=1),
            }
        )

    @property
    def _shift(self) -> int:
        return self._bus_bytes.bit_length() - 1

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = BurstSplitter(bus_bytes=self._bus_bytes)
        offset = splitter.address % self._bus_bytes
        m.d.comb += [
            splitter.i.payload.eq(self.i.payload),
            splitter.i.valid.eq(self.i.valid & self.done),
            self.i.ready.eq(splitter.i.ready & self.done),
            self.request.payload.urgent.eq(self.urgent),
        ]
        whole, some, covered = self._elaborate_room(m, splitter, offset)
        looked, free, starving = Signal(), Signal(), Signal()
        m.d.sync += starving.eq(self.starving)
        m.d.comb += [
            free.eq(~self.request.valid & ~self.bursts.valid),
            splitter.take.eq(looked & (whole | (starving & some))),
            splitter.take_part.eq(~whole),
            splitter.take_beats.eq(Mux(whole, splitter.beats, covered.beats)),
            splitter.take_bytes.eq(Mux(whole, splitter.bytes, covered.bytes)),
        ]
        # A burst is compared with the room in its first cycle, and may be taken from the next on.
        m.d.sync += looked.eq(splitter.valid & ~splitter.take & free)
        self._elaborate_request(m, splitter, offset, whole, free)
        return m

    def _elaborate_room(self, m, splitter, offset):
        """Count the room. Return whether the burst fits, else whether and how many of its beats do.

        They are a cycle old, when there may have been less room.
        """
        credit, granted, spent = (
            Signal(CREDIT_BITS),
            Signal(CREDIT_BITS),
            Signal.like(splitter.bytes),
        )
        whole, some = Signal(), Signal()
        shapes = {"beats": splitter.beats.shape(), "bytes": splitter.bytes.shape()}
        covered = Signal(data.StructLayout(shapes))
        beats = (offset + credit[: len(splitter.bytes)]) >> self._shift
        m.d.sync += [
            granted.eq(self.grant),
            spent.eq(Mux(splitter.take, splitter.take_bytes, 0)),
            credit.eq(credit + granted - spent),
            whole.eq(splitter.bytes <= credit),
            covered.beats.eq(beats),
            covered.bytes.eq((beats << self._shift) - offset),
            some.eq(beats != 0),
        ]
        with m.If(self.done):
            m.d.sync += credit.eq(self._bus_bytes - 1)
        return whole, some, covered

    def _elaborate_request(self, m, splitter, offset, whole, free):
        """Pass on what is taken: to the memory, and to who cuts the answer out of its beats."""
        request, burst = self.request.payload, self.bursts.payload
        ending = Signal()
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(self.bursts.ready):
            m.d.sync += self.bursts.valid.eq(0)
        with m.If(free):
            m.d.sync += [
                request.address.eq(splitter.address & ~(self._bus_bytes - 1)),
                request.beats.eq(splitter.take_beats),
                request.index.eq(self.index),
                burst.first.eq(offset),
                burst.last.eq(Mux(whole, offset + splitter.bytes - 1, self._bus_bytes - 1)),
                burst.beats.eq(splitter.take_beats),
            ]
        with m.If(splitter.take):
            m.d.sync += [
                self.request.valid.eq(1),
                self.bursts.valid.eq(1),
                ending.eq(splitter.last),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += self.done.eq(0)
        with m.Elif(ending & self.request.valid & self.request.ready):
            m.d.sync += [self.done.eq(1), ending.eq(0)]

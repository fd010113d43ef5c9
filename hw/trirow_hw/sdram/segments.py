"""AXI bursts into segments that lie in one row of the SDRAM."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["SEGMENT_BYTES", "BurstRequest", "Segment", "Segmenter"]

#: Segments begin and end at multiples of it; a divisor of every chip's row and of 4 KB.
SEGMENT_BYTES = 512


def _beat_bits(bus_bytes: int) -> int:
    return (SEGMENT_BYTES // bus_bytes).bit_length() - 1


def BurstRequest(address_bits: int, bus_bytes: int):
    """Return the layout of a burst: address and length in beats, and the response it gets."""
    bits = address_bits - bus_bytes.bit_length() + 1
    return data.StructLayout({"address": bits, "length": 8, "response": 2})


def Segment(address_bits: int, bus_bytes: int):
    """Return the layout of a segment.

    ``block`` is its address in units of `SEGMENT_BYTES`, ``first`` its first beat there, ``more``
    the number of beats that follow it; ``final`` ends a burst.
    """
    bits = _beat_bits(bus_bytes)
    block = address_bits - bits - bus_bytes.bit_length() + 1
    return data.StructLayout(
        {"block": block, "first": bits, "more": bits, "final": 1, "response": 2}
    )


class Segmenter(wiring.Component):
    """Cut bursts at multiples of `SEGMENT_BYTES`.

    Latency 2 cycles, a segment a cycle, full back-pressure.

    Parameters
    ----------
    address_bits : int
        Bits of a byte address within the chip.
    bus_bytes : int
        Bytes of a beat.

    Members
    -------
    i : In(stream.Signature(BurstRequest(address_bits, bus_bytes)))
    o : Out(stream.Signature(Segment(address_bits, bus_bytes)))
    """

    def __init__(self, *, address_bits: int, bus_bytes: int):
        self._bits = _beat_bits(bus_bytes)
        super().__init__(
            {
                "i": In(stream.Signature(BurstRequest(address_bits, bus_bytes))),
                "o": Out(stream.Signature(Segment(address_bits, bus_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits, i, o = self._bits, self.i.payload, self.o.payload
        block = Signal(len(o.block), reset_less=True)
        first = Signal(bits, reset_less=True)
        # Position of the burst's last beat, counted from the beginning of the block.
        last = Signal(max(bits, 8) + 1, reset_less=True)
        response = Signal(2, reset_less=True)
        valid, final, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            final.eq(last[bits:] == 0),
            taken.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(~valid | (taken & final)),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                valid.eq(self.i.valid),
                Cat(first, block).eq(i.address),
                last.eq(i.address[:bits] + i.length),
                response.eq(i.response),
            ]
        with m.Elif(taken):
            m.d.sync += [block.eq(block + 1), first.eq(0), last[bits:].eq(last[bits:] - 1)]
        with m.If(taken):
            m.d.sync += [
                self.o.valid.eq(valid),
                o.block.eq(block),
                o.first.eq(first),
                o.final.eq(final),
                o.more.eq(Mux(final, last[:bits], (1 << bits) - 1) - first),
                o.response.eq(response),
            ]
        return m

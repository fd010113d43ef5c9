"""CRC-32 of bytes, a bit in a cycle."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.crc import catalog
from amaranth.lib.wiring import In, Out

__all__ = ["ByteCrc"]


class ByteCrc(wiring.Component):
    """CRC-32/ISO-HDLC, that of Ethernet and zlib, of a sequence of bytes.

    A byte takes 8 cycles, in which nothing may be given; on a serial line bytes are much farther
    apart, and the logic is an eighth.

    Members
    -------
    start : In(1)
        Strobe: forget all bytes.
    data : In(8), valid : In(1)
        A byte in the cycle of the strobe ``valid``.
    busy : Out(1)
        ``crc`` is not there yet.
    crc : Out(32)
        Of the bytes so far; sent with its low byte first.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "data": In(8),
                "valid": In(1),
                "busy": Out(1),
                "crc": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        serial = catalog.CRC32_ISO_HDLC(data_width=1).create()
        # A reset costs no logic; the unit's own `start` would.
        m.submodules.serial = ResetInserter(self.start)(serial)
        bits = Signal(8, reset_less=True)
        left = Signal(4)
        m.d.comb += [
            serial.data.eq(bits[0]),
            serial.valid.eq(self.busy),
            self.busy.eq(left != 0),
            self.crc.eq(serial.crc),
        ]
        with m.If(self.valid):
            m.d.sync += [bits.eq(self.data), left.eq(8)]
        with m.Elif(self.busy):
            m.d.sync += [bits.eq(bits >> 1), left.eq(left - 1)]
        return m

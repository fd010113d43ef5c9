"""Find the requests in what comes over the line, and let only right ones through."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .crc import ByteCrc
from .protocol import MAX_DATA, REQUEST_SYNC

__all__ = ["HEADER_BYTES", "FrameReceiver"]

#: Kind and round, sequence number, length (2), address (4).
HEADER_BYTES = 8


class FrameReceiver(wiring.Component):
    """Push header and data of requests into a `FrameBuffer`, and commit those that are right.

    A frame is forgotten, and the next one looked for, when a check or its length is wrong, the
    line had an error or falls silent, or the buffer is full. The header has a check of its own,
    so a wrong length never swallows the frames behind it.

    Bytes must be at least 10 cycles apart.

    Members
    -------
    byte : In(8), valid : In(1), error : In(1)
        From the line: `UartReceiver`.
    silent : In(1)
        Level: no byte has come for too long.
    full : In(1)
        Of the buffer.
    data : Out(8), push, commit, discard : Out(1)
        To the buffer.
    """

    def __init__(self):
        super().__init__(
            {
                "byte": In(8),
                "valid": In(1),
                "error": In(1),
                "silent": In(1),
                "full": In(1),
                "data": Out(8),
                "push": Out(1),
                "commit": Out(1),
                "discard": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = crc = ByteCrc()
        count = Signal(3)
        has_data = Signal()
        length = Signal(16)
        expected = Signal(8)
        wrong = Signal()
        lost = Signal()
        m.d.comb += [
            self.data.eq(self.byte),
            crc.data.eq(self.byte),
            crc.valid.eq(self.push),
            expected.eq(crc.crc.word_select(count[:2], 8)),
            wrong.eq(self.byte != expected),
            lost.eq(self.error | self.silent | (self.push & self.full)),
        ]

        def give_up(condition):
            with m.If(condition):
                m.d.comb += self.discard.eq(1)
                m.next = "HUNT"

        with m.FSM():
            with m.State("HUNT"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += count.eq(0)
                with m.If(self.valid & (self.byte == REQUEST_SYNC)):
                    m.next = "HEADER"

            with m.State("HEADER"):
                with m.If(self.valid):
                    m.d.comb += self.push.eq(1)
                    m.d.sync += count.eq(count + 1)
                    with m.Switch(count):
                        with m.Case(0):
                            m.d.sync += has_data.eq(self.byte[0])
                        with m.Case(2):
                            m.d.sync += length[:8].eq(self.byte)
                        with m.Case(3):
                            m.d.sync += length[8:].eq(self.byte)
                        with m.Case(HEADER_BYTES - 1):
                            m.next = "CHECK"
                give_up(lost)

            with m.State("CHECK"):
                with m.If(self.valid):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == 1):
                        m.d.sync += count.eq(0)
                        m.next = "CRC"
                        with m.If(has_data & (length != 0)):
                            m.next = "DATA"
                give_up(lost | (self.valid & (wrong | (length > MAX_DATA))))

            with m.State("DATA"):
                with m.If(self.valid):
                    m.d.comb += self.push.eq(1)
                    m.d.sync += length.eq(length - 1)
                    with m.If(length == 1):
                        m.next = "CRC"
                give_up(lost)

            with m.State("CRC"):
                with m.If(self.valid):
                    m.d.sync += count.eq(count + 1)
                    with m.If(count == 3):
                        m.d.comb += self.commit.eq(~wrong & ~lost)
                        m.next = "HUNT"
                give_up(lost | (self.valid & wrong))
        return m

"""Send the answer to a request, with the data that were put down for it."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..block_memory import BlockMemory
from .crc import ByteCrc
from .protocol import MAX_DATA, RESPONSE_SYNC

__all__ = ["Answer", "FrameSender"]

#: What is said of a request: the header of the answer. ``length`` counts the data behind it.
Answer = data.StructLayout(
    {"kind": 8, "sequence": 8, "length": 16, "status": 8, "expected": 8},
)


class FrameSender(wiring.Component):
    """Send a frame over the line, byte by byte, with its checks.

    The data are put into a block RAM first, so nobody waits for the slow line.

    Parameters
    ----------
    identity : bytes
        Sent in the place of what was put down if ``identify`` is up.

    Members
    -------
    i : In(stream.Signature(8))
        Data of the next answer, in order, while ``busy`` is down; always taken.
    answer : In(Answer), identify : In(1)
        Must stay from ``start`` on while ``busy`` is up.
    start : In(1)
        Strobe, while ``busy`` is down.
    busy : Out(1)
        Until the last byte has gone to the line.
    o : Out(stream.Signature(8))
        To the line.
    """

    def __init__(self, *, identity: bytes):
        self._identity = identity
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "answer": In(Answer),
                "identify": In(1),
                "start": In(1),
                "busy": Out(1),
                "o": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = BlockMemory(bits=8, depth=MAX_DATA)
        header = self.answer.as_value()
        header_bytes = len(header) // 8
        written = Signal(range(MAX_DATA))
        place = Signal(range(MAX_DATA))
        left = Signal(range(MAX_DATA + 1))
        m.d.comb += [
            self.i.ready.eq(1),
            memory.write_address.eq(written),
            memory.write_data.eq(self.i.payload),
            memory.write_enable.eq(self.i.valid),
            memory.read_address.eq(place),
        ]
        with m.If(self.start):
            m.d.sync += written.eq(0)
        with m.Elif(self.i.valid):
            m.d.sync += written.eq(written + 1)

        m.submodules.crc = crc = ByteCrc()
        chosen = Signal(8)
        sent = Signal()
        ready = Signal()
        settled = Signal(memory.latency)  # cycles since the last byte, as ones
        m.d.comb += [
            crc.data.eq(self.o.payload),
            sent.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += settled.eq(settled << 1 | 1)
        with m.If(sent):
            m.d.sync += [self.o.valid.eq(0), place.eq(place + 1), settled.eq(0)]
        with m.Elif(ready):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(chosen)]
        with m.FSM() as fsm:
            m.d.comb += [
                self.busy.eq(~fsm.ongoing("IDLE")),
                ready.eq(self.busy & ~crc.busy & settled[-1]),
            ]
            with m.State("IDLE"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += [place.eq(0), left.eq(self.answer.length)]
                with m.If(self.start):
                    m.next = "SYNC"

            with m.State("SYNC"):
                m.d.comb += chosen.eq(RESPONSE_SYNC)
                with m.If(sent):
                    m.d.sync += place.eq(0)
                    m.next = "HEADER"

            with m.State("HEADER"):
                m.d.comb += [chosen.eq(header.word_select(place[:3], 8)), crc.valid.eq(sent)]
                with m.If(sent & (place == header_bytes - 1)):
                    m.d.sync += place.eq(0)
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.d.comb += chosen.eq(crc.crc.word_select(place[:2], 8))
                with m.If(sent & (place == 1)):
                    m.d.sync += place.eq(0)
                    m.next = "CRC"
                    with m.If(left != 0):
                        m.next = "DATA"

            with m.State("DATA"):
                identity = Array(Const(byte, 8) for byte in self._identity)
                m.d.comb += [
                    chosen.eq(Mux(self.identify, identity[place[:4]], memory.read_data)),
                    crc.valid.eq(sent),
                ]
                with m.If(sent):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.d.sync += place.eq(0)
                        m.next = "CRC"

            with m.State("CRC"):
                m.d.comb += chosen.eq(crc.crc.word_select(place[:2], 8))
                with m.If(sent & (place == 3)):
                    m.next = "IDLE"
        return m

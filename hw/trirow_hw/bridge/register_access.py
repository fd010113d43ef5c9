"""One 32-bit register behind AXI4-Lite, as four bytes."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..axi import AXI4Lite

__all__ = ["RegisterAccess"]


class RegisterAccess(wiring.Component):
    """Write four bytes to a register, or read them from it, the low one first.

    Parameters
    ----------
    address_bits : int
        Width of an address.

    Members
    -------
    start : In(1)
        Strobe, only when ``busy`` is down.
    write : In(1), address : In(address_bits)
        What to do; both stay until ``busy`` has gone down.
    i, o : stream.Signature(8)
        Bytes to write, bytes read.
    busy : Out(1)
    response : Out(2)
        When ``busy`` has gone down: the AXI response.
    bus : Out(AXI4Lite)
    """

    def __init__(self, *, address_bits: int):
        super().__init__(
            {
                "start": In(1),
                "write": In(1),
                "address": In(address_bits),
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "busy": Out(1),
                "response": Out(2),
                "bus": Out(AXI4Lite(address_bits=address_bits)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        word = Signal(32, reset_less=True)
        place = Signal(2)
        m.d.comb += [
            bus.awaddr.eq(self.address),
            bus.araddr.eq(self.address),
            bus.wdata.eq(word),
            bus.wstrb.eq(0b1111),
            self.o.payload.eq(word[:8]),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += bus.arvalid.eq(~self.write)
                    m.next = "READ"
                    with m.If(self.write):
                        m.next = "TAKE"

            for name, moves in (("TAKE", self.i.valid), ("GIVE", self.o.ready)):
                with m.State(name):
                    m.d.comb += (self.i.ready if name == "TAKE" else self.o.valid).eq(1)
                    with m.If(moves):
                        m.d.sync += [
                            word.eq(Cat(word[8:], self.i.payload)),
                            place.eq(place + 1),
                        ]
                        with m.If(place == 3):
                            m.next = "IDLE"
                            if name == "TAKE":
                                m.d.sync += [bus.awvalid.eq(1), bus.wvalid.eq(1)]
                                m.next = "WRITE"

            with m.State("READ"):
                m.d.comb += bus.rready.eq(1)
                with m.If(bus.rvalid):
                    m.d.sync += [word.eq(bus.rdata), self.response.eq(bus.rresp)]
                    m.next = "GIVE"

            with m.State("WRITE"):
                m.d.comb += bus.bready.eq(1)
                with m.If(bus.bvalid):
                    m.d.sync += self.response.eq(bus.bresp)
                    m.next = "IDLE"
        for valid, ready in (
            (bus.arvalid, bus.arready),
            (bus.awvalid, bus.awready),
            (bus.wvalid, bus.wready),
        ):
            with m.If(valid & ready):
                m.d.sync += valid.eq(0)
        return m

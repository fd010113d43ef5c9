"""The AXI4 read channel that all readers share."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4, Burst, Response
from .queue import Queue
from .spans import check_power_of_two

__all__ = ["PortError", "ReadPort", "ReadRequest"]

#: A burst to be read: first address (aligned to the bus), beats (1 to 256), index of the pass it
#: is for, and whether the array needs it now. ``urgent`` may change while the request waits.
ReadRequest = data.StructLayout({"address": 32, "beats": 9, "index": 16, "urgent": 1})

#: What went wrong: address outside the window (1) or an error response (0), at which client, in
#: which pass.
PortError = data.StructLayout({"window": 1, "client": 2, "index": 16})


class ReadPort(wiring.Component):
    """Share the AXI4 read channel among clients.

    One request is taken every 3 cycles or more: an urgent one first (the lowest client among
    them), else in turn. Its address appears 2 cycles later. Answers come in order and go to the
    client that asked, without latency; a client must be able to take all that it asks for.

    After ``stop`` no new request is sent, answers that are still due are dropped, and ``idle``
    says when none is left. The clients are reset meanwhile; this unit is not.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    clients : int
        Readers.
    outstanding : int
        Bursts that may be on the way, 4 or more.

    Members
    -------
    axi : Out(AXI4)
        Only the read channels are driven.
    base, limit : In(32)
        Window of addresses that may be read: from ``base`` up to ``limit``, exclusive.
    requests : In(stream.Signature(ReadRequest)).array(clients)
    answers : Out(stream.Signature(8 * bus_bytes)).array(clients)
    on_the_way : Out(1).array(clients)
        Some answer to the client is due.
    stop : In(1)
    idle : Out(1)
        No burst is on the way.
    waits : Out(1), head : Out, head_index : Out(16)
        Some burst is on the way; the client that the answer goes to, and the pass it is for.
    error : Out(PortError), error_valid : Out(1)
        Strobe: what went wrong.
    """

    def __init__(self, *, bus_bytes: int, clients: int, outstanding: int = 8):
        check_power_of_two("bus_bytes", bus_bytes)
        if clients < 1:
            raise ValueError(f"clients must be at least 1, not {clients!r}")
        if outstanding < 4:
            raise ValueError(f"outstanding must be at least 4, not {outstanding!r}")
        self._bus_bytes = bus_bytes
        self._clients = clients
        self._outstanding = outstanding
        super().__init__(
            {
                "axi": Out(AXI4(data_bytes=bus_bytes)),
                "base": In(32),
                "limit": In(32),
                "requests": In(stream.Signature(ReadRequest)).array(clients),
                "answers": Out(stream.Signature(8 * bus_bytes)).array(clients),
                "on_the_way": Out(1).array(clients),
                "stop": In(1),
                "idle": Out(1),
                "waits": Out(1),
                "head": Out(range(clients)),
                "head_index": Out(16),
                "error": Out(PortError),
                "error_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        order_shape = data.StructLayout({"client": range(self._clients), "index": 16})
        m.submodules.order = order = Queue(order_shape, depth=self._outstanding)
        pending = [
            Signal(range(self._outstanding + 2), name=f"pending{i}") for i in range(self._clients)
        ]

        self._elaborate_requests(m, order, pending)
        self._elaborate_answers(m, order, pending)
        m.d.comb += [
            self.axi.arsize.eq(self._bus_bytes.bit_length() - 1),
            self.axi.arburst.eq(Burst.INCR.value),
            self.axi.arcache.eq(0b0011),
        ]
        return m

    def _elaborate_requests(self, m, order, pending):
        turn = Signal(range(self._clients))
        choice = Signal.like(turn)
        any_valid = Signal()
        valid = [request.valid for request in self.requests]
        urgent = [request.valid & request.payload.urgent for request in self.requests]
        # Later assignments win: in turn after the client served last, then the urgent ones.
        with m.Switch(turn):
            for last in range(self._clients):
                with m.Case(last):
                    for client in ((last - k) % self._clients for k in range(self._clients)):
                        with m.If(valid[client]):
                            m.d.comb += choice.eq(client)
        for client in reversed(range(self._clients)):
            with m.If(urgent[client]):
                m.d.comb += choice.eq(client)
        m.d.comb += any_valid.eq(Cat(valid).any())

        chosen = Signal(ReadRequest)
        client = Signal.like(turn)
        end = Signal(33)
        below, above = Signal(), Signal()
        payloads = Array(request.payload.as_value() for request in self.requests)
        with m.FSM():
            with m.State("CHOOSE"):
                m.d.comb += self.idle.eq(~order.o.valid)
                m.d.sync += [chosen.eq(payloads[choice]), client.eq(choice)]
                with m.If(any_valid & order.i.ready & ~self.stop):
                    for k, request in enumerate(self.requests):
                        m.d.comb += request.ready.eq(choice == k)
                    m.d.sync += turn.eq(choice)
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.d.sync += [
                    below.eq(chosen.address < self.base),
                    end.eq(chosen.address + chosen.beats * self._bus_bytes),
                    self.axi.araddr.eq(chosen.address),
                    self.axi.arlen.eq(chosen.beats - 1),
                ]
                m.next = "WINDOW"

            with m.State("WINDOW"):
                m.d.comb += above.eq(end > self.limit)
                with m.If(self.stop):
                    m.next = "CHOOSE"
                with m.Elif(below | above):
                    m.d.comb += [
                        self.error_valid.eq(1),
                        self.error.window.eq(1),
                        self.error.client.eq(client),
                        self.error.index.eq(chosen.index),
                    ]
                    m.next = "CHOOSE"
                with m.Else():
                    m.d.comb += [
                        order.i.valid.eq(1),
                        order.i.payload.client.eq(client),
                        order.i.payload.index.eq(chosen.index),
                    ]
                    m.d.sync += self.axi.arvalid.eq(1)
                    m.next = "SEND"

            with m.State("SEND"):
                with m.If(self.axi.arready):
                    m.d.sync += self.axi.arvalid.eq(0)
                    m.next = "CHOOSE"

        for k, count in enumerate(pending):
            sent = order.i.valid & (client == k)
            done = order.o.valid & order.o.ready & (order.o.payload.client == k)
            m.d.sync += count.eq(count + sent - done)
            m.d.comb += self.on_the_way[k].eq(count != 0)

    def _elaborate_answers(self, m, order, pending):
        taken = Signal()
        m.d.comb += [
            self.waits.eq(order.o.valid),
            self.head.eq(order.o.payload.client),
            self.head_index.eq(order.o.payload.index),
            taken.eq(self.axi.rvalid & self.axi.rready),
            order.o.ready.eq(taken & self.axi.rlast),
        ]
        ready = Signal()
        for k, answer in enumerate(self.answers):
            mine = order.o.valid & (order.o.payload.client == k)
            m.d.comb += [
                answer.payload.eq(self.axi.rdata),
                answer.valid.eq(self.axi.rvalid & mine & ~self.stop),
            ]
            with m.If(mine):
                m.d.comb += ready.eq(answer.ready)
        m.d.comb += self.axi.rready.eq(order.o.valid & (ready | self.stop))
        with m.If(taken & (self.axi.rresp != Response.OKAY.value) & ~self.stop):
            m.d.comb += [
                self.error_valid.eq(1),
                self.error.window.eq(0),
                self.error.client.eq(order.o.payload.client),
                self.error.index.eq(order.o.payload.index),
            ]

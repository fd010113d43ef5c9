"""The AXI4 read channel that all readers share."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4, Burst, Response
from .queue import Queue
from .spans import check_power_of_two

__all__ = ["PortError", "ReadPort", "ReadRequest"]

#: A burst to be read: first address (aligned to the bus), beats (1 to 256), index of the pass it
#: is for, and whether the array needs it now. ``urgent`` may change while the request waits, even
#: when the port has taken it: what is up then counts for that request, too.
ReadRequest = data.StructLayout({"address": 32, "beats": 9, "index": 16, "urgent": 1})

#: What went wrong: address outside the window (1) or an error response (0), at which client, in
#: which pass.
PortError = data.StructLayout({"window": 1, "client": 2, "index": 16})

#: Places for beats behind the bus, and again in front of the clients.
PLACES = 2


def _Beat(bus_bytes: int):
    """Return the layout of a beat of an answer."""
    return data.StructLayout({"data": 8 * bus_bytes, "response": 2, "last": 1})


def _Offer(bus_bytes: int, clients: int):
    """Return the layout of a beat that is on offer to one of the clients."""
    return data.StructLayout({"data": 8 * bus_bytes, "last": 1, "client": clients})


class ReadPort(wiring.Component):
    """Share the AXI4 read channel among clients.

    A request of each client is taken in advance. Of these one is sent every 4 cycles or more: an
    urgent one first (the lowest client among them), else in turn. The address appears 6 cycles
    after the request. Answers come in order and go to the client that asked, 2 cycles later; a
    client must be able to take all that it asks for.

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
        Some answer to the client is due: its request has been chosen.
    stop : In(1)
    idle : Out(1)
        No burst is on the way.
    waits : Out(1), head : Out, head_index : Out(16)
        Some burst is on the way; the client that the answer goes to, and the pass it is for.
    error : Out(PortError), error_valid : Out(1)
        Strobe, a cycle later: what went wrong.
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
        # The register behind the queue is one of the places.
        m.submodules.order = order = Queue(
            order_shape, depth=self._outstanding - 1, registered=True
        )
        taken = Signal(self._clients)
        waiting, valid, urgent = self._elaborate_clients(m, taken)
        choice, any_valid = self._elaborate_choice(m, valid, urgent, taken)
        asked, *refused = self._elaborate_requests(m, order, waiting, choice, any_valid, taken)
        failed, handed = self._elaborate_answers(m, order)
        self._elaborate_errors(m, order, failed, *refused)
        self._elaborate_counts(m, order, asked, handed)
        m.d.comb += [
            self.idle.eq(~(valid | Cat(self.on_the_way)).any()),
            self.axi.arsize.eq(self._bus_bytes.bit_length() - 1),
            self.axi.arburst.eq(Burst.INCR.value),
            self.axi.arcache.eq(0b0011),
        ]
        return m

    def _elaborate_clients(self, m, taken):
        """Take a request of each client. Return them, which are there, and which are urgent."""
        waiting = [Signal(ReadRequest, name=f"waiting{k}") for k in range(self._clients)]
        valid, now, urgent = (
            Signal(self._clients, name=name) for name in ("valid", "now", "urgent")
        )
        for k, request in enumerate(self.requests):
            m.d.comb += [
                request.ready.eq(~valid[k] & ~self.stop),
                urgent[k].eq(valid[k] & (waiting[k].urgent | now[k])),
            ]
            m.d.sync += now[k].eq(request.payload.urgent)
            with m.If(~valid[k]):
                m.d.sync += [waiting[k].eq(request.payload), valid[k].eq(request.valid)]
            with m.If(taken[k] | self.stop):
                m.d.sync += valid[k].eq(0)
        return waiting, valid, urgent

    def _elaborate_choice(self, m, valid, urgent, taken):
        """Choose a client, a cycle ahead. Return it, and whether there is any."""
        turn = Signal(range(self._clients))
        following, choice = Signal.like(turn), Signal.like(turn)
        any_valid = Signal()
        # Later assignments win: in turn after the client served last, then the urgent ones.
        with m.Switch(turn):
            for last in range(self._clients):
                with m.Case(last):
                    for client in ((last - k) % self._clients for k in range(self._clients)):
                        with m.If(valid[client]):
                            m.d.comb += following.eq(client)
        for client in reversed(range(self._clients)):
            with m.If(urgent[client]):
                m.d.comb += following.eq(client)
        m.d.sync += [choice.eq(following), any_valid.eq(valid.any() & ~self.stop)]
        with m.If(taken.any()):
            m.d.sync += turn.eq(choice)
        return choice, any_valid

    def _elaborate_requests(self, m, order, waiting, choice, any_valid, taken):
        """Check and send one request after another.

        Return whose is being checked, whether one has been refused a cycle before, and its client
        and pass.
        """
        asked, refused = Signal(self._clients), Signal()
        chosen = Signal(ReadRequest)
        client = Signal.like(choice)
        end = Signal(33)
        below, outside = Signal(), Signal()
        payloads = Array(request.as_value() for request in waiting)
        m.d.comb += [
            order.i.payload.client.eq(client),
            order.i.payload.index.eq(chosen.index),
        ]
        m.d.sync += refused.eq(0)
        free = ~self.axi.arvalid | self.axi.arready
        with m.If(free):
            m.d.sync += [
                self.axi.arvalid.eq(0),
                self.axi.araddr.eq(chosen.address),
                self.axi.arlen.eq(chosen.beats - 1),
            ]
        with m.FSM():
            with m.State("TAKE"):
                m.d.sync += [
                    chosen.eq(payloads[choice]),
                    client.eq(choice),
                    asked.eq(taken),
                ]
                with m.If(any_valid & order.i.ready & ~self.stop):
                    m.d.comb += taken.eq(1 << choice)
                    m.next = "CHECK"

            with m.State("CHECK"):
                m.d.sync += [
                    below.eq(chosen.address < self.base),
                    end.eq(chosen.address + chosen.beats * self._bus_bytes),
                ]
                m.next = "WINDOW"

            with m.State("WINDOW"):
                m.d.sync += outside.eq(below | (end > self.limit))
                m.next = "SEND"

            with m.State("SEND"):
                with m.If(self.stop):
                    m.next = "TAKE"
                with m.Elif(outside):
                    m.d.sync += refused.eq(1)
                    m.next = "TAKE"
                with m.Elif(free):
                    m.d.comb += order.i.valid.eq(1)
                    m.d.sync += self.axi.arvalid.eq(1)
                    m.next = "TAKE"
        return asked, refused, order.i.payload

    def _elaborate_answers(self, m, order):
        """Hand out the answers.

        Return whether the beat of a cycle before was an error, and who takes the last of a burst.
        """
        # Two places between what is behind RVALID and RREADY on either side.
        m.submodules.beats = beats = Queue(_Beat(self._bus_bytes), depth=PLACES)
        beat = beats.o.payload
        taken = Signal()
        m.d.comb += [
            self.waits.eq(order.o.valid),
            self.head.eq(order.o.payload.client),
            self.head_index.eq(order.o.payload.index),
            taken.eq(beats.o.valid & beats.o.ready),
            order.o.ready.eq(taken & beat.last),
        ]
        m.d.comb += [
            beats.i.payload.data.eq(self.axi.rdata),
            beats.i.payload.response.eq(self.axi.rresp),
            beats.i.payload.last.eq(self.axi.rlast),
            beats.i.valid.eq(self.axi.rvalid),
            self.axi.rready.eq(beats.i.ready),
        ]
        # Two more in front of the clients, whose ready signals come from far away.
        m.submodules.offers = offers = Queue(_Offer(self._bus_bytes, self._clients), depth=PLACES)
        offer = offers.o.payload
        m.d.comb += [
            beats.o.ready.eq(order.o.valid & offers.i.ready),
            offers.i.valid.eq(taken),
            offers.i.payload.data.eq(beat.data),
            offers.i.payload.last.eq(beat.last),
            offers.i.payload.client.eq(1 << order.o.payload.client),
            offers.o.ready.eq((offer.client & Cat(a.ready for a in self.answers)).any()),
        ]
        handed = Signal(self._clients)  # the last beat of a burst, and whose
        for k, answer in enumerate(self.answers):
            m.d.comb += [
                answer.payload.eq(offer.data),
                answer.valid.eq(offers.o.valid & offer.client[k] & ~self.stop),
                handed[k].eq(offers.o.valid & offers.o.ready & offer.last & offer.client[k]),
            ]
        with m.If(self.stop):
            m.d.comb += offers.o.ready.eq(1)
        answered, bad = Signal(), Signal()
        m.d.sync += [answered.eq(taken), bad.eq(beat.response != Response.OKAY.value)]
        return answered & bad, handed

    def _elaborate_errors(self, m, order, failed, refused, refused_what):
        """Report what has failed or been refused a cycle before."""
        head = Signal.like(order.o.payload)
        m.d.sync += head.eq(order.o.payload)
        m.d.comb += [
            self.error_valid.eq((failed | refused) & ~self.stop),
            self.error.window.eq(~failed),
            self.error.client.eq(Mux(failed, head.client, refused_what.client)),
            self.error.index.eq(Mux(failed, head.index, refused_what.index)),
        ]

    def _elaborate_counts(self, m, order, asked, handed):
        """Count the bursts of each client that are on the way, or on offer."""
        for k in range(self._clients):
            count = Signal(range(self._outstanding + PLACES + 1), name=f"pending{k}")
            sent = order.i.valid & (order.i.payload.client == k)
            m.d.sync += count.eq(count + sent - handed[k])
            m.d.comb += self.on_the_way[k].eq(asked[k] | (count != 0))

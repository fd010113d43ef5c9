"""Execute requests, each of them once, in the order of their sequence numbers."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .frame_sender import Answer
from .protocol import MAX_DATA, WINDOW, Kind, Status

__all__ = ["Executor", "Request"]

#: Header of a request.
Request = data.StructLayout({"kind": 8, "sequence": 8, "length": 16, "address": 32})

_REGISTER_BYTES = 4


class Executor(wiring.Component):
    """Take requests from the buffer, start what they ask for and give their answers.

    - A request with the expected sequence number is executed, and the next number expected.
    - One of the last 16 before it is a repetition, because its answer was lost: reads are
      executed again, of writes only the status is told again.
    - Any other is not executed; the answer says which one is expected.
    - `Kind.IDENTIFY` is answered always, and the number after its own is expected then.

    Parameters
    ----------
    identity_bytes : int
        Length of the answer to `Kind.IDENTIFY`.
    address_bits : int
        Width of a register's address; greater ones are refused.

    Members
    -------
    i : In(stream.Signature(8))
        Requests: headers and data.
    request : Out(Request)
        The one that is executed.
    start : Out(1)
        Strobe for the unit that executes the request. It takes the request's data from the buffer.
    passes : Out(1)
        Level: the unit has the bytes of the buffer, not this one.
    busy : In(1)
        The unit is not finished; up from the cycle after ``start`` on.
    response : In(2)
        Of the unit, an AXI response, when ``busy`` has gone down.
    answer : Out(Answer), identify : Out(1), send : Out(1)
        To `FrameSender`.
    sending : In(1)
        It is busy.
    """

    def __init__(self, *, identity_bytes: int, address_bits: int):
        self._identity_bytes = identity_bytes
        self._address_bits = address_bits
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "request": Out(Request),
                "passes": Out(1),
                "start": Out(1),
                "busy": In(1),
                "response": In(2),
                "answer": Out(Answer),
                "identify": Out(1),
                "send": Out(1),
                "sending": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        request, answer = self.request, self.answer
        kind = request.kind[:4]
        count = Signal(range(8))
        left = Signal(range(MAX_DATA + 1))  # bytes to be skipped
        behind = Signal(8)  # numbers between that of the request and the expected one
        fits = Signal()  # the request has the expected number
        repeats = Signal()
        wrong = Signal()
        m.submodules.outcomes = outcomes = memory.Memory(shape=3, depth=WINDOW, init=[])
        outcome, remember = outcomes.read_port(domain="comb"), outcomes.write_port()
        m.d.comb += [
            behind.eq(answer.expected - request.sequence - 1),
            answer.kind.eq(request.kind),
            answer.sequence.eq(request.sequence),
            outcome.addr.eq(request.sequence),
            remember.addr.eq(request.sequence),
            remember.data.eq(answer.status),
        ]
        with m.FSM() as fsm:
            m.d.comb += self.passes.eq(fsm.ongoing("EXECUTE"))
            with m.State("IDLE"):
                with m.If(~self.sending):
                    m.next = "HEADER"

            with m.State("HEADER"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.sync += [
                        request.eq(Cat(request.as_value()[8:], self.i.payload)),
                        count.eq(count + 1),
                    ]
                    with m.If(count == 7):
                        m.next = "COMPARE"

            with m.State("COMPARE"):
                m.d.sync += [
                    fits.eq(request.sequence == answer.expected),
                    repeats.eq(behind < WINDOW),
                    wrong.eq(self._is_wrong(request)),
                    self.identify.eq(kind == Kind.IDENTIFY),
                    left.eq(Mux(kind[0], request.length, 0)),
                    answer.length.eq(0),
                ]
                m.next = "DECIDE"

            with m.State("DECIDE"):
                m.next = "SKIP"
                with m.If(self.identify):
                    m.d.sync += [
                        answer.status.eq(Status.OKAY),
                        answer.length.eq(self._identity_bytes),
                        answer.expected.eq(request.sequence),
                        fits.eq(1),
                    ]
                with m.Elif(~fits & ~repeats):
                    m.d.sync += answer.status.eq(Status.SEQUENCE)
                with m.Elif(wrong):
                    m.d.sync += answer.status.eq(Status.REQUEST)
                with m.Elif(repeats & kind[0]):
                    m.d.sync += answer.status.eq(outcome.data)
                with m.Else():
                    m.d.comb += self.start.eq(1)
                    m.d.sync += answer.length.eq(Mux(kind[0], 0, request.length))
                    m.next = "EXECUTE"

            with m.State("EXECUTE"):
                with m.If(~self.busy):
                    m.d.sync += answer.status.eq(self.response)
                    m.next = "ANSWER"

            with m.State("SKIP"):
                m.d.comb += self.i.ready.eq(left != 0)
                with m.If(left == 0):
                    m.next = "ANSWER"
                with m.Elif(self.i.valid):
                    m.d.sync += left.eq(left - 1)

            with m.State("ANSWER"):
                m.d.comb += remember.en.eq(fits)
                m.d.sync += answer.expected.eq(answer.expected + fits)
                m.next = "SEND"

            with m.State("SEND"):
                m.d.comb += self.send.eq(1)
                m.next = "IDLE"
        return m

    def _is_wrong(self, request):
        kind = request.kind[:4]
        register = (
            (request.length != _REGISTER_BYTES)
            | request.address[self._address_bits :].any()
            | request.address[:2].any()
        )
        return (kind > Kind.IDENTIFY) | (kind[1] & register)

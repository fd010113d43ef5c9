"""Start and end of a run: errors, watchdog, clean stop and counters."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .errors import ErrorCode, Unit
from .read_port import PortError
from .tap_issuer import Stall
from .write_port import WriteError

__all__ = ["COUNTERS", "RunError", "Supervisor"]

#: What ended a run: code, unit, index of the pass. All 0 if nothing did.
RunError = data.StructLayout({"code": 8, "unit": 8, "index": 16})

#: Counters of the last run, in the order of their registers.
COUNTERS = [
    "cycles",  # from the start until all outputs have landed
    "busy",  # the array took a tap
    "stall_features",  # it waited for features
    "stall_weights",  # for weights
    "stall_output",  # for room behind it, or a second operand
    "stall_dependency",  # for outputs that have to land first
    "beats_read",
    "beats_written",
]


class Supervisor(wiring.Component):
    """Keep the units in reset except while a run goes on, and end it cleanly, whatever happens.

    The end of a run, an error or a reset by the host stops both ports: nothing new is sent, and the
    machine is busy until what is on the way has come back. The next run begins from the reset
    state, so nothing of an earlier run shows, not even what a wrong descriptor had read too much.

    Members
    -------
    start, reset : In(1)
        Strobes from the host.
    watchdog : In(32)
        Cycles without progress that end a run; 0: never.
    finished, passes : In
        From the sequencer: all passes have been handed out, and how many.
    bad : In(1)
        From the sequencer.
    read_error, write_error : In, with ``_valid``
        From the ports.
    landed : In(1)
        Strobe: a pass's outputs have landed.
    read_beat, write_beat, handshake, issued, stall, dependency : In
        What happens in this cycle.
    waits_read, head, head_index, waits_write, oldest, active : In
        What the watchdog blames.
    ports_idle : In(1)
        Nothing is on the way.
    begin : Out(1)
        Strobe: the units start.
    units_reset, stop : Out(1)
        Levels for the units and for the ports. ``stop`` is up for a cycle at least.
    passes_landed : Out(16)
    busy, done : Out(1)
        A run goes on or drains; the last one ended without error.
    error : Out(RunError)
    counters : Out(32).array(len(COUNTERS))
        A cycle late, but for ``cycles``.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "reset": In(1),
                "watchdog": In(32),
                "finished": In(1),
                "passes": In(16),
                "bad": In(1),
                "read_error": In(PortError),
                "read_error_valid": In(1),
                "write_error": In(WriteError),
                "write_error_valid": In(1),
                "landed": In(1),
                "read_beat": In(1),
                "write_beat": In(1),
                "handshake": In(1),
                "issued": In(1),
                "stall": In(Stall),
                "dependency": In(1),
                "waits_read": In(1),
                "head": In(2),
                "head_index": In(16),
                "waits_write": In(1),
                "oldest": In(16),
                "active": In(16),
                "ports_idle": In(1),
                "begin": Out(1),
                "units_reset": Out(1, init=1),
                "stop": Out(1),
                "passes_landed": Out(16),
                "busy": Out(1),
                "done": Out(1),
                "error": Out(RunError),
                "counters": Out(32).array(len(COUNTERS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        failed, failure = self._elaborate_failure(m)
        runs = Signal()
        whole = Signal()  # all outputs of the run have landed
        self._elaborate_counters(m, runs)
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.start):
                    m.d.sync += [
                        self.units_reset.eq(0),
                        self.done.eq(0),
                        self.error.eq(0),
                        self.passes_landed.eq(0),
                        self.busy.eq(1),
                        *(counter.eq(0) for counter in self.counters),
                    ]
                    m.next = "RELEASE"
                with m.Elif(self.reset):
                    m.d.sync += [self.done.eq(0), self.error.eq(0)]

            with m.State("RELEASE"):
                m.d.sync += self.counters[0].eq(1)
                m.next = "BEGIN"

            with m.State("BEGIN"):
                m.d.comb += self.begin.eq(1)
                m.d.sync += self.counters[0].eq(2)
                m.next = "RUN"

            with m.State("RUN"):
                m.d.comb += runs.eq(1)
                m.d.sync += [
                    self.counters[0].eq(self.counters[0] + 1),
                    self.passes_landed.eq(self.passes_landed + self.landed),
                    self.error.eq(failure),
                    whole.eq(~failed & ~self.reset),
                ]
                with m.If(self.reset):
                    m.d.sync += self.error.eq(0)
                ended = self.finished & (self.passes_landed == self.passes)
                with m.If(self.reset | failed | ended):
                    m.d.sync += [self.stop.eq(1), self.units_reset.eq(1)]
                    m.next = "STOP"

            with m.State("STOP"):
                with m.If(self.reset):
                    m.d.sync += [self.error.eq(0), whole.eq(0)]
                with m.If(self.ports_idle):
                    m.d.sync += [
                        self.stop.eq(0),
                        self.busy.eq(0),
                        self.done.eq(whole & ~self.reset),
                    ]
                    m.next = "IDLE"
        return m

    def _elaborate_failure(self, m):
        """Return whether something fails in this cycle, and what, the more specific first."""
        expired, blamed = self._elaborate_watchdog(m)
        failed = Signal()
        failure = Signal(RunError)

        def fail(code, unit, index):
            m.d.comb += [failure.code.eq(code), failure.unit.eq(unit), failure.index.eq(index)]

        m.d.comb += failed.eq(self.read_error_valid | self.write_error_valid | self.bad | expired)
        with m.If(self.read_error_valid):
            code = Mux(self.read_error.window, ErrorCode.WINDOW, ErrorCode.READ_RESPONSE)
            fail(code, self.read_error.client, self.read_error.index)
        with m.Elif(self.write_error_valid):
            code = Mux(self.write_error.window, ErrorCode.WINDOW, ErrorCode.WRITE_RESPONSE)
            fail(code, Unit.WRITER, self.write_error.index)
        with m.Elif(self.bad):
            fail(ErrorCode.DESCRIPTOR, Unit.SEQUENCER, self.passes)
        with m.Elif(expired):
            fail(ErrorCode.WATCHDOG, blamed.unit, blamed.index)
        return failed, failure

    def _elaborate_watchdog(self, m):
        """Return whether the watchdog's time is over, and whom it blames, as of a cycle before."""
        progress = self.handshake | self.issued | self.units_reset
        quiet, limit = Signal(32), Signal(32)
        armed, expired = Signal(), Signal()
        m.d.sync += [
            quiet.eq(Mux(progress, 0, quiet + 1)),
            limit.eq(self.watchdog - 1),
            armed.eq(self.watchdog != 0),
            expired.eq(armed & ~progress & (quiet >= limit)),
        ]
        blamed = Signal(data.StructLayout({"unit": 8, "index": 16}))

        def blame(unit, index):
            m.d.sync += [blamed.unit.eq(unit), blamed.index.eq(index)]

        with m.If(self.waits_read):
            blame(self.head, self.head_index)
        with m.Elif(self.waits_write):
            blame(Unit.WRITER, self.oldest)
        with m.Elif(self.stall.features):
            blame(Unit.FEATURES, self.active)
        with m.Elif(self.stall.weights):
            blame(Unit.WEIGHTS, self.active)
        with m.Elif(self.stall.output):
            blame(Unit.WRITER, self.active)
        with m.Else():
            blame(Unit.ARRAY, self.active)
        return expired, blamed

    def _elaborate_counters(self, m, runs):
        """Count what happens in the cycles of a run, a cycle behind it."""
        events = {
            "busy": self.issued,
            "stall_features": self.stall.features & ~self.dependency,
            "stall_weights": self.stall.weights,
            "stall_output": self.stall.output & ~self.dependency,
            "stall_dependency": (self.stall.features | self.stall.output) & self.dependency,
            "beats_read": self.read_beat,
            "beats_written": self.write_beat,
        }
        happened = Signal(len(events))
        m.d.sync += happened.eq(Cat(events[name] & runs for name in COUNTERS[1:]))
        for counter, event in zip(self.counters[1:], happened, strict=True):
            m.d.sync += counter.eq(counter + event)

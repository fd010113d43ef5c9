"""SDR SDRAM controller: segments of column accesses in, commands on the pins out."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..delay import delay
from .chips import SdramChip, SdramTiming
from .pins import Command, SdramPins
from .segments import Segment

__all__ = ["Access", "ReadBack", "SdramController", "WriteData", "check_parameters"]

#: Refreshes of the initialisation; JEDEC asks for 2, most datasheets for 8.
STARTUP_REFRESHES = 8


def Access(address_bits: int, bus_bytes: int):
    """Return the layout of what is asked of the chip: a segment to be read or written."""
    return data.StructLayout({"segment": Segment(address_bits, bus_bytes), "write": 1})


def ReadBack(bus_bytes: int):
    """Return the layout of a beat that was read: data, last of its burst, response."""
    return data.StructLayout({"data": 8 * bus_bytes, "last": 1, "response": 2})


def WriteData(bus_bytes: int):
    """Return the layout of a beat to be written: data, and which bytes of it."""
    return data.StructLayout({"data": 8 * bus_bytes, "strobe": bus_bytes})


def check_parameters(timing: SdramTiming, bus_bytes: int, capture_delay: int) -> None:
    """Raise ValueError if the controller cannot be built so."""
    if bus_bytes not in (2, 4, 8, 16):
        raise ValueError(f"bus_bytes must be 2, 4, 8 or 16, not {bus_bytes!r}")
    if capture_delay not in (-1, 0, 1):
        raise ValueError(f"capture_delay must be -1, 0 or 1, not {capture_delay!r}")
    if timing.t_refi < 300:
        # A refresh waits for a segment of up to 256 words and its row, and must not be lost.
        raise ValueError(f"t_refi must be at least 300 cycles, not {timing.t_refi!r}: slow clock")
    if timing.t_rrd > timing.t_rcd + 2:
        # Two ACTIVATE are further apart than that anyhow, so nothing keeps the distance.
        raise ValueError(f"t_rrd must be at most t_rcd + 2, not {timing.t_rrd!r}")


class SdramController(wiring.Component):
    """Initialise and refresh a chip, keep a row of each bank open, and move a word every cycle.

    Every column access is a command of its own (burst length 1). While one segment's words move,
    the next one is prepared: if its row is not open, and belongs to another bank, PRECHARGE and
    ACTIVATE take two cycles from the words. Words of segments whose rows are open follow each other
    without a gap; from reading to writing the data bus needs CAS latency + 1 cycles.

    Addresses from the lowest bit on: byte, column, bank, row.

    An access is taken when its words begin: it must be offered from a register and stay as it is.
    Offered in t, with its row open, its first READ is on the pins in t + 3; its data are on
    ``dq_i`` CAS latency cycles later, and ``r`` shows them in the cycle after that (with more than
    one word a beat, when the last one is there). A segment whose response is not OKAY takes the
    same time without any command.

    The refresh timer runs freely; a refresh waits for at most one segment, so none is lost.

    Parameters
    ----------
    chip : SdramChip
    timing : SdramTiming
        Of that chip at the clock of the sync domain.
    bus_bytes : int
        Bytes of a beat, a power of two from 2 to 16.
    capture_delay : int
        Cycles, -1 to 1, by which data reach ``dq_i`` later than `SdramPins` says.

    Members
    -------
    pins : Out(SdramPins(chip))
    access : In(stream.Signature(Access))
        Room for all beats to be read must be there, and so must all beats to be written.
    w : In(stream.Signature(WriteData(bus_bytes)))
    r : Out(ReadBack(bus_bytes)), r_valid : Out(1)
        Without back-pressure.
    written : Out(1), written_response : Out(2)
        Strobe: the last word of a write burst was sent to the chip.
    ready : Out(1)
        The chip is initialised.
    """

    def __init__(
        self, *, chip: SdramChip, timing: SdramTiming, bus_bytes: int, capture_delay: int = 0
    ):
        check_parameters(timing, bus_bytes, capture_delay)
        self._chip = chip
        self._timing = timing
        self._bus_bytes = bus_bytes
        self._capture_delay = capture_delay
        address_bits = (chip.capacity - 1).bit_length()
        super().__init__(
            {
                "pins": Out(SdramPins(chip)),
                "access": In(stream.Signature(Access(address_bits, bus_bytes))),
                "w": In(stream.Signature(WriteData(bus_bytes))),
                "r": Out(ReadBack(bus_bytes)),
                "r_valid": Out(1),
                "written": Out(1),
                "written_response": Out(2),
                "ready": Out(1),
            }
        )
        # Words of a beat, and beats of a word: one of the two is 1.
        self._words = max(1, bus_bytes // chip.data_bytes)
        self._lanes = max(1, chip.data_bytes // bus_bytes)

    @property
    def read_latency(self) -> int:
        """Cycles from the decision to READ until the data are in their first register."""
        return 2 + self._timing.cas_latency + self._capture_delay

    def elaborate(self, platform):
        m = Module()
        t = self._timing
        # What the two halves, rows and columns, tell each other.
        # A row command is decided a cycle before it goes to the pins, where it comes before a
        # column's, so that no decision about rows is in the path that moves the words.
        self._row_command, self._row_command_next = (
            Signal(Command, init=Command.NOP, name=f"row_command{n}") for n in ("", "_next")
        )
        self._row_none = Signal(init=1)  # the row command is NOP
        self._row_address = Signal(len(self.pins.a), reset_less=True)
        self._row_bank = Signal(len(self.pins.ba), reset_less=True)
        self._start = Signal()  # the next segment becomes the present one
        self._next = self.access.payload
        self._next_bank, self._next_row, self._next_position = self._divide(self._next.segment)
        self._running = Signal()
        self._bank = Signal(len(self.pins.ba), reset_less=True)
        self._may_start = Signal()
        self._beat_valid = Signal()  # the next beat to be written is in its register
        # Cycles until a precharge is allowed: after ACTIVATE and after the last WRITE of a segment.
        # What looks at them is a cycle late, and a row command another one.
        self._ras_wait = max(0, max(t.t_ras, t.t_rc - t.t_rp) - 2)
        self._recovery_wait = max(0, t.t_wr - 3)
        self._ras = self._countdown(m, self._ras_wait, name="ras")
        self._recovery = self._countdown(m, self._recovery_wait, name="recovery")
        self._elaborate_rows(m)
        self._elaborate_columns(m)
        m.d.comb += self.access.ready.eq(self._start)
        return m

    def _divide(self, segment):
        """Return bank, row, and position in the row (in beats) of a segment."""
        beat_bits = (self._chip.row_bytes // self._bus_bytes).bit_length() - 1
        address = Cat(segment.first, segment.block)
        bank_end = beat_bits + self._chip.bank_bits
        return address[beat_bits:bank_end], address[bank_end:], address[:beat_bits]

    def _countdown(self, m, most, *, name):
        """Return a counter to be set to ``most`` or less, which stops at 0."""
        counter = Signal(range(most + 1), name=name)
        with m.If(counter != 0):
            m.d.sync += counter.eq(counter - 1)
        return counter

    def _elaborate_rows(self, m):
        t = self._timing
        rows = memory.Memory(shape=self._chip.row_bits, depth=1 << self._chip.bank_bits, init=[])
        m.submodules.rows = rows
        write, read = rows.write_port(), rows.read_port(domain="comb")
        self._open = Signal(1 << self._chip.bank_bits)
        hit = Signal()
        m.d.comb += [
            read.addr.eq(self._next_bank),
            write.addr.eq(self._next_bank),
            write.data.eq(self._next_row),
            hit.eq(
                (self._open.bit_select(self._next_bank, 1) & (read.data == self._next_row))
                | (self._next.segment.response != 0)
            ),
        ]
        m.d.sync += [
            self._row_command.eq(self._row_command_next),
            self._row_none.eq(self._row_command_next == Command.NOP),
            self._row_bank.eq(self._next_bank),
        ]
        self._hit, self._write_row = hit, write.en
        # Whether the row of the next segment, or all rows, may be closed. A cycle late, for speed:
        # while a row waits to be closed no segment starts, so what was true stays true.
        self._closable, self._all_closable = Signal(), Signal()
        recovered = (self._ras == 0) & (self._recovery == 0)
        m.d.sync += [
            self._closable.eq(recovered & (~self._running | (self._bank != self._next_bank))),
            self._all_closable.eq(recovered & ~self._running),
        ]

        longest = max(t.startup, t.t_rfc, t.t_mrd, t.t_rp, t.t_rcd)
        self._wait = Signal(range(longest + 1), init=t.startup)
        self._waited = Signal()  # the count is 0
        with m.If(~self._waited):
            m.d.sync += [self._wait.eq(self._wait - 1), self._waited.eq(self._wait == 1)]

        timer = Signal(range(t.t_refi), init=t.t_refi - 1)
        self._refresh_due = Signal()
        m.d.sync += timer.eq(Mux(timer == 0, t.t_refi - 1, timer - 1))
        with m.If(timer == 0):
            m.d.sync += self._refresh_due.eq(1)
        with m.FSM():
            self._elaborate_startup(m)
            self._elaborate_service(m)
            self._elaborate_refresh(m)

    def _command(self, m, command, address=0, *, then, wait):
        """Give a row command, and wait before the next one; ``wait`` is its distance."""
        m.d.comb += self._row_command_next.eq(command)
        m.d.sync += [
            self._row_address.eq(address),
            self._wait.eq(wait - 1),
            self._waited.eq(wait == 1),
        ]
        m.next = then

    def _elaborate_startup(self, m):
        t = self._timing
        refreshes = Signal(range(STARTUP_REFRESHES))
        with m.State("POWER_UP"):
            with m.If(self._waited):
                self._command(m, Command.PRECHARGE, 1 << 10, then="STARTUP_REFRESH", wait=t.t_rp)
        with m.State("STARTUP_REFRESH"):
            with m.If(self._waited):
                self._command(m, Command.REFRESH, then="STARTUP_REFRESH", wait=t.t_rfc)
                m.d.sync += refreshes.eq(refreshes + 1)
                with m.If(refreshes == STARTUP_REFRESHES - 1):
                    m.next = "SET_MODE"
        with m.State("SET_MODE"):
            with m.If(self._waited):
                # Bursts of 1 word; bits 6 to 4 are the CAS latency.
                m.d.sync += self._row_bank.eq(0)
                self._command(m, Command.MODE, t.cas_latency << 4, then="LOOK_UP", wait=t.t_mrd)
                m.d.sync += self.ready.eq(1)

    def _elaborate_service(self, m):
        """Prepare the row of the next segment, and start it."""
        t = self._timing
        with m.State("LOOK_UP"):
            with m.If(self._refresh_due):
                m.next = "CLOSE"
            with m.Elif(self.access.valid):
                with m.If(self._hit):
                    m.next = "START"
                with m.Elif(self._open.bit_select(self._next_bank, 1)):
                    m.next = "PRECHARGE"
                with m.Else():
                    m.next = "ACTIVATE"
        with m.State("PRECHARGE"):
            with m.If(self._closable):
                self._command(m, Command.PRECHARGE, then="ACTIVATE", wait=t.t_rp)
        with m.State("ACTIVATE"):
            with m.If(self._waited):
                # Before a segment starts its predecessor has to have gone on behind this command.
                wait = max(2, t.t_rcd)
                self._command(m, Command.ACTIVATE, self._next_row, then="START", wait=wait)
                m.d.comb += self._write_row.eq(1)
                m.d.sync += [
                    self._ras.eq(self._ras_wait),
                    self._open.bit_select(self._next_bank, 1).eq(1),
                ]
        with m.State("START"):
            with m.If(self._refresh_due):
                m.next = "CLOSE"
            with m.Elif(self._waited & self._may_start):
                m.d.comb += self._start.eq(1)
                m.next = "LOOK_UP"

    def _elaborate_refresh(self, m):
        t = self._timing
        with m.State("CLOSE"):
            with m.If(self._all_closable & self._waited):
                self._command(m, Command.PRECHARGE, 1 << 10, then="REFRESH", wait=t.t_rp)
                m.d.sync += self._open.eq(0)
        with m.State("REFRESH"):
            with m.If(self._waited):
                # The next command is an ACTIVATE, which waits for t_rfc.
                self._command(m, Command.REFRESH, then="LOOK_UP", wait=t.t_rfc)
                m.d.sync += self._refresh_due.eq(0)

    def _elaborate_columns(self, m):
        """Move the words of the present segment."""
        segment = self._next.segment
        word_bits = (self._words - 1).bit_length()
        # Position of the word in its row, in words or (if these are smaller) beats.
        position = Signal(len(self._next_position) + word_bits, reset_less=True)
        left = Signal(len(segment.more) + word_bits, reset_less=True)
        write, final, active = (Signal(name=n, reset_less=True) for n in ("w", "final", "active"))
        response = Signal(2, reset_less=True)
        end = Signal(reset_less=True)  # none is left behind this one
        whole = Signal(reset_less=True)  # this one ends its beat
        issue = Signal()
        turnaround = self._countdown(m, self._timing.cas_latency, name="turnaround")
        # No write starts as long as read data are on their way, and for a cycle after them.
        may_write = self._beat_valid & (turnaround == 0) & ~(self._running & ~write)
        m.d.comb += [
            issue.eq(self._running & self._row_none),
            self._may_start.eq((~self._running | end) & (~self._next.write | may_write)),
            self.written.eq(issue & end & write & final),
            self.written_response.eq(response),
        ]
        with m.If(issue):
            m.d.sync += [
                position.eq(position + 1),
                left.eq(left - 1),
                end.eq(left == 1),
                whole.eq(left[:word_bits] == 1 if word_bits else 1),
            ]
            with m.If(~write):
                m.d.sync += turnaround.eq(self._timing.cas_latency)
            with m.If(end):
                m.d.sync += self._running.eq(0)
                with m.If(write):
                    m.d.sync += self._recovery.eq(self._recovery_wait)
        with m.If(self._start):
            m.d.sync += [
                self._running.eq(1),
                self._bank.eq(self._next_bank),
                position.eq(Cat(C(0, word_bits), self._next_position)),
                left.eq(Cat(C((1 << word_bits) - 1, word_bits), segment.more)),
                end.eq(0 if word_bits else segment.more == 0),
                whole.eq(0 if word_bits else 1),
                write.eq(self._next.write),
                final.eq(segment.final),
                response.eq(segment.response),
                active.eq(segment.response == 0),
            ]
        reading, writing = issue & ~write, issue & write
        # Of registers alone, as much depends on it.
        writes = Signal()  # a segment is written
        m.d.sync += writes.eq(Mux(self._start, self._next.write, writes & ~(self._row_none & end)))
        m.d.comb += self.w.ready.eq(~self._beat_valid | (writes & self._row_none & whole))
        self._elaborate_commands(m, position, reading & active, writing & active)
        self._elaborate_write_data(m, position, writing)
        tag = Signal(
            data.StructLayout({"lane": range(self._lanes), "beat_end": 1, "last": 1, "response": 2})
        )
        m.d.comb += [
            tag.lane.eq(position),
            tag.beat_end.eq(whole),
            tag.last.eq(end & final),
            tag.response.eq(response),
        ]
        self._elaborate_read_data(m, reading, tag)

    def _elaborate_commands(self, m, position, reading, writing):
        pins = self.pins
        column = position[(self._lanes - 1).bit_length() :]
        command = Signal(Command)
        m.d.comb += command.eq(self._row_command)
        m.d.sync += [
            pins.cke.eq(1),
            pins.cs_n.eq(0),
            Cat(pins.ras_n, pins.cas_n, pins.we_n).eq(command),
            pins.ba.eq(self._row_bank),
            pins.a.eq(self._row_address),
        ]
        with m.If(reading):
            m.d.comb += command.eq(Command.READ)
        with m.If(writing):
            m.d.comb += command.eq(Command.WRITE)
        with m.If(self._row_none):
            m.d.sync += [pins.a.eq(column), pins.ba.eq(self._bank)]
        m.d.sync += pins.dq_oe.eq(writing)

    def _elaborate_write_data(self, m, position, writing):
        """Shift the words of a beat out of a register, which is filled before it is needed."""
        pins, chip_bytes = self.pins, self._chip.data_bytes
        beat = Signal(WriteData(self._bus_bytes), reset_less=True)
        with m.If(self.w.ready):
            m.d.sync += [beat.eq(self.w.payload), self._beat_valid.eq(self.w.valid)]
        with m.Elif(writing):
            m.d.sync += [
                beat.data.eq(beat.data >> self._chip.data_bits),
                beat.strobe.eq(beat.strobe >> chip_bytes),
            ]
        enabled = Signal(chip_bytes)
        m.d.comb += enabled.eq(beat.strobe)
        if self._lanes > 1:
            lane = position[: (self._lanes - 1).bit_length()]
            m.d.comb += enabled.eq(beat.strobe << lane * self._bus_bytes)
        m.d.sync += [
            pins.dq_o.eq(beat.data.replicate(self._lanes)),
            # Masked while the chip starts up, and open for reads, whose data it would stop.
            pins.dqm.eq(Mux(writing, ~enabled, Mux(self.ready, 0, -1))),
        ]

    def _elaborate_read_data(self, m, reading, tag):
        """Collect the words of a beat; a tag follows each READ as long as its data take."""
        captured = Signal(self._chip.data_bits, reset_less=True)
        m.d.sync += captured.eq(self.pins.dq_i)
        arrived = delay(m, reading, self.read_latency, name="reading", reset_less=False)
        tag = delay(m, tag, self.read_latency, name="tag", reset_less=True)
        if self._words > 1:
            earlier = Signal((self._words - 1) * self._chip.data_bits, reset_less=True)
            beat = Cat(earlier, captured)
            with m.If(arrived):
                m.d.sync += earlier.eq(beat[self._chip.data_bits :])
        else:
            beat = captured.word_select(tag.lane, 8 * self._bus_bytes)
        m.d.comb += [
            self.r.data.eq(beat),
            self.r.last.eq(tag.last),
            self.r.response.eq(tag.response),
            self.r_valid.eq(arrived & tag.beat_end),
        ]

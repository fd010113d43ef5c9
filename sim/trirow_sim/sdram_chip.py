"""An SDR SDRAM as it behaves at its pins, with a check of every rule of its datasheet."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat

from trirow_hw.sdram.chips import SdramChip
from trirow_hw.sdram.pins import Command

__all__ = ["ChipModel", "ChipPins", "SdramViolation", "attach"]

#: A time may be shorter by so many ns: what the arithmetic of fractions of ns costs.
_SLACK_NS = 1e-3
#: Refreshes of the initialisation.
_STARTUP_REFRESHES = 2
#: Mean intervals between refreshes by which one may be late.
_REFRESH_INTERVALS = 2
#: Cycles from DQM to the data that it blanks.
_DQM_LATENCY = 2
_BURST_STOP = 0b011


@dataclass(slots=True)
class ChipPins:
    """What the controller drives in one cycle; ``dq`` counts only with ``dq_oe``."""

    cke: int = 1
    cs_n: int = 0
    ras_n: int = 1
    cas_n: int = 1
    we_n: int = 1
    ba: int = 0
    a: int = 0
    dqm: int = 0
    dq: int = 0
    dq_oe: int = 0


class SdramViolation(AssertionError):
    """A rule of the chip is broken.

    Attributes
    ----------
    cycle : int
        Cycle in which it shows, counted from 0 at the first call of `ChipModel.step`.
    rule : str
        Its name, such as ``tRCD``.
    bank : int or None
        Bank, if it is about one.
    values : str
        What is wrong.
    """

    def __init__(self, cycle: int, rule: str, bank: int | None, values: str) -> None:
        where = "" if bank is None else f"bank {bank}: "
        super().__init__(f"cycle {cycle}: {rule}: {where}{values}")
        self.cycle = cycle
        self.rule = rule
        self.bank = bank
        self.values = values


@dataclass(slots=True)
class _Bank:
    """A bank; cycles of its latest commands, very long ago at first."""

    row: int | None = None
    activated: int = -(1 << 60)
    precharged: int = -(1 << 60)
    written: int = -(1 << 60)


class ChipModel:
    """A chip, or several side by side, cycle by cycle.

    `step` is called once for each cycle with what the controller drives in it. After the call for
    cycle k, `dq` is what is on the data pins in cycle k + 1: the data of a READ in cycle
    k + 1 - CAS latency; otherwise, and in bytes that DQM blanked two cycles before the data, a
    pattern that changes every cycle, so that data captured in a wrong cycle are wrong.
    ``compiled/sdram_chip.hpp`` is the same in C++, to the letter of the messages.

    Rules, by the names in `SdramViolation`:

    - ``startup``: no command but NOP before ``startup_us``; then PRECHARGE of all banks, and two
      REFRESH and one MODE before the first ACTIVATE.
    - ``CKE``: up from the first command on.
    - ``command``: no burst stop and no auto-precharge; these are not part of the model.
    - ``mode``: burst length 1, a CAS latency of 2 or 3 that the clock allows, nothing else set.
    - ``bank``: ACTIVATE needs a closed bank, READ and WRITE an open one, REFRESH and MODE that all
      are closed.
    - ``tRCD``, ``tRP``, ``tRAS``, ``tRC``, ``tRRD``, ``tRFC``, ``tWR``, ``tMRD``: times in ns.
    - ``tRAS max``: no row is open for longer.
    - ``refresh``: no more than 2 mean intervals from one REFRESH to the next, and since the
      initialisation never more than 2 of them missing in all.
    - ``DQ``: the controller drives data with WRITE; it does not drive in a cycle with read data,
      nor in the one after it, when the chip's outputs are still turning off.

    Parameters
    ----------
    chip : SdramChip
        Geometry and timings.
    clock_hz : float
    storage : mutable sequence of bytes
        As many as the chip has, in the order of the controller's addresses (from the lowest bit
        on: byte, column, bank, row); used in place. ``Memory(chip.capacity).data`` is one.
    startup_us : float, optional
        Instead of that of the chip.

    Attributes
    ----------
    cycle : int
        Cycles so far.
    dq : int
        Data pins in the cycle to come.
    refreshes : int
        REFRESH commands so far.
    """

    def __init__(
        self,
        chip: SdramChip,
        clock_hz: float,
        storage: MutableSequence[int] | Any,
        *,
        startup_us: float | None = None,
    ) -> None:
        if len(storage) != chip.capacity:
            raise ValueError(f"storage must have {chip.capacity} bytes, not {len(storage)}")
        self._chip = chip
        self._ns = 1e9 / clock_hz
        self._storage = storage
        self._startup_ns = 1e3 * (chip.startup_us if startup_us is None else startup_us)
        self._interval = chip.refresh_ms * 1e6 / chip.refreshes / self._ns  # cycles
        self._banks = [_Bank() for _ in range(1 << chip.bank_bits)]
        self._mask = (1 << chip.data_bits) - 1
        self._cas_latency = 0
        self._reads: dict[int, int] = {}  # data by the cycle in which they are on the pins
        self._dqm: list[int] = [0] * _DQM_LATENCY
        self._driven = self._driven_before = False
        self._commanded = self._all_precharged = False
        self._refreshed = self._mode_set = self._activated = -(1 << 60)
        self._activated_bank = 0
        self._ready_at: int | None = None
        self._late_at = 1 << 60  # first cycle in which a refresh is late
        self._oldest = 1 << 60  # cycle of the ACTIVATE of the row that is open for longest
        self.cycle = 0
        self.refreshes = 0
        self.dq = 0

    def step(self, pins: ChipPins) -> None:
        """Take what is driven in a cycle.

        Raises
        ------
        SdramViolation
            The model must not be used after that.
        """
        command = pins.ras_n | pins.cas_n << 1 | pins.we_n << 2
        if pins.cs_n:
            command = Command.NOP
        if not pins.cke and (self._commanded or command != Command.NOP):
            self._fail("CKE", None, "down")
        if pins.dq_oe and (self._driven or self._driven_before):
            when = "in a cycle" if self._driven else "in the cycle after one"
            self._fail("DQ", None, f"driven {when} with read data")
        if command != Command.NOP:
            self._command(command, pins)
        if self.cycle > self._late_at:
            self._fail("refresh", None, f"late, {self.refreshes} so far")
        if (self.cycle - self._oldest) * self._ns > self._chip.t_ras_max + _SLACK_NS:
            self._row_too_long()
        self._dqm = [pins.dqm, *self._dqm[:-1]]
        self.cycle += 1
        self._show()

    def _show(self) -> None:
        """Work out the data pins in the cycle that begins."""
        self._driven_before = self._driven
        pattern = self.cycle * 0x9E3779B1 & self._mask
        data = self._reads.pop(self.cycle, None)
        self._driven = data is not None
        if data is None:
            self.dq = pattern
            return
        blank = 0
        for byte in range(self._chip.data_bytes):
            if self._dqm[_DQM_LATENCY - 1] >> byte & 1:
                blank |= 0xFF << 8 * byte
        self.dq = data & ~blank | pattern & blank

    def _command(self, command: int, pins: ChipPins) -> None:
        if not self._commanded:
            if self.cycle * self._ns + _SLACK_NS < self._startup_ns:
                self._fail("startup", None, f"command {self.cycle} cycles after power-up")
            if command != Command.PRECHARGE or not pins.a >> 10 & 1:
                self._fail("startup", None, "the first command must precharge all banks")
            self._commanded = True
        self._at_least("tRFC", None, self._refreshed, self._chip.t_rfc, "REFRESH")
        self._at_least("tMRD", None, self._mode_set, self._chip.t_mrd, "MODE")
        if command == Command.ACTIVATE:
            self._activate(pins.ba, pins.a)
        elif command == Command.READ:
            address = self._column(pins)
            self._reads[self.cycle + self._cas_latency] = int.from_bytes(
                self._storage[address : address + self._chip.data_bytes], "little"
            )
        elif command == Command.WRITE:
            self._write(pins)
        elif command == Command.PRECHARGE:
            banks = range(len(self._banks)) if pins.a >> 10 & 1 else [pins.ba]
            for bank in banks:
                self._precharge(bank)
        elif command == Command.REFRESH:
            self._all_closed("REFRESH")
            self._refreshed = self.cycle
            self.refreshes += 1
            self._schedule_refresh()
        elif command == Command.MODE:
            self._set_mode(pins.a)
        else:
            self._fail("command", None, "burst stop")

    def _activate(self, index: int, row: int) -> None:
        bank = self._banks[index]
        if self.refreshes < _STARTUP_REFRESHES or self._ready_at is None:
            self._fail(
                "startup",
                index,
                f"ACTIVATE after {self.refreshes} REFRESH"
                + ("" if self._ready_at is not None else " and no MODE"),
            )
        if bank.row is not None:
            self._fail("bank", index, f"ACTIVATE, but row {bank.row} is open")
        self._at_least("tRP", index, bank.precharged, self._chip.t_rp, "PRECHARGE")
        self._at_least("tRC", index, bank.activated, self._chip.t_rc, "ACTIVATE")
        if self._activated_bank != index:
            self._at_least(
                "tRRD",
                index,
                self._activated,
                self._chip.t_rrd,
                f"ACTIVATE of bank {self._activated_bank}",
            )
        bank.row = row & (1 << self._chip.row_bits) - 1
        bank.activated = self._activated = self.cycle
        self._activated_bank = index
        self._find_oldest()

    def _precharge(self, index: int) -> None:
        bank = self._banks[index]
        if bank.row is None:
            return
        self._at_least("tRAS", index, bank.activated, self._chip.t_ras, "ACTIVATE")
        self._at_least("tWR", index, bank.written, self._chip.t_wr, "WRITE")
        bank.row = None
        bank.precharged = self.cycle
        self._find_oldest()

    def _column(self, pins: ChipPins) -> int:
        """Check READ or WRITE; return the address of its first byte in the storage."""
        bank, chip = self._banks[pins.ba], self._chip
        if bank.row is None:
            self._fail("bank", pins.ba, "READ or WRITE, but no row is open")
        if pins.a >> 10 & 1:
            self._fail("command", pins.ba, "auto-precharge")
        self._at_least("tRCD", pins.ba, bank.activated, chip.t_rcd, "ACTIVATE")
        assert bank.row is not None
        column = pins.a & (1 << chip.column_bits) - 1
        row = bank.row << chip.bank_bits | pins.ba
        address: int = (row << chip.column_bits | column) * chip.data_bytes
        return address

    def _write(self, pins: ChipPins) -> None:
        address = self._column(pins)
        if not pins.dq_oe:
            self._fail("DQ", pins.ba, "not driven with WRITE")
        for byte in range(self._chip.data_bytes):
            if not pins.dqm >> byte & 1:
                self._storage[address + byte] = pins.dq >> 8 * byte & 0xFF
        self._banks[pins.ba].written = self.cycle

    def _set_mode(self, value: int) -> None:
        self._all_closed("MODE")
        latency = value >> 4 & 7
        if value & ~0x70 or latency not in (2, 3):
            self._fail("mode", None, f"{value:#x}")
        if self._ns + _SLACK_NS < (self._chip.t_ck2 if latency == 2 else self._chip.t_ck3):
            self._fail("mode", None, f"CAS latency {latency} at this clock")
        self._cas_latency = latency
        self._mode_set = self.cycle
        if self._ready_at is None:
            self._ready_at = self.cycle - int(self.refreshes * self._interval)
            self._schedule_refresh()

    def _schedule_refresh(self) -> None:
        """Work out when the next refresh is late."""
        if self._ready_at is None:
            return
        interval = self._interval
        latest = int(_REFRESH_INTERVALS * interval)
        in_all = int((self.refreshes + _REFRESH_INTERVALS) * interval)
        self._late_at = min(max(self._refreshed, 0) + latest, self._ready_at + in_all)

    def _all_closed(self, command: str) -> None:
        for index, bank in enumerate(self._banks):
            if bank.row is not None:
                self._fail("bank", index, f"{command}, but row {bank.row} is open")
            self._at_least("tRP", index, bank.precharged, self._chip.t_rp, "PRECHARGE")

    def _find_oldest(self) -> None:
        self._oldest = min(
            (bank.activated for bank in self._banks if bank.row is not None), default=1 << 60
        )

    def _row_too_long(self) -> None:
        index = next(
            i
            for i, bank in enumerate(self._banks)
            if bank.row is not None and bank.activated == self._oldest
        )
        open_for = self.cycle - self._oldest
        self._fail("tRAS max", index, f"row open for {open_for} cycles")

    def _at_least(
        self, rule: str, bank: int | None, since: int, shortest: float, event: str
    ) -> None:
        cycles = self.cycle - since
        if cycles * self._ns + _SLACK_NS < shortest:
            self._fail(rule, bank, f"{cycles} cycles after {event}, at least {shortest:g} ns")

    def _fail(self, rule: str, bank: int | None, values: str) -> None:
        raise SdramViolation(self.cycle, rule, bank, values)


async def attach(ctx: Any, pins: Any, model: ChipModel) -> None:
    """Connect a chip to a controller's pins in Amaranth's simulator, for a background testbench.

    Parameters
    ----------
    ctx : SimulatorContext
    pins : interface of signature SdramPins
    model : ChipModel
    """
    flags = Cat(pins.cke, pins.cs_n, pins.ras_n, pins.cas_n, pins.we_n, pins.dq_oe)
    driven = ChipPins()
    async for _, _, bits, driven.ba, driven.a, driven.dqm, driven.dq in ctx.tick().sample(
        flags, pins.ba, pins.a, pins.dqm, pins.dq_o
    ):
        driven.cke, driven.cs_n = bits & 1, bits >> 1 & 1
        driven.ras_n, driven.cas_n, driven.we_n = bits >> 2 & 1, bits >> 3 & 1, bits >> 4 & 1
        driven.dq_oe = bits >> 5 & 1
        model.step(driven)
        ctx.set(pins.dq_i, model.dq)

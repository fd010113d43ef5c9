"""The pins of an SDR SDRAM."""

from __future__ import annotations

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .chips import SdramChip

__all__ = ["Command", "SdramPins"]


class Command(IntEnum):
    """Commands as RAS#, CAS# and WE# (bits 0, 1, 2) with CS# low; JEDEC 21-C, 3.11.5."""

    MODE = 0b000
    REFRESH = 0b100
    PRECHARGE = 0b010
    ACTIVATE = 0b110
    WRITE = 0b001
    READ = 0b101
    NOP = 0b111


class SdramPins(wiring.Signature):
    """Pins of a chip as its controller drives them, without the clock.

    All outputs come straight from registers, and ``dq_i`` goes straight into one. The chip's clock
    is the inverted system clock, so it samples half a cycle after the registers change. Data of a
    READ that is on the pins in cycle k are captured at the end of cycle k + CAS latency.

    Parameters
    ----------
    chip : SdramChip

    Members
    -------
    cke, cs_n, ras_n, cas_n, we_n : Out(1)
    ba : Out(bank_bits), a : Out(max(row_bits, 11)), dqm : Out(data_bits / 8)
    dq_o : Out(data_bits), dq_oe : Out(1), dq_i : In(data_bits)
    """

    def __init__(self, chip: SdramChip):
        self._chip = chip
        super().__init__(
            {
                "cke": Out(1),
                "cs_n": Out(1, init=1),
                "ras_n": Out(1, init=1),
                "cas_n": Out(1, init=1),
                "we_n": Out(1, init=1),
                "ba": Out(chip.bank_bits),
                "a": Out(max(chip.row_bits, 11)),
                "dqm": Out(chip.data_bytes, init=(1 << chip.data_bytes) - 1),
                "dq_o": Out(chip.data_bits),
                "dq_oe": Out(1),
                "dq_i": In(chip.data_bits),
            }
        )

    @property
    def chip(self) -> SdramChip:
        """The chip."""
        return self._chip

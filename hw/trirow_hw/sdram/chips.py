"""SDR SDRAM chips: geometry and timings of their datasheets, and these in clock cycles."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["CHIPS", "SdramChip", "SdramTiming"]


@dataclass(frozen=True)
class SdramTiming:
    """Timings of a chip at one clock, in cycles.

    Parameters
    ----------
    cas_latency : int
        Cycles from READ until the chip shows its data: 2 where the clock allows, else 3.
    t_rcd, t_rp, t_ras, t_rc, t_rrd, t_rfc, t_wr, t_mrd : int
        Fewest cycles from ACTIVATE to READ or WRITE, PRECHARGE to ACTIVATE, ACTIVATE to PRECHARGE,
        ACTIVATE to ACTIVATE of the same bank, to that of another bank, REFRESH to any other
        command, the last data of a WRITE to PRECHARGE, and MODE to any other command.
    t_ras_max : int
        Most cycles from ACTIVATE to PRECHARGE.
    t_refi : int
        Most cycles from refresh to refresh, on average.
    startup : int
        Cycles without a command after power-up.
    """

    cas_latency: int
    t_rcd: int
    t_rp: int
    t_ras: int
    t_rc: int
    t_rrd: int
    t_rfc: int
    t_wr: int
    t_mrd: int
    t_ras_max: int
    t_refi: int
    startup: int


@dataclass(frozen=True)
class SdramChip:
    """An SDR SDRAM, or several side by side that get the same commands.

    Parameters
    ----------
    name : str
    data_bits : int
        Width of the data: 16 or 32.
    bank_bits, row_bits, column_bits : int
        Bits of these parts of an address; at most 10 of the column, as A10 means precharge.
    t_rcd, t_rp, t_ras, t_rc, t_rrd, t_rfc, t_wr, t_mrd, t_ras_max : float
        See `SdramTiming`; ns.
    refreshes, refresh_ms : int
        So many refreshes are due in so many ms.
    t_ck2, t_ck3 : float
        Shortest clock period with a CAS latency of 2 and of 3; ns.
    startup_us : float
        Time from stable power and clock to the first command.
    """

    name: str
    data_bits: int
    bank_bits: int
    row_bits: int
    column_bits: int
    t_rcd: float
    t_rp: float
    t_ras: float
    t_rc: float
    t_rrd: float
    t_rfc: float
    t_wr: float
    t_mrd: float
    t_ras_max: float
    refreshes: int
    refresh_ms: int
    t_ck2: float
    t_ck3: float
    startup_us: float = 200.0

    def __post_init__(self) -> None:
        if self.data_bits not in (16, 32):
            raise ValueError(f"data_bits must be 16 or 32, not {self.data_bits!r}")
        for name, low, high in (("bank_bits", 1, 2), ("row_bits", 11, 13), ("column_bits", 8, 10)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be from {low} to {high}, not {value!r}")

    @property
    def data_bytes(self) -> int:
        """Bytes that move in a cycle."""
        return self.data_bits // 8

    @property
    def capacity(self) -> int:
        """Bytes."""
        return self.data_bytes << self.bank_bits + self.row_bits + self.column_bits

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of one bank."""
        return self.data_bytes << self.column_bits

    def timing(self, clock_hz: float) -> SdramTiming:
        """Return the timings in cycles of a clock.

        Raises
        ------
        ValueError
            If the clock is too fast for the chip, or so slow that it could not be refreshed.
        """
        if not 1e6 <= clock_hz <= 1e9 / self.t_ck3:
            raise ValueError(
                f"clock_hz of {self.name} must be from 1 MHz to {1e3 / self.t_ck3:.0f} MHz, "
                f"not {clock_hz!r}"
            )

        def at_least(ns: float) -> int:
            # A millionth of a cycle is not worth another one.
            return max(1, -int(-(ns * clock_hz / 1e9 - 1e-6) // 1))

        return SdramTiming(
            cas_latency=2 if clock_hz <= 1e9 / self.t_ck2 else 3,
            t_rcd=at_least(self.t_rcd),
            t_rp=at_least(self.t_rp),
            t_ras=at_least(self.t_ras),
            t_rc=at_least(self.t_rc),
            t_rrd=at_least(self.t_rrd),
            t_rfc=at_least(self.t_rfc),
            # In cycles, some datasheets ask for two of these whatever the clock.
            t_wr=max(2, at_least(self.t_wr)),
            t_mrd=max(2, at_least(self.t_mrd)),
            t_ras_max=int(self.t_ras_max * clock_hz / 1e9),
            t_refi=int(self.refresh_ms / 1e3 / self.refreshes * clock_hz),
            startup=at_least(self.startup_us * 1e3),
        )


_CHIPS = [
    # ISSI IS42S16160G datasheet, AC electrical characteristics, -7; ULX3S of 32 MB.
    SdramChip(
        "IS42S16160G-7", 16, 2, 13, 9,
        t_rcd=15, t_rp=15, t_ras=37, t_rc=60, t_rrd=14, t_rfc=60, t_wr=14, t_mrd=14,
        t_ras_max=100_000, refreshes=8192, refresh_ms=64, t_ck2=10, t_ck3=7,
    ),
    # Alliance Memory AS4C32M16SB datasheet rev. 1.0, table 16, -7; ULX3S of 64 MB.
    SdramChip(
        "AS4C32M16SB-7", 16, 2, 13, 10,
        t_rcd=21, t_rp=21, t_ras=42, t_rc=63, t_rrd=14, t_rfc=63, t_wr=14, t_mrd=14,
        t_ras_max=120_000, refreshes=8192, refresh_ms=64, t_ck2=10, t_ck3=7,
    ),
    # ISSI IS42S16160B datasheet, AC electrical characteristics, -7; iCESugar-Pro.
    SdramChip(
        "IS42S16160B-7", 16, 2, 13, 9,
        t_rcd=20, t_rp=20, t_ras=45, t_rc=67.5, t_rrd=14, t_rfc=70, t_wr=20, t_mrd=15,
        t_ras_max=100_000, refreshes=8192, refresh_ms=64, t_ck2=10, t_ck3=7,
    ),
    # ESMT M12L64322A datasheet rev. 2.3, operating AC parameter, -6; later Colorlight 5A-75 boards.
    SdramChip(
        "M12L64322A-6", 32, 2, 11, 8,
        t_rcd=18, t_rp=18, t_ras=40, t_rc=58, t_rrd=12, t_rfc=60, t_wr=12, t_mrd=12,
        t_ras_max=100_000, refreshes=4096, refresh_ms=64, t_ck2=10, t_ck3=6,
    ),
    # Two ESMT M12L16161A side by side, datasheet of the 2Q die, slower grade -7; Colorlight
    # 5A-75B revision 7.0. It has neither CKE, CS# nor DQM pins: every write writes all bytes.
    SdramChip(
        "2x M12L16161A-7", 32, 1, 11, 8,
        t_rcd=20, t_rp=20, t_ras=42, t_rc=63, t_rrd=14, t_rfc=63, t_wr=14, t_mrd=14,
        t_ras_max=100_000, refreshes=2048, refresh_ms=32, t_ck2=10, t_ck3=7,
    ),
]  # fmt: skip

CHIPS = MappingProxyType({chip.name: chip for chip in _CHIPS})
"""Chips by name."""

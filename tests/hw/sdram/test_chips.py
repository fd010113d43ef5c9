"""Chips: what is on the first page of their datasheets, and their timings in cycles."""

from dataclasses import astuple, replace

import pytest

from trirow_hw.sdram.chips import CHIPS

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "capacity", "row_bytes"),
    [
        ("IS42S16160G-7", 32 * MIB, 1024),
        ("AS4C32M16SB-7", 64 * MIB, 2048),
        ("IS42S16160B-7", 32 * MIB, 1024),
        ("M12L64322A-6", 8 * MIB, 1024),
        ("2x M12L16161A-7", 4 * MIB, 1024),
    ],
)
def test_geometry(name, capacity, row_bytes):
    assert (CHIPS[name].capacity, CHIPS[name].row_bytes) == (capacity, row_bytes)


@pytest.mark.parametrize(
    ("name", "clock_hz", "cycles"),
    [
        ("IS42S16160G-7", 100e6, (2, 2, 2, 4, 6, 2, 6, 2, 2, 10_000, 781, 20_000)),
        ("AS4C32M16SB-7", 100e6, (2, 3, 3, 5, 7, 2, 7, 2, 2, 12_000, 781, 20_000)),
        ("AS4C32M16SB-7", 125e6, (3, 3, 3, 6, 8, 2, 8, 2, 2, 15_000, 976, 25_000)),
        ("M12L64322A-6", 80e6, (2, 2, 2, 4, 5, 1, 5, 2, 2, 8_000, 1250, 16_000)),
    ],
)
def test_timing(name, clock_hz, cycles):
    assert astuple(CHIPS[name].timing(clock_hz)) == cycles


@pytest.mark.parametrize("clock_hz", [0.5e6, 144e6])
def test_wrong_clock(clock_hz):
    with pytest.raises(ValueError, match="clock_hz of AS4C32M16SB-7 must be from 1 MHz to 143 MHz"):
        CHIPS["AS4C32M16SB-7"].timing(clock_hz)


@pytest.mark.parametrize(
    ("field", "value"), [("data_bits", 8), ("bank_bits", 3), ("row_bits", 14), ("column_bits", 11)]
)
def test_wrong_geometry(field, value):
    with pytest.raises(ValueError, match=f"{field} must be .*, not {value}"):
        replace(CHIPS["IS42S16160G-7"], **{field: value})

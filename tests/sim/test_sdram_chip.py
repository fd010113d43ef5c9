"""The behavioural SDRAM: its data, and that each rule is checked."""

from dataclasses import replace

import pytest

from trirow_sim.sdram_chip import ChipModel

from .sdram_kit import ALL, CHIP, pins, play, random_sequence, sequence

OPEN = ("ACTIVATE", 1, 3)
IDLE = len(sequence())


class TestData:
    @pytest.mark.parametrize(("mode", "latency"), [(0x20, 2), (0x30, 3)])
    def test_cas_latency(self, mode, latency):
        start = sequence()
        start[-3] = pins("MODE", 0, mode)
        address = ((3 << 2 | 1) << 9 | 5) * 2
        fill = bytes(address) + b"\x34\x12"
        cycles = [*start, *sequence(OPEN, 1, ("READ", 1, 5), 4, startup=False)]
        *_, seen, violation = play(cycles, fill=fill)
        assert violation is None
        read_at = IDLE + 2
        assert [k for k, dq in enumerate(seen) if dq == 0x1234] == [read_at + latency - 1]

    def test_write_and_mask(self):
        write = pins("WRITE", 1, 7, dq=0xABCD, dqm=0b10)
        _, memory, _, violation = play(sequence(OPEN, 1, write, 5), fill=b"\x55" * 20000)
        assert violation is None
        address = ((3 << 2 | 1) << 9 | 7) * 2
        assert memory.data[address - 2 : address + 4] == b"\x55\x55\xcd\x55\x55\x55"

    def test_mask_of_reads(self):
        reads = [pins("READ", 1, 0, dqm=0b01), *[pins()] * 4]
        *_, seen, violation = play(sequence(OPEN, 1, *reads), fill=b"\x77" * 20000)
        assert violation is None
        shown = seen[IDLE + 3]  # in the cycle two after READ
        assert shown >> 8 == 0x77
        assert shown & 0xFF == (IDLE + 4) * 0x9E3779B1 & 0xFF != 0x77

    def test_open_row_is_kept_in_each_bank(self):
        cycles = sequence(
            ("ACTIVATE", 0, 1), 1, ("ACTIVATE", 1, 2), 1, ("READ", 0, 0), ("READ", 1, 0), 4
        )
        row = [bytes([r]) * 1024 for r in range(12)]
        *_, seen, violation = play(cycles, fill=b"".join(row))
        assert violation is None
        assert seen[IDLE + 5 : IDLE + 7] == [0x0404, 0x0909]

    @pytest.mark.parametrize("seed", range(3))
    def test_legal_sequences_pass(self, seed):
        *_, violation = play(random_sequence(seed, CHIP, 3000, mistakes=0))
        assert violation is None


REFRESHES = [("REFRESH",), 6] * 3
VIOLATIONS = {
    "startup time": (sequence(5, ("PRECHARGE", 0, ALL), startup=False), "startup", None),
    "startup precharge": (sequence(10, ("PRECHARGE", 0, 0), startup=False), "startup", None),
    "startup refreshes": (
        sequence(
            10, ("PRECHARGE", 0, ALL), 2, ("REFRESH",), 6, ("MODE", 0, 0x20), 2, OPEN,
            startup=False,
        ),
        "startup", 1,
    ),
    "startup mode": (
        sequence(10, ("PRECHARGE", 0, ALL), 2, *REFRESHES, OPEN, startup=False), "startup", 1,
    ),
    "cke": (sequence(3, pins(cke=0)), "CKE", None),
    "stop": (sequence(("STOP",)), "command", None),
    "auto-precharge": (sequence(OPEN, 1, ("READ", 1, ALL)), "command", 1),
    "burst length": (sequence(("MODE", 0, 0x21)), "mode", None),
    "cas latency": (sequence(("MODE", 0, 0x10)), "mode", None),
    "activate open bank": (sequence(OPEN, 9, OPEN), "bank", 1),
    "read closed bank": (sequence(OPEN, 2, ("READ", 2, 0)), "bank", 2),
    "write closed bank": (sequence(("WRITE", 0, 0)), "bank", 0),
    "refresh open bank": (sequence(OPEN, 9, ("REFRESH",)), "bank", 1),
    "mode open bank": (sequence(OPEN, 9, ("MODE", 0, 0x20)), "bank", 1),
    "tRCD": (sequence(OPEN, ("READ", 1, 0)), "tRCD", 1),
    "tRP": (sequence(OPEN, 8, ("PRECHARGE", 1, 0), OPEN), "tRP", 1),
    "tRP before refresh": (sequence(OPEN, 8, ("PRECHARGE", 1, 0), ("REFRESH",)), "tRP", 1),
    "tRAS": (sequence(OPEN, 2, ("PRECHARGE", 1, 0)), "tRAS", 1),
    "tRAS of all": (sequence(OPEN, 2, ("PRECHARGE", 0, ALL)), "tRAS", 1),
    "tRRD": (sequence(OPEN, ("ACTIVATE", 2, 3)), "tRRD", 2),
    "tRFC": (sequence(("REFRESH",), 4, OPEN), "tRFC", None),
    "tWR": (sequence(OPEN, 4, ("WRITE", 1, 0), ("PRECHARGE", 1, 0)), "tWR", 1),
    "tMRD": (sequence(("MODE", 0, 0x20), OPEN), "tMRD", None),
    "refresh": (sequence(1563), "refresh", None),
    "refreshes in all": (sequence(*[1400, ("REFRESH",), 100] * 3), "refresh", None),
    "write without data": (sequence(OPEN, 1, pins("WRITE", 1, 0, dq_oe=0)), "DQ", 1),
    "drive with read data": (sequence(OPEN, 1, ("READ", 1, 0), 1, pins(dq_oe=1)), "DQ", None),
    "drive after read data": (sequence(OPEN, 1, ("READ", 1, 0), 2, pins(dq_oe=1)), "DQ", None),
    "drive later": (sequence(OPEN, 1, ("READ", 1, 0), 3, pins(dq_oe=1)), None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation(name):
    cycles, rule, bank = VIOLATIONS[name]
    *_, violation = play(cycles)
    if rule is None:
        assert violation is None
        return
    assert (violation.rule, violation.bank) == (rule, bank)
    if not name.startswith("refresh"):
        assert violation.cycle == len(cycles) - 1
    assert str(violation).startswith(f"cycle {violation.cycle}: {rule}: ")
    assert violation.values in str(violation)


CHANGED = {
    # Of the chip as it is, tRC is no longer than tRAS and tRP together.
    "tRC": ({"t_rc": 90}, sequence(OPEN, 4, ("PRECHARGE", 1, 0), 1, OPEN), 1),
    # Refresh closes all rows more often than tRAS max, so a shorter one is looked at.
    "tRAS max": ({"t_ras_max": 5000}, sequence(OPEN, 501), 1),
    "mode": ({"t_ck2": 10.5}, sequence(), None),
}


@pytest.mark.parametrize("rule", CHANGED)
def test_violation_of_another_chip(rule):
    changes, cycles, bank = CHANGED[rule]
    *_, violation = play(cycles, replace(CHIP, **changes))
    assert (violation.rule, violation.bank) == (rule, bank)
    assert play(cycles)[-1] is None


def test_message():
    *_, violation = play(sequence(OPEN, 8, ("PRECHARGE", 1, 0), OPEN))
    text = f"cycle {IDLE + 10}: tRP: bank 1: 1 cycles after PRECHARGE, at least 15 ns"
    assert str(violation) == text


def test_wrong_storage():
    with pytest.raises(ValueError, match="storage must have 33554432 bytes, not 5"):
        ChipModel(CHIP, 100e6, bytearray(5))

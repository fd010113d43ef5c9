"""The C++ model of the chip against the Python one: the same data and the same verdicts."""

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import trirow_sim
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.compiled import ToolchainError, find_toolchain

from .sdram_kit import CHIP, play, random_sequence
from .test_sdram_chip import CHANGED, VIOLATIONS

HEADER = Path(trirow_sim.__file__).with_name("compiled") / "sdram_chip.hpp"
SOURCE = f"""
#include "{HEADER}"
#include <cstring>
using namespace trirow;
extern "C" long run(const SdramParameters* parameters, unsigned char* storage,
                    const std::uint32_t* pins, long count, std::uint32_t* dq, char* error) {{
    SdramChip chip(*parameters, storage);
    for (long i = 0; i < count; ++i, pins += 10) {{
        SdramPins p{{!!pins[0], !!pins[1], !!pins[2], !!pins[3], !!pins[4], !!pins[5],
                    pins[6], pins[7], pins[8], pins[9]}};
        if (!chip.step(p)) {{
            std::strcpy(error, chip.error().c_str());
            return i;
        }}
        dq[i] = chip.dq();
    }}
    return count;
}}
"""
WHOLE = ("data_bits", "bank_bits", "row_bits", "column_bits", "refreshes")
TIMES = ("t_rcd", "t_rp", "t_ras", "t_rc", "t_rrd", "t_rfc", "t_wr", "t_mrd", "t_ras_max")
TIMES = (*TIMES, "refresh_ms", "t_ck2", "t_ck3")
PINS = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "dq_oe", "ba", "a", "dqm", "dq")


class Parameters(ctypes.Structure):
    """SdramParameters of the header."""

    _fields_ = (
        [(name, ctypes.c_uint) for name in WHOLE]
        + [(name, ctypes.c_double) for name in TIMES]
        + [("startup_us", ctypes.c_double), ("clock_hz", ctypes.c_double)]
    )


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    try:
        compiler = find_toolchain().compiler
    except ToolchainError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("chip")
    source, library = folder / "chip.cpp", folder / "chip.so"
    source.write_text(SOURCE)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def run_compiled(lib, chip, cycles, fill):
    """Return data pins, error and the first bytes of the storage."""
    values = {name: getattr(chip, name) for name in (*WHOLE, *TIMES)}
    parameters = Parameters(**values, startup_us=0.1, clock_hz=100e6)
    storage = (ctypes.c_uint8 * chip.capacity)()
    storage[: len(fill)] = fill
    words = [int(getattr(driven, name)) for driven in cycles for name in PINS]
    pins = (ctypes.c_uint32 * len(words))(*words)
    dq, error = (ctypes.c_uint32 * len(cycles))(), ctypes.create_string_buffer(200)
    count = lib.run(ctypes.byref(parameters), storage, pins, len(cycles), dq, error)
    return list(dq[:count]), error.value.decode(), bytes(storage[: len(fill)])


def check(lib, chip, cycles):
    """Run both; return the violation in words."""
    fill = bytes(i * 167 % 251 for i in range(1 << 14))
    _, memory, seen, violation = play(cycles, chip, fill=fill)
    dq, error, storage = run_compiled(lib, chip, cycles, fill)
    assert error == ("" if violation is None else str(violation))
    assert dq == seen
    assert storage == memory.data[: len(fill)]
    return error


@pytest.mark.parametrize("name", VIOLATIONS)
def test_rule(lib, name):
    cycles, rule, _ = VIOLATIONS[name]
    assert (f" {rule}: " in check(lib, CHIP, cycles)) == (rule is not None)


@pytest.mark.parametrize("rule", CHANGED)
def test_rule_of_another_chip(lib, rule):
    changes, cycles, _ = CHANGED[rule]
    assert f" {rule}: " in check(lib, replace(CHIP, **changes), cycles)


@pytest.mark.parametrize("chip", CHIPS)
def test_random(lib, chip):
    """Sequences that are legal for the fastest chip, and many with mistakes."""
    part = CHIPS[chip]
    error = check(lib, part, random_sequence(1, part, 3000, mistakes=0))
    assert not error or part != CHIP
    texts = [check(lib, part, random_sequence(seed, part, 300, 0.1)) for seed in range(24)]
    rules = {text.split(": ")[1] for text in texts if text}
    assert len(rules) >= (2 if part == CHIP else 1), rules

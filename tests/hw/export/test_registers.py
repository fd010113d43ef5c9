"""Register table and C header against the registers themselves, read over the simulated bus."""

import re
import shutil
import subprocess

import pytest
from amaranth.sim import Simulator

from trirow_hw.config import PRESETS
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.export import register_header, register_table
from trirow_hw.export.register_values import ERROR_MEANINGS, UNIT_MEANINGS
from trirow_hw.registers import REGISTERS, Registers
from trirow_hw.supervisor import COUNTERS

CONFIGS = [PRESETS[name] for name in ("tiny", "odd", "m256")]


def after_reset(config):
    """Return what each register reads as after reset."""
    dut = Registers(config=config)
    values = {}

    async def host(ctx):
        ctx.set(dut.bus.rready, 1)
        ctx.set(dut.bus.arvalid, 1)
        for name, register in REGISTERS.items():
            ctx.set(dut.bus.araddr, register.offset)
            values[name], *_ = await ctx.tick().sample(dut.bus.rdata).until(dut.bus.rvalid)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(host)
    simulator.run()
    return values


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_table(config):
    page = register_table(config)
    rows = re.findall(r"^\| (0x\w+) \| `(\w+)` \| (\w+) \| (0x\w+) \| (.*) \|$", page, re.M)
    values = after_reset(config)
    assert [name for _, name, *_ in rows] == list(REGISTERS)
    for offset, name, access, value, meaning in rows:
        register = REGISTERS[name]
        assert (int(offset, 0), access, meaning) == (
            register.offset,
            register.access,
            register.meaning,
        )
        assert int(value, 0) == values[name], name
    about = f"{config.name} (in_lanes={config.in_lanes}, out_lanes={config.out_lanes}, "
    assert f"Configuration {about}" in page
    assert about in register_header(config)


def test_errors_in_the_table():
    page = register_table(PRESETS["tiny"])
    assert set(ERROR_MEANINGS) == set(ErrorCode)
    assert set(UNIT_MEANINGS) == set(Unit)
    for member in (*ErrorCode, *Unit):
        assert f"| {member.value} | {member.name} | " in page


def test_no_row_is_broken():
    """Every row of a table has as many cells as its header."""
    for block in register_table(PRESETS["odd"]).split("\n\n"):
        if block.startswith("|"):
            assert len({line.count("|") for line in block.splitlines()}) == 1, block


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_header(config, tmp_path):
    """A C program that includes the header twice prints its values."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "trirow_registers.h").write_text(register_header(config))
    names = [f"TRIROW_{kind}_{name.upper()}" for kind in ("REG", "RESET") for name in REGISTERS]
    bits = {
        "CONTROL_START": 1,
        "CONTROL_RESET": 2,
        "CONTROL_INTERRUPT_ENABLE": 256,
        "STATUS_BUSY": 1,
        "STATUS_DONE": 2,
        "STATUS_ERROR": 4,
        "STATUS_INTERRUPT": 8,
    }
    names += [f"TRIROW_{bit}" for bit in bits]
    lists = ("ERRORS", "UNITS", "COUNTERS")
    lines = [
        *['#include "trirow_registers.h"'] * 2,
        "#include <stdio.h>",
        '#define SHOW(name, number) printf(#name " %lu\\n", (unsigned long)(number));',
        "int main(void) {",
        *(f"SHOW({name}, {name})" for name in names),
        *(f"TRIROW_{name}(SHOW)" for name in lists),
        "return 0; }",
    ]
    source, program = tmp_path / "show.c", tmp_path / "show"
    source.write_text("\n".join(lines) + "\n")
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["cc", *strict, str(source), "-o", str(program)], check=True)
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    shown = {name: int(value) for name, value in map(str.split, output.splitlines())}
    values = after_reset(config)
    expected = {f"TRIROW_REG_{name.upper()}": r.offset for name, r in REGISTERS.items()}
    expected |= {f"TRIROW_RESET_{name.upper()}": value for name, value in values.items()}
    expected |= {f"TRIROW_{name}": value for name, value in bits.items()}
    expected |= {member.name: member.value for member in (*ErrorCode, *Unit)}
    expected |= {name: REGISTERS[name].offset for name in COUNTERS}
    assert shown == expected

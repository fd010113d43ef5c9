"""Run a program on the core in a LiteX SoC, from a port of its bus; cocotb runs this module."""

import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from trirow_hw.registers import REGISTERS

START, BUSY, DONE = 1, 1, 2


@cocotb.test()
async def layer(dut):
    folder = Path(os.environ["LAYER_FOLDER"])
    image, base = (folder / "image.bin").read_bytes(), int(os.environ["LAYER_BASE"])
    registers = int(os.environ["LAYER_REGISTERS"])
    dut.sys_rst.value = 1
    cocotb.start_soon(Clock(dut.sys_clk, 10, "ns").start())
    host = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "host"), dut.sys_clk, dut.sys_rst)
    await ClockCycles(dut.sys_clk, 5)
    dut.sys_rst.value = 0
    await ClockCycles(dut.sys_clk, 2)

    await host.write(base, image)
    values = {
        "descriptor": int(os.environ["LAYER_DESCRIPTOR"]),
        "base": base,
        "limit": base + len(image),
        "control": START,
    }
    for name, value in values.items():
        await host.write_dword(registers + REGISTERS[name].offset, value)
    status = BUSY
    for _ in range(5000):
        if not status & BUSY:
            break
        status = await host.read_dword(registers + REGISTERS["status"].offset)
    assert await host.read_dword(registers + REGISTERS["error"].offset) == 0
    assert status == DONE
    found = await host.read(base, len(image))
    (folder / "after.bin").write_bytes(found.data)

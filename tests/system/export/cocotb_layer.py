"""Run a program on exported Verilog between cocotbext-axi's bus models; cocotb runs this module."""

import os
import random
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

from trirow_hw.registers import REGISTERS

START, INTERRUPT_ENABLE = 1, 1 << 8
DONE, INTERRUPT = 1 << 1, 1 << 3


def pauses(seed, share):
    """Yield whether a channel waits, cycle by cycle; long waits now and then."""
    draw = random.Random(seed)
    while True:
        yield from [draw.random() < share] * draw.choice((1, 1, 1, 2, 9))


def hold_back(ram, control, seed):
    """Let every channel of both buses wait at random."""
    memory = [ram.read_if, ram.write_if]
    channels = [
        (part, name)
        for part in (*memory, control.read_if, control.write_if)
        for name in ("ar_channel", "r_channel", "aw_channel", "w_channel", "b_channel")
        if hasattr(part, name)
    ]
    assert len(channels) == 10
    for number, (part, name) in enumerate(channels):
        getattr(part, name).set_pause_generator(pauses(100 * seed + number, 0.1 + number % 5 / 8))


@cocotb.test()
async def layer(dut):
    folder, seed = Path(os.environ["LAYER_FOLDER"]), int(os.environ["LAYER_SEED"])
    before = (folder / "before.bin").read_bytes()
    base, descriptor = int(os.environ["LAYER_BASE"]), int(os.environ["LAYER_DESCRIPTOR"])
    dut.aresetn.value = 0
    cocotb.start_soon(Clock(dut.aclk, 10, "ns").start())
    reset = {"reset": dut.aresetn, "reset_active_level": False}
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.aclk, size=base + len(before), **reset)
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, **reset)
    ram.write(base, before)
    hold_back(ram, control, seed)
    await ClockCycles(dut.aclk, 5)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 2)

    assert await control.read_dword(REGISTERS["id"].offset) == int.from_bytes(b"TRIW", "little")
    assert await control.read_dword(REGISTERS["watchdog"].offset) == 1 << 20
    values = {"descriptor": descriptor, "base": base, "limit": base + len(before)}
    for name, value in values.items():
        await control.write_dword(REGISTERS[name].offset, value)
    assert not dut.interrupt.value
    await control.write_dword(REGISTERS["control"].offset, START | INTERRUPT_ENABLE)
    await with_timeout(RisingEdge(dut.interrupt), 2, "ms")
    assert await control.read_dword(REGISTERS["error"].offset) == 0
    assert await control.read_dword(REGISTERS["status"].offset) == DONE | INTERRUPT
    (folder / "after.bin").write_bytes(ram.read(base, len(before)))

"""The core in a LiteX SoC with a Wishbone bus and a RAM computes golden's bytes."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from trirow_driver.program import DESCRIPTORS, pack
from trirow_hw.export import TOP, core_verilog, register_header
from trirow_sim.case import Case
from trirow_sim.compiled import ToolchainError, find_toolchain
from trirow_sim.simulate import golden_graph

from ..kit import TINY

pytest.importorskip("cocotb", reason="cocotb is not installed")
pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # LiteX's own
    pytest.importorskip("migen", reason="migen is not installed")
    pytest.importorskip("litex", reason="litex is not installed")
    from litex.build.generic_platform import Pins
    from litex.build.sim import SimPlatform
    from litex.gen import ClockDomain, LiteXModule
    from litex.soc.integration.soc_core import SoCCore
    from litex.soc.interconnect import axi

    from trirow_hw.export.litex import add_trirow

from . import verilated

pytestmark = pytest.mark.filterwarnings("ignore")  # migen's and LiteX's

RAM, RAM_BYTES, REGISTERS = 0x4000_0000, 0x4000, 0x9000_0000
SOC = "soc"


def soc_verilog(folder):
    """Return a SoC without a CPU: a RAM, the core, and a port for a host."""
    host = axi.AXILiteInterface(data_width=32, address_width=32)
    pins = [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)), *host.get_ios("host")]
    platform = SimPlatform("SIM", pins)
    soc = SoCCore(
        platform,
        50_000_000,
        cpu_type=None,
        with_uart=False,
        with_timer=False,
        integrated_sram_size=0,
        integrated_main_ram_size=RAM_BYTES,
    )
    soc.mem_map["main_ram"] = RAM
    soc.crg = LiteXModule()
    soc.crg.cd_sys = ClockDomain("sys")
    soc.crg.comb += [
        soc.crg.cd_sys.clk.eq(platform.request("sys_clk")),
        soc.crg.cd_sys.rst.eq(platform.request("sys_rst")),
    ]
    soc.comb += host.connect_to_pads(platform.request("host"), mode="slave")
    soc.bus.add_master("host", host)
    add_trirow(soc, folder, origin=REGISTERS)
    soc.finalize()
    assert soc.bus.regions["main_ram"].origin == RAM
    return platform.get_verilog(soc, name=SOC)


@pytest.mark.slow
def test_layer(tmp_path, monkeypatch):
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    monkeypatch.syspath_prepend(Path(__file__).parent)
    core, top = tmp_path / f"{TOP}.v", tmp_path / f"{SOC}.v"
    core.write_text(core_verilog(TINY))
    (tmp_path / "trirow_registers.h").write_text(register_header(TINY))
    monkeypatch.chdir(tmp_path)
    soc_verilog(tmp_path).write(str(top))
    verilated.build([top, core], tmp_path, ["host_*", "sys_clk", "sys_rst"], SOC)

    nodes, features, slices = Case("conv", (5, 6, 4), 5, (3, 3), pad=(1, 1, 1, 1)).build()
    program = pack(nodes, features, TINY, slices=slices, base=RAM)
    (golden,) = golden_graph(nodes, features, slices)
    wanted = bytearray(program.image.data)
    at = program.image.region(program.place(nodes[0].output)[0]).offset
    wanted[at : at + golden.size] = golden.tobytes()
    assert len(wanted) <= RAM_BYTES
    (tmp_path / "image.bin").write_bytes(program.image.data)
    verilated.run(
        tmp_path,
        tmp_path,
        Path(__file__).with_name("cocotb_litex.py"),
        1,
        SOC,
        LAYER_FOLDER=tmp_path,
        LAYER_BASE=RAM,
        LAYER_REGISTERS=REGISTERS,
        LAYER_DESCRIPTOR=RAM + program.image.region(DESCRIPTORS).offset,
        PYTHONWARNINGS="default",
    )
    found = np.frombuffer((tmp_path / "after.bin").read_bytes(), np.uint8)
    wrong = np.flatnonzero(found != np.frombuffer(wanted, np.uint8))
    assert bytes(wanted) != bytes(program.image.data)
    assert not wrong.size, f"{wrong.size} bytes differ, the first at {wrong[0]:#x}"

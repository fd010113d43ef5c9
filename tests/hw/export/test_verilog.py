"""The exported Verilog: language, ports, memories."""

import os
import re
import subprocess

import pytest

from trirow_hw.axi import AXI4, AXI4Lite
from trirow_hw.config import PRESETS
from trirow_hw.export import core_verilog
from trirow_sim.compiled import ToolchainError, find_toolchain

TINY = PRESETS["tiny"]


def test_ports(ports):
    expected = {
        "aclk": ("input", 1),
        "aresetn": ("input", 1),
        "interrupt": ("output", 1),
        **{f"m_axi_{name}": ("output", 1) for name in ("awid", "arid", "awlock", "arlock")},
        **{f"m_axi_{name}": ("output", 4) for name in ("awqos", "arqos")},
        **{f"m_axi_{name}": ("input", 1) for name in ("bid", "rid")},
    }
    managed = {"In": "input", "Out": "output"}
    for prefix, bus, directions in (
        ("m_axi", AXI4(data_bytes=TINY.bus_bytes), managed),
        ("s_axi", AXI4Lite(address_bits=8), {"In": "output", "Out": "input"}),
    ):
        for name, member in bus.members.items():
            expected[f"{prefix}_{name}"] = (directions[member.flow.name], member.shape)
    assert ports == expected


def test_tied_ports(text):
    for name, zero in {"awid": "1'h0", "arlock": "1'h0", "awqos": "4'h0"}.items():
        assert re.search(rf"^  assign m_axi_{name} = {zero};", text, re.M), name


def test_the_same_each_time(text):
    assert core_verilog(TINY) == text


def test_language(text, tmp_path):
    """Verilator takes it as Verilog-2001, and no module is missing."""
    try:
        tools = find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    source = tmp_path / "trirow.v"
    source.write_text(text)
    command = [tools.verilator, "--lint-only", "-Wno-fatal", "--language", "1364-2001"]
    result = subprocess.run(
        [*map(str, command), "--top-module", "trirow", str(source)],
        capture_output=True,
        text=True,
        env=os.environ | {"VERILATOR_ROOT": str(tools.root)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    for fault in ("%Error", "LATCH", "MULTIDRIVEN", "UNOPTFLAT", "PINMISSING", "COMBDLY"):
        assert fault not in result.stderr, fault


def test_large_memories_are_modules(text):
    """Nothing that a block RAM should hold is written out word by word."""
    inside = [
        int(high) + 1 for high in re.findall(r"^  reg \[\d+:0\] \w+ \[(\d+):0\];", text, re.M)
    ]
    assert inside
    # Queues stay inside; the largest is the output writer's.
    assert max(inside) <= 4 * TINY.burst_beats
    assert text.count("trirow_block_memory #(") >= 6 + TINY.out_lanes  # banks, lanes
    assert "MULT18" not in text


@pytest.mark.parametrize(
    ("family", "bits", "depth", "cells"),
    [
        ("ecp5", 36, 512, {"DP16KD": 1}),
        ("ecp5", 72, 512, {"DP16KD": 2}),
        ("xilinx", 72, 512, {"RAMB36E1": 1}),
        ("ice40", 16, 256, {"SB_RAM40_4K": 1}),
    ],
)
def test_memories_become_block_ram(text, tmp_path, family, bits, depth, cells):
    """Only block RAM, and registers for its output where Yosys knows of none in the block."""
    libyosys = pytest.importorskip("pyosys.libyosys", reason="pyosys is not installed")
    source, log = tmp_path / "trirow.v", tmp_path / "log"
    module = re.search(r"^module trirow_block_memory .*?^endmodule", text, re.M | re.S)[0]
    source.write_text(module)
    design = libyosys.Design()
    name = "trirow_block_memory"
    parameters = {"BITS": bits, "DEPTH": depth, "ADDRESS_BITS": (depth - 1).bit_length()}
    settings = " ".join(f"-set {key} {value}" for key, value in parameters.items())
    for command in (
        f"read_verilog {source}",
        f"chparam {settings} {name}",
        f"synth_{family} -top {name}",
        "clean",
        f"tee -q -o {tmp_path}/stat.json stat -json",
    ):
        libyosys.run_pass(f"tee -q -a {log} {command}", design)
    count = re.search(r'"num_cells_by_type": \{(.*?)\}', (tmp_path / "stat.json").read_text(), re.S)
    found = {key: int(n) for key, n in re.findall(r'"(\w+)":\s+(\d+)', count[1])}
    flipflops = sum(found.pop(key, 0) for key in ("TRELLIS_FF", "FDRE", "SB_DFF"))
    assert flipflops <= bits
    assert found.pop("SB_LUT4", 0) <= 1  # for an enable, not for data
    for key in ("IBUF", "OBUF", "BUFG"):
        found.pop(key, None)
    assert found == cells

"""Build exported Verilog for cocotb, with Verilator and a C++ compiler, and run tests in it.

cocotb's own build makes every signal of the design visible, and calls a makefile; here only the
ports are, and the compiler is called for each file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from trirow_hw.export import TOP
from trirow_sim.compiled import find_toolchain

_RUNTIME = ("verilated.cpp", "verilated_vpi.cpp", "verilated_threads.cpp")
_SPLIT = 30_000


def build(sources: Sequence[Path], folder: Path, ports: Sequence[str], top: str = TOP) -> None:
    """Build the simulator of a design in a folder; `ports` are patterns of names."""
    tools = find_toolchain()
    control, generated = folder / "visible.vlt", folder / "cpp"
    visible = [f'public_flat_rw -module "{top}" -var "{port}"' for port in ports]
    control.write_text("\n".join(["`verilator_config", *visible, ""]))
    command = [tools.verilator, "--cc", "--vpi", "--prefix", "Vtop", "--top-module", top]
    command += ["-Mdir", generated, "--output-split", str(_SPLIT), "-O3", "-Wno-fatal"]
    command += ["--timescale", "1ns/1ps", "--x-initial", "unique", control, *sources]
    _run(command, VERILATOR_ROOT=str(tools.root))

    include = tools.root / "include"
    harness = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    files = [*generated.glob("*.cpp"), *(include / name for name in _RUNTIME), harness]
    flags = ["-std=c++17", "-O0", "-DVL_IGNORE_UNKNOWN_ARCH", "-DVM_TRACE=0"]
    flags += [f"-I{path}" for path in (generated, include, include / "vltstd")]

    def compile_one(path: Path) -> Path:
        target = folder / f"{path.stem}.o"
        _run([*tools.compiler, *flags, "-c", path, "-o", target])
        return target

    files.sort(key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, files))
    libraries = cocotb_tools.config.libs_dir
    link = [f"-Wl,-rpath,{libraries}", f"-L{libraries}", "-lcocotbvpi_verilator", "-pthread"]
    _run([*tools.compiler, *objects, "-o", folder / top, *link])


def run(
    folder: Path, work: Path, module: Path, seed: int, top: str = TOP, **variables: object
) -> None:
    """Run the cocotb tests of a module in a simulator that was built in a folder."""
    results = get_runner("verilator").test(
        test_module=module.stem,
        hdl_toplevel=top,
        hdl_toplevel_lang="verilog",
        build_dir=folder,
        test_dir=work,
        seed=seed,
        plusargs=["+verilator+rand+reset+2", f"+verilator+seed+{seed}"],
        extra_env={name: str(value) for name, value in variables.items()},
    )
    tests, failures = get_results(results)
    assert (tests > 0, failures) == (True, 0), f"{failures} of {tests} tests failed, seed {seed}"


def _run(command: list[object], **variables: str) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, env=os.environ | variables)
    assert result.returncode == 0, f"{words[0]} failed: {result.stderr[-2000:]}"

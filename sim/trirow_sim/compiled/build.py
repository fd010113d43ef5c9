"""Build the shared library of a configuration, or find it in the cache."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import trirow_hw
import trirow_sim.probe
from trirow_hw.block_memory import BLOCK_MEMORY_SOURCE
from trirow_hw.config import Config
from trirow_sim.compiled.gateware import TOP, accelerator_verilog
from trirow_sim.compiled.library import LIBRARY, LibraryBuild, cache_folder, made, silent
from trirow_sim.compiled.toolchain import Toolchain, find_toolchain

__all__ = ["HARNESS", "build_library", "is_built", "library_key"]

_HERE = Path(__file__).parent
HARNESS = _HERE / "harness.cpp"
"""What stands around the accelerator: memory, host and C interface."""


def library_key(config: Config, toolchain: Toolchain, *, trace: bool = False) -> str:
    """Return what a build depends on, as a digest that needs no elaboration.

    It covers the sources of the gateware, of its probe and of this package (which has the flags),
    the configuration's parameters, and the versions of the tools.
    """
    digest = hashlib.sha256()
    # What is in folders, such as synthesis, is not part of the core.
    sources = [*Path(trirow_hw.__file__).parent.glob("*.py"), *_HERE.iterdir()]
    sources += [BLOCK_MEMORY_SOURCE, Path(trirow_sim.probe.__file__)]
    for path in sorted(path for path in sources if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    parameters = config.to_dict()
    del parameters["name"]
    rest = [parameters, toolchain.versions, trace]
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def is_built(config: Config, *, trace: bool = False) -> bool:
    """Tell whether the library of a configuration is in the cache; ToolchainError without tools."""
    key = library_key(config, find_toolchain(), trace=trace)
    return (cache_folder() / key / LIBRARY).exists()


def build_library(
    config: Config, *, trace: bool = False, progress: Callable[[str], None] | None = None
) -> Path:
    """Return the library of a configuration; build it first if it is not in the cache.

    Parameters
    ----------
    config : Config
    trace : bool
        With waveforms, which makes it slower.
    progress : callable, optional
        Called with a few words at the beginning of each step.

    Raises
    ------
    ToolchainError
        If a tool is missing or fails.
    """
    toolchain = find_toolchain()
    folder = cache_folder() / library_key(config, toolchain, trace=trace)
    progress = progress or silent
    with made(folder) as part:
        if part is not None:
            began = time.perf_counter()
            progress("elaborating")
            source = part / f"{TOP}.v"
            source.write_text(accelerator_verilog(config))
            _recipe(config, trace).run(toolchain, [source, BLOCK_MEMORY_SOURCE], part, progress)
            about = {"config": config.to_dict(), "seconds": time.perf_counter() - began}
            (part / "build.json").write_text(json.dumps(about))
    return folder / LIBRARY


def _recipe(config: Config, trace: bool) -> LibraryBuild:
    plain = LibraryBuild(
        TOP, HARNESS, defines=(f"BUS_BYTES={config.bus_bytes}", f"VM_TRACE={int(trace)}")
    )
    if not trace:
        return plain
    return replace(
        plain,
        verilator_flags=(*plain.verilator_flags, "--trace-vcd"),
        runtime=(*plain.runtime, "verilated_vcd_c.cpp"),
    )

"""Synthesise a configuration and build the library of its netlist, or find both in the cache."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import trirow_hw.synthesis.yosys
from trirow_hw.config import Config
from trirow_hw.synthesis.tools import MissingTool, ToolFailed
from trirow_hw.synthesis.yosys import synthesise_ecp5
from trirow_sim.compiled.build import HARNESS, library_key
from trirow_sim.compiled.gateware import TOP
from trirow_sim.compiled.library import LIBRARY, LibraryBuild, cache_folder, made, silent
from trirow_sim.compiled.toolchain import Toolchain, ToolchainError, find_toolchain
from trirow_sim.netlist.core import CORE, ObservedCore, top_verilog
from trirow_sim.netlist.verilog import invert_table, netlist_verilog

__all__ = ["MODELS", "build_netlist", "netlist_cells", "synthesised"]

_HERE = Path(__file__).parent
MODELS = tuple(_HERE / f"{name}.v" for name in ("logic_cells", "dp16kd", "mult18x18d"))
"""Simulation models of the primitives."""

_NETLIST = f"{CORE}.json"


def synthesised(config: Config, progress: Callable[[str], None] | None = None) -> Path:
    """Return the JSON netlist of a configuration for ECP5; synthesise it if it is not in the cache.

    Raises
    ------
    ToolchainError
        If a tool is missing or fails.
    """
    folder = cache_folder() / f"{_key(config, find_toolchain())}-ecp5"
    with made(folder, _NETLIST) as part:
        if part is not None:
            (progress or silent)("synthesising")
            try:
                synthesise_ecp5(ObservedCore(config=config), part, name=CORE)
            except (MissingTool, ToolFailed) as error:
                raise ToolchainError(str(error)) from error
    return folder / _NETLIST


def netlist_cells(config: Config) -> Counter[str]:
    """Return the number of cells by type of the netlist of a configuration."""
    cells = json.loads(synthesised(config).read_text())["modules"][CORE]["cells"].values()
    return Counter(cell["type"] for cell in cells)


def build_netlist(
    config: Config,
    *,
    fault: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Return the library of a configuration's netlist; build it if it is not in the cache.

    It has the interface of the compiled engine's library.

    Parameters
    ----------
    config : Config
    fault : str, optional
        Name of a LUT4 whose table is inverted: for tests.
    progress : callable, optional
        Called with a few words at the beginning of each step.

    Raises
    ------
    ToolchainError
        If a tool is missing or fails.
    ValueError
        If there is no such LUT4.
    """
    toolchain = find_toolchain()
    source = synthesised(config, progress)
    key = hashlib.sha256(repr((_key(config, toolchain), fault)).encode()).hexdigest()[:32]
    folder = cache_folder() / f"{key}-netlist"
    with made(folder) as part:
        if part is not None:
            netlist = json.loads(source.read_text())
            if fault is not None:
                invert_table(netlist, CORE, fault)
            (part / f"{CORE}.v").write_text(netlist_verilog(netlist, CORE))
            (part / f"{TOP}.v").write_text(top_verilog(config))
            sources = [part / f"{TOP}.v", part / f"{CORE}.v", *MODELS]
            _recipe(config).run(toolchain, sources, part, progress or silent)
    return folder / LIBRARY


def _key(config: Config, toolchain: Toolchain) -> str:
    """Return what netlist and library depend on, as a digest."""
    digest = hashlib.sha256(library_key(config, toolchain).encode())
    own = [_HERE / f"{name}.py" for name in ("build", "core", "verilog")]
    folder = Path(trirow_hw.synthesis.yosys.__file__).parent
    made_by = [folder / f"{name}.py" for name in ("yosys", "block_registers", "connections")]
    for path in (*own, *MODELS, *made_by):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    with suppress(metadata.PackageNotFoundError):
        digest.update(metadata.version("pyosys").encode())
    return digest.hexdigest()[:32]


def _recipe(config: Config) -> LibraryBuild:
    # The compiler takes most of the build, and a run of a small layer few seconds. The header of
    # the generated C++ is long, so few files are better.
    return LibraryBuild(
        TOP,
        HARNESS,
        split=60_000,
        optimise="-O1",
        optimise_slow="-O0",
        verilator_flags=("-Wno-fatal", "-Wno-lint"),
        defines=(f"BUS_BYTES={config.bus_bytes}", "VM_TRACE=0"),
    )

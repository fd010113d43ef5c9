"""Synthesise a configuration and build the library of its netlist, or find both in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

import trirow_hw.synthesis.yosys
from trirow_hw.config import Config
from trirow_hw.synthesis.tools import MissingTool, ToolFailed
from trirow_hw.synthesis.yosys import synthesise_ecp5
from trirow_sim import compiled
from trirow_sim.compiled.build import LIBRARY, cache_folder, library_key, locked, run_tool
from trirow_sim.compiled.gateware import TOP
from trirow_sim.compiled.toolchain import Toolchain, ToolchainError, find_toolchain
from trirow_sim.netlist.core import CORE, ObservedCore, top_verilog
from trirow_sim.netlist.verilog import invert_table, netlist_verilog

__all__ = ["MODELS", "build_netlist", "netlist_cells", "synthesised"]

_HERE = Path(__file__).parent
MODELS = tuple(_HERE / f"{name}.v" for name in ("logic_cells", "dp16kd", "mult18x18d"))
"""Simulation models of the primitives."""

_HARNESS = Path(compiled.__file__).with_name("harness.cpp")
#: The compiler takes most of the build, and a run of a small layer few seconds.
_CXX_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-DVL_IGNORE_UNKNOWN_ARCH")
_SLOW_FLAG = "-O0"
_VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "-Wno-lint")
#: Lines of generated C++ a file. Its header is long, so few files are better.
_SPLIT = 60_000
_NETLIST = f"{CORE}.json"


def synthesised(config: Config, progress: Callable[[str], None] | None = None) -> Path:
    """Return the JSON netlist of a configuration for ECP5; synthesise it if it is not in the cache.

    Raises
    ------
    ToolchainError
        If a tool is missing or fails.
    """
    folder = cache_folder() / f"{_key(config, find_toolchain())}-ecp5"
    with _made(folder, _NETLIST) as part:
        if part is not None:
            (progress or _silent)("synthesising")
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
    with _made(folder, LIBRARY) as part:
        if part is not None:
            netlist = json.loads(source.read_text())
            if fault is not None:
                invert_table(netlist, CORE, fault)
            (part / f"{CORE}.v").write_text(netlist_verilog(netlist, CORE))
            (part / f"{TOP}.v").write_text(top_verilog(config))
            _build(config, toolchain, part, progress or _silent)
    return folder / LIBRARY


def _key(config: Config, toolchain: Toolchain) -> str:
    """Return what netlist and library depend on, as a digest."""
    digest = hashlib.sha256(library_key(config, toolchain).encode())
    own = [_HERE / f"{name}.py" for name in ("build", "core", "verilog")]
    for path in (*own, *MODELS, Path(trirow_hw.synthesis.yosys.__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    with suppress(metadata.PackageNotFoundError):
        digest.update(metadata.version("pyosys").encode())
    return digest.hexdigest()[:32]


@contextmanager
def _made(folder: Path, file: str) -> Iterator[Path | None]:
    """Give a temporary folder that becomes `folder` at the end; None if `file` is there already."""
    if (folder / file).exists():
        yield None
        return
    with locked(folder):
        if (folder / file).exists():
            yield None
            return
        for left_behind in folder.parent.glob(f"{folder.name}.*.part"):
            shutil.rmtree(left_behind, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            yield part
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def _build(
    config: Config, toolchain: Toolchain, folder: Path, progress: Callable[[str], None]
) -> None:
    progress("translating to C++")
    generated = folder / "cpp"
    command = [str(toolchain.verilator), "--cc", str(folder / f"{TOP}.v")]
    command += [str(folder / f"{CORE}.v"), *map(str, MODELS), "--top-module", TOP]
    command += ["-Mdir", str(generated), "--output-split", str(_SPLIT), *_VERILATOR_FLAGS]
    run_tool(command, env=os.environ | {"VERILATOR_ROOT": str(toolchain.root)})

    progress("compiling")
    include = toolchain.root / "include"
    runtime = [include / name for name in ("verilated.cpp", "verilated_threads.cpp")]
    files = [*generated.glob("*.cpp"), *runtime, _HARNESS]
    flags = [*_CXX_FLAGS, f"-I{generated}", f"-I{include}", f"-I{include / 'vltstd'}"]
    flags += [f"-I{_HARNESS.parent}", f"-DBUS_BYTES={config.bus_bytes}", "-DVM_TRACE=0"]

    def compile_one(path: Path) -> Path:
        target = folder / f"{path.stem}.o"
        slow = [_SLOW_FLAG] if path.stem.endswith("__Slow") else []
        run_tool([*toolchain.compiler, *flags, *slow, "-c", str(path), "-o", str(target)])
        return target

    # Large files first, so that no core idles at the end.
    files.sort(key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_one, files))
    link = ["-shared", "-o", str(folder / LIBRARY), *map(str, objects), "-pthread"]
    run_tool([*toolchain.compiler, *link])
    shutil.rmtree(generated)
    for path in (*objects, folder / f"{CORE}.v", folder / f"{TOP}.v"):
        path.unlink()


def _silent(step: str) -> None:
    """Say nothing about a step."""

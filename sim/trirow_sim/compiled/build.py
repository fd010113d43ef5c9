"""Build the shared library of a configuration, or find it in the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import trirow_hw
import trirow_sim.probe
from trirow_hw.config import Config
from trirow_sim.compiled.gateware import BLOCK_MEMORY, TOP, accelerator_verilog
from trirow_sim.compiled.toolchain import Toolchain, ToolchainError, find_toolchain

__all__ = [
    "LIBRARY",
    "build_library",
    "cache_folder",
    "is_built",
    "library_key",
    "locked",
    "run_tool",
]

_HERE = Path(__file__).parent
LIBRARY = "libtrirow.so"
"""Name of the library in its folder."""

_CXX_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-DVL_IGNORE_UNKNOWN_ARCH")
_VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "--no-assert")
#: Lines of generated C++ a file, so that all cores have something to compile.
_SPLIT = 12_000


def cache_folder() -> Path:
    """Return the folder of built libraries: ``$TRIROW_CACHE``, or one in the user's cache."""
    given = os.environ.get("TRIROW_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "trirow"


def library_key(config: Config, toolchain: Toolchain, *, trace: bool = False) -> str:
    """Return what a build depends on, as a digest that needs no elaboration.

    It covers the sources of the gateware, of its probe and of this package, the configuration's
    parameters, the versions of the tools, and the flags.
    """
    digest = hashlib.sha256()
    # What is in folders, such as synthesis, is not part of the core.
    sources = [*Path(trirow_hw.__file__).parent.glob("*.py"), *_HERE.iterdir()]
    sources.append(Path(trirow_sim.probe.__file__))
    for path in sorted(path for path in sources if path.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    parameters = config.to_dict()
    del parameters["name"]
    rest = [parameters, toolchain.versions, _CXX_FLAGS, _VERILATOR_FLAGS, _SPLIT, trace]
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

    The build happens in a temporary folder of the cache, which is renamed when it is complete, so
    an interrupted build leaves nothing that could be taken for a library. Of two processes that
    want the same one, the second waits for the first.

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
    library = folder / LIBRARY
    if library.exists():
        return library
    with locked(folder):
        if library.exists():
            return library
        for left_behind in folder.parent.glob(f"{folder.name}.*.part"):
            shutil.rmtree(left_behind, ignore_errors=True)
        part = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            began = time.perf_counter()
            _build(config, toolchain, part, trace, progress or (lambda step: None))
            about = {"config": config.to_dict(), "seconds": time.perf_counter() - began}
            (part / "build.json").write_text(json.dumps(about))
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return library


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder's name; the system releases it when the process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(
    config: Config,
    toolchain: Toolchain,
    folder: Path,
    trace: bool,
    progress: Callable[[str], None],
) -> None:
    progress("elaborating")
    source, generated = folder / f"{TOP}.v", folder / "cpp"
    source.write_text(accelerator_verilog(config))

    progress("translating to C++")
    command = [str(toolchain.verilator), "--cc", str(source), str(BLOCK_MEMORY)]
    command += ["--top-module", TOP, "-Mdir", str(generated), "--output-split", str(_SPLIT)]
    command += [*_VERILATOR_FLAGS, *(["--trace-vcd"] if trace else [])]
    run_tool(command, env=os.environ | {"VERILATOR_ROOT": str(toolchain.root)})

    progress("compiling")
    include = toolchain.root / "include"
    runtime = ["verilated.cpp", "verilated_threads.cpp"]
    runtime += ["verilated_vcd_c.cpp"] if trace else []
    files = [*generated.glob("*.cpp"), *(include / name for name in runtime), _HERE / "harness.cpp"]
    flags = [*_CXX_FLAGS, f"-I{generated}", f"-I{include}", f"-I{include / 'vltstd'}"]
    flags += [f"-DBUS_BYTES={config.bus_bytes}", f"-DVM_TRACE={int(trace)}"]
    objects = [folder / f"{path.stem}.o" for path in files]

    def compile_one(path: Path, target: Path) -> None:
        run_tool([*toolchain.compiler, *flags, "-c", str(path), "-o", str(target)])

    # Large files first, so that no core idles at the end.
    work = sorted(zip(files, objects, strict=True), key=lambda pair: -pair[0].stat().st_size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda pair: compile_one(*pair), work))
    link = ["-shared", "-o", str(folder / LIBRARY), *map(str, objects), "-pthread"]
    run_tool([*toolchain.compiler, *link])
    shutil.rmtree(generated)
    for path in (*objects, source):
        path.unlink()


def run_tool(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a tool of a build; ToolchainError with its message if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        text = next((line for line in lines if "rror" in line), lines[-1] if lines else "")
        raise ToolchainError(f"{Path(command[0]).name} failed: {text}")

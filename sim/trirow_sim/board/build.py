"""Build the library of what is on a board, or find it in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import trirow_hw
from trirow_hw.boards.top import BAUD, BoardTop
from trirow_hw.bridge.uart import BitRate
from trirow_hw.config import Config
from trirow_hw.sdram.chips import SdramChip
from trirow_sim import compiled
from trirow_sim.board.gateware import board_verilog
from trirow_sim.compiled.build import LIBRARY, cache_folder, library_key, locked, run_tool
from trirow_sim.compiled.gateware import BLOCK_MEMORY, TOP
from trirow_sim.compiled.toolchain import Toolchain, find_toolchain

__all__ = ["STARTUP_US", "BoardDesign", "build_board"]

#: Time from power-up to the first command that simulated boards and their chips wait.
STARTUP_US = 1.0

_HERE = Path(__file__).parent
#: Besides the core: what the design consists of, and what stands around it.
_SOURCES = ("bridge/*.py", "sdram/*.py", "boards/top.py")
_OWN = ("gateware.py", "harness.cpp", "uart.hpp")
_CXX_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-DVL_IGNORE_UNKNOWN_ARCH")
_VERILATOR_FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "--no-assert")
#: Lines of generated C++ a file, so that all cores have something to compile.
_SPLIT = 12_000


@dataclass(frozen=True)
class BoardDesign:
    """Parameters of a `BoardTop`.

    Parameters
    ----------
    config : Config
    chip : SdramChip
    clock_hz, baud : int
    startup_us : float

    Raises
    ------
    ValueError
        If the clock does not suit the chip or the line.
    """

    config: Config
    chip: SdramChip
    clock_hz: int
    baud: int = BAUD
    startup_us: float = STARTUP_US

    def __post_init__(self) -> None:
        self.chip.timing(self.clock_hz)
        BitRate(clock_hz=self.clock_hz, baud=self.baud)

    def top(self) -> BoardTop:
        """Return the component; ValueError if the bus does not suit the chip."""
        return BoardTop(**vars(self))


def build_board(design: BoardDesign, progress: Callable[[str], None] | None = None) -> Path:
    """Return the library of a design; build it first if it is not in the cache.

    Parameters
    ----------
    design : BoardDesign
    progress : callable, optional
        Called with a few words at the beginning of each step.

    Raises
    ------
    ToolchainError
        If a tool is missing or fails.
    ValueError
        If the bus does not suit the chip.
    """
    toolchain = find_toolchain()
    folder = cache_folder() / f"{_key(design, toolchain)}-board"
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
            _build(design, toolchain, part, progress or (lambda step: None))
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return library


def _key(design: BoardDesign, toolchain: Toolchain) -> str:
    """Return what a build depends on, as a digest."""
    digest = hashlib.sha256(library_key(design.config, toolchain).encode())
    hardware = Path(trirow_hw.__file__).parent
    sources = [path for pattern in _SOURCES for path in sorted(hardware.glob(pattern))]
    for path in (*sources, *(_HERE / name for name in _OWN)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    rest = [asdict(design.chip), design.clock_hz, design.baud, design.startup_us]
    rest += [_CXX_FLAGS, _VERILATOR_FLAGS]
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()[:32]


def _build(
    design: BoardDesign, toolchain: Toolchain, folder: Path, progress: Callable[[str], None]
) -> None:
    progress("elaborating")
    source, generated = folder / f"{TOP}.v", folder / "cpp"
    source.write_text(board_verilog(design.top()))

    progress("translating to C++")
    command = [str(toolchain.verilator), "--cc", str(source), str(BLOCK_MEMORY)]
    command += ["--top-module", TOP, "-Mdir", str(generated), "--output-split", str(_SPLIT)]
    run_tool(
        [*command, *_VERILATOR_FLAGS], env=os.environ | {"VERILATOR_ROOT": str(toolchain.root)}
    )

    progress("compiling")
    include = toolchain.root / "include"
    runtime = [include / name for name in ("verilated.cpp", "verilated_threads.cpp")]
    files = [*generated.glob("*.cpp"), *runtime, _HERE / "harness.cpp"]
    headers = [generated, include, include / "vltstd", Path(compiled.__file__).parent]
    flags = [*_CXX_FLAGS, *(f"-I{path}" for path in headers)]

    def compile_one(path: Path) -> Path:
        target = folder / f"{path.stem}.o"
        run_tool([*toolchain.compiler, *flags, "-c", str(path), "-o", str(target)])
        return target

    # Large files first, so that no core idles at the end.
    files.sort(key=lambda path: -path.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(compile_one, files))
    link = ["-shared", "-o", str(folder / LIBRARY), *map(str, objects), "-pthread"]
    run_tool([*toolchain.compiler, *link])
    shutil.rmtree(generated)
    for path in (*objects, source):
        path.unlink()

"""Build the library of what is on a board, or find it in the cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import trirow_hw
from trirow_hw.block_memory import BLOCK_MEMORY_SOURCE
from trirow_hw.boards.top import BAUD, BoardTop
from trirow_hw.bridge.uart import BitRate
from trirow_hw.config import Config
from trirow_hw.sdram.chips import SdramChip
from trirow_sim import compiled
from trirow_sim.board.gateware import board_verilog
from trirow_sim.compiled.build import library_key
from trirow_sim.compiled.gateware import TOP
from trirow_sim.compiled.library import LIBRARY, LibraryBuild, cache_folder, made, silent
from trirow_sim.compiled.toolchain import Toolchain, find_toolchain

__all__ = ["STARTUP_US", "BoardDesign", "build_board"]

#: Time from power-up to the first command that simulated boards and their chips wait.
STARTUP_US = 1.0

_HERE = Path(__file__).parent
#: Besides the core: what the design consists of, and what stands around it.
_SOURCES = ("bridge/*.py", "sdram/*.py", "boards/top.py")
_OWN = ("build.py", "gateware.py", "harness.cpp", "uart.hpp")
#: The model of the chip is beside the compiled engine's harness.
_RECIPE = LibraryBuild(TOP, _HERE / "harness.cpp", include=(Path(compiled.__file__).parent,))


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
    progress = progress or silent
    with made(folder) as part:
        if part is not None:
            progress("elaborating")
            source = part / f"{TOP}.v"
            source.write_text(board_verilog(design.top()))
            _RECIPE.run(toolchain, [source, BLOCK_MEMORY_SOURCE], part, progress)
    return folder / LIBRARY


def _key(design: BoardDesign, toolchain: Toolchain) -> str:
    """Return what a build depends on, as a digest."""
    digest = hashlib.sha256(library_key(design.config, toolchain).encode())
    hardware = Path(trirow_hw.__file__).parent
    sources = [path for pattern in _SOURCES for path in sorted(hardware.glob(pattern))]
    for path in (*sources, *(_HERE / name for name in _OWN)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    rest = [asdict(design.chip), design.clock_hz, design.baud, design.startup_us]
    digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.hexdigest()[:32]

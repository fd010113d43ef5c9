"""Check what Yosys makes of the ``ecp5-85f`` core, and how fast its datapath can be clocked.

``python -m trirow_hw.synthesis.check FOLDER`` writes netlists and logs to the folder, prints the
figures, and exits with status 1 if a limit is missed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

from ..accelerator import Accelerator
from ..config import (
    CONSTANT_GROUPS,
    PRESETS,
    TABLE_ENTRIES,
    TABLE_ENTRY_BYTES,
    WIDE_CONSTANT_BYTES,
    Config,
)
from ..tables import TABLE_PLACES
from .datapath import Datapath
from .limits import LIMITS, over_limits
from .nextpnr import route_ecp5
from .yosys import BLOCK_RAM_BITS, synthesise_ecp5

__all__ = ["check_cells", "main", "registered_multipliers"]

CONFIG = "ecp5-85f"
#: Multiplier blocks of one requantiser: its product is 33 x 31 bits.
REQUANTISER_BLOCKS = 4
TARGET_MHZ = 100.0
LEAST_MHZ = 90.0


def check_cells(cells: Counter[str], registered: int, config: Config) -> list[str]:
    """Return what is wrong with the cells of a core, a line each; nothing if all is well.

    Parameters
    ----------
    cells : Counter
        Cells by type.
    registered : int
        Multiplier blocks that use their own output registers: those of the array, at least.
    config : Config
    """
    wrong = []
    if registered < config.multipliers:
        wrong.append(f"{registered} multiplier blocks have registers, not {config.multipliers}")
    others = cells["MULT18X18D"] - config.multipliers
    if others != REQUANTISER_BLOCKS * config.post_lanes:
        wrong.append(
            f"{others} multiplier blocks besides the array, not "
            f"{REQUANTISER_BLOCKS * config.post_lanes} for the requantisers"
        )
    buffers = config.line_buffer_bytes + config.weight_buffer_bytes
    constants = WIDE_CONSTANT_BYTES * config.out_lanes * CONSTANT_GROUPS
    tables = 2 * TABLE_PLACES * TABLE_ENTRIES * TABLE_ENTRY_BYTES * config.post_lanes
    least = -(-8 * (buffers + constants + tables) // BLOCK_RAM_BITS)
    if cells["DP16KD"] < least:
        wrong.append(f"{cells['DP16KD']} block RAMs cannot hold the buffers, which need {least}")
    return wrong + over_limits(cells, LIMITS.get(config.name, {}))


def registered_multipliers(netlist: Path, name: str) -> int:
    """Return the multiplier blocks of a module that use their own output registers."""
    cells = json.loads(netlist.read_text())["modules"][name]["cells"].values()
    return sum(
        cell["type"] == "MULT18X18D" and cell["parameters"].get("REG_OUTPUT_CLK") == "CLK0"
        for cell in cells
    )


def main(folder: Path) -> int:
    """Synthesise, route, print, and return the exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    config = PRESETS[CONFIG]
    began = time.perf_counter()
    core = synthesise_ecp5(Accelerator(config=config), folder, name="core")
    registered = registered_multipliers(core.path, "core")
    wrong = check_cells(core.cells, registered, config)
    print(f"Core {CONFIG} after Yosys, {time.perf_counter() - began:.0f} s:")
    print(f"  MULT18X18D       {core.cells['MULT18X18D']:6d}, {registered} of them with registers")
    for name in ("LUT4", "CCU2C", "TRELLIS_FF", "DP16KD", "TRELLIS_DPR16X4"):
        print(f"  {name:15s}  {core.cells[name]:6d}")

    began = time.perf_counter()
    datapath = synthesise_ecp5(Datapath(config=config), folder, name="datapath")
    print("Placing and routing line buffer and array (some minutes) ...", flush=True)
    routed = route_ecp5(datapath.path, target_mhz=TARGET_MHZ)
    elapsed = time.perf_counter() - began
    print(f"Line buffer and array routed, {elapsed:.0f} s, {routed.tool.version}:")
    print(f"  {routed.fmax_mhz:.1f} MHz on ECP5-85F, speed grade 6; slowest path: {routed.path}")
    if routed.fmax_mhz < LEAST_MHZ:
        wrong.append(f"{routed.fmax_mhz:.1f} MHz, less than {LEAST_MHZ}")

    for line in wrong:
        print(f"WRONG: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/synth")))

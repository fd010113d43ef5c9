"""Run jobs on the synthesised accelerator."""

from __future__ import annotations

from collections.abc import Callable

from trirow_hw.config import Config
from trirow_sim.compiled import CompiledEngine
from trirow_sim.memory import Memory
from trirow_sim.netlist.build import build_netlist

__all__ = ["NetlistEngine"]


class NetlistEngine(CompiledEngine):
    """The netlist of the accelerator after synthesis for ECP5, with what `CompiledEngine` has.

    It gives the same outputs, cycles and counters. There are no waveforms and no timeline, and what
    waits in a run that does not end is not to be seen.

    Parameters
    ----------
    config, memory, model, seed, progress, building
        As for `CompiledEngine`.

    Raises
    ------
    ToolchainError, ValueError
        From `build_netlist`, or if there is no such memory model.
    """

    def __init__(
        self,
        config: Config,
        memory: Memory,
        model: str,
        *,
        seed: int = 1,
        progress: Callable[[int, int], None] | None = None,
        building: Callable[[str], None] | None = None,
    ) -> None:
        library = build_netlist(config, progress=building)
        super().__init__(config, memory, model, seed=seed, progress=progress, library=library)

    def _waiting(self) -> str:
        return "a netlist does not show what waits"

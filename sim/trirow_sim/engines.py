"""The simulation engines, and which of them suits a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trirow_hw.config import Config
from trirow_sim.compiled import CompiledEngine, ToolchainError, find_toolchain, is_built
from trirow_sim.job import Job, RunResult
from trirow_sim.memory import Memory, make_memory
from trirow_sim.netlist.engine import NetlistEngine
from trirow_sim.pysim import PysimEngine
from trirow_sim.trace import Timeline

__all__ = ["ENGINES", "ON_HOST", "EngineChoice", "choose_engine", "run_job"]

ENGINES = ("auto", "pysim", "compiled", "netlist")
"""Names of the engines; ``auto`` lets the job decide between ``pysim`` and ``compiled``."""

#: Estimated cycles below which a build takes longer than pysim does.
SMALL_CYCLES = 30_000


@dataclass(frozen=True)
class EngineChoice:
    """An engine, and in a few words why it was taken."""

    engine: str
    reason: str


ON_HOST = EngineChoice("none", "no layer runs on the accelerator")
"""What is taken when there is nothing to simulate."""


def choose_engine(engine: str, config: Config, cycles: int) -> EngineChoice:
    """Return the engine for a job.

    Parameters
    ----------
    engine : str
        One of `ENGINES`.
    config : Config
        What is simulated.
    cycles : int
        Estimate of the job's cycles.

    Raises
    ------
    ToolchainError
        If the compiled engine or the netlist is asked for and a tool is missing.
    ValueError
        If there is no such engine.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if engine == "pysim":
        return EngineChoice("pysim", "as asked for")
    try:
        find_toolchain()
    except ToolchainError as error:
        if engine != "auto":
            raise
        return EngineChoice("pysim", str(error).partition(":")[0])
    if engine != "auto":
        return EngineChoice(engine, "as asked for")
    if is_built(config):
        return EngineChoice("compiled", f"configuration {config.name} is built already")
    if cycles < SMALL_CYCLES:
        return EngineChoice("pysim", f"about {cycles:,} cycles are not worth a build")
    return EngineChoice("compiled", f"about {cycles:,} cycles are worth a build")


def run_job(
    engine: str,
    config: Config,
    storage: Memory,
    job: Job,
    *,
    memory: str,
    seed: int = 1,
    vcd: Path | None = None,
    vcd_range: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
    building: Callable[[str], None] | None = None,
    timeline: Timeline | None = None,
) -> RunResult:
    """Run a job on an engine.

    Parameters
    ----------
    engine : str
        ``pysim``, ``compiled`` or ``netlist``; the last gives no waveforms and no timeline.
    config : Config
    storage : Memory
        The bytes behind the bus; used in place.
    job : Job
    memory, seed
        Memory model and its seed.
    vcd, vcd_range, progress, building, timeline
        As for the engines; only the compiled one can limit the range of cycles.

    Raises
    ------
    AxiViolation, TimeoutError, ToolchainError, OSError
        From the engines.
    """
    if engine == "pysim":
        model = make_memory(memory, storage, config.bus_bytes, seed)
        pysim = PysimEngine(config, model, vcd=vcd, progress=progress, timeline=timeline)
        return pysim.run([job])[0]
    if engine == "netlist":
        with NetlistEngine(
            config, storage, memory, seed=seed, progress=progress, building=building
        ) as netlist:
            return netlist.run([job])[0]
    with CompiledEngine(
        config,
        storage,
        memory,
        seed=seed,
        vcd=vcd,
        vcd_range=vcd_range,
        progress=progress,
        building=building,
        timeline=timeline,
    ) as compiled:
        return compiled.run([job])[0]

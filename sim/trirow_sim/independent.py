"""Simulate the layers of a chain independently of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.layer import Layer
from trirow_hw.config import Config
from trirow_sim.compare import Comparison
from trirow_sim.engines import EngineChoice
from trirow_sim.parallel import run_all
from trirow_sim.report import NetworkReport
from trirow_sim.simulate import Simulation, golden_outputs, simulate

__all__ = ["simulate_layers"]

_Int8 = npt.NDArray[np.int8]


def simulate_layers(
    layers: Sequence[Layer],
    features: _Int8,
    config: Config,
    *,
    memory: str = "ddr",
    seed: int = 1,
    engine: str = "auto",
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    clock_mhz: float = 100.0,
    name: str = "network",
) -> Simulation:
    """Run each layer of a chain by itself, fed with what golden gives for the layer before.

    So the layers do not depend on each other and can be simulated at the same time. The cycles of
    each are those of a single layer, from start to done, and the first mismatch is in the layer
    that is wrong and not in those behind it.

    Parameters
    ----------
    layers, features, config, memory, seed, engine, clock_mhz, name
        See `trirow_sim.simulate.simulate`.
    jobs, scheduler
        See `trirow_sim.parallel.run_all`.
    progress : callable, optional
        Called after each layer with the output bytes so far, and with those of all layers.

    Raises
    ------
    RunError, UnsupportedError, ValueError
        As `trirow_sim.simulate.simulate` does, for the first layer that fails.
    MissingPackage, ClusterError, WorkerLost
        If the work could not be done where it should be.
    """
    golden = golden_outputs(layers, features)
    sizes = [output.size for output in golden]
    written = cycles = 0

    def count(index: int, result: object) -> None:
        nonlocal written, cycles
        written += sizes[index]
        cycles += result.report.cycles if isinstance(result, Simulation) else 0
        if progress is not None:
            progress(written, sum(sizes), cycles)

    one = partial(_one_layer, config=config, memory=memory, seed=seed, engine=engine)
    given = list(zip(layers, [features, *golden[:-1]], strict=True))
    runs: list[Simulation] = []
    for result in run_all(one, given, jobs=jobs, scheduler=scheduler, on_result=count):
        if isinstance(result, Exception):
            raise result
        runs.append(result)
    comparison = Comparison(
        tuple(layer for run in runs for layer in run.comparison.layers),
        sum(run.comparison.strays for run in runs),
        next((run.comparison.first_stray for run in runs if run.comparison.strays), None),
    )
    reports = tuple(layer for run in runs for layer in run.report.layers)
    report = NetworkReport(reports, clock_mhz, name, comparison.strays)
    outputs = [output for run in runs for output in run.outputs]
    engines = "+".join(dict.fromkeys(run.choice.engine for run in runs))
    choice = EngineChoice(engines, runs[0].choice.reason)
    return Simulation(outputs, report, comparison, choice)


def _one_layer(given: tuple[Layer, _Int8], **options: Any) -> Simulation:
    layer, features = given
    return simulate([layer], features, **options)

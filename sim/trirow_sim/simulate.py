"""Run layers on the accelerator in simulation, and compare every byte with golden."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.device import Device
from trirow_driver.feature_maps import FeatureMaps
from trirow_driver.layer import Layer
from trirow_driver.program import INPUT, Node, Slice, chain
from trirow_hw.config import Config
from trirow_sim.accelerate import Accelerated, RunError, accelerate
from trirow_sim.compare import Comparison, compare_output
from trirow_sim.engines import ENGINES, ON_HOST, EngineChoice
from trirow_sim.graph import divide, golden_graph, golden_outputs, run_on_host
from trirow_sim.layer_reports import host_report
from trirow_sim.memory import MEMORY_MODELS
from trirow_sim.report import NetworkReport

__all__ = [
    "RunError",
    "Simulation",
    "golden_graph",
    "golden_outputs",
    "simulate",
    "simulate_graph",
]

#: Cycles without progress that end a run. The slowest memory answers within a hundred.
_WATCHDOG = 100_000
_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Simulation:
    """What came out of a run.

    Parameters
    ----------
    outputs : list of int8 array of shape (N, H, W, K)
        Output of each layer as the accelerator wrote it to memory.
    report : NetworkReport
        What it took.
    comparison : Comparison
        Every byte of the memory, against golden and against what was there before.
    choice : EngineChoice
        The engine, and why it was taken.
    """

    outputs: list[_Int8]
    report: NetworkReport
    comparison: Comparison
    choice: EngineChoice

    @property
    def ok(self) -> bool:
        """Whether all outputs equal golden's and no other byte changed."""
        return self.comparison.match


def simulate(
    layers: Sequence[Layer], features: _Int8, config: Config, **options: Any
) -> Simulation:
    """Run a chain of layers in RTL, each fed with the output of the one before.

    Parameters
    ----------
    layers : sequence of Layer
        Of one input each.
    features : int8 array of shape (N, H, W, C)
        Feature map of the first layer.
    config : Config
    options
        See `simulate_graph`.
    """
    return simulate_graph(chain(layers), {INPUT: features}, config, **options)


def simulate_graph(
    nodes: Sequence[Node],
    features: Mapping[str, _Int8],
    config: Config,
    *,
    slices: Mapping[str, Slice] | None = None,
    memory: str = "ddr",
    seed: int = 1,
    engine: str = "auto",
    vcd: str | os.PathLike[str] | None = None,
    vcd_range: tuple[int, int] | None = None,
    trace: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    building: Callable[[str], None] | None = None,
    watchdog: int = _WATCHDOG,
    clock_mhz: float = 100.0,
    name: str = "network",
    device: Device | None = None,
) -> Simulation:
    """Run layers in RTL or on a board, from memory to memory, and compare with golden.

    Layers that the accelerator cannot compute (`trirow_driver.layer.Layer.on_host`) are computed on
    the host, by golden; they can stand in front of all others or behind them.

    Before the run the outputs in memory are filled with the complement of what golden computes, so
    that a byte that is never written, or is read before it is written, is a mismatch.

    Parameters
    ----------
    nodes : sequence of Node
        Layers, with the names of the feature maps that they read and write.
    features : mapping of str to int8 array of shape (N, H, W, C)
        Feature maps that no layer writes.
    config : Config
        Configuration of the accelerator.
    slices : mapping of str to Slice, optional
        Feature maps that are some channels of others.
    memory : str
        Memory model, one of `trirow_sim.memory.MEMORY_MODELS`; with a device, what the report
        calls its memory. If that is the name of a chip, its size is checked.
    seed : int
        For the memory model ``random``.
    engine : str
        Simulator, one of `trirow_sim.engines.ENGINES`. ``auto`` takes pysim for small jobs and
        where tools are missing, else the compiled engine.
    vcd : path, optional
        Where waveforms of all signals go. The file is there when the run is over, also if it ended
        in an error, and not before.
    vcd_range : (int, int), optional
        First and last cycle of the waveforms; the compiled engine only.
    trace : path, optional
        Where a timeline of the units goes, as a Chrome trace that Perfetto opens; written like the
        waveforms.
    progress : callable, optional
        Called now and then with the output bytes written so far, those of all layers, and the
        cycles so far. With a device see `trirow_sim.board.run_program.run_program`.
    building : callable, optional
        Called with a few words at each step when the compiled engine is built; with a device, at
        the beginning of loading, running and reading back.
    watchdog : int
        Cycles without progress after which the run ends in an error; 0: never.
    clock_mhz : float
        Clock for which the report gives milliseconds.
    name : str
        Name of the network in the report.
    device : Device, optional
        Run the layers there, each one by itself, instead of on an engine. Its accelerator must be
        of this configuration; `trirow_driver.device.SerialDevice` checks that.

    Returns
    -------
    Simulation
        Look at its `ok`: a mismatch does not raise.

    Raises
    ------
    RunError
        If the run ends in an error: the line names code, unit, pass and layer.
    DeviceError
        If the device fails.
    UnsupportedError
        If the configuration cannot compute a layer, or a layer of the host is not where it can be.
    ValueError
        If an argument is wrong, the shapes do not fit each other, or waveforms or a timeline are
        asked for and no layer runs on the accelerator.
    OSError
        If the waveforms cannot be written.
    """
    if device is None and memory not in MEMORY_MODELS:
        raise ValueError(f"memory must be one of {', '.join(MEMORY_MODELS)}, not {memory!r}")
    if not 0 < clock_mhz < float("inf"):
        raise ValueError(f"clock_mhz must be finite and above 0, not {clock_mhz!r}")
    division = divide(nodes, features, slices)
    if division.host and not division.accelerator:
        _check_nothing_runs(vcd, trace, engine)
    maps = FeatureMaps(features, slices)
    run_on_host(division.before, maps)
    done = Accelerated({}, [], Comparison((), 0, None), ON_HOST)
    if division.accelerator or not nodes:
        done = accelerate(
            division.accelerator,
            features if not division.host else _needed(division.accelerator, maps),
            config,
            slices or {},
            memory=memory,
            seed=seed,
            engine=engine,
            vcd=vcd,
            vcd_range=vcd_range,
            trace=trace,
            progress=progress,
            building=building,
            watchdog=watchdog,
            clock_mhz=clock_mhz,
            device=device,
        )
    for tensor, output in done.outputs.items():
        maps.write(tensor, output)
    run_on_host(division.after, maps)
    comparisons = dict(zip(done.outputs, done.comparison.layers, strict=True))
    reports = dict(zip(done.outputs, done.reports, strict=True))
    if division.host:
        golden = golden_graph(nodes, features, slices)
        for node, wanted in zip(nodes, golden, strict=True):
            if node.layer.on_host:
                given, got = maps.read(node.inputs[0]), maps.read(node.output)
                result = compare_output(node.layer.name, got, wanted)
                comparisons[node.output] = result
                context = {"engine": done.choice.engine, "memory": memory}
                reports[node.output] = host_report(
                    node, given.shape, got.shape, result, config, **context
                )
    order = [node.output for node in nodes]
    comparison = replace(done.comparison, layers=tuple(comparisons[output] for output in order))
    report = NetworkReport(
        tuple(reports[output] for output in order), clock_mhz, name, comparison.strays
    )
    return Simulation([maps.read(output) for output in order], report, comparison, done.choice)


def _check_nothing_runs(vcd: object, trace: object, engine: str) -> None:
    """Refuse what a graph without a layer on the accelerator cannot give."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
    if vcd is not None or trace is not None:
        raise ValueError(
            "no layer runs on the accelerator: there are no waveforms and there is no timeline"
        )


def _needed(nodes: Sequence[Node], maps: FeatureMaps) -> dict[str, _Int8]:
    """Return the feature maps that are there and that layers read."""
    roots = dict.fromkeys(maps.root(tensor) for node in nodes for tensor in node.inputs)
    return {root: maps.read(root) for root in roots if root in maps}

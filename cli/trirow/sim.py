"""`trirow sim`: layers in RTL against golden."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trirow.caffe_model import SUFFIXES, caffe_work
from trirow.layer_options import LAYER_OPTIONS, layer_case, layer_options
from trirow.model_options import Work, load_input, load_network, model_options, network_work
from trirow.options import (
    CycleRange,
    FailedRun,
    InputError,
    OutputFile,
    board_options,
    configuration,
    console,
    json_option,
    parallel_options,
    require_supported,
    save_json,
    simulation_options,
)
from trirow_driver.device import DeviceError
from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import INPUT
from trirow_driver.quantise import dequantise
from trirow_hw.boards.board import BOARDS, Board
from trirow_hw.boards.top import BAUD
from trirow_hw.config import Config
from trirow_sim.board.connect import SIMULATED, ConnectError, connected, simulated_design
from trirow_sim.compiled import ToolchainError
from trirow_sim.independent import simulate_layers
from trirow_sim.parallel import ClusterError, MissingPackage, WorkerLost
from trirow_sim.simulate import RunError, Simulation, simulate_graph

__all__ = ["sim"]

#: Options that say how a network is run.
_NETWORK = (
    "weights",
    "layer",
    "image",
    "input_shape",
    "mean",
    "scale",
    "channels",
    "jobs",
    "scheduler",
)
#: Options that a board decides, or does not offer.
_NOT_ON_BOARD = {
    "config_name": "--config",
    "overrides": "--set",
    **{name: f"--{name}" for name in ("memory", "engine", "jobs", "scheduler", "vcd", "trace")},
    "vcd_range": "--vcd-range",
}
_TOO_LARGE = "the layers do not fit this machine's memory; use smaller ones"
_ADDRESSES = 1 << 32


@click.command(
    epilog="""\b
Examples:
  trirow sim
  trirow sim --shape 28x28x3 --out 16 --kernel 3x3 --stride 2 --pad 1
  trirow sim --op depthwise --shape 56x56x128 --config m256
  trirow sim --op maxpool --shape 15x15x32 --kernel 3x3 --stride 2 --ceil
  trirow sim --op fc --shape 7x7x64 --out 100 --activation relu --mode fixed
  trirow sim --op add --shape 14x14x64 --batch 2
  trirow sim --shape 6x7x5 --out 9 --kernel 1x1 --config odd --memory random --seed 7
  trirow sim --config ecp5-85f --set bus_bytes=16 --json result.json
  trirow sim --vcd waves.vcd
  trirow sim --model examples/digits/weights.npz --image examples/digits/images/digit_7.png
  trirow sim --model examples/digits/digits.prototxt --image examples/digits/images/digit_7.png
  trirow sim --board ulx3s-85f --port /dev/ttyUSB0
  trirow sim --board ulx3s-25f --port simulated
""",
)
@layer_options
@model_options
@simulation_options
@board_options
@parallel_options(
    " Needs --model: each of its layers is then run by itself, fed with golden's input, so that no "
    "layer waits for another."
)
@click.option("--vcd", type=OutputFile(), help="Write waveforms of all signals to this file.")
@click.option(
    "--vcd-range",
    type=CycleRange(),
    help="Only these cycles of the waveforms, counted from the start of the simulation. Takes the "
    "compiled engine.",
)
@click.option(
    "--trace",
    type=OutputFile(),
    help="Write a timeline of the units to this file, as JSON that ui.perfetto.dev opens: what "
    "each one does for which pass, and why the array waits.",
)
@json_option("cycles, bytes and matches of each layer")
@click.pass_context
def sim(
    ctx: click.Context,
    /,
    model: Path | None,
    weights: Path | None,
    layer: str | None,
    image: Path | None,
    input_shape: tuple[int, int, int] | None,
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
    config_name: str,
    overrides: Sequence[tuple[str, Any]],
    memory: str,
    engine: str,
    board_name: str | None,
    port: str | None,
    baud: int | None,
    sdram: str | None,
    jobs: int | None,
    scheduler: str | None,
    vcd: Path | None,
    vcd_range: tuple[int, int] | None,
    trace: Path | None,
    clock_mhz: float,
    json_file: Path | None,
    **random_layer: Any,
) -> None:
    """Run layers on the accelerator, simulated or on a board, and compare with golden.

    Golden is the plain numpy model of the same arithmetic. Without options this is one small
    convolution of random numbers. The table says for each layer how many clock cycles it took,
    which share of them the multipliers were busy, and whether what was written equals golden.

    \b
    Exit status: 0 if every byte matched, 1 on a mismatch or a failed run,
    2 on bad usage or input.
    """  # noqa: D301
    _check_combination(ctx, model, image)
    board = _board(ctx, board_name, port, sdram)
    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs and --scheduler do not go together.")
    apart = jobs is not None or scheduler is not None
    if apart and (vcd is not None or trace is not None):
        raise click.UsageError("--vcd and --trace do not go with --jobs or --scheduler.")
    if engine == "netlist" and (vcd is not None or trace is not None):
        raise click.UsageError("--engine netlist gives neither --vcd nor --trace.")
    if vcd_range is not None and (vcd is None or engine == "pysim"):
        raise click.UsageError("--vcd-range needs --vcd, and not --engine pysim.")
    files = [path for path in (vcd, trace, json_file) if path is not None]
    if len(set(files)) != len(files):
        raise click.UsageError("--vcd, --trace and --json must be different files.")
    config = configuration(config_name, overrides) if board is None else board.config
    if model is None:
        work = _random(ctx, random_layer)
    else:
        assert image is not None
        work = _network(model, weights, image, layer, (input_shape, mean, scale, channels))
    seed = random_layer["seed"]
    if board is not None and port is not None:
        if ctx.get_parameter_source("clock_mhz") is ParameterSource.DEFAULT:
            clock_mhz = board.clock_mhz
        run = _simulate(
            partial(_on_board, board, port, baud or BAUD),
            *(work, config, sdram or board.chips[0], seed, engine, clock_mhz),
        )
    elif apart:
        run = _simulate(
            partial(_apart, jobs=jobs or 1, scheduler=scheduler),
            *(work, config, memory, seed, engine, clock_mhz),
        )
    else:
        run = _simulate(
            partial(_together, vcd=vcd, vcd_range=vcd_range, trace=trace, building=_building),
            *(work, config, memory, seed, engine, clock_mhz, vcd),
        )
    _show(run, work, vcd, trace, apart)
    if json_file is not None:
        save_json(json_file, run.report.to_dict())
    if not run.ok:
        raise FailedRun(_mismatch(run))


def _network(
    model: Path,
    weights: Path | None,
    image: Path,
    layer: str | None,
    picture: tuple[tuple[int, int, int] | None, tuple[float, ...], float, str | None],
) -> Work:
    """Return the layers of a network in a file; ``picture``: how the image becomes its input."""
    if model.suffix.lower() in SUFFIXES:
        return caffe_work(model, weights, image, *picture, layer)
    if weights is not None:
        raise click.UsageError("--weights goes with a .prototxt.")
    network = load_network(model)
    values = load_input(network, image, *picture)
    return network_work(model, network, values, layer)


def _check_combination(ctx: click.Context, model: Path | None, image: Path | None) -> None:
    """Refuse options that would have no effect."""
    idle = _NETWORK if model is None else LAYER_OPTIONS
    for name in idle:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{option} needs --model."
                if model is None
                else f"{option} describes a random layer and does not go with --model."
            )
    if model is not None and image is None:
        raise click.UsageError("--model needs --image.")


def _board(
    ctx: click.Context, name: str | None, port: str | None, sdram: str | None
) -> Board | None:
    """Return the board to run on, if any; refuse options that do not go with it."""
    if name is None:
        for option in ("port", "baud", "sdram"):
            if ctx.params[option] is not None:
                raise click.UsageError(f"--{option} needs --board.")
        return None
    for parameter, option in _NOT_ON_BOARD.items():
        if ctx.get_parameter_source(parameter) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option} does not go with --board.")
    if port is None:
        raise click.UsageError(
            "--board needs --port: the serial port of the board, or `simulated`."
        )
    require_supported(BOARDS[name], sdram)
    return BOARDS[name]


def _random(ctx: click.Context, options: dict[str, Any]) -> Work:
    case = layer_case(ctx, options)
    try:
        nodes, features, slices = case.build()
        shape = case.shape
        for node in nodes:
            if node.inputs[0] in features:
                rows, columns, channels = node.layer.output_extents(shape)
                if case.batch * rows * columns * channels >= _ADDRESSES:
                    raise ValueError(
                        f"an output of {case.batch * rows * columns * channels:,} bytes is beyond "
                        "32-bit addresses"
                    )
    except ValueError as error:
        text = re.sub("^layer '[^']*': ", "", str(error))
        raise InputError(f"layer {case.op!r}: {text}{_remedy(text)}") from error
    except MemoryError as error:
        raise InputError(_TOO_LARGE) from error
    return Work("random", nodes, features, slices)


def _remedy(text: str) -> str:
    """Return what to change about a layer of random numbers, for the end of an error."""
    if "is empty" in text:
        return "; change --shape, --kernel or --pad"
    return "; choose a smaller layer" if "beyond 32-bit" in text else ""


def _configure(text: str) -> str:
    """Return what to change about the configuration, for the end of an error."""
    if "weight_bits 9" in text:
        return "; add --set weight_bits=9"
    if "requantisation mode" in text:
        return "; add --set requantise_modes=float32+fixed"
    return "; choose a larger --config, or more with --set" if "buffer" in text else ""


def _simulate(
    function: Callable[..., Simulation],
    work: Work,
    config: Config,
    memory: str,
    seed: int,
    engine: str,
    clock_mhz: float,
    vcd: Path | None = None,
) -> Simulation:
    """Run a layer or a network; errors become lines."""
    try:
        with _progress() as progress:
            return function(
                work,
                config,
                memory=memory,
                seed=seed,
                engine=engine,
                progress=progress,
                clock_mhz=clock_mhz,
                name=work.name,
            )
    except (ClusterError, ConnectError, MissingPackage, ToolchainError) as error:
        raise InputError(str(error)) from error
    except (DeviceError, RunError, WorkerLost) as error:
        raise FailedRun(str(error)) from error
    except UnsupportedError as error:
        raise InputError(f"{error}{_configure(str(error))}") from error
    except ValueError as error:
        advice = "; give a larger --input-shape" if "is empty" in str(error) else ""
        raise InputError(f"{error}{advice}") from error
    except OSError as error:
        if vcd is None:
            raise FailedRun(str(error)) from error
        raise InputError(f"{vcd}: cannot be written: {error.strerror or error}") from error
    except MemoryError as error:
        raise InputError(_TOO_LARGE) from error


def _together(work: Work, config: Config, **options: Any) -> Simulation:
    return simulate_graph(work.nodes, work.features, config, slices=work.slices, **options)


def _apart(work: Work, config: Config, **options: Any) -> Simulation:
    layers = [node.layer for node in work.nodes]
    return simulate_layers(layers, work.features[INPUT], config, **options)


def _on_board(
    board: Board,
    port: str,
    baud: int,
    work: Work,
    config: Config,
    *,
    progress: _Bar | None,
    **options: Any,
) -> Simulation:
    """Run on a board; there, no engine is chosen, and no memory model needs a seed."""
    del options["engine"], options["seed"]
    design = None
    if port == SIMULATED:
        design = simulated_design(board, chip=options["memory"], baud=baud)
    with connected(port, config, baud=baud, design=design, building=_building) as device:
        stage = None if progress is None else progress.stage
        return _together(work, config, device=device, progress=progress, building=stage, **options)


def _building(step: str) -> None:
    """Say what a build of an engine does: it takes a while, but only once."""
    Console(stderr=True).print(f"Building the engine: {step} ...", style="dim")


class _Bar:
    """Progress of a simulation or of a run on a board, in a bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("simulating", total=None, rate="")
        self._began = time.perf_counter()

    def __call__(self, done: int, whole: int, cycles: int) -> None:
        """Show how much of what is done, and the cycles so far."""
        rate = cycles / (time.perf_counter() - self._began)
        shown = f"{rate:,.0f} cycles/s" if cycles else ""
        self._bar.update(self._task, completed=done, total=whole, rate=shown)

    def stage(self, words: str) -> None:
        """Begin with something else."""
        self._bar.reset(self._task, description=words)
        self._began = time.perf_counter()


@contextmanager
def _progress() -> Iterator[_Bar | None]:
    """Give what shows the progress of a simulation on a terminal, and None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


def _show(run: Simulation, work: Work, vcd: Path | None, trace: Path | None, apart: bool) -> None:
    """Print what came out of a run."""
    out = console()
    table = run.report.table()
    if apart:
        table.caption = "Each layer was run by itself, fed with golden's input."
    out.print(table)
    simulated = any(layer.place == "rtl" for layer in run.report.layers)
    reason = run.choice.reason
    out.print(
        f"Engine {run.choice.engine}: {reason}."
        if simulated
        else f"Nothing to simulate: {reason}.",
        soft_wrap=True,
    )
    for line in run.report.lines():
        out.print(line, soft_wrap=True)
    if run.ok and simulated:
        out.print("Every output equals golden, and no other byte of the memory changed.")
    if vcd is not None:
        out.print(f"Waveforms: {vcd}", markup=False, soft_wrap=True)
    if trace is not None:
        out.print(f"Timeline: {trace}", markup=False, soft_wrap=True)
    last = run.outputs[-1]
    if work.classifies and last.shape[1:3] == (1, 1) and last.shape[3] > 1:
        scores = dequantise(last[0, 0, 0], work.nodes[-1].layer.result)
        best, second = np.argsort(-scores, kind="stable")[:2]
        out.print(
            f"The network says: class {best} (score {scores[best]:.2f}; next is class {second} "
            f"with {scores[second]:.2f})."
        )


def _mismatch(run: Simulation) -> str:
    """Return one line about the first mismatch and the first stray byte."""
    lines = run.comparison.lines()
    return lines[0] if len(lines) == 1 or not run.comparison.strays else f"{lines[0]}; {lines[-1]}"

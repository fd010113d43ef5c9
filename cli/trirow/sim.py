"""`trirow sim`: layers in RTL against golden."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trirow.options import (
    CycleRange,
    FailedRun,
    InputError,
    Numbers,
    OutputFile,
    Pad,
    Pair,
    Ratio,
    Shape,
    configuration,
    console,
    json_option,
    parallel_options,
    save_json,
    simulation_options,
)
from trirow_driver.float_network import FloatNetwork, load_npz, quantise_network
from trirow_driver.layer import ConvLayer
from trirow_driver.picture import CHANNELS, load_picture
from trirow_driver.quantise import dequantise, quantise
from trirow_driver.tiling import UnsupportedError
from trirow_hw.config import Config
from trirow_sim.compiled import ToolchainError
from trirow_sim.independent import simulate_layers
from trirow_sim.parallel import ClusterError, MissingPackage, WorkerLost
from trirow_sim.simulate import (
    RunError,
    Simulation,
    golden_outputs,
    random_layer,
    simulate,
)

__all__ = ["sim"]

_Int8 = npt.NDArray[np.int8]

#: Options that describe a layer of random numbers, and those that describe a network.
_RANDOM = ("shape", "out", "kernel", "stride", "pad")
_NETWORK = ("layer", "image", "input_shape", "mean", "scale", "channels", "jobs", "scheduler")
#: Files of other frameworks, which cannot be read so far.
_FOREIGN = {
    ".caffemodel": "Caffe",
    ".prototxt": "Caffe",
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
}


@dataclass(frozen=True, eq=False)
class _Work:
    """What is simulated.

    Parameters
    ----------
    name : str
        Name for the report.
    layers : list of ConvLayer
    features : int8 array of shape (1, H, W, C)
    classifies : bool
        The last layer is the last one of a network.
    """

    name: str
    layers: list[ConvLayer]
    features: _Int8
    classifies: bool = False


@click.command(
    epilog="""\b
Examples:
  trirow sim
  trirow sim --shape 28x28x3 --out 16 --kernel 3x3 --stride 2 --pad 1
  trirow sim --shape 6x7x5 --out 9 --kernel 1x1 --config odd --memory random --seed 7
  trirow sim --config ecp5-85f --set bus_bytes=16 --json result.json
  trirow sim --vcd waves.vcd
  trirow sim --model examples/digits/weights.npz --image examples/digits/images/digit_7.png
""",
)
@click.option(
    "--shape",
    type=Shape(),
    metavar="HxWxC",
    default="8x8x8",
    show_default=True,
    help="Random layer: rows, columns and channels of the feature map.",
)
@click.option(
    "--out",
    type=click.IntRange(1),
    metavar="K",
    default=8,
    show_default=True,
    help="Random layer: output channels.",
)
@click.option(
    "--kernel",
    type=Pair("RxS"),
    metavar="RxS",
    default="3x3",
    show_default=True,
    help="Random layer: rows and columns of the kernel.",
)
@click.option(
    "--stride",
    type=Pair("N or YxX"),
    metavar="N|YxX",
    default="1",
    show_default=True,
    help="Random layer: steps in rows and columns.",
)
@click.option(
    "--pad",
    type=Pad(),
    metavar="t,l,b,r",
    show_default="half the kernel",
    help="Random layer: padding at the top, left, bottom and right; or one number for all sides. "
    "Half the kernel keeps the size at stride 1.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=1,
    show_default=True,
    help="Of the random layer, and of the memory model 'random'. The same seed gives the same run.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Network to simulate instead of a random layer: all its layers, each fed with what the "
    "one before gave. It is quantised first. Needs --image.",
)
@click.option("--layer", metavar="NAME", help="Only this layer of the model.")
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Picture for the model (PNG, JPEG, ...). It is resized to the model's input.",
)
@click.option(
    "--input-shape",
    type=Shape(),
    metavar="HxWxC",
    show_default="the model's, or else the picture's",
    help="Size to bring the picture to.",
)
@click.option(
    "--mean",
    type=Numbers(),
    metavar="NUMBER[,...]",
    default="0",
    show_default=True,
    help="The model gets (byte - mean) * scale for each byte of the picture. One number, or one "
    "for each channel.",
)
@click.option("--scale", type=Ratio(), default="1/255", show_default=True, help="See --mean.")
@click.option(
    "--channels",
    type=click.Choice(list(CHANNELS)),
    show_default="grey for models of one channel, else rgb",
    help="Order of the channels that the model expects.",
)
@simulation_options
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
    shape: tuple[int, int, int],
    out: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int] | None,
    seed: int,
    model: Path | None,
    layer: str | None,
    image: Path | None,
    input_shape: tuple[int, int, int] | None,
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
    config_name: str,
    overrides: Sequence[tuple[str, int]],
    memory: str,
    engine: str,
    jobs: int | None,
    scheduler: str | None,
    vcd: Path | None,
    vcd_range: tuple[int, int] | None,
    trace: Path | None,
    clock_mhz: float,
    json_file: Path | None,
) -> None:
    """Run layers on the accelerator in simulation, and compare every byte with golden.

    Golden is the plain numpy model of the same arithmetic. Without options this is one small
    convolution of random numbers. The table says for each layer how many clock cycles it took,
    which share of them the multipliers were busy, and whether what was written equals golden.

    \b
    Exit status: 0 if every byte matched, 1 on a mismatch or a failed run,
    2 on bad usage or input.
    """  # noqa: D301
    _check_combination(ctx, model, image)
    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs and --scheduler do not go together.")
    apart = jobs is not None or scheduler is not None
    if apart and (vcd is not None or trace is not None):
        raise click.UsageError("--vcd and --trace do not go with --jobs or --scheduler.")
    if vcd_range is not None and (vcd is None or engine == "pysim"):
        raise click.UsageError("--vcd-range needs --vcd, and not --engine pysim.")
    files = [path for path in (vcd, trace, json_file) if path is not None]
    if len(set(files)) != len(files):
        raise click.UsageError("--vcd, --trace and --json must be different files.")
    config = configuration(config_name, overrides)
    if model is None:
        work = _random(shape, out, kernel, stride, pad, seed)
    else:
        assert image is not None
        network = _load(model)
        values = _picture(network, image, input_shape, mean, scale, channels)
        work = _network(model, network, values, layer)
    if apart:
        run = _simulate(
            partial(simulate_layers, jobs=jobs or 1, scheduler=scheduler),
            *(work, config, memory, seed, engine, clock_mhz),
        )
    else:
        run = _simulate(
            partial(simulate, vcd=vcd, vcd_range=vcd_range, trace=trace, building=_building),
            *(work, config, memory, seed, engine, clock_mhz, vcd),
        )
    _show(run, work, vcd, trace, apart)
    if json_file is not None:
        save_json(json_file, run.report.to_dict())
    if not run.ok:
        raise FailedRun(_mismatch(run))


def _check_combination(ctx: click.Context, model: Path | None, image: Path | None) -> None:
    """Refuse options that would have no effect."""
    idle = _NETWORK if model is None else _RANDOM
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


def _random(
    shape: tuple[int, int, int],
    out: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int, int, int] | None,
    seed: int,
) -> _Work:
    if pad is None:
        rows, columns = (extent - 1 for extent in kernel)
        pad = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
    try:
        layer, features = random_layer(*shape, out, kernel, stride, pad, seed)
    except ValueError as error:
        raise InputError(f"layer 'random': {error}; change --shape, --kernel or --pad") from error
    return _Work("random", [layer], features)


def _load(path: Path) -> FloatNetwork:
    foreign = _FOREIGN.get(path.suffix.lower())
    if foreign is not None:
        raise InputError(
            f"{path}: networks of {foreign} cannot be read so far; --model takes Trirow's own .npz"
        )
    try:
        return load_npz(path)
    except ValueError as error:
        raise InputError(str(error)) from error


def _picture(
    network: FloatNetwork,
    path: Path,
    shape: tuple[int, int, int] | None,
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
) -> npt.NDArray[np.float32]:
    """Return the picture as the network's input."""
    first = network.layers[0]
    wanted = int(first.weights.shape[3])
    channels = channels or ("grey" if wanted == 1 else "rgb")
    if CHANNELS[channels] != wanted:
        raise InputError(
            f"layer {first.name!r} takes {wanted} channels, and a picture as {channels} has "
            f"{CHANNELS[channels]}; change --channels or the model"
        )
    shape = shape or network.input_shape
    if shape is not None and shape[2] != wanted:
        raise InputError(
            f"layer {first.name!r} takes {wanted} channels, not the {shape[2]} of --input-shape"
        )
    try:
        return load_picture(path, shape and shape[:2], channels=channels, mean=mean, scale=scale)
    except ValueError as error:
        raise InputError(str(error)) from error


def _network(
    path: Path, network: FloatNetwork, values: npt.NDArray[np.float32], name: str | None
) -> _Work:
    """Return the layers of a network, or one with the feature map that golden gives it."""
    names = [layer.name for layer in network.layers]
    if name is not None and name not in names:
        raise InputError(f"{path}: has no layer {name!r}; --layer is one of {', '.join(names)}")
    try:
        layers = quantise_network(network)
        features = quantise(values, layers[0].input)
        if name is not None:
            index = names.index(name)
            for layer in layers[:index]:
                features = golden_outputs([layer], features)[0]
            layers = [layers[index]]
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return _Work(path.stem, layers, features, layers[-1].name == names[-1])


def _simulate(
    function: Callable[..., Simulation],
    work: _Work,
    config: Config,
    memory: str,
    seed: int,
    engine: str,
    clock_mhz: float,
    vcd: Path | None = None,
) -> Simulation:
    """Run a layer or a network with `simulate` or `simulate_layers`, whose errors become lines."""
    try:
        with _progress() as progress:
            return function(
                work.layers,
                work.features,
                config,
                memory=memory,
                seed=seed,
                engine=engine,
                progress=progress,
                clock_mhz=clock_mhz,
                name=work.name,
            )
    except (RunError, WorkerLost) as error:
        raise FailedRun(str(error)) from error
    except (ClusterError, MissingPackage, ToolchainError) as error:
        raise InputError(str(error)) from error
    except UnsupportedError as error:
        advice = "; choose a larger --config, or more with --set" if "buffer" in str(error) else ""
        raise InputError(f"{error}{advice}") from error
    except ValueError as error:
        advice = "; give a larger --input-shape" if "is empty" in str(error) else ""
        raise InputError(f"{error}{advice}") from error
    except OSError as error:
        if vcd is None:
            raise FailedRun(str(error)) from error
        raise InputError(f"{vcd}: cannot be written: {error.strerror or error}") from error
    except MemoryError as error:
        raise InputError("the layers do not fit this machine's memory; use smaller ones") from error


def _building(step: str) -> None:
    """Say what a build of the compiled engine does: it takes a while, but only once."""
    Console(stderr=True).print(f"Building the compiled engine: {step} ...", style="dim")


@contextmanager
def _progress() -> Iterator[Callable[[int, int, int], None] | None]:
    """Give what shows the progress of a simulation on a terminal, and None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")
        began = time.perf_counter()

        def update(written: int, total: int, cycles: int) -> None:
            rate = f"{cycles / (time.perf_counter() - began):,.0f} cycles/s"
            bar.update(task, completed=written, total=total, rate=rate)

        yield update


def _show(run: Simulation, work: _Work, vcd: Path | None, trace: Path | None, apart: bool) -> None:
    """Print what came out of a run."""
    out = console()
    table = run.report.table()
    if apart:
        table.caption = "Each layer was run by itself, fed with golden's input."
    out.print(table)
    out.print(f"Engine {run.choice.engine}: {run.choice.reason}.", soft_wrap=True)
    for line in run.report.lines():
        out.print(line, soft_wrap=True)
    if run.ok:
        out.print("Every output equals golden, and no other byte of the memory changed.")
    if vcd is not None:
        out.print(f"Waveforms: {vcd}", markup=False, soft_wrap=True)
    if trace is not None:
        out.print(f"Timeline: {trace}", markup=False, soft_wrap=True)
    last = run.outputs[-1]
    if work.classifies and last.shape[1:3] == (1, 1) and last.shape[3] > 1:
        scores = dequantise(last[0, 0, 0], work.layers[-1].output)
        best, second = np.argsort(-scores, kind="stable")[:2]
        out.print(
            f"The network says: class {best} (score {scores[best]:.2f}; next is class {second} "
            f"with {scores[second]:.2f})."
        )


def _mismatch(run: Simulation) -> str:
    """Return one line about the first mismatch and the first stray byte."""
    lines = run.comparison.lines()
    return lines[0] if len(lines) == 1 or not run.comparison.strays else f"{lines[0]}; {lines[-1]}"

"""Run layers on the accelerator in simulation, and compare every byte with golden."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.layer import ConvLayer
from trirow_driver.program import DESCRIPTORS, Program, Step, pack_layers
from trirow_driver.quantise import Quantisation
from trirow_hw.config import Config
from trirow_hw.errors import ErrorCode
from trirow_sim.axi import AxiViolation
from trirow_sim.compare import Comparison, Expected, LayerComparison, compare
from trirow_sim.engines import EngineChoice, choose_engine, run_job
from trirow_sim.job import Job, Landing, RunResult
from trirow_sim.memory import MEMORY_MODELS, Memory
from trirow_sim.report import STALLS, LayerReport, NetworkReport, replacing
from trirow_sim.trace import Timeline, write_chrome_trace

__all__ = [
    "RunError",
    "Simulation",
    "golden_outputs",
    "random_layer",
    "simulate",
]

#: Where the image is loaded: not at 0, so that an address that lacks its base is noticed.
_BASE = 0x1000
#: Cycles without progress that end a run. The slowest memory answers within a hundred.
_WATCHDOG = 100_000
#: What the outputs of `random_layer` deviate by.
_DEVIATION = 60
_ADDRESSES = 1 << 32

_Int8 = npt.NDArray[np.int8]

_ERRORS = {
    ErrorCode.DESCRIPTOR: "wrong descriptor",
    ErrorCode.WINDOW: "address outside the window",
    ErrorCode.READ_RESPONSE: "error response to a read",
    ErrorCode.WRITE_RESPONSE: "error response to a write",
    ErrorCode.WATCHDOG: "no progress",
}


class RunError(RuntimeError):
    """The run did not end as it should; the message is one line that says what and where."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """What came out of a run.

    Parameters
    ----------
    outputs : list of int8 array of shape (1, H, W, K)
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
    layers: Sequence[ConvLayer],
    features: _Int8,
    config: Config,
    *,
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
) -> Simulation:
    """Run a chain of layers in RTL, from memory to memory, and compare with golden.

    Before the run the outputs in memory are filled with the complement of what golden computes, so
    that a byte that is never written, or is read before it is written, is a mismatch.

    Parameters
    ----------
    layers : sequence of ConvLayer
        Each reads the output of the one before.
    features : int8 array of shape (1, H, W, C)
        Feature map of the first layer.
    config : Config
        Configuration of the accelerator.
    memory : str
        Memory model, one of `trirow_sim.memory.MEMORY_MODELS`.
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
        cycles so far.
    building : callable, optional
        Called with a few words at each step when the compiled engine is built.
    watchdog : int
        Cycles without progress after which the run ends in an error; 0: never.
    clock_mhz : float
        Clock for which the report gives milliseconds.
    name : str
        Name of the network in the report.

    Returns
    -------
    Simulation
        Look at its `ok`: a mismatch does not raise.

    Raises
    ------
    RunError
        If the run ends in an error: the line names code, unit, pass and layer.
    UnsupportedError
        If the configuration cannot compute a layer.
    ValueError
        If an argument is wrong, or the shapes do not fit each other.
    OSError
        If the waveforms cannot be written.
    """
    if memory not in MEMORY_MODELS:
        raise ValueError(f"memory must be one of {', '.join(MEMORY_MODELS)}, not {memory!r}")
    if not 0 < clock_mhz < float("inf"):
        raise ValueError(f"clock_mhz must be finite and above 0, not {clock_mhz!r}")
    program = pack_layers(layers, features, config, base=_BASE)
    choice = choose_engine(
        engine if vcd_range is None else "compiled",
        config,
        sum(step.tiling.cycles for step in program.steps),
    )
    image = program.image
    golden = golden_outputs(layers, features)
    expected = [
        Expected(step.layer.name, step.target, output)
        for step, output in zip(program.steps, golden, strict=True)
    ]
    storage = Memory(len(image.data), base=image.base)
    storage.write(image.base, image.data)
    for item in expected:
        storage.write(image.address(item.region), (~item.output).tobytes())
    before = bytes(storage.data)
    total = sum(output.size for output in golden)
    job = Job(image.address(DESCRIPTORS), image.base, image.base + len(image.data), watchdog)

    timeline = Timeline() if trace is not None else None
    with _waveforms(vcd) as path:
        result, failure = _run(
            choice.engine,
            config,
            storage,
            job,
            memory=memory,
            seed=seed,
            vcd=path,
            vcd_range=vcd_range,
            timeline=timeline,
            progress=progress and partial(_report_bytes, progress, total),
            building=building,
        )
    if trace is not None and timeline is not None:
        write_chrome_trace(trace, timeline, clock_mhz)
    if failure is not None:
        raise failure
    _check(result, program)
    if progress is not None:
        progress(total, total, result.counters["cycles"])

    comparison = compare(image, before, bytes(storage.data), expected)
    outputs = [
        np.frombuffer(storage.read(image.address(item.region), item.output.size), np.int8).reshape(
            item.output.shape
        )
        for item in expected
    ]
    context = {"engine": choice.engine, "config": config.name, "memory": memory}
    reports = _reports(program, result, comparison.layers, config, context)
    report = NetworkReport(reports, clock_mhz, name, comparison.strays)
    return Simulation(outputs, report, comparison, choice)


def golden_outputs(layers: Sequence[ConvLayer], features: _Int8) -> list[_Int8]:
    """Return the output of each layer of a chain as golden computes it, from golden's own input.

    Parameters
    ----------
    layers : sequence of ConvLayer
        Each reads the output of the one before.
    features : int8 array of shape (1, H, W, C)
        Feature map of the first layer.
    """
    outputs = []
    for layer in layers:
        features = trirow_golden.conv2d_int8(
            features,
            layer.weights,
            layer.bias,
            layer.multiplier,
            stride=layer.stride,
            pad=layer.pad,
            zero_in=layer.input.zero_point,
            zero_out=layer.output.zero_point,
            low=layer.low,
            high=layer.high,
        )
        outputs.append(features)
    return outputs


def random_layer(
    height: int,
    width: int,
    channels: int,
    out_channels: int,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    seed: int = 1,
) -> tuple[ConvLayer, _Int8]:
    """Return a layer and a feature map of random numbers, the same for the same seed.

    Multipliers and bias are such that the outputs of each channel spread over the whole of int8 and
    some of them saturate. No zero point is 0.

    Parameters
    ----------
    height, width, channels : int
        Feature map, each at least 1.
    out_channels : int
        Number of filters, at least 1.
    kernel, stride : (int, int)
        Rows and columns.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right).
    seed : int
        At least 0.

    Raises
    ------
    ValueError
        If the layer has no output, an extent is below 1, or the data are beyond 32-bit addresses.
    """
    extents = {"height": height, "width": width, "channels": channels, "out channels": out_channels}
    for field, value in extents.items():
        if value < 1:
            raise ValueError(f"{field} must be at least 1, not {value}")
    out_height, out_width = trirow_golden.output_size((height, width), kernel, stride, pad)
    taps = kernel[0] * kernel[1] * channels
    size = height * width * channels + taps * out_channels + out_height * out_width * out_channels
    if size >= _ADDRESSES:
        raise ValueError(f"a layer of {size:,} bytes is beyond 32-bit addresses")
    rng = np.random.default_rng(seed)
    zero_in, zero_out = (int(z) for z in rng.integers(1, 25, 2) * rng.choice([-1, 1], 2))
    # Below 127 only for more taps than the accumulator has room for at full size.
    largest = max(1, min(127, (1 << 30) // (160 * taps)))
    features = rng.integers(-128, 128, (1, height, width, channels), dtype=np.int8)
    weights = rng.integers(-largest, largest + 1, (out_channels, *kernel, channels), dtype=np.int8)
    # What a sum deviates by, from the variances of uniform numbers.
    spread = np.sqrt(
        taps * ((256**2 - 1) / 12 + (zero_in + 0.5) ** 2) * largest * (largest + 1) / 3
    )
    bias = np.rint(spread * rng.uniform(-0.5, 0.5, out_channels)).astype(np.int32)
    multiplier = (_DEVIATION / spread * rng.uniform(0.8, 1.4, out_channels)).astype(np.float32)
    layer = ConvLayer(
        "random",
        weights,
        bias,
        multiplier,
        stride,
        pad,
        Quantisation(1 / 64, zero_in),
        Quantisation(1 / 32, zero_out),
    )
    return layer, features


@contextmanager
def _waveforms(vcd: str | os.PathLike[str] | None) -> Iterator[Path | None]:
    """Give the path to write waveforms to while the run goes on."""
    if vcd is None:
        yield None
    else:
        with replacing(vcd) as path:
            yield path


def _report_bytes(
    progress: Callable[[int, int, int], None], total: int, written: int, cycles: int
) -> None:
    progress(min(written, total), total, cycles)


def _run(engine: str, *args: Any, **options: Any) -> tuple[RunResult, RunError | None]:
    """Run a job; what breaks the rules of a bus is returned, so that waveforms are kept."""
    try:
        return run_job(engine, *args, **options), None
    except AxiViolation as error:
        return RunResult(), RunError(f"a rule of the memory bus is broken: {error}")
    except TimeoutError as error:
        return RunResult(), RunError(str(error))


def _check(result: RunResult, program: Program) -> None:
    if result.error is ErrorCode.NONE:
        return
    unit = result.unit.name.lower()
    what = _ERRORS[result.error]
    raise RunError(
        f"the run ended with error {result.error.name} ({what}) in unit {unit}, "
        f"{_place(result.index, program)}, after {result.counters['cycles']:,} cycles"
        + (f": {result.waiting}" if result.waiting else "")
    )


def _place(index: int, program: Program) -> str:
    """Return pass and layer of an index of the chain of descriptors."""
    first = 0
    for step in program.steps:
        if index < first + step.passes:
            return f"pass {index - first + 1} of {step.passes} of layer {step.layer.name!r}"
        first += step.passes
    return f"pass {index}, which no layer has"


def _reports(
    program: Program,
    result: RunResult,
    comparisons: Sequence[LayerComparison],
    config: Config,
    context: dict[str, str],
) -> tuple[LayerReport, ...]:
    """Return a report of each layer, with the counters from one completion to the next."""
    last = np.cumsum([step.passes for step in program.steps]) - 1
    zero = Landing(dict.fromkeys(result.counters, 0), 0.0)
    moments = [
        zero,
        *(result.landed[k] for k in last[:-1]),
        Landing(result.counters, result.seconds),
    ]
    return tuple(
        _report(step, begin, end, comparison, config, context)
        for step, (begin, end), comparison in zip(
            program.steps, pairwise(moments), comparisons, strict=True
        )
    )


def _report(
    step: Step,
    begin: Landing,
    end: Landing,
    comparison: LayerComparison,
    config: Config,
    context: dict[str, str],
) -> LayerReport:
    counts = {name: end.counters[name] - begin.counters[name] for name in end.counters}
    return LayerReport(
        name=step.layer.name,
        match=comparison.match,
        mismatches=comparison.mismatches,
        outputs=comparison.outputs,
        cycles=counts["cycles"],
        macs=step.macs,
        macs_useful=step.macs_useful,
        multipliers=config.multipliers,
        bytes_read=counts["beats_read"] * config.bus_bytes,
        bytes_written=counts["beats_written"] * config.bus_bytes,
        bytes_ideal=step.bytes_ideal,
        stalls={cause: counts[f"stall_{cause}"] for cause in STALLS},
        seconds=end.seconds - begin.seconds,
        in_shape=step.in_shape,
        out_shape=step.out_shape,
        kernel=step.layer.kernel,
        stride=step.layer.stride,
        **context,
    )

"""Run the layers of a graph that the accelerator computes, and compare the memory with golden."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.device import Device
from trirow_driver.image import DdrImage
from trirow_driver.program import DESCRIPTORS, Node, Program, Slice, pack
from trirow_hw.config import Config
from trirow_hw.errors import ErrorCode
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.axi import AxiViolation
from trirow_sim.board.run_program import run_program
from trirow_sim.compare import Comparison, Expected, compare
from trirow_sim.engines import EngineChoice, choose_engine, run_job
from trirow_sim.files import replacing
from trirow_sim.graph import golden_graph
from trirow_sim.job import Job, RunResult
from trirow_sim.layer_reports import accelerator_reports
from trirow_sim.memory import Memory
from trirow_sim.report import LayerReport
from trirow_sim.trace import Timeline, write_chrome_trace

__all__ = ["Accelerated", "RunError", "accelerate"]

#: Where the image is loaded: not at 0, so that an address that lacks its base is noticed.
_BASE = 0x1000

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
class Accelerated:
    """What came out of the layers on the accelerator: outputs by name, and the rest in order."""

    outputs: dict[str, _Int8]
    reports: list[LayerReport]
    comparison: Comparison
    choice: EngineChoice


def accelerate(
    nodes: Sequence[Node],
    features: Mapping[str, _Int8],
    config: Config,
    slices: Mapping[str, Slice],
    *,
    memory: str,
    engine: str,
    vcd: str | os.PathLike[str] | None,
    vcd_range: tuple[int, int] | None,
    trace: str | os.PathLike[str] | None,
    progress: Callable[[int, int, int], None] | None,
    watchdog: int,
    clock_mhz: float,
    device: Device | None,
    **options: Any,
) -> Accelerated:
    """Run layers, and compare the memory with golden.

    Parameters
    ----------
    nodes : sequence of Node
        Layers of which none runs on the host.
    features, config, slices, memory, engine, vcd, vcd_range, trace, progress, watchdog, clock_mhz,
    device
        See `trirow_sim.simulate.simulate_graph`.
    options
        ``seed`` and ``building``, see there.

    Raises
    ------
    RunError, DeviceError, UnsupportedError, ValueError, OSError
        See there.
    """
    program = pack(nodes, features, config, slices=slices, base=_BASE, stops=device is not None)
    image = program.image
    if device is None:
        cycles = sum(step.tiling.cycles for step in program.steps)
        choice = choose_engine(engine if vcd_range is None else "compiled", config, cycles)
    else:
        if engine != "auto" or vcd is not None or trace is not None:
            raise ValueError("a device goes with no engine, and gives no waveforms, no timeline")
        _check_capacity(image, memory)
        choice = EngineChoice("board", f"at {device.name}")
    golden = golden_graph(nodes, features, slices)
    expected = [
        Expected(node.layer.name, *program.place(node.output), output)
        for node, output in zip(nodes, golden, strict=True)
    ]
    storage = Memory(len(image.data), base=image.base)
    storage.write(image.base, image.data)
    for item in expected:
        _view(storage, image, item)[:] = ~item.output
    before = bytes(storage.data)
    if device is None:
        total = sum(output.size for output in golden)
        job = Job(image.address(DESCRIPTORS), image.base, image.base + len(image.data), watchdog)
        result = _simulated(
            choice.engine,
            *(config, storage, job),
            memory=memory,
            vcd=vcd,
            vcd_range=vcd_range,
            trace=trace,
            clock_mhz=clock_mhz,
            progress=progress and partial(_report_bytes, progress, total),
            **options,
        )
    else:
        stage = options.get("building")
        result = run_program(
            device, program, storage, watchdog=watchdog, progress=progress, stage=stage
        )
    _check(result, program)
    if progress is not None and device is None:
        progress(total, total, result.counters["cycles"])

    comparison = compare(image, before, bytes(storage.data), expected)
    outputs = [_view(storage, image, item).copy() for item in expected]
    reports = accelerator_reports(
        program, result, comparison.layers, config, engine=choice.engine, memory=memory
    )
    names = [node.output for node in nodes]
    return Accelerated(dict(zip(names, outputs, strict=True)), reports, comparison, choice)


def _view(storage: Memory, image: DdrImage, item: Expected) -> _Int8:
    """Return the bytes in memory that an output takes, in its shape."""
    region = image.region(item.region)
    begin = region.offset
    flat = np.frombuffer(storage.data, np.int8)[begin : begin + region.size]
    return item.part(region, flat)


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


def _check_capacity(image: DdrImage, memory: str) -> None:
    """Refuse an image that is larger than a board's memory, as far as that is known."""
    chip, end = CHIPS.get(memory), image.base + len(image.data)
    if chip is not None and end > chip.capacity:
        raise ValueError(
            f"an image of {len(image.data):,} bytes at {image.base:#x} does not fit the "
            f"{chip.capacity:,} bytes of {memory}"
        )


def _simulated(
    engine: str,
    *job: Any,
    vcd: str | os.PathLike[str] | None,
    trace: str | os.PathLike[str] | None,
    clock_mhz: float,
    **options: Any,
) -> RunResult:
    """Run a job on an engine, and write waveforms and timeline, also of one that fails."""
    if engine == "netlist" and (vcd is not None or trace is not None):
        raise ValueError("the netlist gives neither waveforms nor a timeline")
    timeline = Timeline() if trace is not None else None
    with _waveforms(vcd) as path:
        result, failure = _run(engine, *job, vcd=path, timeline=timeline, **options)
    if trace is not None and timeline is not None:
        write_chrome_trace(trace, timeline, clock_mhz)
    if failure is not None:
        raise failure
    return result


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
        if len(result.landed) < sum(step.passes for step in program.steps):
            raise RunError("the run ended before the outputs of all passes had landed")
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

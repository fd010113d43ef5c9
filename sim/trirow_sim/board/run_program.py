"""Run a program on a device, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trirow_driver.device import Device, run
from trirow_driver.program import Program
from trirow_hw.errors import ErrorCode
from trirow_sim.job import Landing, RunResult
from trirow_sim.memory.storage import Memory

__all__ = ["run_program"]

#: Bytes that are moved between two calls of `progress`.
_PIECE = 16 * 1024


def run_program(
    device: Device,
    program: Program,
    storage: Memory,
    *,
    watchdog: int,
    progress: Callable[[int, int, int], None] | None = None,
    stage: Callable[[str], None] | None = None,
) -> RunResult:
    """Load a memory into a device, run each layer of a program there, and read the memory back.

    Each layer is a run of its own, so its counters are exact: what a host reads while a run goes on
    comes too late to tell where one layer ends.

    Parameters
    ----------
    device : Device
    program : Program
        Packed with ``stops``.
    storage : Memory
        The bytes of its image; those of the device, afterwards.
    watchdog : int
        Cycles without progress after which a run ends in an error; 0: never.
    progress : callable, optional
        Called now and then with what is done of the present stage, with the whole of it (bytes, or
        passes), and the cycles of the accelerator so far.
    stage : callable, optional
        Called with a few words at the beginning of each stage.

    Returns
    -------
    RunResult
        The counters are those of all layers. All passes of a layer land at its end.

    Raises
    ------
    DeviceError
        If the device fails.
    """
    begin_stage = stage or (lambda words: None)
    report = progress or (lambda done, whole, cycles: None)
    base, size = storage.base, storage.size
    begin_stage("loading")
    report(0, size, 0)
    for start in range(base, base + size, _PIECE):
        piece = storage.read(start, min(_PIECE, base + size - start))
        device.write(start, piece)
        report(start + len(piece) - base, size, 0)

    begin_stage("running")
    result = _run_layers(device, program, base + size, watchdog, report)

    begin_stage("reading back")
    cycles = result.counters["cycles"]
    for start in range(base, base + size, _PIECE):
        piece = device.read(start, min(_PIECE, base + size - start))
        storage.write(start, piece)
        report(start + len(piece) - base, size, cycles)
    return result


def _run_layers(
    device: Device,
    program: Program,
    limit: int,
    watchdog: int,
    report: Callable[[int, int, int], None],
) -> RunResult:
    """Run layers until one fails."""
    result, counters = RunResult(), Counter[str]()
    passes = 0
    total = sum(step.passes for step in program.steps)
    for step, descriptor in zip(program.steps, program.starts, strict=True):
        cycles = counters["cycles"]

        def show(done: int, more: int, before: int = passes, since: int = cycles) -> None:
            report(before + done, total, since + more)

        done = run(
            device,
            descriptor=descriptor,
            base=program.image.base,
            limit=limit,
            watchdog=watchdog,
            progress=show,
        )
        counters.update(done.counters)
        result.counters = dict(counters)
        result.seconds += done.seconds
        if done.error is not ErrorCode.NONE:
            result.error, result.unit, result.index = done.error, done.unit, passes + done.index
            break
        if done.passes == step.passes:
            result.landed += [Landing(result.counters, result.seconds)] * step.passes
        passes += step.passes
        report(passes, total, counters["cycles"])
    return result

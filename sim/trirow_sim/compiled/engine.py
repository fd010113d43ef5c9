"""Run jobs on the compiled accelerator."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from trirow_hw.config import Config
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.registers import REGISTERS
from trirow_hw.supervisor import COUNTERS
from trirow_sim.axi import AxiViolation
from trirow_sim.compiled.build import build_library
from trirow_sim.job import INTERRUPT_ENABLE, RESET, START, Job, Landing, RunResult
from trirow_sim.memory import Memory
from trirow_sim.probe import TRACKS, what_waits
from trirow_sim.trace import Timeline

__all__ = ["CompiledEngine"]

#: Cycles between two calls of `progress`.
_CHUNK = 100_000
_UNLIMITED = 1 << 62
#: A change of a track as the library records it.
_CHANGE = np.dtype([("start", "u8"), ("track", "u4"), ("value", "u4")])


class CompiledEngine:
    """The accelerator as native code, with a memory model on its bus and a host on its registers.

    It gives the same outputs, cycles and counters as `trirow_sim.pysim.PysimEngine`.

    Parameters
    ----------
    config : Config
        What is simulated. Its library is built first if it is not in the cache.
    memory : Memory
        The bytes behind the bus; used in place.
    model : str
        Memory model, one of `trirow_sim.memory.MEMORY_MODELS`; its rules are checked in every
        cycle.
    seed : int
        For the model ``random``, 0 to 2^32 - 1.
    vcd : path, optional
        Where waveforms of all signals go.
    vcd_range : (int, int), optional
        First and last cycle of the waveforms, counted from the first cycle of the simulation.
    progress : callable, optional
        Called now and then with the bytes written and the cycles so far.
    building : callable, optional
        Called with a few words at each step of a build.
    timeline : Timeline, optional
        Is given what each unit does in each cycle of the runs.
    library : path, optional
        Another library with the same interface, instead of that of the RTL.

    Raises
    ------
    ToolchainError
        If the library has to be built and a tool is missing or fails.
    AxiViolation
        From `run`, if either side of the bus breaks a rule.
    TimeoutError
        From `run`, if the host waits in vain for the accelerator; the text says what waits.
    """

    def __init__(
        self,
        config: Config,
        memory: Memory,
        model: str,
        *,
        seed: int = 1,
        vcd: Path | None = None,
        vcd_range: tuple[int, int] | None = None,
        progress: Callable[[int, int], None] | None = None,
        building: Callable[[str], None] | None = None,
        timeline: Timeline | None = None,
        library: Path | None = None,
    ) -> None:
        if library is None:
            library = build_library(config, trace=vcd is not None, progress=building)
        self._library = _load(library)
        self._progress = progress
        self._timeline = timeline
        # The array shares the bytes of the memory and keeps them where they are.
        self._bytes = (ctypes.c_uint8 * memory.size).from_buffer(memory.data)
        self._handle = self._library.trirow_open(
            self._bytes, memory.size, memory.base, model.encode(), seed
        )
        if not self._handle:
            raise ValueError(self._library.trirow_error().decode())
        if vcd is not None:
            first, last = vcd_range or (0, _UNLIMITED)
            if self._library.trirow_trace(self._handle, str(vcd).encode(), first, last):
                raise OSError(self._library.trirow_error().decode())

        if timeline is not None:
            self._library.trirow_record(self._handle)

    def run(self, jobs: Iterable[Job], *, max_cycles: int = _UNLIMITED) -> list[RunResult]:
        """Run jobs one after the other on the same accelerator and memory.

        Parameters
        ----------
        jobs : iterable of Job
            Taken one by one, so that a generator can change the memory between them.
        max_cycles : int
            Cycles of simulation in all after which to give up.
        """
        try:
            return [self._run_job(job, max_cycles) for job in jobs]
        finally:
            self._drain()

    def close(self) -> None:
        """Finish the waveforms and release the model. No call may follow."""
        if self._handle:
            self._library.trirow_close(self._handle)
            self._handle = None

    def __enter__(self) -> CompiledEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cycles(self) -> int:
        """Cycles since the start of the simulation."""
        return int(self._library.trirow_cycles(self._handle))

    def _run_job(self, job: Job, max_cycles: int) -> RunResult:
        result = RunResult()
        for name in ("descriptor", "base", "limit", "watchdog"):
            self._write(name, getattr(job, name))
        began = time.perf_counter()
        self._write("control", START | INTERRUPT_ENABLE)
        self._library.trirow_begin(self._handle)
        first = self.cycles
        reset_at = _UNLIMITED if job.reset_at is None else max(2, job.reset_at)
        while not self._run(self._chunk(first + reset_at, max_cycles)):
            self._drain()
            if self.cycles - first >= reset_at:
                self._write("control", RESET)
                break
            if self.cycles >= max_cycles:
                raise TimeoutError(
                    f"the run did not end within {max_cycles} cycles: {self._waiting()}"
                )
            if self._progress is not None:
                self._progress(int(self._library.trirow_written(self._handle)), self.cycles)
        result.seconds = time.perf_counter() - began
        result.landed = self._landings(result.seconds)
        error = self._read("error")
        result.error, result.index = ErrorCode(error & 0xFF), error >> 16
        result.unit = Unit(error >> 8 & 0xFF)
        if result.error is ErrorCode.WATCHDOG:
            result.waiting = self._waiting()
        while self._read("status") & 1:
            pass
        result.counters = {name: self._read(name) for name in COUNTERS}
        return result

    def _chunk(self, *limits: int) -> int:
        """Return the cycles to the nearest limit, but few enough for `progress`."""
        return max(1, min(_CHUNK, min(limits) - self.cycles))

    def _drain(self) -> None:
        """Append to the timeline what was recorded since the last time."""
        if self._timeline is None:
            return
        library, handle = self._library, self._handle
        count = library.trirow_changes(handle)
        if count:
            size = count * _CHANGE.itemsize
            raw = ctypes.string_at(library.trirow_change(handle), size)
            changes = np.frombuffer(raw, _CHANGE).tolist()
            self._timeline.extend(changes, library.trirow_recorded(handle))
        library.trirow_forget(handle)

    def _waiting(self) -> str:
        """Return what waited in the last cycle of a run."""
        probe = _Probe()
        self._library.trirow_probe(self._handle, ctypes.byref(probe))
        return what_waits(list(probe.tracks), probe.detail)

    def _landings(self, seconds: float) -> list[Landing]:
        """Return when each pass had landed; the time is taken to pass evenly with the cycles."""
        counters = (ctypes.c_uint32 * len(COUNTERS))()
        landings = []
        count = self._library.trirow_landings(self._handle)
        for index in range(count):
            self._library.trirow_landing(self._handle, index, counters)
            landings.append(dict(zip(COUNTERS, map(int, counters), strict=True)))
        whole = landings[-1]["cycles"] if landings else 1
        return [Landing(values, seconds * values["cycles"] / whole) for values in landings]

    def _run(self, cycles: int) -> bool:
        interrupt = ctypes.c_int()
        self._check(self._library.trirow_run(self._handle, cycles, ctypes.byref(interrupt)))
        return bool(interrupt.value)

    def _write(self, name: str, value: int) -> None:
        offset = REGISTERS[name].offset
        self._check(self._library.trirow_write(self._handle, offset, value))

    def _read(self, name: str) -> int:
        value = ctypes.c_uint32()
        offset = REGISTERS[name].offset
        self._check(self._library.trirow_read(self._handle, offset, ctypes.byref(value)))
        return value.value

    def _check(self, status: int) -> None:
        if status:
            text = self._library.trirow_error().decode()
            raise BusError(text) if status == -2 else TimeoutError(text)


class _Probe(ctypes.Structure):
    """What the tracks and the details were in a cycle."""

    _fields_ = (("detail", ctypes.c_uint64), ("tracks", ctypes.c_uint32 * len(TRACKS)))


class BusError(AxiViolation):
    """A broken rule of the bus, with the text that the compiled checker gave it."""

    def __init__(self, text: str) -> None:
        AssertionError.__init__(self, text)


def _load(path: Path) -> Any:
    """Load a library and declare its functions."""
    library = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    text, integer = ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "trirow_error": (text, []),
        "trirow_open": (handle, [handle, u64, u64, text, u32]),
        "trirow_close": (None, [handle]),
        "trirow_write": (integer, [handle, u32, u32]),
        "trirow_read": (integer, [handle, u32, handle]),
        "trirow_run": (integer, [handle, u64, handle]),
        "trirow_trace": (integer, [handle, text, u64, u64]),
        "trirow_begin": (None, [handle]),
        "trirow_cycles": (u64, [handle]),
        "trirow_written": (u64, [handle]),
        "trirow_landings": (u64, [handle]),
        "trirow_landing": (None, [handle, u64, handle]),
        "trirow_probe": (None, [handle, handle]),
        "trirow_record": (None, [handle]),
        "trirow_forget": (None, [handle]),
        "trirow_recorded": (u64, [handle]),
        "trirow_changes": (u64, [handle]),
        "trirow_change": (handle, [handle]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library

"""What an engine is asked to run, and how the run ended; the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from trirow_hw.errors import ErrorCode, Unit

__all__ = [
    "HOST_PATIENCE",
    "INTERRUPT_ENABLE",
    "RESET",
    "START",
    "Job",
    "Landing",
    "RunResult",
]

#: Cycles in which the registers must answer.
HOST_PATIENCE = 1000

# Bits of the control register.
START, RESET, INTERRUPT_ENABLE = 1, 2, 1 << 8


@dataclass(frozen=True)
class Job:
    """What the host writes to the registers before a run.

    Parameters
    ----------
    descriptor : int
        Address of the first descriptor.
    base, limit : int
        Window of addresses that may be accessed, ``limit`` exclusive.
    watchdog : int
        Cycles without progress after which the run ends.
    reset_at : int or None
        Cycle of the run in which the host writes reset, for tests.
    """

    descriptor: int
    base: int
    limit: int
    watchdog: int = 100_000
    reset_at: int | None = None


@dataclass(frozen=True)
class Landing:
    """The moment in which the outputs of a pass had landed.

    Parameters
    ----------
    counters : dict
        The counters of the accelerator at the end of that cycle, by name.
    seconds : float
        Time that the simulation of the run had taken.
    """

    counters: dict[str, int]
    seconds: float


@dataclass
class RunResult:
    """How a run ended.

    Parameters
    ----------
    error : ErrorCode
        ``NONE`` if it was done (or reset).
    unit, index : Unit, int
        Where the error happened: unit and index of the pass.
    counters : dict
        The counters of the accelerator, by name.
    landed : list of Landing
        When the outputs of each pass had landed; the last one has the counters of the whole run.
    seconds : float
        Time that the simulation of this run took.
    waiting : str
        What each unit waited for when the watchdog ended the run; empty otherwise.
    """

    error: ErrorCode = ErrorCode.NONE
    unit: Unit = Unit.SEQUENCER
    index: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    landed: list[Landing] = field(default_factory=list)
    seconds: float = 0.0
    waiting: str = ""

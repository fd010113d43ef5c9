"""Run the accelerator of a device once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from trirow_driver.device.device import Device, DeviceError
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.supervisor import COUNTERS

__all__ = ["DeviceRun", "run"]

# Bits of the control register, and of the status register.
_START, _RESET = 1, 2
_BUSY, _DONE, _ERROR = 1, 2, 4

#: Seconds in which the memory must give back what was on the way when a run ends in an error.
_DRAIN = 5.0


@dataclass(frozen=True)
class DeviceRun:
    """How a run ended.

    Parameters
    ----------
    error : ErrorCode
        ``NONE`` if it was done.
    unit, index : Unit, int
        Where the error happened: unit and index of the pass.
    passes : int
        Passes whose outputs have landed.
    counters : dict
        The counters of the accelerator, by name.
    seconds : float
        From the start until the host saw the end.
    """

    error: ErrorCode
    unit: Unit
    index: int
    passes: int
    counters: dict[str, int]
    seconds: float


def run(
    device: Device,
    *,
    descriptor: int,
    base: int,
    limit: int,
    watchdog: int = 100_000,
    timeout: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> DeviceRun:
    """Start the accelerator, wait for its end and read how it was.

    Whatever interrupts the wait stops the accelerator.

    Parameters
    ----------
    device : Device
        With the image in its memory.
    descriptor : int
        Address of the first descriptor.
    base, limit : int
        Window of addresses that may be accessed, ``limit`` exclusive.
    watchdog : int
        Cycles without progress after which the run ends in an error; 0: never.
    timeout : float, optional
        Seconds after which to give up.
    progress : callable, optional
        Called now and then with the passes that have landed and the cycles so far.

    Raises
    ------
    DeviceError
        If the device fails, the run takes longer than ``timeout``, or the memory does not give
        back what was on the way. A run that the accelerator ends is no exception.
    """
    if device.read_register("status") & _BUSY:
        raise DeviceError(
            f"{device.name}: the accelerator is busy; wait for the other run's end, or reset it"
        )
    for name, value in (
        ("descriptor", descriptor),
        ("base", base),
        ("limit", limit),
        ("watchdog", watchdog),
    ):
        device.write_register(name, value)
    began = time.perf_counter()
    device.write_register("control", _START)
    try:
        _wait(device, _DONE | _ERROR, None if timeout is None else began + timeout, progress)
        seconds = time.perf_counter() - began
        while device.read_register("status") & _BUSY:
            if time.perf_counter() > began + seconds + _DRAIN:
                raise DeviceError(
                    f"{device.name}: the memory does not answer after an error; reset the board"
                )
    except BaseException:
        with contextlib.suppress(DeviceError):
            device.write_register("control", _RESET)
        raise
    error = device.read_register("error")
    return DeviceRun(
        error=ErrorCode(error & 0xFF),
        unit=Unit(error >> 8 & 0xFF),
        index=error >> 16,
        passes=device.read_register("passes"),
        counters={name: device.read_register(name) for name in COUNTERS},
        seconds=seconds,
    )


def _wait(
    device: Device,
    bits: int,
    deadline: float | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Poll the status until one of the bits is up."""
    while not device.read_register("status") & bits:
        if deadline is not None and time.perf_counter() > deadline:
            raise DeviceError(
                f"{device.name}: the run did not end in time; give it a longer timeout"
            )
        if progress is not None:
            progress(device.read_register("passes"), device.read_register("cycles"))

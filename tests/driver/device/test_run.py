import sys

import pytest

from trirow_driver.device import DeviceError, run
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.supervisor import COUNTERS


class ScriptedDevice:
    """Registers whose status goes through a list of values, the last one for ever."""

    name = "scripted"

    def __init__(self, statuses, **values):
        self.statuses = statuses
        self.values = dict.fromkeys((*COUNTERS, "error", "passes"), 0) | values
        self.written = []

    def read_register(self, name):
        if name != "status":
            return self.values[name]
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def write_register(self, name, value):
        self.written.append((name, value))


JOB = {"descriptor": 0x100, "base": 0x80, "limit": 0x9000}
SET_UP = [("descriptor", 0x100), ("base", 0x80), ("limit", 0x9000), ("watchdog", 500)]


def test_a_good_run():
    counters = {name: 10 + k for k, name in enumerate(COUNTERS)}
    device = ScriptedDevice([0, 1, 1, 2], passes=3, **counters)
    seen = []
    result = run(device, **JOB, watchdog=500, progress=lambda *facts: seen.append(facts))
    assert device.written == [*SET_UP, ("control", 1)]
    assert (result.error, result.index, result.passes) == (ErrorCode.NONE, 0, 3)
    assert result.counters == counters
    assert result.seconds >= 0
    assert seen == [(3, 10), (3, 10)]


def test_an_error_is_told_after_the_drain():
    device = ScriptedDevice([0, 1, 5, 5, 4], error=3 | 2 << 8 | 700 << 16)
    result = run(device, **JOB)
    assert (result.error, result.unit, result.index) == (
        ErrorCode.READ_RESPONSE,
        Unit.SECOND,
        700,
    )
    assert device.statuses == [4]


def test_a_busy_accelerator_is_left_alone():
    device = ScriptedDevice([1])
    with pytest.raises(DeviceError, match="scripted: the accelerator is busy"):
        run(device, **JOB)
    assert device.written == []


def test_timeout_stops_the_run():
    device = ScriptedDevice([0, 1])
    with pytest.raises(DeviceError, match="scripted: the run did not end in time"):
        run(device, **JOB, timeout=0.01)
    assert device.written[-1] == ("control", 2)


def test_an_interrupt_stops_the_run():
    def interrupt(passes, cycles):
        raise KeyboardInterrupt

    device = ScriptedDevice([0, 1])
    with pytest.raises(KeyboardInterrupt):
        run(device, **JOB, progress=interrupt)
    assert device.written[-1] == ("control", 2)


def test_a_memory_that_never_answers(monkeypatch):
    monkeypatch.setattr(sys.modules["trirow_driver.device.run"], "_DRAIN", 0.01)
    device = ScriptedDevice([0, 5])
    with pytest.raises(DeviceError, match="scripted: the memory does not answer after an error"):
        run(device, **JOB)

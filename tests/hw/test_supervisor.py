"""The supervisor: ends of a run, errors and whom they name, watchdog, reset, counters."""

import random

import pytest

from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.supervisor import COUNTERS, Supervisor
from trirow_sim.stream_kit import run

QUIET = 12  # cycles that the watchdog of these tests waits


class Bench:
    """A supervisor with the units and the host played by the test."""

    def __init__(self, ctx, unit):
        self.ctx, self.unit = ctx, unit
        self.names = [name for name in unit.signature.members if hasattr(unit, name)]

    def set(self, **values):
        for name, value in values.items():
            target = getattr(self.unit, name)
            if isinstance(value, dict):
                for field, part in value.items():
                    self.ctx.set(target[field], part)
            else:
                self.ctx.set(target, value)

    def get(self, name):
        return self.ctx.get(getattr(self.unit, name))

    @property
    def error(self):
        error = self.get("error")
        return ErrorCode(error.code), Unit(error.unit), error.index

    @property
    def counters(self):
        return {name: self.ctx.get(self.unit.counters[k]) for k, name in enumerate(COUNTERS)}

    async def tick(self, count=1, **strobes):
        """Let cycles pass; strobes are up in the first of them."""
        self.set(**strobes)
        await self.ctx.tick()
        self.set(**dict.fromkeys(strobes, 0))
        if count > 1:
            await self.ctx.tick().repeat(count - 1)

    async def start(self):
        """Start, and see that the units are reset up to two cycles before they begin."""
        assert self.get("units_reset")
        await self.tick(start=1)
        assert not self.get("begin")
        assert not self.get("units_reset")
        await self.tick()
        assert self.get("begin")
        assert self.get("busy")
        await self.tick()
        assert not self.get("begin")

    async def finish(self, passes=1):
        """Hand out that many passes and let their outputs land."""
        self.set(finished=1, passes=passes)
        for _ in range(passes):
            await self.tick(landed=1, handshake=1)
        await self.tick()
        assert not self.get("done")
        await self.tick(ports_idle=1)
        self.set(finished=0, passes=0)

    async def ends_with(self, code, unit, index):
        """Check an error, and the clean stop behind it."""
        assert self.error == (code, unit, index)
        assert not self.get("done")
        # Busy, and stopped, until nothing is on the way.
        for _ in range(5):
            assert self.get("busy")
            assert self.get("stop")
            assert self.get("units_reset")
            await self.tick()
        await self.tick(ports_idle=1)
        assert not self.get("busy")
        assert not self.get("stop")
        assert self.get("units_reset")
        await self.tick(3)
        assert self.error == (code, unit, index)
        assert not self.get("done")


def simulate(testbench):
    unit = Supervisor()

    async def wrapped(ctx):
        await testbench(Bench(ctx, unit))

    run(unit, wrapped, max_cycles=3000)


def test_idle():
    async def testbench(bench):
        for _ in range(5):
            assert bench.get("units_reset")
            for name in ("begin", "busy", "done", "stop"):
                assert not bench.get(name)
            assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
            await bench.tick()

    simulate(testbench)


@pytest.mark.parametrize("passes", [1, 2, 9])
def test_done(passes):
    async def testbench(bench):
        await bench.start()
        for landed in range(passes):
            assert bench.get("passes_landed") == landed
            assert not bench.get("done")
            await bench.tick(landed=1)
            await bench.tick(3)
        assert bench.get("busy")
        bench.set(finished=1, passes=passes)
        await bench.tick()
        # Something may be on the way that no output needed; it must not meet the next run.
        for _ in range(4):
            assert bench.get("busy")
            assert bench.get("stop")
            assert bench.get("units_reset")
            assert not bench.get("done")
            await bench.tick(start=1)
        await bench.tick(ports_idle=1)
        assert bench.get("done")
        assert not bench.get("busy")
        assert bench.get("units_reset")
        assert not bench.get("stop")
        assert bench.get("passes_landed") == passes
        bench.set(finished=0, passes=0)
        await bench.tick(5)
        assert bench.get("done")
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)

    simulate(testbench)


def test_not_done_before_all_outputs_have_landed():
    async def testbench(bench):
        await bench.start()
        bench.set(finished=1, passes=3)
        await bench.tick(4, landed=1)
        await bench.tick(4, landed=1)
        assert bench.get("busy")
        await bench.tick(landed=1)
        assert not bench.get("stop")
        await bench.tick()
        await bench.tick(ports_idle=1)
        assert bench.get("done")

    simulate(testbench)


@pytest.mark.parametrize("late", [0, 1])
def test_reset_while_a_run_that_is_done_drains(late):
    """The host wanted it stopped, so it is not done."""

    async def testbench(bench):
        await bench.start()
        bench.set(finished=1, passes=1)
        await bench.tick(landed=1)
        await bench.tick()
        bench.set(finished=0, passes=0)
        if late:
            await bench.tick(reset=1, ports_idle=1)
        else:
            await bench.tick(2, reset=1)
            await bench.tick(ports_idle=1)
        assert not bench.get("busy")
        assert not bench.get("done")
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        await bench.start()
        await bench.finish()
        assert bench.get("done")

    simulate(testbench)


def test_a_run_that_fails_behind_one_that_was_done():
    async def testbench(bench):
        await bench.start()
        await bench.finish()
        await bench.start()
        await bench.tick(bad=1)
        await bench.ends_with(ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 0)

    simulate(testbench)


def test_the_next_run_begins_afresh():
    async def testbench(bench):
        for passes in (2, 1):
            await bench.start()
            assert not bench.get("done")
            assert bench.get("passes_landed") == 0
            assert bench.counters == {name: 2 * (name == "cycles") for name in COUNTERS}
            await bench.tick(issued=1, read_beat=1, write_beat=1, handshake=1)
            await bench.finish(passes)
            assert bench.get("done")
            assert bench.counters["busy"] == 1
        await bench.start()
        await bench.tick(bad=1)
        await bench.ends_with(ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 0)
        await bench.start()
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        await bench.finish()
        assert bench.get("done")

    simulate(testbench)


def read_error(window, client, index):
    values = {"window": window, "client": client, "index": index}
    return {"read_error": values, "read_error_valid": 1}


def write_error(window, index):
    return {"write_error": {"window": window, "index": index}, "write_error_valid": 1}


ERRORS = [
    ({"bad": 1, "passes": 7}, ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 7),
    *(
        (
            read_error(window, unit, 300 + unit),
            ErrorCode.WINDOW if window else ErrorCode.READ_RESPONSE,
            unit,
            300 + unit,
        )
        for window in (0, 1)
        for unit in (Unit.SEQUENCER, Unit.FEATURES, Unit.SECOND, Unit.WEIGHTS)
    ),
    (write_error(0, 5), ErrorCode.WRITE_RESPONSE, Unit.WRITER, 5),
    (write_error(1, 0xFFFF), ErrorCode.WINDOW, Unit.WRITER, 0xFFFF),
]


def test_codes_of_the_units():
    """As docs/registers.md has them; drivers count on them."""
    names = ["SEQUENCER", "FEATURES", "SECOND", "WEIGHTS", "ARRAY", "WRITER"]
    assert [(unit.name, unit.value) for unit in Unit] == list(zip(names, range(6), strict=True))


@pytest.mark.parametrize(("values", "code", "unit", "index"), ERRORS)
def test_errors(values, code, unit, index):
    async def testbench(bench):
        await bench.start()
        await bench.tick(5)
        bench.set(**values)
        await bench.tick()
        # A strobe: the error must be kept, whatever follows.
        bench.set(**{name: 0 for name in values if not isinstance(values[name], dict)})
        bench.set(read_error={"window": 0, "client": 0, "index": 0})
        await bench.ends_with(code, unit, index)
        assert bench.get("passes_landed") == 0

    simulate(testbench)


def test_a_later_error_does_not_replace_the_first():
    async def testbench(bench):
        await bench.start()
        bench.set(**write_error(0, 3))
        await bench.tick()
        bench.set(write_error_valid=0, **read_error(1, 1, 9))
        await bench.ends_with(ErrorCode.WRITE_RESPONSE, Unit.WRITER, 3)

    simulate(testbench)


def test_an_error_in_the_last_cycle_counts():
    async def testbench(bench):
        await bench.start()
        bench.set(finished=1, passes=1)
        await bench.tick(landed=1)
        bench.set(**write_error(0, 0))
        await bench.tick()
        bench.set(write_error_valid=0)
        await bench.ends_with(ErrorCode.WRITE_RESPONSE, Unit.WRITER, 0)

    simulate(testbench)


def test_errors_between_runs_are_nobodys():
    async def testbench(bench):
        bench.set(bad=1, **read_error(1, 1, 1))
        await bench.tick(5)
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        assert not bench.get("busy")

    simulate(testbench)


STALL = {"features": 0, "weights": 0, "output": 0}
BLAME = [
    # The oldest burst on the way, if there is one; then what the array waits for.
    ({"waits_read": 1, "head": 0, "head_index": 4}, Unit.SEQUENCER, 4),
    ({"waits_read": 1, "head": 1, "head_index": 5, "waits_write": 1}, Unit.FEATURES, 5),
    ({"waits_read": 1, "head": 2, "head_index": 6}, Unit.SECOND, 6),
    ({"waits_read": 1, "head": 3, "head_index": 7}, Unit.WEIGHTS, 7),
    ({"waits_write": 1, "oldest": 8, "active": 9}, Unit.WRITER, 8),
    ({"stall": {**STALL, "features": 1}, "active": 9}, Unit.FEATURES, 9),
    ({"stall": {**STALL, "weights": 1}, "active": 10}, Unit.WEIGHTS, 10),
    ({"stall": {**STALL, "output": 1}, "active": 11}, Unit.WRITER, 11),
    ({"active": 12}, Unit.ARRAY, 12),
]


@pytest.mark.parametrize(("values", "unit", "index"), BLAME)
def test_watchdog(values, unit, index):
    async def testbench(bench):
        bench.set(watchdog=QUIET, **values)
        await bench.start()
        cycles = 0
        while not bench.get("stop"):
            await bench.tick()
            cycles += 1
            assert cycles <= QUIET + 2
        assert cycles >= QUIET - 2
        await bench.ends_with(ErrorCode.WATCHDOG, unit, index)

    simulate(testbench)


@pytest.mark.parametrize("progress", ["handshake", "issued"])
def test_progress_holds_the_watchdog_off(progress):
    async def testbench(bench):
        bench.set(watchdog=QUIET)
        await bench.start()
        for _ in range(6):
            await bench.tick(QUIET - 1, **{progress: 1})
        assert bench.get("busy")
        assert not bench.get("stop")
        await bench.tick(QUIET + 2, **{progress: 1})
        assert bench.get("stop")
        assert bench.error[0] == ErrorCode.WATCHDOG

    simulate(testbench)


def test_the_watchdog_can_be_switched_off():
    async def testbench(bench):
        await bench.start()
        await bench.tick(500)
        assert bench.get("busy")
        assert not bench.get("stop")

    simulate(testbench)


def test_the_watchdog_starts_afresh_in_each_run():
    async def testbench(bench):
        bench.set(watchdog=QUIET)
        await bench.start()
        await bench.tick(QUIET - 3)
        await bench.finish()
        assert bench.get("done")
        await bench.tick(3 * QUIET)
        await bench.start()
        await bench.tick(QUIET - 3)
        assert not bench.get("stop")

    simulate(testbench)


@pytest.mark.parametrize("on_the_way", [0, 1, 20])
def test_reset_in_the_middle(on_the_way):
    async def testbench(bench):
        await bench.start()
        await bench.tick(5, landed=1)
        await bench.tick(reset=1)
        for _ in range(on_the_way):
            assert bench.get("stop")
            assert bench.get("units_reset")
            assert bench.get("busy")
            await bench.tick()
        await bench.tick(ports_idle=1)
        assert not bench.get("busy")
        assert not bench.get("stop")
        assert not bench.get("done")
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        await bench.start()
        await bench.finish()
        assert bench.get("done")

    simulate(testbench)


def test_reset_wins_over_an_error():
    async def testbench(bench):
        await bench.start()
        await bench.tick(reset=1, bad=1)
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        assert bench.get("stop")

    simulate(testbench)


def test_reset_while_an_error_drains():
    async def testbench(bench):
        await bench.start()
        await bench.tick(bad=1)
        assert bench.error[0] == ErrorCode.DESCRIPTOR
        await bench.tick(reset=1)
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)
        assert bench.get("busy")
        await bench.tick(ports_idle=1)
        assert not bench.get("busy")
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)

    simulate(testbench)


def test_reset_forgets_how_the_last_run_ended():
    async def testbench(bench):
        await bench.start()
        await bench.finish()
        await bench.tick(reset=1)
        assert not bench.get("done")
        await bench.start()
        await bench.tick(bad=1)
        await bench.tick(2, ports_idle=1)
        assert not bench.get("busy")
        assert bench.error[0] == ErrorCode.DESCRIPTOR
        await bench.tick(reset=1)
        assert bench.error == (ErrorCode.NONE, Unit.SEQUENCER, 0)

    simulate(testbench)


def test_start_while_a_run_goes_on_does_nothing():
    async def testbench(bench):
        await bench.start()
        await bench.tick(landed=1)
        await bench.tick(start=1)
        assert not bench.get("begin")
        assert bench.get("passes_landed") == 1
        assert bench.get("busy")

    simulate(testbench)


@pytest.mark.parametrize("seed", range(4))
def test_counters(seed):
    """Each counter against a count of what was driven, over a run of random events."""
    generator = random.Random(seed)

    async def testbench(bench):
        expected = dict.fromkeys(COUNTERS, 0)
        await bench.start()
        for _ in range(200):
            stall = dict(STALL)
            issued = generator.random() < 0.5
            reason = generator.choice([None, *STALL])
            if not issued and reason:
                stall[reason] = 1
            values = {
                name: generator.randint(0, 1)
                for name in ("read_beat", "write_beat", "dependency", "handshake")
            }
            bench.set(issued=issued, stall=stall, **values)
            expected["busy"] += issued
            expected["beats_read"] += values["read_beat"]
            expected["beats_written"] += values["write_beat"]
            expected["stall_weights"] += stall["weights"]
            for reason in ("features", "output"):
                waits = "dependency" if values["dependency"] else reason
                expected[f"stall_{waits}"] += stall[reason]
            await bench.tick()
        bench.set(issued=0, stall=STALL, read_beat=0, write_beat=0)
        await bench.finish()
        assert bench.get("done")
        counters = bench.counters
        del expected["cycles"], counters["cycles"]
        assert counters == expected
        # They keep their values until the next start.
        kept = bench.counters
        bench.set(issued=1, read_beat=1)
        await bench.tick(5)
        assert bench.counters == kept

    simulate(testbench)


def test_cycles_are_those_in_which_a_run_goes_on():
    """The cycle in which the ports are found idle is not one of them."""

    async def testbench(bench):
        bench.set(ports_idle=1)
        for length in (0, 1, 37):
            busy = 0
            await bench.tick(start=1)
            while bench.get("busy"):
                busy += 1
                if busy > length:
                    bench.set(finished=1)
                await bench.tick()
            bench.set(finished=0)
            assert bench.counters["cycles"] == busy - 1

    simulate(testbench)

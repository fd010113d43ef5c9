# amaranth: UnusedElaboratable=no
"""Room behind the array: what is reserved, how fast results leave, which passes keep apart."""

from collections import deque

import pytest

from trirow_hw.config import PRESETS, SECOND_QUEUE
from trirow_hw.mac_array import MacArray
from trirow_hw.post_process import PostPass, PostProcess
from trirow_hw.requantise import Requantiser
from trirow_hw.results import RESULT_QUEUE
from trirow_sim.stream_kit import run, send
from trirow_sim.unit_kit import pack

CONFIG = PRESETS["tiny"]
PASS = {"zero_out": 0, "low": -128, "high": 127}


class Issuer:
    """Lets groups in as long as there is room, with sums of zero; counts what comes out."""

    def __init__(self, config, spec, *, columns, second=0, spacing=None):
        self.config, self.unit = config, PostProcess(config=config)
        self.spec, self.columns, self.second = {**PASS, **spec}, columns, second
        self.latency = MacArray(config=config).latency
        self.spacing = spacing or columns
        self.groups = self.taken = self.cycle = 0
        self.due = deque()

    async def cycles(self, ctx, count, *, ready, pass_end=0):
        """Go on for some cycles, with ``o.ready`` as it is told."""
        unit = self.unit
        values = {"lanes": self.columns * self.config.post_lanes, "columns": self.columns}
        values |= {"second": self.second, "pass_end": pass_end}
        word = pack(unit.tag.shape(), values)
        ctx.set(unit.tag.as_value(), word)
        ctx.set(unit.tag_there, 1)
        ctx.set(unit.o.ready, ready)
        for _ in range(count):
            valid = self.cycle % self.spacing == 0 and ctx.get(unit.room)
            ctx.set(unit.tag_valid, valid)
            if valid:
                self.groups += 1
                self.due.append(self.cycle + self.latency)
            done = bool(self.due) and self.due[0] == self.cycle
            if done:
                self.due.popleft()
            ctx.set(unit.done, done)
            *_, left = await ctx.tick().sample(unit.o.valid)
            self.taken += left and ready
            self.cycle += 1

    def run(self, testbench, *, seconds=0, passes=1):
        async def sender(ctx):
            await send(ctx, self.unit.i, [pack(PostPass, self.spec)] * passes)

        async def second_sender(ctx):
            await send(ctx, self.unit.second, [0] * seconds)

        # Not all of the second operand may be wanted.
        background = [sender, second_sender]
        run(self.unit, testbench, background=background, max_cycles=2000)


@pytest.mark.parametrize(
    ("columns", "spec", "pieces"),
    [(1, {}, 1), (2, {}, 1), (3, {"partial_out": 1}, 4), (3, {"combine": 1}, 1)],
)
def test_room_for_results(columns, spec, pieces):
    """With nobody taking outputs, as many whole groups get room as the queue holds columns."""
    second = int("combine" in spec)
    issuer = Issuer(CONFIG, spec, columns=columns, second=second)
    groups = RESULT_QUEUE // columns

    async def testbench(ctx):
        await issuer.cycles(ctx, 240, ready=0)
        # Two columns are in the registers behind the queue, unless they are in pieces.
        assert issuer.groups == (RESULT_QUEUE + 2 * (pieces == 1)) // columns
        issuer.groups = 0
        await issuer.cycles(ctx, 4 * columns, ready=1)
        await issuer.cycles(ctx, 100, ready=0)
        assert issuer.groups == 4 // pieces
        assert issuer.taken == 4 * columns
        await issuer.cycles(ctx, 300, ready=1)
        assert issuer.groups > groups // pieces

    issuer.run(testbench, seconds=400 * second)


def test_no_room_until_the_group_is_known():
    """A tag that nothing stands behind yet gives no room, be it for a group that is smaller."""
    unit = PostProcess(config=CONFIG)

    async def testbench(ctx):
        ctx.set(unit.tag.columns, 1)
        await ctx.tick().repeat(8)
        assert not ctx.get(unit.room)
        ctx.set(unit.tag.columns, 4)
        ctx.set(unit.tag_there, 1)
        assert not ctx.get(unit.room)
        await ctx.tick()
        assert ctx.get(unit.room)

    async def sender(ctx):
        await send(ctx, unit.i, [pack(PostPass, PASS)])

    run(unit, testbench, background=[sender])


@pytest.mark.parametrize("columns", [1, 4])
def test_room_for_second_operand(columns):
    """A group waits until all of its columns of the second operand are there."""
    issuer = Issuer(CONFIG, {"partial_in": 1}, columns=columns, second=1)

    async def testbench(ctx):
        await issuer.cycles(ctx, 200, ready=1)
        assert issuer.groups == 2 * columns - 1
        assert issuer.taken == issuer.groups * columns
        assert not ctx.get(issuer.unit.room)

    issuer.run(testbench, seconds=2 * columns * columns - 1)


def test_second_operand_is_taken_ahead():
    """Columns of the second operand are taken while no group needs them, up to a limit."""
    issuer = Issuer(CONFIG, {"partial_in": 1}, columns=1, second=1)
    unit = issuer.unit

    async def testbench(ctx):
        taken = 0
        ctx.set(unit.second.valid, 1)
        for _ in range(2 * SECOND_QUEUE):
            *_, ready = await ctx.tick().sample(unit.second.ready)
            taken += ready
        assert taken == SECOND_QUEUE

    run(unit, testbench, max_cycles=3 * SECOND_QUEUE)


@pytest.mark.parametrize(
    ("spec", "second", "cycles"), [({}, 0, 1), ({"partial_in": 1}, 1, 1), ({"combine": 2}, 1, 2)]
)
def test_throughput(spec, second, cycles):
    """A column a cycle; every other cycle if it goes to the requantisers twice."""
    issuer = Issuer(CONFIG, spec, columns=1, second=second, spacing=cycles)

    async def testbench(ctx):
        await issuer.cycles(ctx, 80, ready=1)
        before = issuer.taken
        await issuer.cycles(ctx, 100, ready=1)
        assert issuer.taken - before == 100 / cycles

    issuer.run(testbench, seconds=500 * second)


@pytest.mark.parametrize(("spec", "second"), [({}, 0), ({"partial_in": 1}, 1), ({"combine": 1}, 1)])
def test_gap_between_passes(spec, second):
    """Only behind a pass that combines the next one waits, until the last column has gone again."""
    issuer = Issuer(CONFIG, spec, columns=1, second=second)
    lookup = Requantiser(modes=issuer.config.requantise_modes).latency

    async def testbench(ctx):
        await issuer.cycles(ctx, 20, ready=1)
        groups = issuer.groups
        while issuer.groups == groups:
            await issuer.cycles(ctx, 1, ready=1, pass_end=1)
        groups, cycle = issuer.groups, issuer.cycle
        while issuer.groups == groups:
            await issuer.cycles(ctx, 1, ready=1)
        gap = issuer.cycle - cycle
        least = issuer.latency + lookup + 9
        assert least <= gap <= least + RESULT_QUEUE if spec.get("combine") else gap == 3

    issuer.run(testbench, passes=2, seconds=80 * second)


@pytest.mark.parametrize(("spec", "second", "trips"), [({}, 0, 1), ({"combine": 1}, 1, 2)])
def test_latency(spec, second, trips):
    """From the sums to the outputs."""
    issuer = Issuer(CONFIG, spec, columns=1, second=second, spacing=100)
    lookup = Requantiser(modes=CONFIG.requantise_modes).latency

    async def testbench(ctx):
        await issuer.cycles(ctx, 100, ready=1)
        assert issuer.taken == 0
        while not issuer.taken:
            await issuer.cycles(ctx, 1, ready=1)
        # The cycle before is that of the output.
        assert issuer.cycle - 1 == 100 + issuer.latency + trips * lookup + 2 + 7 * trips

    issuer.run(testbench, seconds=10 * second)

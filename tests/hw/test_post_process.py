# amaranth: UnusedElaboratable=no
"""Requantisation behind the array: constants, room under back-pressure, passes, partial groups."""

import random
from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Cat

from trirow_golden import encode_multiplier, requantise
from trirow_hw.config import CONSTANT_GROUPS, PRESETS
from trirow_hw.mac_array import MacArray
from trirow_hw.post_process import RESULT_QUEUE, PostPass, PostProcess
from trirow_sim.stream_kit import run, send, stalls
from trirow_sim.unit_kit import pack, unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f")},
    "one column": PRESETS["tiny"].override(post_lanes=4),
    "one lane": PRESETS["tiny"].override(out_lanes=1),
    "ragged column": PRESETS["tiny"].override(out_lanes=7, post_lanes=3),
}
STALLS = [(None, None), (1, None), (None, 2), (3, 4)]


class Group:
    """A lane group of one pixel: where its constants are, its sums, and what must come out."""

    def __init__(self, slot, lanes, sums, release, pass_end, index):
        self.slot, self.lanes, self.sums = slot, lanes, sums
        self.release, self.pass_end = release, pass_end
        self.index = index  # of its constants, counted from the start
        self.columns = []


def random_passes(generator, config, shapes):
    """Return parameters of the passes, all groups in order, and the constants of each group.

    A shape is (pixels, lane groups, channels of the last group).
    """
    passes, groups, constants = [], [], []
    for pixels, count, last_lanes in shapes:
        zero = generator.choice([-128, 127, generator.randint(-128, 127)])
        low, high = sorted(
            generator.choice([-128, 127, generator.randint(-128, 127)]) for _ in "ab"
        )
        passes.append({"zero_out": zero, "low": low, "high": high})
        first = len(constants)
        for _ in range(count):
            bias = [generator.randint(-(1 << 20), 1 << 20) for _ in range(config.out_lanes)]
            scale = [2.0 ** -generator.uniform(8, 20) for _ in range(config.out_lanes)]
            constants.append((np.array(bias, np.int64), np.array(scale, np.float32)))
        for pixel in range(pixels):
            for k in range(count):
                last = k == count - 1
                lanes = last_lanes if last else config.out_lanes
                sums = [generator.randint(-(1 << 22), 1 << 22) for _ in range(config.out_lanes)]
                ends = pixel == pixels - 1
                slot = (first + k) % CONSTANT_GROUPS
                group = Group(slot, lanes, sums, ends, ends and last, first + k)
                bias, scale = constants[first + k]
                acc = (np.array(sums) + bias).astype(np.int32)
                outputs = requantise(acc, scale, zero, low, high).tobytes()
                for column in range(config.stages):
                    begin = column * config.post_lanes
                    group.columns.append(outputs[begin : min(begin + config.post_lanes, lanes)])
                groups.append(group)
    return passes, groups, constants


def check(config, shapes, *, seed, array_stall=None, o_stall=None):
    generator = random.Random(repr(seed))
    passes, groups, constants = random_passes(generator, config, shapes)
    unit = PostProcess(config=config)
    latency = MacArray(config=config).latency
    stages = config.stages
    columns, released = [], []
    wanted = [column for group in groups for column in group.columns]

    async def sender(ctx):
        await send(ctx, unit.i, [pack(PostPass, values) for values in passes])

    async def testbench(ctx):
        tags, held, blocked = deque(groups), stalls(array_stall), stalls(o_stall)
        arriving = deque()  # cycle and group whose sums come then
        writes = deque(
            (index, lane) for index in range(len(constants)) for lane in range(config.out_lanes)
        )
        loaded = freed = 0
        expected_releases = deque()
        next_tag = cycle = 0
        sums_now, column = None, 0
        sampler = ctx.tick().sample(unit.o.valid, Cat(unit.o.payload.as_value()), unit.release)
        garbage = generator.getrandbits
        while len(columns) < len(wanted):
            # Constants: those of a group once its place is free; else something else, not valid.
            write_valid = 0
            value = garbage(unit.constant.shape().size)
            if writes and writes[0][0] < freed + CONSTANT_GROUPS:
                index, lane = writes.popleft()
                bias, scale = constants[index]
                mantissa, exponent = encode_multiplier(scale)
                data = int(bias[lane]) & 0xFFFF_FFFF
                data |= int(mantissa[lane]) << 32 | int(exponent[lane]) << 56
                slot = index % CONSTANT_GROUPS
                value = pack(unit.constant.shape(), {"group": slot, "lane": lane, "data": data})
                write_valid = 1
            ctx.set(unit.constant.as_value(), value)
            ctx.set(unit.constant_valid, write_valid)

            tag_valid = 0
            idle = next(held)
            due = tags and tags[0].index < loaded and cycle >= next_tag
            if due and not idle and ctx.get(unit.room):
                group = tags.popleft()
                values = {
                    "group": group.slot,
                    "lanes": group.lanes,
                    "release": group.release,
                    "pass_end": group.pass_end,
                }
                ctx.set(unit.tag.as_value(), pack(unit.tag.shape(), values))
                tag_valid = 1
                next_tag = cycle + stages
                arriving.append((cycle + latency, group))
            ctx.set(unit.tag_valid, tag_valid)

            done = 0
            if arriving and arriving[0][0] == cycle:
                sums_now, column, done = arriving.popleft()[1], 0, 1
                if sums_now.release:
                    expected_releases.append(cycle + stages - 1)
            ctx.set(unit.done, done)
            lanes = [garbage(31) for _ in range(config.post_lanes)]
            if sums_now:
                here = sums_now.sums[column * config.post_lanes :][: config.post_lanes]
                lanes[: len(here)] = here
                column += 1
                if column == stages:
                    sums_now = None
            ctx.set(unit.sums.as_value(), pack(unit.sums.shape(), lanes))

            ready = not next(blocked)
            ctx.set(unit.o.ready, ready)
            *_, valid, bits, release = await sampler
            if valid and ready:
                output = unpack(unit.o.payload.shape(), bits)
                raw = output["data"].to_bytes(config.post_lanes, "little")
                columns.append(raw[: output["count"]])
                assert columns[-1] == wanted[len(columns) - 1], f"column {len(columns) - 1}"
            if release:
                # Not before the last column has been looked up.
                assert cycle >= expected_releases.popleft()
                released.append(cycle)
                freed += 1
            if write_valid and lane == config.out_lanes - 1:
                loaded = index + 1
            cycle += 1
        for _ in range(stages + 10):
            *_, valid, _, release = await sampler
            assert not valid, "more outputs than there are"
            if release:
                released.append(cycle)
        assert ctx.get(unit.room)

    cycles = len(constants) * config.out_lanes + 30 * len(wanted) + 2000
    run(unit, sender, testbench, max_cycles=cycles)
    assert len(released) == len(constants)


def random_shapes(generator, config, count):
    return [
        (generator.randint(1, 5), generator.randint(1, 4), generator.randint(1, config.out_lanes))
        for _ in range(count)
    ]


@pytest.mark.parametrize(("array_stall", "o_stall"), STALLS)
@pytest.mark.parametrize("name", CONFIGS)
def test_passes(name, array_stall, o_stall):
    """Passes of one to a few groups, each with its own zero point and bounds."""
    config = CONFIGS[name]
    shapes = random_shapes(random.Random(f"{name} {o_stall}"), config, 10)
    check(config, shapes, seed=name, array_stall=array_stall, o_stall=o_stall)


@pytest.mark.parametrize("name", ["tiny", "odd", "ragged column"])
def test_every_number_of_lanes_in_the_last_group(name):
    """A column without channels is there all the same, and is empty."""
    config = CONFIGS[name]
    check(config, [(2, 2, lanes) for lanes in range(1, config.out_lanes + 1)], seed=name)


@pytest.mark.parametrize("o_stall", [None, 5])
@pytest.mark.parametrize("name", ["tiny", "odd", "one column"])
def test_places_of_constants_are_used_again(name, o_stall):
    """More groups than places: what is released is overwritten at once."""
    config = CONFIGS[name]
    lanes = config.out_lanes
    shapes = [(1, 40, lanes), (2, 30, 1), (1, 64, lanes), (1, 1, lanes), (1, 50, lanes)]
    check(config, shapes, seed=name, o_stall=o_stall)


@pytest.mark.parametrize("name", CONFIGS)
def test_room(name):
    """With nobody taking outputs, room lasts for as many whole groups as the queue holds."""
    config = CONFIGS[name]
    unit = PostProcess(config=config)
    latency = MacArray(config=config).latency
    stages = config.stages
    groups = RESULT_QUEUE // stages
    shape = unit.tag.shape()

    async def sender(ctx):
        await send(ctx, unit.i, [pack(PostPass, {"zero_out": 0, "low": -128, "high": 127})])

    async def testbench(ctx):
        async def cycles(count):
            nonlocal taken
            for _ in range(count):
                now = ctx.tick().sample(unit.o.valid, unit.o.ready)
                ctx.set(unit.done, cycle() in due)
                *_, valid, ready = await now
                taken += valid and ready
                step()

        count = taken = 0
        due = set()
        clock = [0]

        def cycle():
            return clock[0]

        def step():
            clock[0] += 1

        for _ in range(groups + 3):
            if ctx.get(unit.room):
                values = {"lanes": config.out_lanes, "group": 0, "release": 0, "pass_end": 0}
                ctx.set(unit.tag.as_value(), pack(shape, values))
                ctx.set(unit.tag_valid, 1)
                due.add(cycle() + latency)
                count += 1
                await cycles(1)
                ctx.set(unit.tag_valid, 0)
                await cycles(stages - 1)
            else:
                await cycles(stages)
        assert count == groups
        await cycles(latency + stages + 20)
        assert not ctx.get(unit.room)
        # One column short of a group there is still no room.
        leftover = RESULT_QUEUE - groups * stages
        ctx.set(unit.o.ready, 1)
        await cycles(stages - leftover - 1)
        ctx.set(unit.o.ready, 0)
        await cycles(2)
        assert not ctx.get(unit.room)
        ctx.set(unit.o.ready, 1)
        await cycles(1)
        ctx.set(unit.o.ready, 0)
        await cycles(2)
        assert ctx.get(unit.room)
        ctx.set(unit.o.ready, 1)
        await cycles(RESULT_QUEUE + 20)
        assert taken == groups * stages
        # Another group, which ends the pass, so that the sender is done.
        ctx.set(unit.tag.as_value(), pack(shape, {"lanes": 1, "release": 0, "pass_end": 1}))
        ctx.set(unit.tag_valid, 1)
        due.add(cycle() + latency)
        await cycles(1)
        ctx.set(unit.tag_valid, 0)
        await cycles(latency + stages + 30)
        assert taken == (groups + 1) * stages

    run(unit, sender, testbench, max_cycles=2000)

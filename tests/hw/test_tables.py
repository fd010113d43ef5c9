# amaranth: UnusedElaboratable=no
"""Lookup memories behind the array: each write is found, and only where it belongs."""

import random
from dataclasses import replace

import pytest
from amaranth.hdl import Cat, Value

from trirow_hw.config import CONSTANT_GROUPS, PRESETS
from trirow_hw.tables import TABLE_PLACES, Constants, Tables
from trirow_sim.stream_kit import run
from trirow_sim.unit_kit import feed, pack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "m256")},
    "one column": PRESETS["tiny"].override(post_lanes=4),
    "one lane": PRESETS["tiny"].override(out_lanes=1),
    "float32 only": replace(PRESETS["odd"], requantise_modes=("float32",)),
}


def bits_of(pieces):
    """Return values, each with its width, one behind the other from the lowest bit up."""
    word, place = 0, 0
    for value, width in pieces:
        word |= value << place
        place += width
    return word


@pytest.mark.parametrize("name", CONFIGS)
def test_constants(name):
    """Every channel of some groups, written in random order, while others are read."""
    config, generator = CONFIGS[name], random.Random(name)
    unit, width = Constants(config=config), config.post_lanes
    groups = generator.sample(range(CONSTANT_GROUPS), 6)
    writes = [(group, lane) for group in groups for lane in range(config.out_lanes)]
    generator.shuffle(writes)
    held, words, expected = {}, [], []
    layout = unit.constant.shape()
    for cycle in range(3 * len(writes)):
        group, column = generator.choice(groups), generator.randrange(config.stages)
        lanes = range(column * width, min((column + 1) * width, config.out_lanes))
        expected.append([held.get((group, lane)) for lane in lanes])
        valid = cycle % 2 == 0 and bool(writes)
        value = generator.getrandbits(96)
        if valid:
            where = writes.pop()
            if where[0] != group:  # a read that meets a write to its word is undefined
                held[where] = value
            else:
                writes.insert(0, where)
                valid = False
        else:
            where = generator.choice(groups), generator.randrange(config.out_lanes)
        constant = pack(layout, {"group": where[0], "lane": where[1], "data": value})
        words.append(
            bits_of(
                [
                    *((constant, layout.size), (int(valid), 1)),
                    *((group, len(unit.group)), (column, len(unit.column))),
                ]
            )
        )
    inputs = Cat(unit.constant.as_value(), unit.constant_valid, unit.group, unit.column)
    outputs = feed(unit, inputs, words, unit.o, after=unit.latency)[unit.latency :]
    seen = 0
    for output, lanes in zip(outputs, expected, strict=True):
        for k, value in enumerate(lanes):
            assert value is None or output >> 96 * k & ((1 << 96) - 1) == value
            seen += value is not None
    assert seen > len(words) // 4


@pytest.mark.parametrize("name", CONFIGS)
def test_tables(name):
    """Both tables in both places; each lane looks up a value of its own."""
    config, generator = CONFIGS[name], random.Random(name)
    unit, lanes = Tables(config=config), range(config.post_lanes)
    combines = "fixed" in config.requantise_modes
    entries = [
        (place, second, entry)
        for place in range(TABLE_PLACES)
        for second in range(2)
        for entry in generator.sample(range(256), 40)
    ]
    generator.shuffle(entries)
    held = {where: generator.getrandbits(32) for where in entries}
    layout = unit.table.shape()
    write, inputs = (
        Cat(unit.table.as_value(), unit.table_valid),
        Cat(Value.cast(unit.first), Value.cast(unit.second), unit.place),
    )

    async def testbench(ctx):
        for place, second, entry in entries:
            fields = {"place": place, "second": second, "entry": entry}
            ctx.set(
                write,
                pack(layout, {**fields, "data": held[place, second, entry]}) | 1 << layout.size,
            )
            await ctx.tick()
            ctx.set(write, generator.getrandbits(layout.size))
            await ctx.tick()
        for _ in range(100):
            place = generator.randrange(TABLE_PLACES)
            known = [[e for p, s, e in entries if (p, s) == (place, which)] for which in (0, 1)]
            chosen = [[generator.choice(known[which]) for _ in lanes] for which in (0, 1)]
            ctx.set(inputs, bits_of([*((e, 8) for e in chosen[0] + chosen[1]), (place, 1)]))
            await ctx.tick().repeat(unit.latency)
            for k in lanes:
                first = held[place, 0, chosen[0][k]]
                second = held[place, 1, chosen[1][k]]
                assert ctx.get(unit.o_first[k]) & 0xFF == first & 0xFF
                if combines:
                    assert ctx.get(unit.o_first[k]) & 0xFFFF_FFFF == first
                    assert ctx.get(unit.o_second[k]) & 0xFFFF_FFFF == second

    run(unit, testbench, max_cycles=1000)

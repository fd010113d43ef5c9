"""Pixels pass in order, each as soon as its features have been loaded."""

import random

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.pixel_gate import PixelGate
from trirow_sim.stream_kit import collect, run, send, stalls
from trirow_sim.unit_kit import pack, unpack

CONFIG = PRESETS["tiny"]
LAST = 60


def make_pixels(generator, unit, count, first_row):
    """Return pixels with growing needs, some of them with none."""
    shape, row, pixels = unit.i.payload.shape(), first_row, []
    for k in range(count):
        row += generator.choice([0, 0, 1, 2])
        needs = {
            "needs": generator.random() < 0.8,
            "need_row": row % 2**16,
            "need_words": generator.randrange(5),
            "retire": k,
        }
        pixels.append(pack(shape, {name: 0 for name, _ in shape} | {"starts": [0] * 3} | needs))
    return pixels, row


@pytest.mark.parametrize("first_row", [0, 2**16 - 5])
@pytest.mark.parametrize(("i_stall", "o_stall"), [(None, None), (1, None), (None, 2), (3, 4)])
def test_pixels_wait_for_their_features(i_stall, o_stall, first_row):
    generator = random.Random(f"{i_stall} {o_stall}")
    unit = PixelGate(config=CONFIG)
    pixels, last_row = make_pixels(generator, unit, LAST, first_row)
    shape = unit.i.payload.shape()
    taken = []

    async def driver(ctx):
        await send(ctx, unit.i, pixels, i_stall)

    async def loader(ctx):
        rows, words, before = first_row, 0, (first_row, 0)
        held = stalls(5)
        while len(taken) < LAST:
            ctx.set(unit.rows_loaded, rows % 2**16)
            ctx.set(unit.words_loaded, words)
            *_, valid, payload, waits = await ctx.tick().sample(
                unit.o.valid, unit.o.payload.as_value(), unit.waits
            )
            assert not (valid and waits)
            values = unpack(shape, payload)
            if valid and values["needs"]:
                row = first_row + (values["need_row"] - first_row) % 2**16
                assert before >= (row, values["need_words"])
            before = rows, words
            if rows <= last_row and not next(held):
                rows, words = (rows + 1, 0) if words == 4 else (rows, words + 1)

    async def consumer(ctx):
        for word in pixels:
            taken.extend(await collect(ctx, unit.o, 1, o_stall))
            assert taken[-1].as_bits() == word

    run(unit, driver, loader, consumer, max_cycles=5000)


def test_throughput():
    """A pixel a cycle, a cycle behind the input."""
    unit = PixelGate(config=CONFIG)
    pixels, _ = make_pixels(random.Random(1), unit, LAST, 0)

    async def testbench(ctx):
        ctx.set(unit.rows_loaded, 1000)
        ctx.set(unit.o.ready, 1)
        ctx.set(unit.i.valid, 1)
        for k, word in enumerate(pixels):
            ctx.set(unit.i.payload.as_value(), word)
            *_, ready, valid, payload = await ctx.tick().sample(
                unit.i.ready, unit.o.valid, unit.o.payload.as_value()
            )
            assert ready
            assert valid == (k > 0)
            assert not k or payload == pixels[k - 1]

    run(unit, testbench, max_cycles=200)

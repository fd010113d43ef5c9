"""The window against a model that looks at every byte of every kernel row."""

import random

import numpy as np
import pytest

from trirow_driver.program import pack_layers
from trirow_hw.config import PRESETS
from trirow_hw.errors import ErrorCode
from trirow_hw.window import Pixel, Window, WindowPass
from trirow_sim.job import Job
from trirow_sim.memory import Memory, make_memory
from trirow_sim.pysim import PysimEngine
from trirow_sim.stream_kit import collect, run, send
from trirow_sim.unit_kit import WindowModel, empty_layer, pack, random_geometry, unpack

STALLS = [(None, None), (1, None), (None, 2), (3, 4)]

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f")},
    # Rings that wrap around after a few rows.
    "tiny, short": PRESETS["tiny"].override(line_buffer_bytes=3 * 60 * 4),
    "odd, short": PRESETS["odd"].override(line_buffer_bytes=3 * 86 * 3),
}


def run_window(config, layers, *, i_stall=None, o_stall=None):
    """Run the passes of some layers; return the model's pixels and the unit's, each by pass."""
    model = WindowModel(config)
    all_fields = [model.fields(*layer) for layer in layers]
    passes = [
        pack(WindowPass, {name: fields[name] for name, _ in WindowPass}) for fields in all_fields
    ]
    expected = [model.walk(*layer) for layer in layers]
    total = sum(len(pixels) for pixels in expected)
    unit = Window(config=config)
    words = []

    async def driver(ctx):
        await send(ctx, unit.i, passes, i_stall)

    async def consumer(ctx):
        words.extend(await collect(ctx, unit.o, total, o_stall))
        for _ in range(20):
            assert not ctx.get(unit.o.valid), "more pixels than there are"
            await ctx.tick()

    run(unit, driver, consumer, max_cycles=20 * total + 100 * len(layers) + 200)
    shape = Pixel(config)
    unpacked = [unpack(shape, word.as_bits()) for word in words]
    seen = []
    for pixels in expected:
        seen.append(unpacked[: len(pixels)])
        del unpacked[: len(pixels)]
    return model, all_fields, expected, seen


def check(config, layers, **options):
    model, all_fields, expected, seen = run_window(config, layers, **options)
    for layer, fields, pixels, got in zip(layers, all_fields, expected, seen, strict=True):
        for k, (pixel, values) in enumerate(zip(pixels, got, strict=True)):
            wanted = model.payload(pixel, fields["run_words"], fields["row_words"])
            starts = wanted.pop("starts", None)
            assert {name: values[name] for name in wanted} == wanted, describe(layer, k)
            if starts:
                for place, wanted_place in zip(values["starts"], starts, strict=True):
                    assert wanted_place in (None, place), describe(layer, k)


def describe(geometry, pixel):
    layer, height, width = geometry
    return (
        f"pixel {pixel} of {height}x{width}x{layer.in_channels}, kernel {layer.kernel}, "
        f"stride {layer.stride}, pad {layer.pad}"
    )


def geometries(name, seed, count=12):
    generator = random.Random(f"{name} {seed}")
    config = CONFIGS[name]
    return [random_geometry(generator, config) for _ in range(count)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CONFIGS)
def test_passes_of_random_geometries(name, seed):
    """One pass after the other: the ring goes on where the one before ended."""
    check(CONFIGS[name], geometries(name, seed))


@pytest.mark.parametrize(("i_stall", "o_stall"), STALLS)
@pytest.mark.parametrize("name", ["tiny", "odd", "ecp5-85f"])
def test_stalls(name, i_stall, o_stall):
    check(CONFIGS[name], geometries(name, "stalls", 4), i_stall=i_stall, o_stall=o_stall)


@pytest.mark.parametrize(
    ("kernel", "channels", "stride", "pad", "height", "width"),
    [
        ((1, 1), 1, (1, 1), (0, 0, 0, 0), 1, 1),  # the smallest there is
        ((3, 3), 3, (1, 1), (1, 1, 1, 1), 5, 4),
        ((11, 11), 1, (4, 4), (5, 5, 5, 5), 9, 9),
        ((11, 1), 1, (1, 1), (10, 0, 10, 0), 3, 3),  # taller than the map
        ((1, 11), 1, (1, 1), (0, 10, 0, 10), 3, 3),  # wider than it
        ((2, 5), 3, (3, 2), (4, 7, 5, 9), 4, 3),  # padding wider than the kernel
        ((1, 1), 13, (4, 4), (0, 0, 0, 0), 9, 9),  # rows that no window needs
        ((2, 2), 13, (3, 4), (1, 1, 2, 2), 7, 6),
        ((1, 1), 1, (4, 4), (3, 3, 0, 0), 1, 1),  # all of it padding
        ((2, 2), 1, (4, 4), (2, 2, 0, 0), 1, 1),
        ((3, 3), 1, (1, 1), (4, 4, 4, 4), 1, 1),
        ((4, 4), 1, (4, 4), (0, 0, 0, 0), 8, 8),  # rows retire all at once
        ((5, 3), 2, (2, 3), (2, 0, 1, 2), 6, 7),
    ],
)
@pytest.mark.parametrize("name", ["tiny", "odd", "ecp5-85f"])
def test_geometry(name, kernel, channels, stride, pad, height, width):
    layer = empty_layer(kernel, channels, stride=stride, pad=pad)
    geometry = (layer, height, width)
    check(CONFIGS[name], [geometry, geometry])


@pytest.mark.parametrize("name", ["tiny", "odd", "ecp5-85f"])
def test_a_run_that_ends_in_the_padding(name):
    """Every tap is padding where the run ends, in the middle of a word, before the row begins."""
    lanes = CONFIGS[name].in_lanes
    columns = lanes + 1
    layer = empty_layer((1, columns), 1, pad=(0, columns, 0, 0))
    check(CONFIGS[name], [(layer, 1, 4)])


def issued_taps(values, run_words):
    """Return the taps that a pixel's demands make: (kernel row, word of the run), and its mask."""
    if values["empty"]:
        return {}
    skipped = values["skipped_words"] // run_words
    taps = {}
    for row in range(values["rows"]):
        for word in range(values["words"] + 1):
            low = values["mask_low"] if word == 0 else 0
            high = values["mask_high"] if word == values["words"] else None
            taps[skipped + row, values["first_word"] + word] = (low, high)
    return taps


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGS)
def test_taps_that_are_left_out(name, seed):
    """Brute force: a tap is left out where all of its bytes are padding, and nowhere else.

    The mask of those that remain covers exactly the bytes inside map and run.
    """
    config = CONFIGS[name]
    lanes = config.in_lanes
    layers = geometries(name, f"taps {seed}", 8)
    _, all_fields, _, seen = run_window(config, layers)
    for geometry, fields, got in zip(layers, all_fields, seen, strict=True):
        layer, height, width = geometry
        (rows, columns), (stride_y, stride_x) = layer.kernel, layer.stride
        channels = layer.in_channels
        _, out_columns = layer.output_shape(height, width)
        for k, values in enumerate(got):
            y, x = divmod(k, out_columns)
            wanted = {}
            for r in range(rows):
                in_y = y * stride_y + r - layer.pad[0]
                for s in range(columns):
                    in_x = x * stride_x + s - layer.pad[1]
                    for c in range(channels):
                        if 0 <= in_y < height and 0 <= in_x < width:
                            byte = s * channels + c
                            wanted.setdefault((r, byte // lanes), []).append(byte % lanes)
            taps = issued_taps(values, fields["run_words"])
            assert taps.keys() == wanted.keys(), describe(geometry, k)
            for tap, inside in wanted.items():
                low, high = taps[tap]
                mask = list(range(low, lanes if high is None else high))
                assert mask == inside, describe(geometry, k)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGS)
def test_places_are_freed_once_and_never_too_early(name, seed):
    """Follow `keep_from` and `retire` over several passes; look at what every read touches."""
    config = CONFIGS[name]
    lanes = config.in_lanes
    layers = geometries(name, f"free {seed}", 8)
    _, all_fields, expected, seen = run_window(config, layers)
    oldest = fetched = 0
    for geometry, fields, pixels, got in zip(layers, all_fields, expected, seen, strict=True):
        fetched += fields["rows"]
        freed = 0
        for k, (pixel, values) in enumerate(zip(pixels, got, strict=True)):
            if not pixel.empty:
                assert pixel.first_row >= oldest, describe(geometry, k)
                if pixel.first_row == oldest:
                    first = (
                        pixel.position + min(pixel.taps) * lanes + min(pixel.taps[min(pixel.taps)])
                    )
                    assert first // lanes >= freed, describe(geometry, k)
            if values["row_end"]:
                oldest += values["retire"]
                freed = 0
            elif values["frees"]:
                assert values["keep_from"] >= freed, describe(geometry, k)
                freed = values["keep_from"]
            assert freed <= fields["row_words"]
        assert oldest == fetched, describe(geometry, "any")


def test_a_long_row_that_no_window_needs():
    """All is padding; the row that is fetched all the same is longer than its bank."""
    config = PRESETS["tiny"].override(post_lanes=4)
    layer = empty_layer((1, 1), 64, stride=(4, 1), pad=(3, 0, 0, 0))
    features = np.zeros((1, 1, 100, 64), np.int8)
    program = pack_layers([layer], features, config)
    size = len(program.image.data)
    storage = Memory(size)
    storage.data[:] = program.image.data
    engine = PysimEngine(config, make_memory("ideal", storage, config.bus_bytes))
    (result,) = engine.run([Job(descriptor=0, base=0, limit=size, watchdog=300)], max_cycles=5000)
    assert result.error == ErrorCode.NONE


def test_throughput():
    """A pixel a cycle within an output row."""
    layer = empty_layer((3, 3), 2, pad=(1, 1, 1, 1))
    config = PRESETS["tiny"]
    model = WindowModel(config)
    fields = model.fields(layer, 4, 40)
    word = pack(WindowPass, {name: fields[name] for name, _ in WindowPass})
    unit = Window(config=config)
    cycles = []

    async def testbench(ctx):
        ctx.set(unit.i.payload.as_value(), word)
        ctx.set(unit.i.valid, 1)
        ctx.set(unit.o.ready, 1)
        cycle = 0
        while len(cycles) < 4 * 40:
            *_, valid, ready = await ctx.tick().sample(unit.o.valid, unit.i.ready)
            if ready:
                ctx.set(unit.i.valid, 0)
            if valid:
                cycles.append(cycle)
            cycle += 1

    run(unit, testbench, max_cycles=4 * 40 + 100)
    for row in range(4):
        here = cycles[40 * row : 40 * (row + 1)]
        assert here == list(range(here[0], here[0] + 40))
        if row:
            assert here[0] - cycles[40 * row - 1] <= layer.stride[0] + 3

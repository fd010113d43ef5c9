"""The window against a model that looks at every byte of every kernel row."""

import random

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.window import Pixel, Window, WindowPass
from trirow_sim.stream_kit import collect, run, send
from trirow_sim.tap_kit import Geometry, pass_fields, random_geometry
from trirow_sim.unit_kit import pack, unpack
from trirow_sim.window_model import WindowModel

STALLS = [(None, None), (1, None), (None, 2), (3, 4)]
OPS = ("dense", "depthwise")

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-85f", "m256")},
    # Rings that wrap around after a few rows.
    "tiny, short": PRESETS["tiny"].override(line_buffer_bytes=3 * 60 * 4),
    "odd, short": PRESETS["odd"].override(line_buffer_bytes=3 * 86 * 3),
}


def run_window(config, geometries, *, i_stall=None, o_stall=None):
    """Run passes; return the model's pixels and the unit's, each by pass."""
    model = WindowModel(config)
    passes = []
    for geometry in geometries:
        fields = pass_fields(geometry, config)
        passes.append(pack(WindowPass, {name: fields[name] for name, _ in WindowPass}))
    expected = [model.walk(geometry) for geometry in geometries]
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

    steps = sum(each.out_shape[0] * each.stride[0] + 100 for each in geometries)
    run(unit, driver, consumer, max_cycles=20 * total + steps + 200)
    shape = Pixel(config)
    unpacked = [unpack(shape, word.as_bits()) for word in words]
    seen = []
    for pixels in expected:
        seen.append(unpacked[: len(pixels)])
        del unpacked[: len(pixels)]
    return model, expected, seen


def check(config, geometries, **options):
    model, expected, seen = run_window(config, geometries, **options)
    for geometry, pixels, got in zip(geometries, expected, seen, strict=True):
        for k, (pixel, values) in enumerate(zip(pixels, got, strict=True)):
            wanted = model.payload(geometry, pixel)
            starts = wanted.pop("starts", None)
            assert {name: values[name] for name in wanted} == wanted, f"pixel {k} of {geometry}"
            if starts:
                for place, wanted_place in zip(values["starts"], starts, strict=True):
                    assert wanted_place in (None, place), f"pixel {k} of {geometry}"


def random_geometries(name, seed, count=12):
    generator = random.Random(f"{name} {seed}")
    return [random_geometry(generator, CONFIGS[name], ops=OPS) for _ in range(count)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CONFIGS)
def test_passes_of_random_geometries(name, seed):
    """One pass after the other: the ring goes on where the one before ended."""
    check(CONFIGS[name], random_geometries(name, seed))


@pytest.mark.parametrize(("i_stall", "o_stall"), STALLS)
@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_stalls(name, i_stall, o_stall):
    check(CONFIGS[name], random_geometries(name, "stalls", 6), i_stall=i_stall, o_stall=o_stall)


@pytest.mark.parametrize("op", OPS)
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
        ((255, 255), 1, (255, 255), (254, 254, 254, 254), 3, 2),  # the largest there is
    ],
)
@pytest.mark.parametrize("name", ["odd", "ecp5-85f"])
def test_geometry(name, kernel, channels, stride, pad, height, width, op):
    geometry = Geometry(kernel, stride, pad, height, width, channels, op=op)
    check(CONFIGS[name], [geometry, geometry])


@pytest.mark.parametrize("name", ["tiny", "odd", "ecp5-85f"])
def test_a_run_that_ends_in_the_padding(name):
    """Every tap is padding where the run ends, in the middle of a word, before the row begins."""
    columns = CONFIGS[name].in_lanes + 1
    check(CONFIGS[name], [Geometry((1, columns), (1, 1), (0, columns, 0, 0), 1, 4, 1)])


def issued_taps(geometry, values, run_words):
    """Return the taps that a pixel's demands make: (kernel row, tap of the row), and its mask."""
    if values["empty"]:
        return {}
    skipped = values["skipped_rows"]
    if not geometry.depthwise:
        assert values["skipped_words"] == skipped * run_words
    taps = {}
    for row in range(values["rows"]):
        for word in range(values["words"] + 1):
            low = values["mask_low"] if word == 0 else 0
            high = values["mask_high"] if word == values["words"] else None
            taps[skipped + row, values["first_word"] + word] = (low, high)
    return taps


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CONFIGS)
def test_taps_that_are_left_out(name, seed):
    """Brute force: a tap is left out where all of its bytes are padding, and nowhere else.

    The mask of those that remain covers exactly the bytes inside map and run; that of a kernel
    column covers all lanes.
    """
    config = CONFIGS[name]
    lanes = config.in_lanes
    geometries = random_geometries(name, f"taps {seed}", 8)
    _, _, seen = run_window(config, geometries)
    for geometry, got in zip(geometries, seen, strict=True):
        (rows, columns), (stride_y, stride_x) = geometry.kernel, geometry.stride
        channels, run_words = geometry.channels, pass_fields(geometry, config)["run_words"]
        for k, values in enumerate(got):
            y, x = divmod(k, geometry.out_shape[1])
            wanted = {}
            for r in range(rows):
                in_y = y * stride_y + r - geometry.pad[0]
                for s in range(columns):
                    in_x = x * stride_x + s - geometry.pad[1]
                    if not (0 <= in_y < geometry.height and 0 <= in_x < geometry.width):
                        continue
                    if geometry.depthwise:
                        wanted[r, s] = list(range(lanes))
                        continue
                    for byte in range(s * channels, (s + 1) * channels):
                        wanted.setdefault((r, byte // lanes), []).append(byte % lanes)
            taps = issued_taps(geometry, values, run_words)
            assert taps.keys() == wanted.keys(), f"pixel {k} of {geometry}"
            for tap, inside in wanted.items():
                low, high = taps[tap]
                mask = list(range(low, lanes if high is None else high))
                assert mask == inside, f"pixel {k} of {geometry}"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CONFIGS)
def test_places_are_freed_once_and_never_too_early(name, seed):
    """Follow `keep_from` and `retire` over several passes; look at what every read touches."""
    config = CONFIGS[name]
    lanes = config.in_lanes
    geometries = random_geometries(name, f"free {seed}", 8)
    _, expected, seen = run_window(config, geometries)
    oldest = fetched = 0
    for geometry, pixels, got in zip(geometries, expected, seen, strict=True):
        fields = pass_fields(geometry, config)
        fetched += fields["rows"]
        freed = 0
        for k, (pixel, values) in enumerate(zip(pixels, got, strict=True)):
            where = f"pixel {k} of {geometry}"
            if not pixel.empty:
                assert pixel.first_row >= oldest, where
                if pixel.first_row == oldest:
                    first = min(pixel.taps)
                    byte = pixel.position + first * lanes + min(pixel.taps[first])
                    assert byte // lanes >= freed, where
            if values["row_end"]:
                oldest += values["retire"]
                freed = 0
            elif values["frees"]:
                assert values["keep_from"] >= freed, where
                freed = values["keep_from"]
            assert freed <= fields["row_words"]
        assert oldest == fetched, geometry


@pytest.mark.parametrize("op", OPS)
def test_throughput(op):
    """A pixel a cycle within an output row, with a few cycles in between."""
    geometry = Geometry((3, 3), (1, 1), (1, 1, 1, 1), 4, 40, 2, op=op)
    config = PRESETS["tiny"]
    fields = pass_fields(geometry, config)
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
    assert cycles[0] == 6
    for row in range(4):
        here = cycles[40 * row : 40 * (row + 1)]
        assert here == list(range(here[0], here[0] + 40))
        if row:
            assert here[0] - cycles[40 * row - 1] == geometry.stride[0] + 5

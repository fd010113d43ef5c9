"""Cases at the edges of what the units do, each by name."""

from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.program import INPUT, Node, chain, pack_layers
from trirow_driver.quantise import Quantisation
from trirow_hw.config import PRESETS
from trirow_hw.errors import ErrorCode
from trirow_sim.job import Job
from trirow_sim.memory import MEMORY_MODELS, Memory, make_memory
from trirow_sim.pysim import PysimEngine

from .kit import BASE, ODD, TINY, Bench, lay_out, make_layer, make_map, single


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def run(rng, shape, config=TINY, memory="random", *, options=None, **layer):
    """Run one layer on a feature map of the shape (H, W, C)."""
    conv = make_layer(rng, channels=shape[2], **layer)
    case = single(conv, make_map(rng, *shape), config, **options or {})
    return Bench(config, memory).run([case])[0]


# Shapes


def test_output_of_one_pixel(rng):
    run(rng, (3, 3, 5), kernel=(3, 3))
    run(rng, (1, 1, 1), kernel=(1, 1), filters=1)


def test_input_smaller_than_the_kernel(rng):
    run(rng, (2, 3, 4), kernel=(5, 7), pad=(2, 3, 2, 3))


def test_padding_wider_than_the_kernel(rng):
    run(rng, (4, 3, 3), ODD, kernel=(3, 2), pad=(5, 4, 6, 7), zero_in=-77)


def test_windows_that_all_lie_in_the_padding(rng):
    run(rng, (2, 2, 3), kernel=(1, 1), stride=(4, 4), pad=(1, 1, 0, 0))
    run(rng, (1, 1, 3), kernel=(2, 2), stride=(4, 4), pad=(6, 6, 0, 0), filters=10)


@pytest.mark.parametrize("stride", [(4, 1), (1, 4), (3, 4), (4, 3)])
def test_stride_larger_than_the_kernel(rng, stride):
    run(rng, (10, 11, 5), kernel=(2, 2), stride=stride, pad=(1, 0, 1, 2))


@pytest.mark.parametrize("channels", [1, 3, 13])
def test_channels_that_fill_no_lanes(rng, channels):
    layers = [
        make_layer(rng, kernel=(3, 2), channels=channels, filters=filters, pad=(1, 1, 1, 0))
        for filters in (1, 10, 17)
    ]
    Bench(TINY).run([single(layer, make_map(rng, 3, 4, channels), TINY) for layer in layers])


def test_rows_shorter_than_a_word(rng):
    config = PRESETS["ecp5-85f"]
    layers = [
        (make_layer(rng, kernel=(3, 2), channels=3, filters=18), make_map(rng, 14, 2, 3)),
        (make_layer(rng, kernel=(3, 1), channels=1, filters=2), make_map(rng, 9, 1, 1)),
        (
            make_layer(rng, kernel=(1, 1), channels=1, filters=2, stride=(2, 1)),
            make_map(rng, 9, 1, 1),
        ),
    ]
    Bench(config).run([single(layer, features, config) for layer, features in layers])


def test_largest_kernel_with_largest_strides(rng):
    run(rng, (13, 11, 2), kernel=(11, 11), stride=(4, 3), filters=5, pad=(2, 5, 1, 0))


# Places in memory


def test_regions_that_are_not_multiples_of_the_bus(rng):
    config = TINY.override(bus_bytes=8)
    layer = make_layer(rng, channels=3, filters=7)
    features = make_map(rng, 4, 5, 3)
    places = [{"input": place, "blob.conv": 63 - place} for place in (0, 1, 3, 7, 31)]
    Bench(config).run([single(layer, features, config, places=place) for place in places])


def test_outputs_that_share_a_beat(rng):
    config = TINY.override(bus_bytes=32)
    run(rng, (3, 5, 4), config, filters=9, options={"cut": 256, "places": {"blob.conv": 29}})


@pytest.mark.slow
def test_bursts_that_meet_a_4_kb_boundary(rng):
    """The input, the weights and the output each lie across a multiple of 4096."""
    layer = make_layer(rng, kernel=(3, 3), channels=12, filters=12, pad=(1, 1, 1, 1))
    features = make_map(rng, 5, 5, 12)
    starts = range(BASE, BASE + 4096, 64)
    crossed = set()
    cases = []
    for start in starts:
        case = single(layer, features, TINY, start=start)
        field = case.fields[0]
        spans = {
            "input": (field["in_address"], field["in_bytes"]),
            "weights": (field["weight_address"], field["weight_bytes"]),
            "output": (field["out_address"], field["out_bytes"]),
        }
        new = {name for name, (at, size) in spans.items() if at // 4096 != (at + size - 1) // 4096}
        if not new <= crossed:
            crossed |= new
            cases.append(case)
    assert crossed == {"input", "weights", "output"}
    Bench(TINY.override(bus_bytes=8)).run(cases)


@pytest.mark.parametrize("base", [0xF00, 0x1E00])
def test_descriptors_on_both_sides_of_a_4_kb_boundary(rng, base):
    """An image may lie at any multiple of the size of a descriptor."""
    features = make_map(rng, 3, 4, 4)
    layer = make_layer(rng, filters=14)
    config = TINY.override(weight_buffer_bytes=256)
    program = pack_layers([layer], features, config, base=base)
    assert program.steps[0].passes == 4
    image = program.image
    memory = Memory(len(image.data), base=base)
    memory.write(base, image.data)
    engine = PysimEngine(config, make_memory("ideal", memory, config.bus_bytes))
    job = Job(image.address("descriptors"), base, base + len(image.data), watchdog=2000)
    assert engine.run([job], max_cycles=50_000)[0].error == ErrorCode.NONE
    expected = layer.golden(features)
    assert memory.read(image.address("blob.conv"), expected.size) == expected.tobytes()


# Buffers


def test_weight_buffer_is_full_while_features_wait_behind_it(rng):
    """Chunks that fill the buffer, with rows to fetch before the first of them is done."""
    config = TINY.override(weight_buffer_bytes=16 * 36, line_buffer_bytes=600)
    run(rng, (6, 5, 16), config, "nngen", filters=12)


def test_weight_buffer_of_one_group(rng):
    config = TINY.override(weight_buffer_bytes=16 * 18)
    result = run(rng, (5, 5, 8), config, filters=11)
    assert result.counters["stall_weights"] > 0


@pytest.mark.parametrize(("line_buffer_bytes", "memory"), [(96, "random"), (168, "ideal")])
def test_line_buffer_that_is_full_nearly_always(rng, memory, line_buffer_bytes):
    """Rows arrive faster than they are used, so each waits for the places of an earlier one."""
    config = TINY.override(line_buffer_bytes=line_buffer_bytes)
    thin = make_layer(rng, kernel=(1, 1), filters=20)
    thick = make_layer(rng, kernel=(3, 3), filters=8, pad=(1, 1, 1, 1))
    maps = make_map(rng, 30, 1, 4), make_map(rng, 16, 3, 4)
    Bench(config, memory).run([single(thin, maps[0], config), single(thick, maps[1], config)])


@pytest.mark.parametrize("bus_bytes", [4, pytest.param(128, marks=pytest.mark.slow)])
def test_short_rows_with_gaps_and_two_chunks(rng, bus_bytes):
    """Rows of one byte: many lie beyond the room that there is, each in a beat of its own."""
    config = TINY.override(line_buffer_bytes=100, bus_bytes=bus_bytes)
    options = {"cut": 256}
    run(rng, (60, 1, 1), config, kernel=(1, 1), stride=(2, 1), filters=80, options=options)


@pytest.mark.parametrize(("line_buffer_bytes", "memory"), [(336, "random"), (360, "ideal")])
def test_rows_longer_than_a_bank(rng, line_buffer_bytes, memory):
    """Kernels of one row stream: places are taken and freed word by word."""
    config = TINY.override(line_buffer_bytes=line_buffer_bytes)
    assert config.line_bank_words * config.in_lanes < 40 * 5
    options = {"kernel": (1, 3), "channels": 5, "filters": 3, "pad": (1, 2, 0, 1)}
    layers = [make_layer(rng, stride=(stride, stride), **options) for stride in (1, 2)]
    setups = [single(layer, make_map(rng, 3, 40, 5), config) for layer in layers]
    assert all(len(setup.fields) == 1 for setup in setups)
    Bench(config, memory).run(setups)


@pytest.mark.slow
def test_window_and_step_as_long_as_a_bank(rng):
    """A pixel fills its bank, and the next one is a stride of several banks away."""
    channels = TINY.line_bank_words * TINY.in_lanes
    options = {"channels": channels, "filters": 2, "stride": (1, 4), "pad": (1, 5, 0, 4)}
    config = TINY.override(weight_buffer_bytes=1 << 15)
    layers = [make_layer(rng, kernel=kernel, **options) for kernel in [(1, 1), (3, 1), (2, 3)]]
    features = make_map(rng, 3, 1, channels)
    Bench(config).run([single(layer, features, config) for layer in layers])


def test_stride_frees_words_that_are_not_there_yet(rng):
    """Behind a pixel in the padding, words of a row are free before the row is asked for."""
    config = TINY.override(line_buffer_bytes=3000)
    first = make_layer(rng, "first", kernel=(1, 1), filters=240, zero_out=-5)
    second = make_layer(
        rng, "second", kernel=(1, 1), channels=240, stride=(1, 4), pad=(0, 3, 0, 0), zero_in=-5
    )
    features = {INPUT: make_map(rng, 1, 4, 4)}
    Bench(config, "ideal").run([lay_out(chain([first, second]), features, config)])


@pytest.mark.parametrize("rows", [3, 4])
def test_line_buffer_that_fits_exactly(rng, rows):
    """A granule less, 2 words in each bank, and the layer is cut into strips."""
    width, channels = 12, 5
    layer = make_layer(rng, "exact", kernel=(rows, 3), channels=channels)
    pitch = -(-width * channels // (2 * TINY.in_lanes)) * 2
    size = 3 * -(-rows // 3) * pitch * TINY.in_lanes
    config = TINY.override(line_buffer_bytes=size)
    features = make_map(rng, 8, width, channels)
    whole = single(layer, features, config)
    Bench(config).run([whole])

    one_less = config.override(line_buffer_bytes=size - 6 * TINY.in_lanes)
    strips = single(layer, features, one_less)
    Bench(one_less).run([strips])
    assert (len(whole.fields), len(strips.fields)) == (1, 2)


def test_many_chunks_give_the_same_bytes_as_one(rng):
    layer = make_layer(rng, channels=9, filters=14, pad=(1, 1, 1, 1))
    features = make_map(rng, 3, 3, 9)
    setups = [single(layer, features, TINY, cut=size) for size in (None, 16 * 54, 16 * 21)]
    Bench(TINY).run(setups)
    assert len(setups[0].fields) == 1
    assert len(setups[2].fields) == 4


# Runs one after the other


def test_different_jobs_back_to_back(rng):
    small = make_layer(rng, kernel=(1, 1), channels=3, filters=5, zero_in=127, zero_out=-128)
    large = make_layer(rng, kernel=(3, 5), channels=8, filters=11, stride=(2, 1), low=0, high=50)
    cases = [
        single(small, make_map(rng, 4, 5, 3), ODD, seed=1),
        single(large, make_map(rng, 5, 7, 8), ODD, seed=2, cut=700),
        single(small, make_map(rng, 3, 9, 3), ODD, seed=3),
    ]
    Bench(ODD).run(cases)


def test_same_job_twice(rng):
    layer = make_layer(rng, channels=6, filters=9)
    first = single(layer, make_map(rng, 5, 4, 6), TINY)
    other = single(layer, make_map(rng, 5, 4, 6), TINY)
    results = Bench(TINY, "ideal").run([first, first, other, first])
    assert results[0].counters == results[1].counters == results[3].counters


def test_reset_in_the_middle(rng):
    """The run after a reset is right, whenever the reset came."""
    layer = make_layer(rng, channels=8, filters=9, pad=(1, 1, 1, 1))
    case = single(layer, make_map(rng, 3, 4, 8), TINY, cut=320)
    reset = (ErrorCode.NONE, None, None)
    steps = []
    for cycle in (1, 40, 77, 150, 301):
        steps += [(case, replace(case.job, reset_at=cycle), reset), (case, case.job, None)]
    Bench(TINY).run_steps(steps)


# Values


def test_zero_points_at_the_ends(rng):
    layers = [
        make_layer(rng, channels=3, zero_in=zero_in, zero_out=zero_out, pad=(1, 1, 1, 1))
        for zero_in in (-128, 127)
        for zero_out in (-128, 127)
    ]
    Bench(TINY).run([single(layer, make_map(rng, 3, 4, 3), TINY) for layer in layers])


def test_clip_bounds(rng):
    run(rng, (4, 5, 3), ODD, zero_out=-10, low=-10, high=20, filters=6)
    run(rng, (4, 5, 3), ODD, low=7, high=7, filters=6)


def constant_layer(biases, multipliers, zero_out=0):
    """Return a 1x1 layer of one channel whose sums are the input plus the biases."""
    filters = len(biases)
    return ConvLayer(
        "values",
        np.ones((filters, 1, 1, 1), np.int8),
        np.array(biases, np.int32),
        np.array(multipliers, np.float32),
        (1, 1),
        (0, 0, 0, 0),
        Quantisation(0.1, 0),
        Quantisation(0.1, zero_out),
    )


SMALL_VALUES = np.arange(-24, 24, dtype=np.int8).reshape(1, 8, 6, 1)


def test_accumulators_near_and_beyond_2_to_24():
    """Beyond 2^24, accumulators are rounded to float32 before they are multiplied."""
    biases = [s * (2**k + d) for k in (24, 25, 26, 30) for s in (1, -1) for d in (-1, 0, 1)]
    multipliers = [100 / abs(bias) for bias in biases]
    Bench(TINY, "ideal").run([single(constant_layer(biases, multipliers), SMALL_VALUES, TINY)])


def test_requantisation_at_ties():
    """Products that are halves exactly, and one step of float32 beside them."""
    halves = [0.5, 0.25, 0.125, 1.5, 2.5, 0.0625]
    around = [np.nextafter(np.float32(h), np.float32(to)) for h in halves for to in (0, 9)]
    multipliers = [*halves, *around]
    biases = [(-1) ** k * (k % 4) for k in range(len(multipliers))]
    layer = constant_layer(biases, multipliers, zero_out=-3)
    Bench(ODD, "ideal").run([single(layer, SMALL_VALUES, ODD)])


def test_extreme_multipliers():
    multipliers = [0, 1e-45, 1e-30, 1, 1e9, 3e38]
    layer = constant_layer([0, 5, -5, 0, 0, -1], multipliers, zero_out=4)
    Bench(TINY, "ideal").run([single(layer, SMALL_VALUES, TINY)])


def test_largest_sums(rng):
    """Every product has the largest size there is, and all have the same sign."""
    shape = (3, 5, 5, 40)
    layer = replace(
        make_layer(rng, kernel=(5, 5), channels=40, filters=3, zero_in=127),
        weights=np.full(shape, -128, np.int8),
        bias=np.array([0, 2**30, -(2**30)], np.int32),
        multiplier=np.array([4e-6, 1e-7, 1e-7], np.float32),
    )
    features = np.full((1, 6, 5, 40), -128, np.int8)
    config = TINY.override(weight_buffer_bytes=16 * 1024)
    Bench(config, "ideal").run([single(layer, features, config)])


# Chains


@pytest.mark.parametrize(("cut", "passes"), [(None, 3), (256, 6)])
@pytest.mark.parametrize("memory", ["ddr", "random"])
def test_chain_of_layers(rng, memory, cut, passes):
    """Each layer reads what the one before has only just written."""
    first = make_layer(rng, "first", channels=3, filters=9, pad=(1, 1, 1, 1))
    second = make_layer(rng, "second", kernel=(1, 1), channels=9, filters=10, zero_in=-5)
    third = make_layer(
        rng, "third", kernel=(3, 2), channels=10, filters=6, zero_in=-5, stride=(2, 1)
    )
    features = {INPUT: make_map(rng, 6, 5, 3)}
    setup = lay_out(chain([first, second, third]), features, TINY, cut=cut)
    assert len(setup.fields) == passes
    Bench(TINY, memory).run([setup])


@pytest.mark.parametrize("config", [TINY, ODD], ids=lambda config: config.name)
def test_independent_layers_in_one_chain(rng, config):
    """Passes that overlap, each with zero points, bounds, kernel and rows of its own."""
    layers = [
        (make_layer(rng, "a", channels=3, filters=9, zero_out=100), (5, 5, 3)),
        (make_layer(rng, "b", kernel=(1, 1), channels=1, filters=1, zero_in=-128, low=0), (1,) * 3),
        (
            make_layer(
                rng, "c", kernel=(2, 5), channels=7, filters=6, zero_in=127, zero_out=9, high=-20
            ),
            (4, 9, 7),
        ),
        (make_layer(rng, "d", kernel=(1, 1), channels=2, filters=2), (2, 3, 2)),
        (make_layer(rng, "e", channels=5, filters=4, pad=(2, 2, 2, 2)), (3, 3, 5)),
    ]
    nodes = [Node(layer, (f"in.{layer.name}",), layer.name) for layer, _ in layers]
    features = {f"in.{layer.name}": make_map(rng, *shape) for layer, shape in layers}
    Bench(config).run([lay_out(nodes, features, config)])


@pytest.mark.parametrize("memory", list(MEMORY_MODELS))
def test_memory_models(rng, memory):
    layer = make_layer(rng, channels=7, filters=10, pad=(1, 1, 1, 1), stride=(1, 2))
    setup = single(layer, make_map(rng, 7, 8, 7), ODD, cut=450)
    Bench(ODD, memory).run([setup])

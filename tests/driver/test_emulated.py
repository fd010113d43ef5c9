"""Packed images, computed from the bytes of their descriptors alone, against golden."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import pack
from trirow_hw.config import PRESETS, Config
from trirow_sim.case import Case
from trirow_sim.random_case import random_case
from trirow_sim.simulate import golden_graph

from .emulator import Emulator

TINY, ODD, UP5K = PRESETS["tiny"], PRESETS["odd"], PRESETS["up5k"]
#: Buffers of a few words: nearly every layer is cut in all ways.
SMALL = Config("small", 4, 4, 1, 288, 256, 4)
#: More channels in a block than lanes, and weights with zero points.
NARROW = Config("narrow", 8, 3, 3, 384, 1024, 8, weight_bits=9)
CONFIGS = [TINY, ODD, UP5K, SMALL, NARROW]
ON = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)


def check(case, config):
    """Pack a case, compute it, and compare each output with golden; return the passes."""
    nodes, features, slices = case.build()
    program = pack(nodes, features, config, slices=slices, base=0x1000)
    emulator = Emulator(program.image, config)
    emulator.run()
    expected = golden_graph(nodes, features, slices)
    for node, y in zip(nodes, expected, strict=True):
        name, first = program.place(node.output)
        region = program.image.region(name)
        n, c, h, w = region.shape
        blob = emulator.memory[region.offset :][: region.size].view(np.int8).reshape(n, h, w, c)
        np.testing.assert_array_equal(blob[..., first : first + y.shape[3]], y, err_msg=str(case))
    return [one for step in program.steps for one in step.tiling.passes]


@ON
@pytest.mark.parametrize("seed", range(4))
def test_random_cases(config, seed):
    generator = random.Random(f"{config.name} {seed}")
    for _ in range(20):
        check(random_case(generator, taps=2500, weight_bits=config.weight_bits), config)


def sides(most):
    return st.tuples(st.integers(1, most), st.integers(1, most))


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    op=st.sampled_from(["conv", "depthwise", "transposed", "maxpool", "avgpool"]),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)),
    kernel=sides(6),
    stride=sides(7),
    dilation=sides(4),
    pad=st.tuples(*[st.integers(0, 7)] * 4),
    config=st.sampled_from(CONFIGS),
)
def test_windows(op, shape, kernel, stride, dilation, pad, config):
    """Hypothesis shrinks what fails."""
    dilation = (1, 1) if op == "avgpool" else dilation
    case = Case(op, shape, kernel=kernel, stride=stride, dilation=dilation, pad=pad)
    try:
        case.build()[0][0].layer.output_extents(shape)
    except ValueError:
        return
    check(case, config)


# Windows


WINDOWS = {
    "dilation larger than the input": Case(
        "conv", (4, 5, 3), 2, (2, 3), dilation=(9, 7), pad=(9, 7, 9, 7)
    ),
    "dilation and stride with a common divisor": Case(
        "conv", (13, 14, 3), 2, (3, 2), (4, 2), (3, 1, 2, 2), (6, 3)
    ),
    "padding larger than the kernel": Case("conv", (4, 5, 3), 2, (2, 2), pad=(5, 3, 4, 6)),
    "padding larger than the kernel, strides": Case(
        "conv", (4, 5, 3), 2, (2, 2), (3, 4), (8, 9, 7, 6)
    ),
    "stride larger than the kernel": Case("conv", (17, 15, 3), 5, (2, 2), (5, 4), (3, 1, 2, 0)),
    "depthwise stride larger than the kernel": Case(
        "depthwise", (17, 15, 7), None, (2, 2), (5, 4), (3, 1, 2, 0)
    ),
    "stride larger than the feature map": Case("conv", (3, 3, 2), 2, (1, 1), (9, 9)),
    "strides of more than 255": Case("conv", (305, 2, 1), 2, (2, 1), (300, 1), (0, 0, 0, 0)),
    "strides of more than 255 in columns": Case("conv", (2, 520, 1), 2, (2, 2), (1, 256)),
    "no window that touches the map": Case("conv", (1, 1, 2), 2, (1, 1), (4, 4), (2, 2, 0, 0)),
    "kernel larger than 255 rows": Case("conv", (270, 2, 1), 2, (260, 1)),
    "kernel larger than 255 columns": Case("depthwise", (2, 270, 2), None, (2, 260)),
    "padding beyond 16 bits": Case("conv", (2, 2, 1), 1, (2, 1), (999, 1), (70_000, 0, 0, 0)),
    "left padding beyond 16 bits": Case("conv", (2, 2, 1), 1, (1, 2), (1, 999), (0, 70_000, 0, 0)),
    "transposed with output padding": Case(
        "transposed", (4, 5, 3), 4, (3, 3), (2, 3), (1, 1, 1, 1), output_padding=(1, 2)
    ),
    "transposed, stride larger than the kernel": Case(
        "transposed", (4, 5, 3), 4, (2, 2), (4, 3), residual=True
    ),
    "transposed with groups": Case("transposed", (4, 5, 6), 4, (3, 2), (2, 2), groups=2),
    "transposed depthwise": Case("transposed", (4, 5, 6), 6, (4, 4), (2, 2), groups=6),
    "transposed with dilation": Case(
        "transposed", (4, 5, 3), 2, (3, 3), (4, 3), (2, 0, 1, 3), (2, 3)
    ),
    "transposed, all of the input cut off": Case(
        "transposed", (3, 3, 2), 2, (2, 2), (1, 1), (1, 1, 1, 1)
    ),
}


@ON
@pytest.mark.parametrize("name", WINDOWS)
def test_window(name, config):
    check(WINDOWS[name], config)


# Channels


CHANNELS = {
    "groups narrower than the lanes": Case("conv", (5, 6, 8), 12, (3, 2), groups=4),
    "groups of one channel with many filters": Case("conv", (5, 6, 3), 12, (3, 2), groups=3),
    "groups that give one channel": Case("conv", (5, 6, 12), 3, (3, 2), groups=3),
    "groups wider than the lanes": Case("conv", (4, 4, 30), 22, (2, 2), groups=2),
    "multiplier 8 on one channel": Case("depthwise", (6, 5, 1), None, (3, 3), multiplier=8),
    "multiplier 3 on seven channels": Case("depthwise", (6, 5, 7), None, (3, 3), multiplier=3),
    "depthwise of 5 rows": Case("depthwise", (8, 7, 9), None, (5, 4), (2, 1), (2, 1, 2, 2)),
    "depthwise of many channels": Case("depthwise", (4, 4, 70), None, (3, 3), (1, 1), (1,) * 4),
    "batch": Case("conv", (5, 5, 4), 9, (3, 3), (2, 1), (1,) * 4, batch=4),
    "batch of dilated groups": Case(
        "conv", (7, 6, 6), 4, (2, 2), (1, 1), (1,) * 4, (2, 3), groups=2, batch=3
    ),
    "batch of averages": Case("avgpool", (5, 5, 3), None, (3, 3), (2, 2), (1,) * 4, batch=3),
    "PReLU": Case("conv", (5, 5, 3), 9, activation="prelu"),
    "table and sum": Case("conv", (5, 5, 3), 9, activation="sigmoid", residual=True),
    "mode fixed": Case("conv", (5, 5, 3), 9, mode="fixed", activation="hardswish"),
    "shuffle": Case("shuffle", (3, 4, 12), groups=3),
    "concatenation": Case("concat", (3, 4, 5), 7, batch=2),
    "slice": Case("slice", (3, 4, 9), 4, batch=2),
    "sum of scales far apart": Case("add", (4, 5, 6), mode="fixed", extreme=True),
}


@ON
@pytest.mark.parametrize("name", CHANNELS)
def test_channels(name, config):
    check(CHANNELS[name], config)


@pytest.mark.parametrize("op", ["conv", "depthwise", "transposed"])
@pytest.mark.parametrize("zero", [-128, -1, 127])
def test_weights_with_a_zero_point(op, zero):
    case = Case(op, (6, 5, 6), None, (3, 3), (2, 2), (1,) * 4, weight_zero_point=zero)
    check(case, NARROW)
    if op == "conv":
        check(Case(op, (6, 5, 6), 4, (3, 3), groups=2, weight_zero_point=zero), NARROW)
    with pytest.raises(UnsupportedError, match="need weight_bits 9"):
        check(case, TINY)


# Cuts


@pytest.mark.parametrize("width", range(1, 31))
def test_strip_boundary_at_every_column(width):
    """A bank has 24 words, 12 columns; each width is cut elsewhere."""
    case = Case("conv", (4, width, 8), 3, (3, 3), (1, 2), (1, 2, 0, 3), residual=width % 2 > 0)
    passes = check(case, SMALL.override(weight_buffer_bytes=1024))
    assert (len(passes) > 1) == (width > 12)


@pytest.mark.parametrize("words", range(1, 20))
def test_cut_along_channels_at_every_word(words):
    """A lane has 16 words; the last word of the channels is ragged."""
    case = Case("conv", (3, 3, 4 * words - 1), 5, (2, 1), residual=words % 2 > 0)
    passes = check(case, SMALL)
    assert any(one.kept_out for one in passes) == (words > 8)
    passes = check(replace(case, shape=(6, 14, 4 * words - 1)), SMALL)
    assert any(one.partial_out is not None for one in passes) == (words > 8)


@ON
@pytest.mark.parametrize("activation", ["none", "prelu", "sigmoid"])
@pytest.mark.parametrize("residual", [False, True])
def test_fully_connected_larger_than_the_weight_buffer(config, activation, residual):
    case = Case("fc", (2, 3, 250), 7, activation=activation, residual=residual)
    check(case, config)
    small = config.override(weight_buffer_bytes=16 * config.multipliers)
    passes = check(case, small)
    assert any(one.kept_out for one in passes)


@ON
@pytest.mark.parametrize("shape", [(1, 1, 999), (1, 2, 600)])
def test_sums_of_parts_meet_many_channels(config, shape):
    """They are combined in passes of their own, with slices of the channels of their own."""
    case = Case("conv", shape, 70 * config.depthwise_lanes, (1, 1), residual=True)
    check(case, config.override(weight_buffer_bytes=64 * config.multipliers))


def test_fully_connected_in_a_batch():
    passes = check(Case("fc", (1, 2, 150), 70, batch=3), TINY)
    # The second and the third image find the weights on chip.
    assert [one.load for one in passes].count(True) * 3 == len(passes)


@ON
def test_kernel_rows_are_cut(config):
    check(Case("conv", (26, 5, 6), 3, (25, 3), (1, 1), (3, 1, 2, 0)), config)


# Pools


@ON
@pytest.mark.parametrize("op", ["maxpool", "avgpool"])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("count_padding", [False, True])
def test_windows_wholly_in_the_padding(config, op, ceil, count_padding):
    case = Case(
        op, (4, 3, 5), None, (2, 2), (3, 1), (4, 3, 5, 2), ceil=ceil, count_padding=count_padding
    )
    check(case, config)


def test_global_average_larger_than_the_line_buffer():
    passes = check(Case("avgpool", (50, 60, 9), None, (50, 60)), TINY)
    assert any(one.kept_out for one in passes)


@pytest.mark.parametrize("op", ["maxpool", "avgpool"])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (20, 3, 1, 30)])
def test_pool_of_40x40(op, pad):
    case = Case(op, (41, 42, 5), None, (40, 40), (1, 2), pad)
    passes = check(case, TINY)
    assert len(passes) > 2


def test_pool_with_dilation_and_strips():
    check(Case("maxpool", (9, 40, 6), None, (3, 3), (2, 2), (2, 2, 2, 2), (2, 3)), SMALL)

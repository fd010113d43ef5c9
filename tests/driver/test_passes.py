from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, combine_scales
from trirow_driver.operation import UnsupportedError
from trirow_driver.passes import Places, pass_fields
from trirow_driver.pool_layer import PoolLayer
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import tile
from trirow_hw.config import PRESETS, Config
from trirow_hw.descriptor import (
    OP_DENSE,
    OP_DEPTHWISE,
    OP_MAX_POOL,
    pack_descriptor,
    unpack_descriptor,
)

from .kit import conv, operations, tiled, walk

TINY, ODD = PRESETS["tiny"], PRESETS["odd"]
PLACES = Places(source=0x2001, target=0x4005, weights=0x3003, second=0x5007, partial=0x6000)

NO_SECOND = {
    f"second_{name}": 0 for name in ("wait", "address", "bytes", "span", "gap", "line", "turn")
}
#: What a plain convolution does without.
PLAIN = {
    "partial_in": 0,
    "partial_out": 0,
    "fixed": 0,
    "prelu": 0,
    "table": 0,
    "combine": 0,
    "sum_left": 0,
    "sum_right": 0,
    "sum_mantissa": 0,
    "sum_zero": 0,
    "sum_low": -128,
    "sum_high": 127,
    "table_bytes": 0,
    "wide": 0,
    "zero_weight": 0,
    **NO_SECOND,
}


def fields_of(layer, height, width, number=0, config=TINY, **options):
    step = tiled(layer, height, width, config).passes[number]
    return pass_fields("conv1", step, config, PLACES, **options)


def has(fields, expected):
    assert {name: fields[name] for name in expected} == expected


def test_3x3_layer_by_hand():
    """7 rows of 6 x 5 bytes, padding 1 and 2, 6 filters: output of 8 x 8."""
    layer = conv((6, 3, 3, 5), pad=(1, 2, 2, 2), zero_in=-7, zero_out=9, low=0, high=100)
    assert layer.output_shape(7, 6) == (8, 8)
    assert fields_of(layer, 7, 6) == {
        **PLAIN,
        "op": OP_DENSE,
        "next": 0,
        "last": 1,
        "wait": 0,
        "load_weights": 1,
        "keep_weights": 0,
        "in_address": 0x2001,
        "in_bytes": 210,
        "in_first": 210,
        "in_span": 210,
        "in_gap": 0,
        "in_line": 210,
        "in_turn": 0,
        "rows": 7,
        "row_words": 8,  # 30 bytes
        "row_pitch": 8,
        "row_tail": 2,
        "zero_in": -7,
        "row_bytes": 30,
        "in_rows": 7,
        "in_columns": 6,
        "out_rows": 8,
        "out_columns": 8,
        "kernel_rows": 3,
        "kernel_columns": 3,
        "stride_rows": 1,
        "stride_columns": 1,
        "top": -1,
        "top_bank": 2,
        "first_column": -2,
        "first_word": -3,  # 10 bytes before the row
        "first_wrapped": 253,
        "first_byte": 2,
        "step_byte": 1,  # 5 bytes
        "step_words": 1,
        "step_wrapped": 1,
        "run_words": 4,  # 15 bytes
        "run_tail": 3,
        "tap_words": 1,
        "tap_byte": 0,
        "step_weights": 4,
        "clipped_words": 4,
        "columns": 4,  # of one lane each
        "last_columns": 2,
        "spacing": 4,
        "groups": 2,
        "group_lanes": 4,
        "last_lanes": 2,
        "group_words": 12,
        "chunk_steps": 3,
        "chunk_run": 4,
        "chunk_tail": 3,
        "weight_address": 0x3003,
        "weight_bytes": 6 * 53,
        "group_bytes": 4 * 53,
        "out_address": 0x4005,
        "out_bytes": 384,
        "out_span": 384,
        "out_gap": 0,
        "out_line": 384,
        "out_turn": 0,
        "zero_out": 9,
        "low": 0,
        "high": 100,
    }


def test_second_chunk_of_a_layer_by_hand():
    """Stride 4 with a kernel of 2 rows: rows 1, 2 and 5, 6 of 8 are read; channels 5 to 7 of 8."""
    layer = conv((8, 2, 1, 3), stride=(4, 2), pad=(3, 0, 0, 0))
    assert layer.output_shape(8, 5) == (3, 3)
    (step,) = tiled(layer, 8, 5, ODD).passes
    # The second chunk by hand, as all of the layer fits the buffer.
    operation = replace(
        step.operation,
        target=step.operation.target.take_channels(5, 3),
        filters=step.operation.filters.slice(slice(5, 8), step.operation.filters.weights[5:]),
    )
    step = replace(step, operation=operation, wait=True)
    fields = pass_fields("conv1", step, ODD, PLACES, last=False, next_address=0x5000)
    # Windows begin at rows -3, 1 and 5. The first has none of the map.
    expected = {
        "next": 0x5000,
        "last": 0,
        "wait": 1,
        "stride_rows": 4,
        "in_address": 0x2001 + 15,
        "in_bytes": 60,
        "in_first": 30,
        "in_span": 30,
        "in_gap": 30,
        "in_line": 60,
        "rows": 4,
        "row_words": 5,
        "row_pitch": 6,
        "row_tail": 3,
        "top": -3,
        "first_word": 0,
        "first_byte": 0,
        "step_words": 2,
        "step_byte": 0,
        "run_words": 1,
        "run_tail": 3,
        "clipped_words": 2,
        "group_words": 2,
        "groups": 1,
        "group_lanes": 3,
        "last_lanes": 3,
        "columns": 2,  # of two lanes
        "last_columns": 2,
        "weight_bytes": 3 * 14,
        "group_bytes": 3 * 14,
        "out_address": 0x4005 + 5,
        "out_bytes": 27,
        "out_span": 3,
        "out_gap": 5,
    }
    has(fields, expected)


def test_depthwise_layer_by_hand():
    """5x2 kernels on 6 channels, 7 x 6 pixels: two steps of three rows, a tap for each column."""
    layer = conv((6, 5, 2, 1), pad=(1, 1, 0, 0), groups=6)
    expected = {
        "op": OP_DEPTHWISE,
        "out_rows": 4,
        "out_columns": 6,
        "kernel_rows": 5,
        "kernel_columns": 2,
        "row_words": 9,  # 36 bytes
        "row_pitch": 10,
        "first_column": -1,
        "first_word": -2,
        "first_byte": 2,
        "run_words": 3,  # 12 bytes
        "run_tail": 4,
        "tap_words": 1,  # 6 bytes from column to column
        "tap_byte": 2,
        "step_weights": 2,
        "clipped_words": 0,
        "groups": 2,
        "group_lanes": 4,
        "last_lanes": 2,
        "group_words": 4,
        "chunk_steps": 4,
        "chunk_run": 1,
        "chunk_tail": 3,
        "group_bytes": 4 * (8 + 12),
        "weight_bytes": 6 * (8 + 12),
    }
    has(fields_of(layer, 7, 6), expected)


def test_pool_by_hand():
    layer = PoolLayer("pool", "maximum", (3, 2), (2, 2), (0, 0, 0, 0), Quantisation(1.0, 9))
    (step,) = tile("pool", operations(layer, 7, 6, TINY, 5), TINY).passes
    expected = {
        "op": OP_MAX_POOL,
        "zero_in": 0,
        "zero_out": 0,
        "step_weights": 0,
        "group_words": 1,
        "chunk_steps": 1,
        "chunk_run": 1,
        "chunk_tail": 1,
        "groups": 2,
        "weight_bytes": 5 * 9,
        "step_words": 2,  # 10 bytes
        "step_byte": 2,
    }
    has(pass_fields("pool", step, TINY, PLACES), expected)


def test_second_feature_map_by_hand():
    first, second, out = Quantisation(1.0, 0), Quantisation(0.5, 4), Quantisation(1.5, -6)
    scales = combine_scales("add", first, second, out)
    combine = Combine("add", scales, second, out, -50, 60)
    fields = fields_of(conv((6, 1, 1, 5), combine=combine), 3, 4)
    expected = {
        "combine": 1,
        "table": 0,
        "table_bytes": 2048,
        "weight_bytes": 2048 + 6 * 13,
        "spacing": 8,
        "sum_mantissa": scales.mantissa,
        "sum_left": scales.left,
        "sum_right": scales.right,
        "sum_zero": -6,
        "sum_low": -50,
        "sum_high": 60,
        "second_address": 0x5007,
        "second_bytes": 72,
        "second_span": 72,
        "second_gap": 0,
        "second_line": 72,
        "second_turn": 0,
        "second_wait": 0,
    }
    has(fields, expected)


def test_options_of_constants():
    slopes = np.full(6, 0.25, np.float32)
    fields = fields_of(conv((6, 1, 1, 5), negative_multiplier=slopes), 3, 4)
    has(fields, {"prelu": 1, "wide": 1, "fixed": 0, "weight_bytes": 6 * 17})
    layer = conv((6, 1, 1, 5), table=np.zeros(256, np.int8))
    has(fields_of(layer, 3, 4), {"table": 1, "table_bytes": 1024, "combine": 0})


def test_int32_sums_by_hand():
    """A filter of twice what a lane holds: two halves of the channels, sums of 4 bytes between."""
    layer = conv((3, 3, 3, 120))
    steps = tiled(layer, 17, 17, TINY).passes
    assert len(steps) == 2
    first, second = (pass_fields("conv1", step, TINY, PLACES) for step in steps)
    has(first, {"partial_out": 1, "partial_in": 0, "out_address": 0x6000, "out_bytes": 2700})
    has(first, {"in_span": 60, "in_gap": 60, "spacing": 12, "second_bytes": 0})
    has(second, {"partial_out": 0, "partial_in": 1, "out_address": 0x4005, "out_bytes": 675})
    has(second, {"second_address": 0x6000, "second_bytes": 2700, "second_wait": 1})
    assert second["in_address"] == first["in_address"] + 60


def test_sums_that_stay_on_chip_by_hand():
    """Neither a second operand nor room for four bytes of each sum."""
    steps = tiled(conv((3, 1, 1, 2000)), 2, 1, TINY).passes
    first, second = (pass_fields("conv1", step, TINY, PLACES) for step in steps)
    has(first, {"partial_out": 2, "partial_in": 0, "spacing": 3, "second_bytes": 0})
    has(second, {"partial_out": 0, "partial_in": 2, "spacing": 3, "second_bytes": 0})
    has(second, {"out_address": 0x4005, "out_bytes": 6, "second_wait": 0})


# Rows


def test_rows_that_no_window_covers_are_not_read():
    """Kernel 1x1, stride 2 in y: rows 0, 2 and 4 of 6, the last one never."""
    fields = fields_of(conv((4, 1, 1, 4), stride=(2, 1)), 6, 3)
    assert (fields["rows"], fields["in_bytes"]) == (3, 36)
    assert (fields["in_first"], fields["in_span"], fields["in_gap"]) == (12, 12, 12)
    assert (fields["in_rows"], fields["stride_rows"]) == (3, 1)
    # Stride 2, kernel 3: windows end at row 5 of 6, counted from 1.
    fields = fields_of(conv((4, 3, 1, 4), stride=(2, 1)), 6, 3)
    assert (fields["rows"], fields["in_bytes"], fields["in_gap"]) == (5, 60, 0)


def test_map_that_no_window_covers_is_read_for_one_byte():
    """A pass is never without features."""
    layer = conv((1, 1, 1, 2), stride=(4, 4), pad=(1, 1, 0, 0))
    assert layer.output_shape(2, 2) == (1, 1)
    fields = fields_of(layer, 2, 2)
    assert (fields["rows"], fields["in_bytes"], fields["in_address"]) == (1, 1, 0x2001)
    assert (fields["row_words"], fields["row_tail"], fields["row_bytes"]) == (1, 1, 1)


@pytest.mark.parametrize("seed", range(40))
def test_rows_against_brute_force(seed):
    """The spans are exactly the bytes of the rows that some window covers."""
    rng = np.random.default_rng(seed)
    while True:
        height, kernel, stride = (int(n) for n in rng.integers([1, 1, 1], [20, 7, 7]))
        top, bottom = (int(n) for n in rng.integers(0, 8, 2))
        if height + top + bottom >= kernel:
            break
    layer = conv((1, kernel, 1, 3), stride=(stride, 1), pad=(top, 0, bottom, 0))
    fields = fields_of(layer, height, 2)
    rows = {
        y * stride - top + r for y in range(layer.output_shape(height, 2)[0]) for r in range(kernel)
    }
    covered = sorted(row for row in rows if 0 <= row < height)
    expected = [0x2001 + row * 6 + byte for row in covered for byte in range(6)] or [0x2001]
    assert walk(fields, "in") == expected
    assert fields["rows"] == max(1, len(covered))


def test_fields_are_what_a_descriptor_takes():
    fields = fields_of(conv((6, 3, 3, 5)), 7, 6)
    found = unpack_descriptor(pack_descriptor(fields))
    assert {name: found[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("height", "width", "pad"),
    [
        (70_000, 1, (0, 0, 0, 0)),
        (1, 300_000, (0, 0, 0, 0)),
        (1, 1, (40_000, 0, 0, 0)),
        (1, 1, (0, 40_000, 0, 0)),
        (1, 1000, (0, 0, 0, 65_000)),
        (3, 1, (0, 0, 100_000, 0)),
    ],
)
def test_no_size_is_refused(height, width, pad):
    """Where the counters of the hardware end, the output is cut; nothing is lost between."""
    layer = conv((1, 1, 1, 8), pad=pad)
    written = []
    for step in tiled(layer, height, width, TINY).passes:
        fields = pass_fields("conv1", step, TINY, PLACES)
        pack_descriptor(fields)
        written += walk(fields, "out")
    rows, columns = layer.output_shape(height, width)
    assert sorted(written) == list(range(0x4005, 0x4005 + rows * columns))


def test_sums_of_too_many_columns():
    config = Config("slow", 2, 64, 1, 6144, 4096, 2)
    text = r"^layer 'conv1': its filters exceed the weight buffer, and int32 sums of 64 x 1 lanes"
    with pytest.raises(UnsupportedError, match=text):
        fields_of(conv((64, 1, 1, 200)), 1, 5, config=config)
    assert fields_of(conv((63, 1, 1, 200)), 1, 5, config=config)["spacing"] == 252

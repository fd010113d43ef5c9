import struct

import numpy as np
import pytest

from trirow_driver.layer import ConvLayer
from trirow_driver.passes import chunk_bytes, pass_fields
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Chunk, UnsupportedError, tile
from trirow_hw.config import PRESETS
from trirow_hw.descriptor import pack_descriptor, unpack_descriptor

TINY, ODD = PRESETS["tiny"], PRESETS["odd"]


def make(weights, stride=(1, 1), pad=(0, 0, 0, 0), zero_in=0, zero_out=0, low=-128, high=127):
    rng = np.random.default_rng(5)
    filters = weights[0]
    return ConvLayer(
        "conv1",
        rng.integers(-128, 128, weights, dtype=np.int8),
        rng.integers(-1000, 1000, filters, dtype=np.int32),
        rng.uniform(1e-6, 4, filters).astype(np.float32),
        stride,
        pad,
        Quantisation(1.0, zero_in),
        Quantisation(1.0, zero_out),
        low,
        high,
    )


# Chunks


def stated_again(layer, chunk, in_lanes, out_lanes):
    """Return the bytes of a chunk, one after the other."""
    out = []
    channels = range(chunk.first, chunk.first + chunk.channels)
    for g in range(0, chunk.channels, out_lanes):
        lanes = channels[g : g + out_lanes]
        for k in lanes:
            (bits,) = struct.unpack("<I", struct.pack("<f", float(layer.multiplier[k])))
            mantissa, exponent = (bits & 0x7FFFFF) | 0x800000, 150 - (bits >> 23)
            out += struct.pack("<iI", layer.bias[k], min(exponent, 56) << 24 | mantissa)
        rows, columns = layer.kernel
        for r in range(rows):
            run = [(s, c) for s in range(columns) for c in range(layer.in_channels)]
            for begin in range(0, len(run), in_lanes):
                for k in lanes:
                    out += [
                        int(layer.weights[k, r, s, c]) & 0xFF
                        for s, c in run[begin : begin + in_lanes]
                    ]
    return bytes(out)


@pytest.mark.parametrize("config", [TINY, ODD, PRESETS["ecp5-85f"]], ids=lambda c: c.name)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (7, 3, 2, 5), (19, 2, 3, 4), (33, 1, 1, 13)])
def test_chunk_bytes_stated_again(config, shape):
    layer = make(shape)
    step = config.out_lanes
    for first in range(0, shape[0], step):
        chunk = Chunk(first, min(step, shape[0] - first))
        expected = stated_again(layer, chunk, config.in_lanes, config.out_lanes)
        assert chunk_bytes(layer, chunk, config) == expected
    whole = Chunk(0, shape[0])
    expected = stated_again(layer, whole, config.in_lanes, config.out_lanes)
    assert chunk_bytes(layer, whole, config) == expected
    assert len(expected) == shape[0] * (8 + np.prod(shape[1:]))


# Descriptors


def fields_of(layer, height, width, chunk=None, config=TINY, **options):
    tiling = tile(layer, height, width, config)
    return pass_fields(
        layer,
        height,
        width,
        tiling,
        chunk or tiling.chunks[0],
        config,
        in_address=0x2001,
        weight_address=0x3003,
        out_address=0x4005,
        **options,
    )


def test_3x3_layer_by_hand():
    """7 rows of 6 x 5 bytes, padding 1 and 2, 6 filters: output of 8 x 8."""
    layer = make((6, 3, 3, 5), pad=(1, 2, 2, 2), zero_in=-7, zero_out=9, low=0, high=100)
    assert layer.output_shape(7, 6) == (8, 8)
    assert fields_of(layer, 7, 6) == {
        "op": 1,
        "next": 0,
        "last": 1,
        "wait": 0,
        "kernel_rows": 3,
        "stride_rows": 1,
        "in_address": 0x2001,
        "in_bytes": 210,
        "in_first": 210,
        "in_span": 210,
        "in_gap": 0,
        "rows": 7,
        "row_words": 8,  # 30 bytes
        "row_pitch": 8,
        "row_tail": 2,
        "zero_in": -7,
        "row_bytes": 30,
        "out_rows": 8,
        "out_columns": 8,
        "top": -1,
        "in_rows": 7,
        "first_word": -3,  # 10 bytes before the row
        "first_wrapped": 253,
        "first_byte": 2,
        "step_byte": 1,  # 5 bytes
        "step_words": 1,
        "step_wrapped": 1,
        "run_words": 4,  # 15 bytes
        "run_tail": 3,
        "last_lanes": 2,
        "clipped_words": 4,
        "group_words": 12,
        "groups": 2,
        "weight_address": 0x3003,
        "weight_bytes": 6 * 53,
        "group_bytes": 4 * 53,
        "out_address": 0x4005,
        "out_bytes": 384,
        "out_span": 384,
        "out_gap": 0,
        "zero_out": 9,
        "low": 0,
        "high": 100,
    }


def test_second_chunk_of_a_layer_by_hand():
    """Stride 4 with a kernel of 2 rows: rows 1, 2 and 5, 6 of 8 are read; channels 5 to 7 of 8."""
    layer = make((8, 2, 1, 3), stride=(4, 2), pad=(3, 0, 0, 0))
    assert layer.output_shape(8, 5) == (3, 3)
    fields = fields_of(layer, 8, 5, Chunk(5, 3), ODD, wait=True, last=False, next_address=0x5000)
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
        "last_lanes": 3,
        "weight_bytes": 3 * 14,
        "group_bytes": 3 * 14,
        "out_address": 0x4005 + 5,
        "out_bytes": 27,
        "out_span": 3,
        "out_gap": 5,
    }
    assert {name: fields[name] for name in expected} == expected


def test_rows_that_no_window_covers_are_not_read():
    """Kernel 1x1, stride 2 in y: rows 0, 2 and 4 of 6, the last one never."""
    fields = fields_of(make((4, 1, 1, 4), stride=(2, 1)), 6, 3)
    assert (fields["rows"], fields["in_bytes"]) == (3, 36)
    assert (fields["in_first"], fields["in_span"], fields["in_gap"]) == (12, 12, 12)
    # Stride 2, kernel 3: windows end at row 5 of 6, counted from 1.
    fields = fields_of(make((4, 3, 1, 4), stride=(2, 1)), 6, 3)
    assert (fields["rows"], fields["in_bytes"], fields["in_gap"]) == (5, 60, 0)


def test_map_that_no_window_covers_is_read_for_one_byte():
    """A pass is never without features."""
    layer = make((1, 1, 1, 2), stride=(4, 4), pad=(1, 1, 0, 0))
    assert layer.output_shape(2, 2) == (1, 1)
    fields = fields_of(layer, 2, 2)
    assert (fields["rows"], fields["in_bytes"], fields["in_address"]) == (1, 1, 0x2001)
    assert (fields["row_words"], fields["row_tail"], fields["row_bytes"]) == (1, 1, 1)


@pytest.mark.parametrize("seed", range(30))
def test_rows_against_brute_force(seed):
    """The spans are exactly the bytes of the rows that some window covers."""
    rng = np.random.default_rng(seed)
    while True:
        height, kernel, stride = (int(n) for n in rng.integers([1, 1, 1], [20, 7, 5]))
        top, bottom = (int(n) for n in rng.integers(0, 8, 2))
        if height + top + bottom >= kernel:
            break
    layer = make((1, kernel, 1, 3), stride=(stride, 1), pad=(top, 0, bottom, 0))
    fields = fields_of(layer, height, 2)
    rows = {
        y * stride - top + r for y in range(layer.output_shape(height, 2)[0]) for r in range(kernel)
    }
    covered = sorted(row for row in rows if 0 <= row < height)
    expected = [0x2001 + row * 6 + byte for row in covered for byte in range(6)] or [0x2001]
    found, at, left = [], fields["in_address"], fields["in_bytes"]
    span = fields["in_first"]
    while left:
        span = min(span, left)
        found += range(at, at + span)
        at, left = at + span + fields["in_gap"], left - span
        span = fields["in_span"]
    assert found == expected
    assert fields["rows"] == max(1, len(covered))


def test_fields_are_what_a_descriptor_takes():
    fields = fields_of(make((6, 3, 3, 5)), 7, 6)
    found = unpack_descriptor(pack_descriptor(fields))
    assert {name: found[name] for name in fields} == fields


def test_numbers_that_do_not_fit_are_refused_by_name():
    layer = make((1, 1, 1, 1))
    with pytest.raises(UnsupportedError, match=r"^layer 'conv1': descriptor field 'rows' "):
        fields_of(layer, 70_000, 1)
    with pytest.raises(UnsupportedError, match=r"^layer 'conv1': descriptor field 'row_words' "):
        fields_of(layer, 1, 300_000)
    layer = make((1, 1, 1, 1), pad=(40_000, 0, 0, 0))
    with pytest.raises(UnsupportedError, match=r"^layer 'conv1': descriptor field 'top' "):
        fields_of(layer, 1, 1)
    layer = make((1, 1, 1, 1), pad=(0, 0, 0, 65_000))
    with pytest.raises(UnsupportedError, match=r"^layer 'conv1': descriptor field 'out_columns' "):
        fields_of(layer, 1, 1000)
    layer = make((1, 1, 1, 8), pad=(0, 0, 0, 40_000))
    text = r"^layer 'conv1': rows of 8 bytes with their padding are too long$"
    with pytest.raises(UnsupportedError, match=text):
        fields_of(layer, 1, 1)

import struct
from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.operation import Filters
from trirow_driver.weights import WeightShape, chunk_bytes
from trirow_hw.config import PRESETS, Config
from trirow_hw.descriptor import OP_DEPTHWISE, OP_MAX_POOL, OP_SUM_POOL

from .kit import conv, operations

TINY, ODD = PRESETS["tiny"], PRESETS["odd"]
NARROW = Config("narrow", 8, 3, 3, 8 * 8 * 3 * 2, 1024, 8)
CONFIGS = pytest.mark.parametrize(
    "config", [TINY, ODD, NARROW, PRESETS["ecp5-85f"]], ids=lambda config: config.name
)


def scale_word(value):
    """Return mantissa and exponent of a float32 number as the requantiser takes them."""
    (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
    mantissa, exponent = (bits & 0x7FFFFF) | 0x800000, 150 - (bits >> 23 & 0xFF)
    return min(exponent, 63) << 24 | mantissa | (bits >> 31) << 31


def constants(layer, k):
    out = struct.pack("<iI", layer.bias[k], scale_word(layer.multiplier[k]))
    if layer.negative_multiplier is not None:
        out += struct.pack("<I", scale_word(layer.negative_multiplier[k]))
    return list(out)


def dense_again(layer, config):
    """Return the bytes of a chunk of a dense convolution, one after the other."""
    out = []
    if layer.table is not None:
        for entry in layer.table:
            out += struct.pack("<i", entry)
    rows, columns = layer.kernel
    for g in range(0, layer.out_channels, config.out_lanes):
        lanes = range(layer.out_channels)[g : g + config.out_lanes]
        for k in lanes:
            out += constants(layer, k)
        for r in range(rows):
            run = [(s, c) for s in range(columns) for c in range(layer.in_channels)]
            for begin in range(0, len(run), config.in_lanes):
                for k in lanes:
                    word = run[begin : begin + config.in_lanes]
                    out += [int(layer.weights[k, r, s, c]) & 0xFF for s, c in word]
    return bytes(out)


@CONFIGS
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (7, 3, 2, 5), (19, 2, 3, 4), (33, 1, 1, 13)])
def test_dense_chunk_stated_again(config, shape):
    layer = conv(shape)
    (operation,) = operations(layer, 4, 4, config)
    found = chunk_bytes(operation, config)
    assert found == dense_again(layer, config)
    assert len(found) == shape[0] * (8 + np.prod(shape[1:]))


@CONFIGS
def test_tables_come_first_and_second_scales_last(config):
    table = np.arange(256).astype(np.uint8).view(np.int8)[::-1].copy()
    slopes = np.linspace(-2, 3, 7).astype(np.float32)
    layer = conv((7, 3, 2, 5), table=table, negative_multiplier=slopes)
    (operation,) = operations(layer, 4, 4, config)
    assert chunk_bytes(operation, config) == dense_again(layer, config)


@CONFIGS
@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (3, 3), (5, 2), (7, 1)])
def test_depthwise_chunk_stated_again(config, kernel):
    layer = conv((11, *kernel, 1), groups=11, weight_zero_point=0)
    (operation,) = operations(layer, 8, 8, config)
    assert operation.op == OP_DEPTHWISE
    taps = min(3, config.in_lanes)
    # A kernel with fewer rows than a tap has only its own.
    word_rows = min(taps, kernel[0])
    lanes = min(config.in_lanes, config.out_lanes)
    out = []
    for g in range(0, 11, lanes):
        group = range(11)[g : g + lanes]
        for k in group:
            out += constants(layer, k)
        for first in range(0, kernel[0], taps):
            for s in range(kernel[1]):
                for k in group:
                    for r in range(first, first + word_rows):
                        inside = r < kernel[0]
                        out.append(int(layer.weights[k, r, s, 0]) & 0xFF if inside else 0)
    assert chunk_bytes(operation, config) == bytes(out)


def test_rows_that_a_kernel_lacks_are_zero_points():
    config = TINY.override(weight_bits=9)
    layer = conv((2, 4, 1, 1), groups=2, weight_zero_point=-5)
    (operation,) = operations(layer, 8, 8, config)
    chunk = np.frombuffer(chunk_bytes(operation, config), np.int8)[2 * 8 :]
    # Two words of three rows for each of two channels; the second has only row 3.
    assert chunk.reshape(2, 2, 3)[1, :, 1:].tolist() == [[-5, -5], [-5, -5]]
    np.testing.assert_array_equal(chunk.reshape(2, 2, 3)[1, :, 0], layer.weights[:, 3, 0, 0])


@CONFIGS
@pytest.mark.parametrize("op", [OP_SUM_POOL, OP_MAX_POOL])
def test_pools_have_one_word_of_ones(config, op):
    (base,) = operations(conv((5, 1, 1, 5)), 3, 3, config)
    ones = np.ones((5, 1, 1, 1), np.int8)
    filters = Filters(ones, np.zeros(5, np.int32), np.full(5, 0x01020304, np.uint32))
    operation = replace(base, op=op, kernel=(40, 3), filters=filters)
    lanes = min(config.in_lanes, config.out_lanes)
    weights = 1 if op == OP_MAX_POOL else min(3, config.in_lanes)
    out = []
    for g in range(0, 5, lanes):
        count = min(lanes, 5 - g)
        out += [0, 0, 0, 0, 4, 3, 2, 1] * count + [1] * weights * count
    assert chunk_bytes(operation, config) == bytes(out)


def test_shape_of_weights():
    (operation,) = operations(conv((6, 2, 3, 5)), 4, 7, TINY)
    # 3 columns of 5 channels are 15 bytes: 4 words of 4, the last with 3.
    assert WeightShape.of(operation, TINY) == WeightShape(2, 4, 3)
    assert WeightShape.of(operation, TINY).bytes(TINY) == 30
    assert operation.group_words(TINY) == 8

from math import lcm

import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, CombineLayer, MultiplyLayer, combine_scales
from trirow_driver.lowering import UnsupportedError, lower
from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.quantise import Quantisation
from trirow_driver.view import View
from trirow_hw.config import PRESETS
from trirow_hw.descriptor import OP_DENSE, OP_DEPTHWISE, OP_MAX_POOL, OP_SUM_POOL

from .kit import addresses, conv, operations

TINY, M256 = PRESETS["tiny"], PRESETS["m256"]
FLOAT = TINY.override(requantise_modes=("float32",))
FIXED = TINY.override(requantise_modes=("fixed",))
Q = Quantisation(1.0, 0)


def evaluate(operation):
    """Return for the address of each output what it adds up: pairs of input address and weight.

    By the definition of an operation. Weights are told apart by their values; 0 is left out.
    """
    source, target = operation.source, operation.target
    weights = operation.filters.weights
    found = {}
    for y in range(target.rows):
        for x in range(target.columns):
            for k in range(target.channels):
                terms = set()
                for r in range(operation.kernel[0]):
                    for s in range(operation.kernel[1]):
                        row = y * operation.stride[0] + r - operation.top
                        column = x * operation.stride[1] + s - operation.left
                        if not (0 <= row < source.rows and 0 <= column < source.columns):
                            continue
                        place = (
                            source.address + row * source.row_pitch + column * source.pixel_pitch
                        )
                        if operation.dense:
                            for c in range(source.channels):
                                if weights[k, r, s, c]:
                                    terms.add((place + c, int(weights[k, r, s, c])))
                        else:
                            weight = 1 if operation.pools else int(weights[k, r, s, 0])
                            terms.add((place + k, weight))
                at = target.address + y * target.row_pitch + x * target.pixel_pitch + k
                assert at not in found
                found[at] = terms
    return found


def distinct(layer):
    """Return the layer with weights 1, 2, 3, ...; for at most 127 of them."""
    weights = np.arange(1, layer.weights.size + 1, dtype=np.int8).reshape(layer.weights.shape)
    object.__setattr__(layer, "weights", weights)
    return layer


def check(layer, height, width, config=TINY, groups=1):
    """Compare all terms of all outputs with the definition of a convolution."""
    found = {}
    for operation in operations(layer, height, width, config):
        part = evaluate(operation)
        assert not found.keys() & part.keys()
        found |= part
    rows, columns = layer.output_shape(height, width)
    channels, filters, deep = layer.in_channels, layer.out_channels, layer.weights.shape[3]
    expected = {address: set() for address in range(rows * columns * filters)}
    for y in range(rows):
        for x in range(columns):
            for k in range(filters):
                for r in range(layer.kernel[0]):
                    for s in range(layer.kernel[1]):
                        row = y * layer.stride[0] + r * layer.dilation[0] - layer.pad[0]
                        column = x * layer.stride[1] + s * layer.dilation[1] - layer.pad[1]
                        if layer.transposed:
                            row, rest = divmod(
                                y + layer.pad[0] - r * layer.dilation[0], layer.stride[0]
                            )
                            column, more = divmod(
                                x + layer.pad[1] - s * layer.dilation[1], layer.stride[1]
                            )
                            if rest or more:
                                continue
                        if not (0 <= row < height and 0 <= column < width):
                            continue
                        for c in range(deep):
                            channel = k // (filters // groups) * deep + c
                            expected[(y * columns + x) * filters + k].add(
                                (
                                    (row * width + column) * channels + channel,
                                    int(layer.weights[k, r, s, c]),
                                )
                            )
    assert found == expected


def test_plain_convolution_is_one_operation():
    layer = conv((6, 3, 3, 5), (2, 1), (1, 2, 0, 1), low=-7, high=90)
    (operation,) = operations(layer, 7, 6, TINY)
    assert operation.op == OP_DENSE
    assert (operation.kernel, operation.stride) == ((3, 3), (2, 1))
    assert (operation.top, operation.left) == (1, 2)
    assert (operation.low, operation.high, operation.fixed) == (-7, 90, False)
    assert operation.filters.weights is layer.weights


@pytest.mark.parametrize("dilation", [(1, 1), (2, 3), (3, 1), (4, 9)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3), (4, 1)])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 4, 7, 0), (9, 20, 9, 20)])
def test_dilation(dilation, stride, pad):
    height, width = 9, 20
    layer = distinct(conv((2, 3, 3, 2), stride, pad, dilation=dilation))
    check(layer, height, width)
    steps = [lcm(s, d) // s for s, d in zip(stride, dilation, strict=True)]
    shape = layer.output_shape(height, width)
    phases = [min(step, size) for step, size in zip(steps, shape, strict=True)]
    assert len(operations(layer, height, width, TINY)) == phases[0] * phases[1]


def test_dilation_larger_than_the_output_is_quick():
    """A phase for each output row, not for each step of the dilation."""
    layer = conv((1, 2, 1, 1), pad=(10**9, 0, 0, 0), dilation=(10**9, 1))
    assert len(operations(layer, 3, 3, TINY)) == 3


@pytest.mark.parametrize("kernel", [(1, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 5)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
@pytest.mark.parametrize("more", [(0, 0), (1, 2)])
def test_transposed(kernel, stride, dilation, more):
    # Less is added than stride or dilation are.
    limits = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
    more = tuple(min(m, limit) for m, limit in zip(more, limits, strict=True))
    for pad in ((0, 0, 0, 0), (1, 0, 0, 1)):
        layer = conv(
            (2, *kernel, 2),
            stride,
            pad,
            dilation=dilation,
            transposed=True,
            output_padding=more,
        )
        check(distinct(layer), 4, 3)


@pytest.mark.parametrize("config", [TINY, M256], ids=lambda config: config.name)
@pytest.mark.parametrize(("groups", "c", "k"), [(2, 3, 2), (5, 1, 2), (3, 2, 1), (7, 1, 1)])
def test_groups(config, groups, c, k):
    layer = distinct(conv((groups * k, 2, 2, c), groups=groups))
    check(layer, 4, 3, config, groups)
    kinds = {operation.op for operation in operations(layer, 4, 3, config)}
    assert kinds == {OP_DEPTHWISE if c == k == 1 else OP_DENSE}


def test_groups_narrower_than_the_lanes_are_bundled():
    layer = conv((64, 3, 3, 2), groups=32)
    assert len(operations(layer, 14, 14, M256)) < 32
    wide = conv((64, 3, 3, 32), groups=2)
    assert len(operations(wide, 14, 14, M256)) == 2


def test_bundles_keep_the_zero_point_where_a_filter_has_no_weight():
    config = TINY.override(weight_bits=9)
    layer = conv((8, 1, 1, 2), groups=4, weight_zero_point=9)
    for operation in operations(layer, 6, 6, config):
        weights = operation.filters.weights.astype(int) - operation.filters.zero_point
        count = len(weights) // 2
        for k in range(2 * count):
            outside = [c for c in range(2 * count) if c // 2 != k // 2]
            assert not weights[k, 0, 0, outside].any()


# Pools and copies


def test_maximum_pool():
    layer = PoolLayer("pool", "maximum", (3, 2), (2, 1), (1, 0, 0, 0), Q, low=-5, high=70)
    (operation,) = operations(layer, 8, 7, TINY, 5)
    assert operation.op == OP_MAX_POOL
    assert (operation.low, operation.high, operation.zero_in) == (-5, 70, 0)
    assert (
        len(
            operations(
                PoolLayer("p", "maximum", (3, 2), (1, 1), (0,) * 4, Q, (2, 3)), 9, 9, TINY, 1
            )
        )
        == 6
    )


@pytest.mark.parametrize("count_padding", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3)])
def test_average_pools_are_cut_where_the_count_changes(pad, ceil, count_padding):
    layer = PoolLayer(
        "pool", "average", (3, 3), (2, 2), pad, Quantisation(1.0, 4), (1, 1), ceil, count_padding
    )
    height, width = 8, 7
    rows, columns, _ = layer.output_extents((height, width, 1))
    written = []
    for operation in operations(layer, height, width, TINY, 1):
        assert operation.op == OP_SUM_POOL
        assert operation.fixed
        assert operation.zero_in == operation.zero_out == (4 if count_padding else 0)
        mantissa, shifts = int(operation.filters.scale[0]), int(operation.filters.second[0])
        scale = mantissa * 2.0 ** ((shifts & 15) - 31 - (shifts >> 8))
        for at, terms in evaluate(operation).items():
            count = len(terms)
            if count_padding:
                y, x = divmod(at, columns)
                last = [
                    min(p * 2 - before + 3, size + after)
                    for p, before, after, size in (
                        (y, pad[0], pad[2], height),
                        (x, pad[1], pad[3], width),
                    )
                ]
                count = (last[0] - y * 2 + pad[0]) * (last[1] - x * 2 + pad[1])
            if count:
                assert abs(scale * count - 1) < 1e-6
        written += addresses(operation.target)
    assert sorted(written) == list(range(rows * columns))


def test_upsampling_writes_each_pixel_to_its_places():
    found = {}
    for operation in operations(CopyLayer("up", Q, 3), 2, 4, TINY, 2):
        found |= evaluate(operation)
    expected = {
        (y * 12 + x) * 2 + c: {((y // 3 * 4 + x // 3) * 2 + c, 1)}
        for y in range(6)
        for x in range(12)
        for c in range(2)
    }
    assert found == expected


@pytest.mark.parametrize("kind", ["add", "maximum"])
def test_combination(kind):
    combine = Combine(kind, combine_scales(kind, Q, Q, Q), Q, Q, -9, 8)
    view = View.whole(0, 2, 3, 4)
    (operation,) = lower(CombineLayer("sum", Q, combine), view, view, view, TINY)
    assert operation.second == view
    assert operation.sum.maximum == (kind == "maximum")
    assert (operation.sum.low, operation.sum.high) == (-9, 8)
    assert len(operation.filters.tables) == 2


def test_table_is_folded_into_that_of_the_sum():
    combine = Combine("add", combine_scales("add", Q, Q, Q), Q, Q)
    table = np.arange(256).astype(np.uint8).view(np.int8)[::-1].copy()
    (operation,) = operations(conv((2, 1, 1, 3), table=table, combine=combine), 2, 2, TINY)
    first = combine.scales.first[table.view(np.uint8)]
    np.testing.assert_array_equal(operation.filters.tables[0], first)
    np.testing.assert_array_equal(operation.filters.tables[1], combine.scales.second)


@pytest.mark.parametrize("config", [FLOAT, FIXED, TINY], ids=["float32", "fixed", "both"])
def test_copies_are_exact_in_any_mode(config):
    (operation,) = operations(CopyLayer("copy", Q), 2, 2, config, 3)
    scale = int(operation.filters.scale[0])
    if operation.fixed:
        shifts = int(operation.filters.second[0])
        assert scale << (shifts & 15) == 1 << 31
        assert shifts >> 8 == 0
    else:
        assert (scale & 0xFFFFFF) == 1 << (scale >> 24)
    assert operation.fixed == ("float32" not in config.requantise_modes)


# Refusals


def test_what_a_configuration_lacks():
    combine = Combine("add", combine_scales("add", Q, Q, Q), Q, Q)
    cases = [
        (conv((1, 1, 1, 1)), FIXED, "requantisation mode float32 is not built into config"),
        (conv((1, 1, 1, 1), weight_zero_point=3), TINY, "weights with a zero point (3) need"),
        (conv((1, 1, 1, 1), combine=combine), FLOAT, "combining two feature maps needs requan"),
        (
            PoolLayer("conv1", "average", (1, 1), (1, 1), (0,) * 4, Q),
            FLOAT,
            "average pools need requantisation mode fixed, which is not built into configur",
        ),
        (CombineLayer("conv1", Q, combine), FLOAT, "combining two feature maps needs requan"),
        (MultiplyLayer("conv1", Q, Q, Q), TINY, "MultiplyLayer runs on the host only"),
    ]
    for layer, config, text in cases:
        with pytest.raises(UnsupportedError) as refusal:
            operations(layer, 2, 2, config, 1)
        message = str(refusal.value)
        assert message.startswith(f"layer 'conv1': {text}")
        assert "\n" not in message

import itertools
from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, combine_scales
from trirow_driver.operation import UnsupportedError
from trirow_driver.parts import Part, cut_filters
from trirow_driver.pool_layer import PoolLayer
from trirow_driver.quantise import Quantisation
from trirow_driver.strips import cut_output, fits_lines
from trirow_driver.tiling import tile
from trirow_hw.config import CONSTANT_GROUPS, PRESETS, Config

from .kit import addresses, conv, operations, tiled

TINY, ODD, ECP5, M256 = (PRESETS[name] for name in ("tiny", "odd", "ecp5-85f", "m256"))
CONFIGS = pytest.mark.parametrize("config", [TINY, ODD, ECP5], ids=lambda config: config.name)


def channels_of(tiling):
    """Return first channel and number of channels of each chunk that is loaded."""
    chunks = []
    for step in tiling.passes:
        if step.load:
            chunks.append((step.operation.target.address, step.operation.target.channels))
    return chunks


# Chunks


def test_layer_that_fits_is_one_chunk():
    # 8 words a group, 256 in the buffer.
    assert channels_of(tiled(conv((128, 2, 3, 5)), 4, 7, TINY)) == [(0, 128)]
    assert len(channels_of(tiled(conv((129, 2, 3, 5)), 4, 7, TINY))) > 1


@CONFIGS
@pytest.mark.parametrize("filters", [1, 5, 17, 64, 200, 511])
@pytest.mark.parametrize("channels", [3, 16, 100])
def test_chunks_cover_all_channels_and_fit(config, filters, channels):
    tiling = tiled(conv((filters, 2, 2, channels)), 4, 4, config)
    end = 0
    for first, count in channels_of(tiling):
        assert first == end
        assert count > 0
        assert first % config.out_lanes == 0
        end += count
    assert end == filters
    for step in tiling.passes:
        groups = -(-step.operation.filters.channels // config.out_lanes)
        words = groups * step.operation.group_words(config)
        assert words * config.multipliers <= config.weight_buffer_bytes
        assert groups <= CONSTANT_GROUPS


def test_chunks_grow_so_that_few_of_them_read_the_features_again():
    """1x1, 512 to 2048 channels on 7x7: twice what fits. Equal chunks start late, or are many."""
    tiling = tiled(conv((2048, 1, 1, 512)), 7, 7, M256)
    sizes = [channels // 16 for _, channels in channels_of(tiling)]
    assert sum(sizes) == 128
    assert sizes[0] < 8
    assert max(sizes) <= 64
    assert len(sizes) <= 8
    # Each chunk is fetched (8,320 bytes a group, 16 a cycle) while the one before is computed.
    for size, following in itertools.pairwise(sizes):
        assert following * 520 + 1568 <= size * 49 * 32
        assert size + following <= 64


def test_constants_limit_a_chunk_too():
    """64 lane groups, though the weights of many more would fit."""
    tiling = tiled(conv((1025, 1, 1, 4)), 4, 4, TINY)
    assert max(channels for _, channels in channels_of(tiling)) <= 64 * 4


def test_one_pixel_is_one_chunk():
    """Each lane group is used once: there is no room to keep."""
    tiling = tiled(conv((1000, 1, 1, 512)), 1, 1, TINY)
    assert channels_of(tiling) == [(0, 1000)]
    # 520 bytes a filter on a bus of 4.
    assert 130_000 <= tiling.cycles < 135_000


def test_images_share_a_chunk():
    """Chunk by chunk, image by image; only the first pass of a chunk loads it."""
    layer = conv((300, 3, 3, 20))
    (one,) = operations(layer, 6, 6, TINY)
    two = replace(one, source=replace(one.source, address=5000))
    passes = tile("conv1", [one, two], TINY).passes
    assert len(passes) > 4
    for first, second in zip(passes[::2], passes[1::2], strict=True):
        assert (first.load, first.keep) == (True, True)
        assert (second.load, second.keep) == (False, False)
        assert first.operation.filters is second.operation.filters
        assert second.operation.source.address == first.operation.source.address + 5000


def test_tiling_is_reproducible():
    layer = conv((300, 3, 3, 20))
    one, two = (tiled(layer, 6, 6, TINY) for _ in range(2))
    assert one.cycles == two.cycles
    assert channels_of(one) == channels_of(two)


# Strips


def test_rows_that_fit_are_not_cut():
    # 1,024 bytes a bank; kernels of 4 to 6 rows need two rows in each.
    assert len(tiled(conv((1, 3, 3, 16)), 9, 64, TINY).passes) == 1
    assert len(tiled(conv((1, 3, 3, 16)), 9, 65, TINY).passes) == 2
    assert len(tiled(conv((1, 4, 3, 16)), 9, 32, TINY).passes) == 1
    assert len(tiled(conv((1, 4, 3, 16)), 9, 33, TINY).passes) == 2


def test_rows_of_any_length_for_kernels_of_one_row():
    (step,) = tiled(conv((1, 1, 3, 16)), 9, 4000, TINY).passes
    assert step.operation.source.columns == 4000


@pytest.mark.parametrize("columns", range(1, 40))
def test_strips_cover_the_output_and_see_what_they_need(columns):
    """3 columns, stride 2, padding 2 and 1; a bank has 8 words."""
    config = Config("small", 4, 4, 1, 288, 4096, 4)
    layer = conv((2, 3, 3, 4), (1, 2), (1, 2, 0, 1))
    width = max(1, 2 * columns - 2)
    (operation,) = operations(layer, 4, width, config)
    written = []
    for strip in cut_output(operation, config):
        assert fits_lines(config, 3, strip.source.columns, 4, 3, strip.stride[1])
        written += addresses(strip.target)
        # Strip column 0 is output column x: its window begins at input column 2 x - 2.
        x = strip.target.address // 2
        begin = strip.source.address // 4 - strip.left
        assert begin == 2 * x - 2
        last = min(width, 2 * (x + strip.target.columns - 1) - 2 + 3)
        assert strip.source.address // 4 + strip.source.columns == last
    assert sorted(written) == addresses(operation.target)


def test_large_strides_take_window_by_window():
    """The hardware counts steps of up to 255."""
    layer = conv((1, 2, 2, 1), stride=(300, 256))
    (operation,) = operations(layer, 905, 520, TINY)
    pieces = cut_output(operation, TINY)
    assert len(pieces) == 4 * 3
    for piece in pieces:
        assert piece.stride == (1, 1)
        assert (piece.source.rows, piece.source.columns) == (2, 2)
        y, x = divmod(piece.target.address, 3)
        assert piece.source.address == 300 * y * 520 + 256 * x


# Parts of filters


def test_filters_that_fit_are_one_part():
    config = TINY.override(line_buffer_bytes=1 << 14)
    # 2 rows of 512 bytes are 256 words.
    assert cut_filters(operations(conv((4, 2, 1, 512)), 2, 1, config), config) == [
        Part(0, 2, 0, 1, 0, 512)
    ]
    # One channel more: 129 words in two parts, and the rows stay together.
    assert cut_filters(operations(conv((4, 2, 1, 513)), 2, 1, config), config) == [
        Part(0, 2, 0, 1, 0, 260),
        Part(0, 2, 0, 1, 260, 253),
    ]


@CONFIGS
@pytest.mark.parametrize(
    "shape", [(2, 1, 1, 5000), (2, 3, 3, 1500), (2, 40, 7, 9), (1, 300, 2, 1), (1, 2, 700, 3)]
)
def test_parts_cover_each_weight_once_and_fit(config, shape):
    layer = conv(shape)
    base = operations(layer, shape[1] + 1, shape[2] + 2, config)
    parts = cut_filters(base, config)
    covered = np.zeros(shape[1:], int)
    for part in parts:
        some = (
            slice(part.row, part.row + part.rows),
            slice(part.column, part.column + part.columns),
            slice(part.channel, part.channel + part.channels),
        )
        covered[some] += 1
        assert part.rows <= 255
        assert part.columns <= 255
        words = part.rows * -(-part.columns * part.channels // config.in_lanes)
        assert words * config.multipliers <= config.weight_buffer_bytes
        assert fits_lines(config, part.rows, part.columns, part.channels, part.columns, 1)
    assert (covered == 1).all()


def test_sums_go_through_memory():
    """The first part writes them, the last one reads them, those between do both."""
    passes = tiled(conv((3, 3, 3, 230)), 25, 12, TINY).passes
    assert len(passes) == 3
    assert not any(step.kept_in or step.kept_out for step in passes)
    assert [step.partial_in is not None for step in passes] == [False, True, True]
    assert [step.partial_out is not None for step in passes] == [True, True, False]
    assert [step.second_wait for step in passes] == [False, True, True]
    assert tiled(conv((3, 3, 3, 230)), 25, 12, TINY).partial
    assert not tiled(conv((3, 3, 3, 30)), 25, 12, TINY).partial


def test_few_sums_stay_on_chip():
    """256 columns of results have room: of one channel in `tiny`, in which a group has 4."""
    for rows, columns, channels, kept in [
        *((8, 8, 4, True), (5, 13, 4, False), (17, 5, 3, True), (17, 15, 1, True)),
        (18, 15, 1, False),
    ]:
        tiling = tiled(conv((channels, 3, 3, 120)), rows + 2, columns + 2, TINY)
        assert [step.kept_in for step in tiling.passes] == [False, kept]
        assert [step.kept_out for step in tiling.passes] == [kept, False]
        assert tiling.partial == (not kept)
        if kept:
            assert not any(step.partial_in or step.second_wait for step in tiling.passes)


def test_sums_of_one_pixel_always_stay_on_chip():
    tiling = tiled(conv((1000, 1, 1, 3000)), 1, 1, TINY)
    assert not tiling.partial
    assert [step.operation.filters.channels for step in tiling.passes] == [256] * 9 + [232] * 3


def test_tables_come_with_the_last_part():
    table = np.arange(256).astype(np.uint8).view(np.int8)
    passes = tiled(conv((3, 1, 1, 2000), table=table), 2, 1, TINY).passes
    assert [len(step.operation.filters.tables) for step in passes] == [0, 1]


def test_second_feature_map_comes_after_the_last_part():
    q = Quantisation(1.0, 0)
    combine = Combine("add", combine_scales("add", q, q, q), q, q)
    passes = tiled(conv((3, 1, 1, 2000), combine=combine), 2, 1, TINY).passes
    assert [step.operation.sum is not None for step in passes] == [False, False, True]
    assert [step.source_is_target for step in passes] == [False, False, True]
    assert [step.wait for step in passes] == [False, False, True]


def test_maxima_of_parts_are_combined():
    layer = PoolLayer("pool", "maximum", (40, 40), (1, 1), (0, 0, 0, 0), Quantisation(1.0, 0))
    cut = operations(layer, 41, 41, TINY, 4)
    passes = tile("pool", cut, TINY).passes
    assert len(passes) > 1
    for k, step in enumerate(passes):
        assert step.partial_in is None
        assert step.partial_out is None
        assert step.operation.pools
        assert (step.operation.sum is not None) == step.second_is_target == bool(k and step.load)


def test_maxima_of_parts_need_mode_fixed():
    layer = PoolLayer("pool", "maximum", (40, 40), (1, 1), (0, 0, 0, 0), Quantisation(1.0, 0))
    config = TINY.override(requantise_modes=("float32",))
    text = (
        "layer 'pool': a maximum over 40x40 values exceeds the line buffer; to combine its parts "
        "needs requantisation mode fixed, which is not built into configuration 'tiny'"
    )
    with pytest.raises(UnsupportedError) as refusal:
        tile("pool", operations(layer, 41, 41, config, 4), config)
    assert str(refusal.value) == text
    small = replace(layer, kernel=(3, 3))
    assert tile("pool", operations(small, 41, 41, config, 4), config).passes


# Channels of depthwise convolutions and pools


@pytest.mark.parametrize("config", [TINY, ODD, M256], ids=lambda config: config.name)
@pytest.mark.parametrize("channels", [1, 5, 16, 100, 300])
@pytest.mark.parametrize("kernel", [(3, 3), (7, 1), (12, 12)])
def test_slices_of_channels_cover_all_and_fit(config, channels, kernel):
    layer = conv((channels, *kernel, 1), pad=(1, 1, 1, 1), groups=channels)
    written = []
    for step in tiled(layer, 13, 30, config).passes:
        op, source = step.operation, step.operation.source
        assert source.channels == op.filters.channels
        assert fits_lines(
            config, op.kernel[0], source.columns, source.channels, op.kernel[1], op.stride[1]
        )
        if step.partial_out is None:
            written += addresses(op.target)
    rows, columns = layer.output_shape(13, 30)
    assert sorted(written) == list(range(rows * columns * channels))


def test_slices_are_not_narrow_where_strips_would_do():
    """Spans of few bytes are slow to fetch."""
    layer = conv((256, 3, 3, 1), groups=256)
    for step in tiled(layer, 30, 400, M256).passes:
        assert step.operation.source.channels >= 32


def test_blocks_that_are_wider_than_a_group_are_taken_alone():
    config = Config("narrow", 8, 3, 3, 8 * 8 * 3 * 8, 1024, 8)
    for step in tiled(conv((10, 3, 3, 1), groups=10), 5, 5, config).passes:
        assert step.operation.filters.channels <= 3

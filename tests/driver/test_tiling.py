import itertools

import numpy as np
import pytest

from trirow_driver.layer import ConvLayer
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Chunk, UnsupportedError, tile
from trirow_hw.config import PRESETS

TINY, ODD, ECP5 = PRESETS["tiny"], PRESETS["odd"], PRESETS["ecp5-85f"]


def make(weights, stride=(1, 1), pad=(0, 0, 0, 0), name="conv1"):
    """Return a layer of zeros with weights of the shape (K, R, S, C)."""
    filters = weights[0]
    return ConvLayer(
        name,
        np.zeros(weights, np.int8),
        np.zeros(filters, np.int32),
        np.ones(filters, np.float32),
        stride,
        pad,
        Quantisation(1.0, 0),
        Quantisation(1.0, 0),
    )


def refused(layer, height, width, config, text):
    with pytest.raises(UnsupportedError) as refusal:
        tile(layer, height, width, config)
    assert str(refusal.value) == f"layer 'conv1': {text}"


# Words and chunks


def test_words_of_a_layer_by_hand():
    # 3 columns of 5 channels are 15 bytes, 4 words of 4; a row of 7 x 5 bytes takes 9 words.
    tiling = tile(make((6, 2, 3, 5)), 4, 7, TINY)
    assert (tiling.run_words, tiling.group_words) == (4, 8)
    assert (tiling.row_words, tiling.row_pitch) == (9, 10)
    assert tiling.chunks == (Chunk(0, 6),)


def test_layer_that_fits_is_one_chunk():
    # 8 words a group, 256 in the buffer.
    assert tile(make((128, 2, 3, 5)), 4, 7, TINY).chunks == (Chunk(0, 128),)
    assert len(tile(make((129, 2, 3, 5)), 4, 7, TINY).chunks) > 1


@pytest.mark.parametrize("config", [TINY, ODD, ECP5], ids=lambda config: config.name)
@pytest.mark.parametrize("filters", [1, 5, 17, 64, 200, 511])
@pytest.mark.parametrize("channels", [3, 16, 100])
def test_chunks_cover_all_channels_and_fit(config, filters, channels):
    tiling = tile(make((filters, 2, 2, channels)), 8, 4, config)
    first = 0
    for chunk in tiling.chunks:
        assert chunk.first == first
        assert chunk.channels > 0
        assert chunk.first % config.out_lanes == 0
        groups = -(-chunk.channels // config.out_lanes)
        assert groups * tiling.group_words * config.multipliers <= config.weight_buffer_bytes
        assert groups <= 64
        first += chunk.channels
    assert first == filters


def test_chunks_grow_so_that_few_of_them_read_the_features_again():
    """1x1, 512 to 2048 channels on 7x7: twice what fits. Equal chunks start late, or are many."""
    tiling = tile(make((2048, 1, 1, 512)), 7, 7, PRESETS["m256"])
    sizes = [chunk.channels // 16 for chunk in tiling.chunks]
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
    tiling = tile(make((1025, 1, 1, 4)), 4, 4, TINY)
    assert max(chunk.channels for chunk in tiling.chunks) <= 64 * 4


def test_one_group_that_fits_exactly():
    # 2 rows of 512 bytes are 256 words.
    assert tile(make((4, 2, 1, 512)), 2, 1, TINY.override(line_buffer_bytes=1 << 14)).chunks == (
        Chunk(0, 4),
    )


def test_tiling_is_reproducible():
    layer = make((300, 3, 3, 20))
    assert tile(layer, 6, 6, TINY) == tile(layer, 6, 6, TINY)


# Refusals


def test_kernel_too_large():
    refused(make((1, 12, 1, 1)), 20, 20, TINY, "kernel 12x1 is larger than 11x11")
    refused(make((1, 1, 12, 1)), 20, 20, TINY, "kernel 1x12 is larger than 11x11")


def test_stride_too_large():
    refused(make((1, 1, 1, 1), (5, 1)), 20, 20, TINY, "stride (5, 1) is larger than 4")
    refused(make((1, 1, 1, 1), (1, 5)), 20, 20, TINY, "stride (1, 5) is larger than 4")


def test_rows_that_do_not_fit_the_line_buffer():
    # 1,024 bytes a bank; kernels of 4 to 6 rows need two rows in each.
    assert tile(make((1, 3, 3, 16)), 9, 64, TINY)
    text = "3 rows of 65x16 take 3120 bytes of the line buffer, which has 3072"
    refused(make((1, 3, 3, 16)), 9, 65, TINY, f"{text} (configuration 'tiny')")
    assert tile(make((1, 4, 3, 16)), 9, 32, TINY)
    text = "4 rows of 33x16 take 3168 bytes of the line buffer, which has 3072"
    refused(make((1, 4, 3, 16)), 9, 33, TINY, f"{text} (configuration 'tiny')")


def test_filters_that_do_not_fit_the_weight_buffer():
    text = "a lane group of 4 filters of 2x1x600 takes 4800 bytes of the weight buffer, which has"
    config = TINY.override(line_buffer_bytes=1 << 15)
    refused(make((1, 2, 1, 600)), 2, 1, config, f"{text} 4096 (configuration 'tiny')")


def test_rows_of_any_length_for_kernels_of_one_row():
    assert tile(make((1, 1, 3, 16)), 9, 4000, TINY).row_words == 16_000


def test_window_that_does_not_fit_while_long_rows_stream():
    # A run of 4 x 200 bytes is 200 words, and the next one begins 50 words on: 304 with 4 to spare.
    text = "the window of 4x200 bytes and the next take 3648 bytes of the line buffer, which has"
    refused(make((1, 1, 4, 200)), 9, 10, TINY, f"{text} 3072 (configuration 'tiny')")


@pytest.mark.parametrize("stride", [1, 4])
def test_window_as_wide_as_a_bank(stride):
    """Rows that fit the bank may be under a window, or a step, as long as the bank or longer."""
    layer = make((1, 1, 1, 1024), stride=(1, stride), pad=(1, stride, 1, stride))
    assert tile(layer, 2, 1, TINY).run_words == TINY.line_bank_words


def test_refusal_is_one_line():
    with pytest.raises(UnsupportedError) as refusal:
        tile(make((1, 12, 1, 1)), 20, 20, TINY)
    assert "\n" not in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


def test_kernel_larger_than_the_input():
    with pytest.raises(ValueError, match=r"^layer 'conv1': "):
        tile(make((1, 3, 3, 1)), 2, 2, TINY)

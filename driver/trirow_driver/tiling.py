"""Cut a layer's weights into chunks that fit the weight buffer."""

from __future__ import annotations

from dataclasses import dataclass

from trirow_driver.layer import ConvLayer
from trirow_hw.config import (
    BANKS,
    CONSTANT_BYTES,
    CONSTANT_GROUPS,
    MAX_KERNEL,
    MAX_STRIDE,
    Config,
)

__all__ = ["Chunk", "Tiling", "UnsupportedError", "tile"]


class UnsupportedError(ValueError):
    """The configuration cannot compute the layer; the message names the layer and the limit."""


@dataclass(frozen=True)
class Chunk:
    """Output channels ``first`` to ``first + channels`` of a layer."""

    first: int
    channels: int


@dataclass(frozen=True)
class Tiling:
    """How a layer is computed.

    Parameters
    ----------
    chunks : tuple of Chunk
        In order of their channels; each is one pass over the feature map.
    run_words : int
        Words of ``in_lanes`` bytes that a kernel row takes.
    group_words : int
        Words that a lane group takes in the memory of each lane.
    row_words, row_pitch : int
        Words of a row of the feature map, and the same rounded up to even.
    cycles : int
        Estimated cycles of all passes.
    """

    chunks: tuple[Chunk, ...]
    run_words: int
    group_words: int
    row_words: int
    row_pitch: int
    cycles: int


def tile(layer: ConvLayer, height: int, width: int, config: Config) -> Tiling:
    """Choose the chunks of a layer.

    A chunk is a multiple of ``out_lanes`` channels, except the last. Every chunk reads the feature
    map again, so a layer that fits the weight buffer is one chunk. Of others, a chunk of at most
    half the buffer is fetched while the one before is computed, a larger one is not, but means
    fewer passes: the size with the fewest estimated cycles is taken, then with the fewest bytes.

    Parameters
    ----------
    layer : ConvLayer
    height, width : int
        Rows and columns of its feature map.
    config : Config

    Raises
    ------
    UnsupportedError
        If kernel, stride, rows or weights are beyond what the configuration can do.
    """
    rows, columns = layer.kernel
    if max(rows, columns) > MAX_KERNEL:
        _refuse(layer, f"kernel {rows}x{columns} is larger than {MAX_KERNEL}x{MAX_KERNEL}")
    if max(layer.stride) > MAX_STRIDE:
        _refuse(layer, f"stride {layer.stride} is larger than {MAX_STRIDE}")
    run_words = -(-columns * layer.in_channels // config.in_lanes)
    row_words = -(-width * layer.in_channels // config.in_lanes)
    row_pitch = row_words + row_words % 2
    _check_line_buffer(layer, width, run_words, row_pitch, config)

    group_words = rows * run_words
    if group_words > config.weight_words:
        _refuse(
            layer,
            f"a lane group of {config.out_lanes} filters of {rows}x{columns}x{layer.in_channels} "
            f"takes {group_words * config.multipliers} bytes of the weight buffer, which has "
            f"{config.weight_buffer_bytes} (configuration {config.name!r})",
        )
    groups = -(-layer.out_channels // config.out_lanes)
    most = min(groups, config.weight_words // group_words, CONSTANT_GROUPS)
    cost, size = min(
        (_cost(layer, height, width, size, groups, group_words, config), size)
        for size in range(most if most == groups else 1, most + 1)
    )
    step = size * config.out_lanes
    chunks = tuple(
        Chunk(first, min(step, layer.out_channels - first))
        for first in range(0, layer.out_channels, step)
    )
    return Tiling(chunks, run_words, group_words, row_words, row_pitch, cost[0])


def _cost(
    layer: ConvLayer,
    height: int,
    width: int,
    size: int,
    groups: int,
    group_words: int,
    config: Config,
) -> tuple[int, int]:
    """Return estimated cycles and bytes with ``size`` lane groups a chunk."""
    out_rows, out_columns = layer.output_shape(height, width)
    feature_bytes = height * width * layer.in_channels
    filter_bytes = layer.weights[0].size + CONSTANT_BYTES
    passes = -(-groups // size)
    compute = out_rows * out_columns * size * max(group_words, config.stages)
    weight_bytes = min(layer.out_channels, size * config.out_lanes) * filter_bytes
    features, weights = feature_bytes // config.bus_bytes, weight_bytes // config.bus_bytes
    fits_beside = 2 * size * group_words <= config.weight_words and 2 * size <= CONSTANT_GROUPS
    if fits_beside:
        cycles = weights + (passes - 1) * max(compute, features + weights) + max(compute, features)
    else:
        cycles = passes * (weights + max(compute, features))
    return cycles, passes * feature_bytes + layer.out_channels * filter_bytes


def _check_line_buffer(
    layer: ConvLayer, width: int, run_words: int, row_pitch: int, config: Config
) -> None:
    rows, _ = layer.kernel
    bank = config.line_bank_words
    needed = -(-rows // BANKS) * row_pitch
    buffer = (
        f"the line buffer, which has {config.line_buffer_bytes} (configuration {config.name!r})"
    )
    if rows > 1 and needed > bank:
        _refuse(
            layer,
            f"{rows} rows of {width}x{layer.in_channels} take "
            f"{BANKS * needed * config.in_lanes} bytes of {buffer}",
        )
    # A single row may be longer than its bank: it streams, but its window has to fit, with the
    # columns that a stride leaves behind it.
    step = -(-layer.stride[1] * layer.in_channels // config.in_lanes)
    if rows == 1 and row_pitch > bank and run_words + 2 * step + 4 > bank:
        _refuse(
            layer,
            f"the window of {layer.kernel[1]}x{layer.in_channels} bytes and the next take "
            f"{BANKS * (run_words + 2 * step + 4) * config.in_lanes} bytes of {buffer}",
        )


def _refuse(layer: ConvLayer, text: str) -> None:
    raise UnsupportedError(f"layer {layer.name!r}: {text}")

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
    map again, so a layer that fits the weight buffer is one chunk. Of others, a chunk is fetched
    while the one before is computed as far as both fit the buffer.

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
    sizes, cycles = _choose_sizes(_Cost.of(layer, height, width, group_words, config))
    chunks, first = [], 0
    for size in sizes:
        channels = min(size * config.out_lanes, layer.out_channels - first)
        chunks.append(Chunk(first, channels))
        first += channels
    return Tiling(tuple(chunks), run_words, group_words, row_words, row_pitch, cycles)


@dataclass(frozen=True)
class _Cost:
    """Estimated cycles of one lane group (computing, fetching), of the feature map, and limits."""

    groups: int
    room: int
    compute: int
    fetch: int
    features: int

    @classmethod
    def of(
        cls, layer: ConvLayer, height: int, width: int, group_words: int, config: Config
    ) -> _Cost:
        out_rows, out_columns = layer.output_shape(height, width)
        filter_bytes = layer.weights[0].size + CONSTANT_BYTES
        return cls(
            groups=-(-layer.out_channels // config.out_lanes),
            room=min(config.weight_words // group_words, CONSTANT_GROUPS),
            compute=out_rows * out_columns * max(group_words, config.stages),
            fetch=-(-config.out_lanes * filter_bytes // config.bus_bytes),
            features=-(-height * width * layer.in_channels // config.bus_bytes),
        )

    def cycles(self, sizes: list[int]) -> int:
        """Estimate the passes of chunks of these sizes, in lane groups.

        A chunk is fetched while the one before is computed as far as both fit the buffer; the rest
        comes after it.
        """
        total = sizes[0] * self.fetch
        for size, following in zip(sizes, [*sizes[1:], 0], strict=True):
            beside = min(following, self.room - size)
            total += max(size * self.compute, self.features + beside * self.fetch)
            total += (following - beside) * self.fetch
        return total

    def growing(self, size: int) -> list[int]:
        """Return chunks, each as large as the time and the room beside the one before allow."""
        sizes: list[int] = []
        left = self.groups
        while left:
            size = min(size, left)
            sizes.append(size)
            left -= size
            hidden = (size * self.compute - self.features) // self.fetch
            size = max(1, min(hidden, self.room - size, self.room // 2))
        return sizes


def _choose_sizes(cost: _Cost) -> tuple[list[int], int]:
    """Return the lane groups of each chunk, and the estimated cycles.

    Few chunks read the feature map seldom; a small first one lets the array start early. Of equal
    chunks and of growing ones, the fewest within 1 % of the fastest are taken.
    """
    if cost.groups <= cost.room:
        return [cost.groups], cost.cycles([cost.groups])
    candidates = []
    for size in range(1, cost.room + 1):
        whole, rest = divmod(cost.groups, size)
        candidates += [[size] * whole + [rest] * (rest > 0), cost.growing(size)]
    timed = [(cost.cycles(sizes), sizes) for sizes in candidates]
    limit = min(cycles for cycles, _ in timed) * 1.01
    cycles, sizes = min(
        (entry for entry in timed if entry[0] <= limit), key=lambda entry: (len(entry[1]), entry[0])
    )
    return sizes, cycles


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

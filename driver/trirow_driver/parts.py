"""Cut filters of which not even one lane group fits: parts, of which int32 sums are passed on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trirow_driver.operation import Operation
from trirow_driver.strips import fits_lines
from trirow_hw.config import MAX_KERNEL, Config

__all__ = ["Part", "cut_filters"]


@dataclass(frozen=True)
class Part:
    """Part of a filter: some kernel rows and columns of some input channels.

    Parameters
    ----------
    row, rows : int
        First kernel row, and how many.
    column, columns : int
        First kernel column, and how many.
    channel, channels : int
        First input channel, and how many. Filters that take one channel each are not cut here.
    """

    row: int
    rows: int
    column: int
    columns: int
    channel: int
    channels: int


def cut_filters(operations: Sequence[Operation], config: Config) -> list[Part]:
    """Return the fewest parts of which a lane group fits the weight buffer, and a window the lines.

    Kernel columns stay together if they can. Of as many parts, those that keep kernel rows together
    are taken. One column of one word of channels fits every configuration.

    Parameters
    ----------
    operations : sequence of Operation
        With the same filters.
    config : Config

    Returns
    -------
    list of Part
        Their order is that in which sums are passed on.
    """
    operation = max(operations, key=lambda op: op.source.columns)
    columns = operation.kernel[1]
    cuts = (
        list(_sizes(operation, -(-columns // across), config))
        for across in range(-(-columns // MAX_KERNEL), columns + 1)
    )
    fits = next(sizes for sizes in cuts if sizes)
    return list(_parts(operation, min(fits, key=lambda size: (_count(operation, size), -size[0]))))


def _sizes(operation: Operation, columns: int, config: Config) -> Iterator[tuple[int, int, int]]:
    """Yield (rows, columns, channels) of parts that fit, for each number of parts along rows."""
    rows = operation.kernel[0]
    heights = dict.fromkeys(-(-rows // down) for down in range(1, rows + 1))
    for height in heights:
        if height > MAX_KERNEL:
            continue
        if not operation.dense:
            # Lanes are channels of their own: those of one group at least have to fit.
            channels = min(operation.source.channels, operation.lanes(config))
            if _fits(operation, (height, columns, channels), config):
                yield height, columns, 1
            continue
        # Parts of the channels are whole words.
        words = -(-operation.source.channels // config.in_lanes)
        most = _most_words(operation, height, columns, words, config)
        if most:
            across = -(-words // most)
            width = -(-words // across) * config.in_lanes
            yield height, columns, min(width, operation.source.channels)


def _most_words(operation: Operation, rows: int, columns: int, words: int, config: Config) -> int:
    """Return the most words of channels that fit, 0 if there are none."""
    low, high = 0, words
    while low < high:
        middle = (low + high + 1) // 2
        channels = min(middle * config.in_lanes, operation.source.channels)
        if _fits(operation, (rows, columns, channels), config):
            low = middle
        else:
            high = middle - 1
    return low


def _fits(operation: Operation, size: tuple[int, int, int], config: Config) -> bool:
    """Tell whether a lane group of a part fits the weight buffer, and its window the lines."""
    rows, columns, channels = size
    part = replace(
        operation,
        kernel=(rows, columns),
        source=operation.source.take_channels(0, channels),
    )
    if part.group_words(config) > config.weight_words:
        return False
    width = min(columns, operation.source.columns)
    return fits_lines(config, rows, width, channels, columns, operation.stride[1])


def _count(operation: Operation, size: tuple[int, int, int]) -> int:
    rows, columns, channels = size
    deep = operation.source.channels if operation.dense else 1
    return (
        -(-operation.kernel[0] // rows) * -(-operation.kernel[1] // columns) * -(-deep // channels)
    )


def _parts(operation: Operation, size: tuple[int, int, int]) -> Iterator[Part]:
    (rows, columns), deep = operation.kernel, operation.source.channels if operation.dense else 1
    for c in range(0, deep, size[2]):
        for r in range(0, rows, size[0]):
            for s in range(0, columns, size[1]):
                yield Part(
                    r,
                    min(size[0], rows - r),
                    s,
                    min(size[1], columns - s),
                    c,
                    min(size[2], deep - c),
                )

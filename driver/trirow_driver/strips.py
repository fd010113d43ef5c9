"""Cut outputs into strips of columns and bands of rows, so that a pass fits the accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trirow_driver.operation import Operation
from trirow_hw.config import BANKS, MAX_STRIDE, Config

__all__ = ["cut_output", "fits_lines"]

#: Positions of rows, of columns, and of words in a row are kept in 16 bits and a sign.
_POSITIONS = 1 << 16
#: Padding in front, in rows, columns and words, is in 16 bits with its sign; the rows in the line
#: buffer are counted relative to the window in as many.
_PADDING = 1 << 15


def cut_output(operation: Operation, config: Config) -> list[Operation]:
    """Return operations that compute strips and bands of the output, each of which fits a pass.

    Most operations fit as they are. Otherwise the columns are cut into strips of which the rows fit
    the line buffer, and the rows into bands where the hardware's counters end, or where rows are
    left out that a view with gaps cannot skip.

    Parameters
    ----------
    operation : Operation
        One column of its kernel fits the line buffer; see `trirow_driver.parts.cut_filters`.
    config : Config
    """
    operation = _normalised(operation)
    most = _strip_columns(operation, config)
    strips = [operation] if most is None else _strips(operation, most)
    return [band for strip in strips for band in _bands(_normalised(strip))]


def fits_lines(
    config: Config, rows: int, columns: int, channels: int, kernel_columns: int, step: int
) -> bool:
    """Tell whether rows of a feature map fit the line buffer.

    Parameters
    ----------
    config : Config
    rows : int
        Rows under the window; a single one may stream through a buffer that is shorter.
    columns, channels : int
        Extents of a row.
    kernel_columns, step : int
        Columns of the window, and from one window to the next.
    """
    lanes, bank = config.in_lanes, config.line_bank_words
    words = -(-columns * channels // lanes)
    if -(-rows // BANKS) * (words + words % 2) <= bank:
        return True
    run = -(-kernel_columns * channels // lanes)
    return rows == 1 and run + 2 * -(-step * channels // lanes) + 4 <= bank


def _normalised(operation: Operation) -> Operation:
    """Let a kernel of one row see only the rows that it needs, and an empty view be harmless."""
    source, target = operation.source, operation.target
    (rows, _), (step, across) = operation.kernel, operation.stride
    if source.empty:
        # All windows lie above a single pixel.
        return replace(
            operation,
            source=replace(source, address=0, rows=1, columns=1),
            stride=(1, 1),
            top=target.rows - 1 + rows,
            left=0,
        )
    if rows == 1 and step > 1:
        above = -(-operation.top // step)
        first = above * step - operation.top
        seen = max(0, -(-(source.rows - first) // step))
        view = source.take_rows(first, seen, step)
        return _normalised(replace(operation, source=view, stride=(1, across), top=above))
    # Where there is one window, nothing steps.
    steps = (step if target.rows > 1 else 1, across if target.columns > 1 else 1)
    return operation if steps == operation.stride else replace(operation, stride=steps)


def _strip_columns(operation: Operation, config: Config) -> int | None:
    """Return the most output columns of a strip that fits, or None if there is nothing to cut."""
    source, columns = operation.source, operation.target.columns
    across, step = operation.kernel[1], operation.stride[1]

    def positions(columns: int) -> int:
        """Return the last of so many columns, or of the words in which they lie."""
        return max(columns, columns * source.channels // int(config.in_lanes) + 2)

    def fits(columns: int) -> bool:
        width = min(columns, source.columns)
        return fits_lines(config, operation.kernel[0], width, source.channels, across, step)

    end = columns * step - operation.left + across
    if (
        step <= MAX_STRIDE
        and positions(max(source.columns, columns, end)) < _POSITIONS
        and positions(operation.left) < _PADDING
        and fits(source.columns)
    ):
        # A row that streams must be seen to its end: else its last words never get places.
        covered = end - step
        words = -(-source.columns * source.channels // config.in_lanes)
        streams = operation.kernel[0] == 1 and words + words % 2 > config.line_bank_words
        return columns if streams and covered < source.columns else None
    low, high = 1, 1 if step > MAX_STRIDE else columns
    while low < high:
        middle = (low + high + 1) // 2
        width = (middle - 1) * step + across
        # Up to the window behind the strip's last one, as the hardware counts.
        if positions(width + step) < _PADDING and fits(width):
            low = middle
        else:
            high = middle - 1
    return low


def _strips(operation: Operation, most: int) -> list[Operation]:
    """Cut into strips of at most that many output columns, about equally wide."""
    columns, step = operation.target.columns, operation.stride[1]
    source, count = operation.source, -(-operation.target.columns // most)
    strips = []
    for k in range(count):
        x, end = k * columns // count, (k + 1) * columns // count
        begin = x * step - operation.left
        first = min(max(0, begin), source.columns)
        seen = begin + (end - 1 - x) * step + operation.kernel[1]
        last = min(max(first, seen), source.columns)
        strip = replace(
            operation,
            source=source.take_columns(first, last - first),
            target=operation.target.take_columns(x, end - x),
            second=operation.second and operation.second.take_columns(x, end - x),
            left=first - begin,
        )
        strips.append(strip)
    return strips


def _bands(operation: Operation) -> Iterator[Operation]:
    """Cut into bands of output rows that the hardware can count, and skip between."""
    rows, step = operation.kernel[0], operation.stride[0]
    source, target = operation.source, operation.target
    if step > MAX_STRIDE or (step > rows and not source.contiguous):
        most = 1
    elif (
        max(source.rows, operation.top) >= _PADDING
        or max(target.rows, target.rows * step - operation.top + rows) >= _POSITIONS
    ):
        most = (_PADDING - 1 - rows) // step
    else:
        yield operation
        return
    for y in range(0, target.rows, most):
        count = min(most, target.rows - y)
        begin = y * step - operation.top
        first = min(max(0, begin), source.rows)
        last = min(max(first, begin + (count - 1) * step + rows), source.rows)
        band = replace(
            operation,
            source=source.take_rows(first, last - first),
            target=target.take_rows(y, count),
            second=operation.second and operation.second.take_rows(y, count),
            top=first - begin,
        )
        yield _normalised(band)

"""Choose how many lane groups each chunk of weights has, and estimate the cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trirow_driver.operation import Operation
from trirow_driver.parts import Part
from trirow_driver.strips import fits_lines
from trirow_driver.view import View
from trirow_hw.config import CONSTANT_GROUPS, SECOND_QUEUE, Config

__all__ = ["SPAN_CYCLES", "choose_chunks"]

#: Cycles in which one span of a feature map can be requested.
SPAN_CYCLES = 4
#: Bytes of an int32 sum.
_SUM_BYTES = 4
#: Largest number of lane groups of a chunk.
_MOST_GROUPS = 0xFFFF
#: Channels of a slice below which spans become too short to be fetched at full speed.
_NARROW = 32


def choose_chunks(
    operations: Sequence[Operation], parts: Sequence[Part], config: Config
) -> tuple[list[int], int]:
    """Return the lane groups of each chunk, and the estimated cycles of all passes.

    Parameters
    ----------
    operations : sequence of Operation
        With the same filters.
    parts : sequence of Part
        Parts of the filters; chunks are chosen for the first, which is the largest.
    config : Config
    """
    op, part = operations[0], parts[0]
    lanes = op.lanes(config)
    groups = -(-op.filters.channels // lanes)
    channels = part.channels if op.dense else op.source.channels
    shape = replace(
        op, kernel=(part.rows, part.columns), source=op.source.take_channels(0, channels)
    )
    words = shape.group_words(config)
    pixels = sum(op.target.rows * op.target.columns for op in operations)
    taps = -(-part.rows // config.tap_rows) * part.columns if op.pools else words
    columns = -(-min(lanes, op.filters.channels) // config.post_lanes)
    trips = _SUM_BYTES if len(parts) > 1 else 2 if op.sum else 1
    # They are read and written.
    sums = -(-2 * _SUM_BYTES * lanes // config.bus_bytes) if len(parts) > 1 else 0
    filter_bytes = op.filters.weights[0].size + len(parts) * op.filters.constant_bytes
    cost = _Cost(
        groups,
        min(config.weight_words // words, CONSTANT_GROUPS),
        pixels * max(taps, columns * trips, sums) * len(parts),
        max(1, -(-lanes * filter_bytes // config.bus_bytes)),
        sum(_fetch_cycles(op.source, config) for op in operations),
    )
    if len(operations) == 1 and pixels == 1 and op.dense:
        # The groups of one pixel come and go: the weights pass through the buffer once.
        # Sums of parts can be kept on chip, but not of any number of groups.
        most = _MOST_GROUPS if len(parts) == 1 else SECOND_QUEUE // columns
        sizes = [min(most, groups - k) for k in range(0, groups, most)]
        return sizes, max(cost.features, cost.fetch) + groups * max(cost.fetch, cost.compute)
    if op.dense:
        return _choose_sizes(cost)
    # Each chunk sees its own channels only.
    room = _channel_room(operations, part, cost.room, config)
    size = -(-groups // -(-groups // room))
    sizes = [min(size, groups - k) for k in range(0, groups, size)]
    spans = sum(op.source.rows * op.source.columns for op in operations) * SPAN_CYCLES
    fetch = max(cost.features, spans * len(sizes) if len(sizes) > 1 else 0)
    return sizes, max(fetch, groups * cost.compute) + groups * cost.fetch


def _fetch_cycles(view: View, config: Config) -> int:
    """Return the cycles in which a feature map is fetched: those of its bytes or of its spans."""
    adjoin = view.columns == 1 or view.pixel_pitch == view.channels
    spans = 1 if view.contiguous else view.rows * (1 if adjoin else view.columns)
    return max(-(-view.bytes // int(config.bus_bytes)), spans * SPAN_CYCLES)


def _channel_room(operations: Sequence[Operation], part: Part, room: int, config: Config) -> int:
    """Return the most lane groups of which the rows fit the line buffer, not cut too narrow."""
    if config.out_lanes < config.in_lanes:
        # Blocks of in_lanes channels lie in the lines, groups have fewer.
        return 1
    widest = max(operations, key=lambda op: op.source.columns)
    source, step, lanes = widest.source, widest.stride[1], widest.lanes(config)
    room = min(room, -(-source.channels // lanes))
    # Strips of fewer columns than this would be mostly halo.
    wanted = min(source.columns, 4 * step + part.columns)
    least = min(source.columns, part.columns)
    for width in (source.columns, wanted, least):
        for groups in range(room, 0, -1):
            channels = min(groups * lanes, source.channels)
            if width != least and channels < min(_NARROW, source.channels):
                break
            if fits_lines(config, part.rows, width, channels, part.columns, step):
                return groups
    return 1


@dataclass(frozen=True)
class _Cost:
    """What chunks of dense convolutions cost.

    Parameters
    ----------
    groups, room : int
        Lane groups in all, and those that fit the weight buffer.
    compute, fetch : int
        Cycles in which a lane group is computed, and in which its weights are fetched.
    features : int
        Cycles in which the feature maps are fetched, which is once for each chunk.
    """

    groups: int
    room: int
    compute: int
    fetch: int
    features: int

    def cycles(self, sizes: Sequence[int]) -> int:
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

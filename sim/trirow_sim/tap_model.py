"""Model of the taps of a run: the plain loop nest, and what the readers do for it.

A byte of a feature map is known by its pass, row, column and channel, so that a test can tell
whether a tap finds the right one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trirow_hw.config import BANKS, CONSTANT_GROUPS, Config
from trirow_sim.tap_kit import Geometry, pass_fields

__all__ = ["REUSE", "Chunk", "GroupFeeder", "LineFeeder", "TapModel", "make_chunks", "plain_taps"]

#: Cycles after a release before which its place is not written again.
REUSE = 3

#: Pass, row, column and channel.
Byte = tuple[int, int, int, int]


@dataclass(frozen=True)
class TapModel:
    """What a tap multiplies.

    Parameters
    ----------
    index, pixel, group : int
        Pass, number of the pixel in it, and lane group.
    rows : int
        Runs that count, a bit each.
    low, high : int
        Bytes of a run that count.
    values : dict
        For each run and each place of it that matters, the byte that must be there.
    word : int
        Word of weights in the lane group.
    empty : bool
        There is nothing to multiply: the word is any.
    first, last : bool
        Of its lane group.
    row_end, pass_end : bool
        It belongs to the last pixel of an output row, of the pass.
    """

    index: int
    pixel: int
    group: int
    rows: int
    low: int
    high: int
    values: dict[tuple[int, int], Byte]
    word: int
    empty: bool = False
    first: bool = False
    last: bool = False
    row_end: bool = False
    pass_end: bool = False


def plain_taps(index: int, geometry: Geometry, config: Config) -> Iterator[TapModel]:
    """Yield the taps of a pass in order."""
    out_rows, out_columns = geometry.out_shape
    groups = pass_fields(geometry, config)["groups"]
    pixel = 0
    for y in range(out_rows):
        for x in range(out_columns):
            top = y * geometry.stride[0] - geometry.pad[0]
            left = x * geometry.stride[1] - geometry.pad[1]
            for group in range(groups):
                make = _depthwise_taps if geometry.depthwise else _dense_taps
                taps = list(make(index, geometry, config, top, left, group))
                if not any(tap.rows for tap in taps):
                    taps = [TapModel(index, 0, group, 0, 0, 0, {}, 0, empty=True)]
                for k, tap in enumerate(taps):
                    yield replace(
                        tap,
                        pixel=pixel,
                        first=k == 0,
                        last=k == len(taps) - 1,
                        row_end=x == out_columns - 1,
                        pass_end=x == out_columns - 1 and y == out_rows - 1,
                    )
            pixel += 1


def _dense_taps(
    index: int, geometry: Geometry, config: Config, top: int, left: int, group: int
) -> Iterator[TapModel]:
    lanes, channels = config.in_lanes, geometry.channels
    run = geometry.kernel[1] * channels
    for r in range(geometry.kernel[0]):
        for word in range(-(-run // lanes)):
            values = {}
            for k in range(min(lanes, run - word * lanes)):
                column, channel = divmod(word * lanes + k, channels)
                if 0 <= left + column < geometry.width and 0 <= top + r < geometry.height:
                    values[0, k] = (index, top + r, left + column, channel)
            if values:
                low, high = min(values)[1], max(values)[1] + 1
                place = r * -(-run // lanes) + word
                yield TapModel(index, 0, group, 1, low, high, values, place)


def _depthwise_taps(
    index: int, geometry: Geometry, config: Config, top: int, left: int, group: int
) -> Iterator[TapModel]:
    lanes, taken = config.in_lanes, config.tap_rows
    first = group * lanes
    kernel_rows, kernel_columns = geometry.kernel
    inside = [r for r in range(kernel_rows) if 0 <= top + r < geometry.height]
    # Steps above the map are masked, those below it left out.
    for step in range(max(inside, default=-1) // taken + 1):
        rows = [p for p in range(taken) if step * taken + p in inside]
        for column in range(kernel_columns):
            if 0 <= left + column < geometry.width:
                values = {
                    (p, k): (index, top + step * taken + p, left + column, first + k)
                    for p in rows
                    for k in range(min(lanes, geometry.channels - first))
                }
                word = step * kernel_columns + column if geometry.op == "depthwise" else 0
                mask = sum(1 << p for p in rows)
                yield TapModel(index, 0, group, mask, 0, lanes, values, word)


class LineFeeder:
    """Feature reader and line buffer: words arrive one by one, in places that are free.

    Parameters
    ----------
    config : Config
    geometries : sequence of Geometry
        The passes of the run.

    Attributes
    ----------
    memory : list of list
        Bytes of each bank, None where nothing is known.
    rows, words : int
        Complete rows that have arrived, and words of the next one.
    """

    def __init__(self, config: Config, geometries: Sequence[Geometry]) -> None:
        self._lanes, self._depth = config.in_lanes, config.line_bank_words
        self.memory: list[list[Byte | None]] = [
            [None] * (self._depth * self._lanes) for _ in range(BANKS)
        ]
        self.rows = self.words = 0
        self._free = [self._depth] * BANKS
        self._returns: deque[tuple[int, int, int]] = deque()
        # Bank, place, bytes, places that it takes, whether the row ends.
        self._pending: deque[tuple[int, int, list[Byte], int, bool]] = deque()
        self._allocated: deque[tuple[int, int, list[Byte], int, bool]] = deque()
        starts, count = [0] * BANKS, 0
        for index, geometry in enumerate(geometries):
            for row in self._rows_of(index, geometry):
                bank, lanes = count % BANKS, self._lanes
                pieces = [row[k : k + lanes] for k in range(0, len(row), lanes)]
                for k, piece in enumerate(pieces):
                    last = k == len(pieces) - 1
                    takes = 1 + (last and len(pieces) % 2)
                    place = (starts[bank] + k) % self._depth
                    self._pending.append((bank, place, piece, takes, last))
                starts[bank] = (starts[bank] + len(pieces) + len(pieces) % 2) % self._depth
                count += 1

    def _rows_of(self, index: int, geometry: Geometry) -> list[list[Byte]]:
        columns, channels = range(geometry.width), range(geometry.channels)
        rows = [[(index, y, x, c) for x in columns for c in channels] for y in geometry.fetched]
        return rows or [[(index, 0, 0, 0)]]

    @property
    def done(self) -> bool:
        """Every word has arrived, and every place is free or about to be."""
        free = list(self._free)
        for _, bank, words in self._returns:
            free[bank] += words
        return not self._pending and not self._allocated and free == [self._depth] * BANKS

    def step(self, cycle: int, *, held: bool) -> tuple[int, int, list[Byte | None]] | None:
        """Let a word arrive, if there is a place for one; return its bank, place and bytes."""
        while self._returns and self._returns[0][0] <= cycle:
            _, bank, words = self._returns.popleft()
            self._free[bank] += words
            assert self._free[bank] <= self._depth, "more is freed than was given out"
        if self._pending and self._pending[0][3] <= self._free[self._pending[0][0]]:
            self._allocated.append(self._pending.popleft())
            self._free[self._allocated[-1][0]] -= self._allocated[-1][3]
        if held or not self._allocated:
            return None
        bank, place, piece, _, last = self._allocated.popleft()
        data = [*piece, *[None] * (self._lanes - len(piece))]
        self.memory[bank][place * self._lanes : (place + 1) * self._lanes] = data
        self.rows, self.words = (self.rows + 1, 0) if last else (self.rows, self.words + 1)
        return bank, place, data

    def release(self, cycle: int, bank: int, words: int) -> None:
        """Take places back that are released in this cycle."""
        self._returns.append((cycle + REUSE, bank, words))

    def run(self, bank: int, word: int, byte: int) -> list[Byte | None]:
        """Return the bytes of a run."""
        memory = self.memory[bank]
        first = word * self._lanes + byte
        return [memory[(first + k) % len(memory)] for k in range(self._lanes)]


@dataclass(frozen=True)
class Chunk:
    """Where the weights of a pass are: words of a group, and number and place of the first."""

    group_words: int
    groups: int
    first: int
    place: int


def make_chunks(config: Config, geometries: Sequence[Geometry]) -> list[Chunk]:
    """Return the chunk of each pass; those of a chain have the same."""
    chunks: list[Chunk] = []
    first = place = 0
    for k, geometry in enumerate(geometries):
        if k and geometries[k - 1].chained:
            chunks.append(chunks[-1])
            continue
        fields = pass_fields(geometry, config)
        chunks.append(Chunk(fields["group_words"], fields["groups"], first, place))
        first += fields["groups"]
        place = (place + fields["groups"] * fields["group_words"]) % config.weight_words
    return chunks


class GroupFeeder:
    """Weight reader: lane groups arrive word by word, as far as there is room for them.

    Attributes
    ----------
    loaded : int
        Lane groups that have arrived.
    """

    def __init__(self, config: Config, geometries: Sequence[Geometry]) -> None:
        chunks = dict.fromkeys(make_chunks(config, geometries))
        self._sizes = [chunk.group_words for chunk in chunks for _ in range(chunk.groups)]
        self._words, self._slots = config.weight_words, CONSTANT_GROUPS
        self._released = self._arrived = 0
        self.loaded = 0

    @property
    def done(self) -> bool:
        """Every group has arrived and is released."""
        return self._released == len(self._sizes)

    def step(self, *, held: bool) -> None:
        """Let a word of all lanes arrive, if there is room for its group."""
        if held or self.loaded == len(self._sizes):
            return
        size = self._sizes[self.loaded]
        if size <= self._words and self._slots:
            self._arrived += 1
            if self._arrived == size:
                self._arrived = 0
                self._words -= size
                self._slots -= 1
                self.loaded += 1

    def release(self) -> None:
        """Free the oldest group."""
        assert self._released < self.loaded
        self._words += self._sizes[self._released]
        self._slots += 1
        self._released += 1

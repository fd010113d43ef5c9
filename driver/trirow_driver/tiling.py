"""Cut operations into passes that fit the accelerator: weight chunks, parts of filters, strips."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import trirow_golden
from trirow_driver.chunks import choose_chunks
from trirow_driver.constants import pool_filters
from trirow_driver.operation import Filters, Operation, Sum, UnsupportedError, fixed_scale
from trirow_driver.parts import cut_filters
from trirow_driver.strips import cut_output
from trirow_driver.view import View
from trirow_hw.config import SECOND_QUEUE, TABLE_ENTRIES, Config
from trirow_hw.descriptor import OP_MAX_POOL, OP_SUM_POOL

__all__ = ["Pass", "Tiling", "tile"]

_PARTIAL_BYTES = 4
#: The values of bytes 0 to 255.
_IDENTITY = np.arange(TABLE_ENTRIES, dtype=np.uint8).view(np.int8).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass: an operation that fits, with one chunk of weights.

    Parameters
    ----------
    operation : Operation
        Its views begin at the beginning of their blobs.
    load, keep : bool
        The chunk is read from memory; it stays for the next pass.
    wait, second_wait : bool
        All earlier outputs must have landed before the feature map, or the second operand, is read.
    partial_in, partial_out : View or None
        int32 sums of an earlier pass that are read and added, and those that are written.
    kept_in, kept_out : bool
        The sums of the pass before are added, and those of this one stay on chip for the next.
    source_is_target, second_is_target : bool
        The feature map, or the second operand, is the output of an earlier pass of the same layer.
    """

    operation: Operation
    load: bool = True
    keep: bool = False
    wait: bool = False
    second_wait: bool = False
    partial_in: View | None = None
    partial_out: View | None = None
    kept_in: bool = False
    kept_out: bool = False
    source_is_target: bool = False
    second_is_target: bool = False


@dataclass(frozen=True, eq=False)
class Tiling:
    """How a layer is computed.

    Parameters
    ----------
    passes : tuple of Pass
    cycles : int
        Estimated cycles of all passes.
    """

    passes: tuple[Pass, ...]
    cycles: int

    @property
    def partial(self) -> bool:
        """Some sums go through memory."""
        return any(step.partial_out is not None for step in self.passes)


def tile(name: str, operations: Sequence[Operation], config: Config) -> Tiling:
    """Cut the operations of a layer into passes.

    Operations with the same filters are computed chunk by chunk, so that a chunk of weights is read
    once for all of them. Rows that exceed the line buffer are cut into strips of columns; a filter
    of which not even one lane group fits is cut along channels, kernel rows and kernel columns,
    with int32 partial sums that are kept on chip where they are few, else in memory. Nothing is
    refused for its size.

    Parameters
    ----------
    name : str
        Name of the layer, for messages.
    operations : sequence of Operation
    config : Config

    Raises
    ------
    UnsupportedError
        If a maximum pool has to be cut, and mode ``fixed`` is not built in, with which the maxima
        of the parts are combined.
    """
    by_filters: dict[int, list[Operation]] = {}
    for operation in operations:
        by_filters.setdefault(id(operation.filters), []).append(operation)
    passes: list[Pass] = []
    cycles = 0
    for same in by_filters.values():
        cut = _Cut(name, same, config)
        passes += cut.passes()
        cycles += cut.cycles
    return Tiling(tuple(passes), cycles)


class _Cut:
    """Operations with the same filters, and how they are cut."""

    def __init__(self, name: str, operations: list[Operation], config: Config) -> None:
        self.name, self.config = name, config
        self.operations = operations
        self.shape = operations[0]
        self.lanes = self.shape.lanes(config)
        self.parts = cut_filters(operations, config)
        self.maximum = self.shape.op == OP_MAX_POOL
        if self.maximum and len(self.parts) > 1 and "fixed" not in config.requantise_modes:
            rows, columns = self.shape.kernel
            raise UnsupportedError(
                f"layer {name!r}: a maximum over {rows}x{columns} values exceeds the line buffer; "
                f"to combine its parts needs requantisation mode fixed, which is not built into "
                f"configuration {config.name!r}"
            )
        self.sizes, self.cycles = choose_chunks(operations, self.parts, config)
        # Sums of parts and a second feature map share a port: the latter comes in later passes.
        self.combination: _Cut | None = None
        if len(self.parts) > 1 and self.shape.sum is not None:
            self.combination = self._combined()
            self.cycles += self.combination.cycles

    def passes(self) -> Iterator[Pass]:
        """Yield the passes: chunk by chunk, part by part, operation by operation."""
        first = 0
        for size in self.sizes:
            channels = min(size * self.lanes, self.shape.filters.channels - first)
            pieces = [self._pieces(first, channels, index) for index in range(len(self.parts))]
            # All sums of the chunk are kept on chip or none, and they are taken in their order.
            columns = sum(piece.columns(self.config) for piece in pieces[0])
            orders = [[piece.target for piece in some] for some in pieces]
            kept = columns <= SECOND_QUEUE and all(order == orders[0] for order in orders)
            for index, some in enumerate(pieces):
                yield from self._linked(some, index, kept)
            first += channels
        if self.combination is not None:
            for k, step in enumerate(self.combination.passes()):
                yield replace(step, wait=k == 0, source_is_target=True)

    def _pieces(self, first: int, channels: int, index: int) -> list[Operation]:
        """Return the operations of one chunk of one part, cut to fit the line buffer."""
        filters = self._filters(first, channels, index)
        return [
            piece
            for operation in self.operations
            for piece in cut_output(self._piece(operation, first, index, filters), self.config)
        ]

    def _linked(self, pieces: Sequence[Operation], index: int, kept: bool) -> Iterator[Pass]:
        """Yield the passes of one chunk of one part, which share its weights."""
        again = index > 0 and self.maximum
        adds = index > 0 and not self.maximum
        goes_on = index < len(self.parts) - 1 and not self.maximum
        for k, piece in enumerate(pieces):
            sums = None if kept else _partial(piece.target)
            yield Pass(
                replace(piece, second=piece.target) if again else piece,
                load=k == 0,
                keep=k < len(pieces) - 1,
                second_wait=index > 0 and k == 0 and (again or not kept),
                partial_in=sums if adds else None,
                partial_out=sums if goes_on else None,
                kept_in=adds and kept,
                kept_out=goes_on and kept,
                second_is_target=again,
            )

    def _combined(self) -> _Cut:
        """Return what combines finished outputs with the second feature map, in place."""
        shape, channels = self.shape, self.shape.filters.channels
        filters = pool_filters(channels, *fixed_scale(np.ones(channels)), shape.filters.tables)
        copies = [
            Operation(
                OP_SUM_POOL,
                operation.target,
                operation.target,
                (1, 1),
                (1, 1),
                0,
                0,
                filters,
                fixed=True,
                second=operation.second,
                sum=shape.sum,
            )
            for operation in self.operations
        ]
        return _Cut(self.name, copies, self.config)

    def _filters(self, first: int, channels: int, index: int) -> Filters:
        """Return the weights and constants of a chunk of a part."""
        filters, part = self.shape.filters, self.parts[index]
        outputs = slice(first, first + channels)
        weights = filters.weights[outputs]
        if not self.shape.pools:
            weights = weights[:, part.row :][:, : part.rows]
            weights = weights[:, :, part.column :][:, :, : part.columns]
        if self.shape.dense:
            weights = weights[..., part.channel :][..., : part.channels]
        tables = filters.tables
        if index and self.maximum:
            tables = (_IDENTITY, _IDENTITY)
        elif index < len(self.parts) - 1 or self.combination is not None:
            # Tables come with the last pass over an output.
            tables = ()
        return replace(filters.slice(outputs, weights), tables=tables)

    def _piece(self, operation: Operation, first: int, index: int, filters: Filters) -> Operation:
        """Return an operation for one part of the filters and the channels of one chunk."""
        part, channels = self.parts[index], filters.channels
        dense = operation.dense
        source = operation.source.take_channels(
            *((part.channel, part.channels) if dense else (first, channels))
        )
        # The kernel's rows and columns of the part begin further down and right.
        top, left = operation.top - part.row, operation.left - part.column
        rows, columns = max(0, -top), max(0, -left)
        source = source.take_rows(rows, max(0, source.rows - rows))
        source = source.take_columns(columns, max(0, source.columns - columns))
        total = operation.sum
        if index and self.maximum:
            mantissa, left_shift, right_shift = map(int, trirow_golden.encode_fixed(1.0))
            low, high = operation.low, operation.high
            total = Sum(True, mantissa, left_shift, right_shift, 0, low, high)
        elif self.combination is not None:
            total = None
        second = operation.second if total is not None else None
        return replace(
            operation,
            source=source,
            target=operation.target.take_channels(first, channels),
            second=second and second.take_channels(first, channels),
            sum=total,
            kernel=(part.rows, part.columns),
            top=max(0, top),
            left=max(0, left),
            filters=filters,
        )


def _partial(target: View) -> View:
    """Return where the int32 sums of an output lie: as the output, with four bytes for each."""
    return View(
        target.address * _PARTIAL_BYTES,
        target.rows,
        target.columns,
        target.channels * _PARTIAL_BYTES,
        target.row_pitch * _PARTIAL_BYTES,
        target.pixel_pitch * _PARTIAL_BYTES,
    )

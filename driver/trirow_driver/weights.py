"""Work out the bytes of a chunk of weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trirow_driver.operation import Filters, Operation
from trirow_hw.config import Config
from trirow_hw.descriptor import OP_MAX_POOL

__all__ = ["WeightShape", "chunk_bytes"]

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WeightShape:
    """Runs of weights of one channel in a chunk.

    Parameters
    ----------
    steps : int
        Runs.
    run : int
        Words of a run, each of ``in_lanes`` bytes but the last.
    tail : int
        Bytes of the last word of a run.
    """

    steps: int
    run: int
    tail: int

    @classmethod
    def of(cls, operation: Operation, config: Config) -> WeightShape:
        """Return the shape of the weights of an operation.

        A run is a kernel row of a dense convolution. Of a depthwise one it is a word, which has the
        weights of ``tap_rows`` kernel rows, or of all of them if there are fewer; a pool has one
        word for all of its taps.
        """
        rows, columns = operation.kernel
        if operation.pools:
            return cls(1, 1, 1 if operation.op == OP_MAX_POOL else config.tap_rows)
        if operation.dense:
            run_bytes = columns * operation.source.channels
            lanes = config.in_lanes
            return cls(rows, -(-run_bytes // lanes), (run_bytes - 1) % lanes + 1)
        return cls(-(-rows // config.tap_rows) * columns, 1, min(rows, config.tap_rows))

    def bytes(self, config: Config) -> int:
        """Return the bytes of the weights of one channel."""
        return self.steps * ((self.run - 1) * int(config.in_lanes) + self.tail)


def chunk_bytes(operation: Operation, config: Config) -> bytes:
    """Return the chunk of an operation as the weight reader takes it.

    First the tables. Then lane group by lane group: the constants of each channel (bias, int32;
    scale, uint32; second scale, uint32, where there is one; little-endian), then the weights by
    run, word of the run, and channel. The last word of a run has only the bytes that are left.
    """
    filters = operation.filters
    constants = _constants(filters)
    runs = _runs(operation, config)
    lanes, channels = operation.lanes(config), filters.channels
    whole = channels - channels % lanes
    groups = [
        _groups(constants[some], runs[some], size, config.in_lanes).tobytes()
        for some, size in ((slice(0, whole), lanes), (slice(whole, None), channels % lanes))
        if size and len(constants[some])
    ]
    return b"".join([*(table.astype("<i4").tobytes() for table in filters.tables), *groups])


def _constants(filters: Filters) -> _Bytes:
    """Return the constants, of shape (channels, bytes)."""
    fields = [filters.bias.view(np.uint32), filters.scale]
    fields += [] if filters.second is None else [filters.second]
    return np.stack(fields, axis=1).astype("<u4").view(np.uint8)


def _runs(operation: Operation, config: Config) -> _Bytes:
    """Return the runs of weights, of shape (channels, steps, bytes)."""
    weights = operation.filters.weights
    channels, (rows, columns) = operation.filters.channels, operation.kernel
    shape = WeightShape.of(operation, config)
    if operation.pools:
        return np.ones((channels, shape.steps, shape.tail), np.uint8)
    if operation.dense:
        flat: _Bytes = weights.reshape(channels, rows, -1).view(np.uint8)
        return flat
    # Rows of the last taps that the kernel does not have weigh nothing.
    taps = shape.tail
    padded = np.full(
        (channels, -(-rows // taps) * taps, columns), operation.filters.zero_point, np.int8
    )
    padded[:, :rows] = weights[..., 0]
    words = padded.reshape(channels, -1, taps, columns).transpose(0, 1, 3, 2)
    ordered: _Bytes = words.reshape(channels, shape.steps, taps).view(np.uint8)
    return ordered


def _groups(constants: _Bytes, runs: _Bytes, size: int, lanes: int) -> _Bytes:
    """Return the bytes of lane groups of ``size`` channels, one group in a row."""
    channels, steps, run = runs.shape
    groups, words, tail = channels // size, run // lanes, run % lanes
    head = size * constants.shape[1]
    chunk = np.empty((groups, head + size * steps * run), np.uint8)
    chunk[:, :head] = constants.reshape(groups, head)
    body = chunk[:, head:].reshape(groups, steps, size * run)
    # Channels stand behind the words of a run in memory.
    runs = runs.reshape(groups, size, steps, run).transpose(0, 2, 1, 3)
    whole = words * lanes
    if words:
        part = runs[..., :whole].reshape(groups, steps, size, words, lanes)
        body[..., : size * whole].reshape(groups, steps, words, size, lanes)[...] = part.swapaxes(
            2, 3
        )
    if tail:
        body[..., size * whole :].reshape(groups, steps, size, tail)[...] = runs[..., whole:]
    return chunk

"""Pools, copies and elementwise layers as operations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.combine_layer import Combine
from trirow_driver.constants import layer_tables, pool_filters, unit_filters
from trirow_driver.layer import Layer
from trirow_driver.operation import Filters, Operation, UnsupportedError
from trirow_driver.phases import cut_dilation
from trirow_driver.pool_layer import PoolLayer
from trirow_driver.view import View
from trirow_hw.config import Config
from trirow_hw.descriptor import OP_MAX_POOL, OP_SUM_POOL

__all__ = ["copy_operation", "pool_operations"]


def pool_operations(
    layer: PoolLayer, source: View, target: View, config: Config
) -> Iterator[Operation]:
    """Return the operations of a pool; see `trirow_driver.lowering.lower`."""
    pools = _max_pool if layer.kind == "maximum" else _average_pool
    return pools(layer, source, target, config)


def copy_operation(
    layer: Layer,
    source: View,
    target: View,
    config: Config,
    second: View | None = None,
    combine: Combine | None = None,
) -> Operation:
    """Return an operation that copies bytes, and combines them on the way."""
    tables, total = layer_tables(layer.name, None, combine, config)
    filters, fixed = unit_filters(source.channels, config, tables)
    return Operation(
        OP_SUM_POOL,
        source,
        target,
        (1, 1),
        (1, 1),
        0,
        0,
        filters,
        fixed=fixed,
        second=second,
        sum=total,
    )


def _max_pool(layer: PoolLayer, source: View, target: View, config: Config) -> Iterator[Operation]:
    filters, fixed = unit_filters(source.channels, config)
    base = Operation(
        OP_MAX_POOL,
        source,
        target,
        layer.kernel,
        layer.stride,
        layer.pad[0],
        layer.pad[1],
        filters,
        low=layer.low,
        high=layer.high,
        fixed=fixed,
    )
    yield from cut_dilation(base, layer.dilation)


def _average_pool(
    layer: PoolLayer, source: View, target: View, config: Config
) -> Iterator[Operation]:
    """Cut where the number of values in a window changes: each has a scale of its own."""
    if "fixed" not in config.requantise_modes:
        raise UnsupportedError(
            f"layer {layer.name!r}: average pools need requantisation mode fixed, which is not "
            f"built into configuration {config.name!r}"
        )
    counts = trirow_golden.pool_counts(
        (source.rows, source.columns),
        layer.kernel,
        layer.stride,
        layer.pad,
        dilation=layer.dilation,
        ceil=layer.ceil,
        count_padding=layer.count_padding,
    )
    zero = layer.zero_point
    filters: dict[int, Filters] = {}
    for (y, rows), (x, columns) in product(_equal(counts), _equal(counts.T)):
        count = int(counts[y, x])
        if count not in filters:
            scale = trirow_golden.average_constants(count) if count else (0, 0, 0)
            words = [
                np.full(source.channels, word, np.uint32)
                for word in (scale[0], scale[1] | scale[2] << 8)
            ]
            filters[count] = pool_filters(source.channels, words[0], words[1])
        base = Operation(
            OP_SUM_POOL,
            source,
            target.take_rows(y, rows).take_columns(x, columns),
            layer.kernel,
            layer.stride,
            layer.pad[0] - y * layer.stride[0],
            layer.pad[1] - x * layer.stride[1],
            filters[count],
            zero,
            zero,
            layer.low,
            layer.high,
            fixed=True,
        )
        yield from cut_dilation(base, layer.dilation)


def _equal(counts: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return first row and number of rows of each run of equal rows."""
    changes = (counts[1:] != counts[:-1]).any(axis=1).nonzero()[0] + 1
    edges = [0, *changes.tolist(), len(counts)]
    return [(first, end - first) for first, end in pairwise(edges)]

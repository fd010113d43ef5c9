"""Grouped convolutions as plain ones on slices of the channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trirow_driver.chunks import SPAN_CYCLES
from trirow_driver.conv_layer import ConvLayer
from trirow_driver.operation import Operation
from trirow_hw.config import Config
from trirow_hw.descriptor import OP_DEPTHWISE

__all__ = ["cut_groups"]


def cut_groups(layer: ConvLayer, base: Operation, config: Config) -> Iterator[Operation]:
    """Cut along the groups: slices of channels in, slices of channels out.

    Groups narrower than the lanes are bundled: a convolution of some groups at once has zeros where
    a filter does not belong to a channel. A group of one channel that gives one is depthwise.

    Parameters
    ----------
    layer : ConvLayer
    base : Operation
        The convolution as if there were no groups; its weights are those of the layer.
    config : Config
    """
    groups, filters = layer.groups, base.filters
    if groups == 1:
        yield base
        return
    c, k = layer.in_channels // groups, layer.out_channels // groups
    if c == k == 1:
        yield replace(base, op=OP_DEPTHWISE)
        return
    bundle = _bundle(layer, base, c, k, config)
    for first in range(0, groups, bundle):
        count = min(bundle, groups - first)
        outputs = slice(first * k, (first + count) * k)
        weights = np.full((count * k, *layer.kernel, count * c), layer.weight_zero_point, np.int8)
        for g in range(count):
            own = layer.weights[(first + g) * k : (first + g + 1) * k]
            weights[g * k : (g + 1) * k, :, :, g * c : (g + 1) * c] = own
        part = filters.slice(outputs, weights)
        yield replace(
            base,
            source=base.source.take_channels(first * c, count * c),
            target=base.target.take_channels(first * k, count * k),
            second=base.second and base.second.take_channels(first * k, count * k),
            filters=part,
        )


def _bundle(layer: ConvLayer, base: Operation, c: int, k: int, config: Config) -> int:
    """Return how many groups are best convolved at once."""
    rows, columns = layer.kernel
    bus, out_lanes = int(config.bus_bytes), int(config.out_lanes)
    source, target = base.source, base.target

    def cycles(bundle: int) -> int:
        words = rows * -(-columns * bundle * c // int(config.in_lanes))
        lanes = -(-bundle * k // out_lanes)
        compute = target.rows * target.columns * lanes * max(words, int(config.stages))
        span = max(SPAN_CYCLES, -(-bundle * c // bus) + 1)
        fetch = source.rows * source.columns * span
        return -(-layer.groups // bundle) * max(compute, fetch)

    most = max(1, 2 * out_lanes // k)
    return min(range(1, min(most, layer.groups) + 1), key=cycles)

"""From layers to operations: everything special becomes plain convolutions on strided views."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from trirow_driver.combine_layer import CombineLayer
from trirow_driver.constants import layer_scales, layer_tables
from trirow_driver.conv_layer import ConvLayer
from trirow_driver.groups import cut_groups
from trirow_driver.layer import Layer
from trirow_driver.operation import Filters, Operation, UnsupportedError
from trirow_driver.phases import cut_dilation, cut_transposed, every
from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.pooling import copy_operation, pool_operations
from trirow_driver.view import View
from trirow_hw.config import Config
from trirow_hw.descriptor import OP_DENSE

__all__ = ["UnsupportedError", "lower"]


def lower(
    layer: Layer,
    source: View,
    target: View,
    second: View | None,
    config: Config,
) -> list[Operation]:
    """Return the operations of a layer on one image.

    Dilation becomes a convolution for each phase of rows and columns, a transposed convolution one
    for each phase of the output; groups become convolutions of channel slices; average pools are
    cut where the number of values in the windows changes.

    Parameters
    ----------
    layer : Layer
    source, target : View
        Feature map and output.
    second : View or None
        Second feature map of layers that take two.
    config : Config

    Raises
    ------
    UnsupportedError
        If the configuration lacks what the layer needs.
    """
    if isinstance(layer, ConvLayer):
        return list(_convolution(layer, source, target, second, config))
    if isinstance(layer, PoolLayer):
        return list(pool_operations(layer, source, target, config))
    if isinstance(layer, CombineLayer):
        return [copy_operation(layer, source, target, config, second, layer.combine)]
    if isinstance(layer, CopyLayer):
        steps = range(layer.factor)
        return [
            copy_operation(layer, source, every(target, a, layer.factor, b, layer.factor), config)
            for a, b in product(steps, steps)
        ]
    raise UnsupportedError(f"layer {layer.name!r}: {type(layer).__name__} runs on the host only")


def _convolution(
    layer: ConvLayer, source: View, target: View, second: View | None, config: Config
) -> Iterator[Operation]:
    scale, wide = layer_scales(layer, config)
    tables, total = layer_tables(layer.name, layer.table, layer.combine, config)
    if layer.weight_zero_point and config.weight_bits < 9:
        raise UnsupportedError(
            f"layer {layer.name!r}: weights with a zero point ({layer.weight_zero_point}) need "
            f"weight_bits 9, configuration {config.name!r} has {config.weight_bits}"
        )
    base = Operation(
        OP_DENSE,
        source,
        target,
        layer.kernel,
        layer.stride,
        layer.pad[0],
        layer.pad[1],
        Filters(layer.weights, layer.bias, scale, wide, tables, layer.weight_zero_point),
        layer.input.zero_point,
        layer.output.zero_point,
        layer.low,
        layer.high,
        layer.mode == "fixed",
        second,
        total,
    )
    for part in cut_groups(layer, base, config):
        if layer.transposed:
            yield from cut_transposed(layer, part)
        else:
            yield from cut_dilation(part, layer.dilation)

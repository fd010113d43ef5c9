"""Words of scales and tables, as requantiser and tables on chip take them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.combine_layer import Combine
from trirow_driver.conv_layer import ConvLayer
from trirow_driver.operation import Filters, Sum, UnsupportedError, fixed_scale
from trirow_hw.config import Config

__all__ = ["layer_scales", "layer_tables", "pool_filters", "unit_filters"]

_Words = npt.NDArray[np.uint32]
_Tables = tuple[npt.NDArray[np.int32], ...]


def layer_scales(layer: ConvLayer, config: Config) -> tuple[_Words, _Words | None]:
    """Return the words of the two scales of each channel; see `Filters`.

    Raises
    ------
    UnsupportedError
        If the mode of the layer is not built in.
    """
    if layer.mode not in config.requantise_modes:
        raise UnsupportedError(
            f"layer {layer.name!r}: requantisation mode {layer.mode} is not built into "
            f"configuration {config.name!r}, which has {', '.join(config.requantise_modes)}"
        )
    if layer.mode == "fixed":
        return fixed_scale(layer.multiplier.astype(np.float64))
    slopes = layer.negative_multiplier
    scale = trirow_golden.encode_scale(layer.multiplier.astype(np.float32))
    return scale, None if slopes is None else trirow_golden.encode_scale(slopes)


def layer_tables(
    name: str, table: npt.NDArray[np.int8] | None, combine: Combine | None, config: Config
) -> tuple[_Tables, Sum | None]:
    """Return the tables of a layer, and how it combines.

    Parameters
    ----------
    name : str
        Name of the layer, for messages.
    table : int8 array of shape (256,) or None
        What the outputs become before they are combined.
    combine : Combine or None
    config : Config

    Raises
    ------
    UnsupportedError
        If there is something to combine, and mode ``fixed`` is not built in.
    """
    if combine is None:
        return (() if table is None else (table.astype(np.int32),)), None
    if "fixed" not in config.requantise_modes:
        raise UnsupportedError(
            f"layer {name!r}: combining two feature maps needs requantisation mode fixed, which "
            f"is not built into configuration {config.name!r}"
        )
    scales = combine.scales
    first = scales.first if table is None else scales.first[table.astype(np.int32) & 0xFF]
    total = Sum(
        combine.kind == "maximum",
        int(scales.mantissa),
        int(scales.left),
        int(scales.right),
        combine.output.zero_point,
        combine.low,
        combine.high,
    )
    return (first, scales.second), total


def unit_filters(channels: int, config: Config, tables: _Tables = ()) -> tuple[Filters, bool]:
    """Return filters of the scale 1 in a mode that is built in, and whether that is ``fixed``."""
    if "float32" not in config.requantise_modes:
        return pool_filters(channels, *fixed_scale(np.ones(channels)), tables), True
    scale = trirow_golden.encode_scale(np.ones(channels, np.float32))
    return pool_filters(channels, scale, None, tables), False


def pool_filters(
    channels: int, scale: _Words, second: _Words | None, tables: _Tables = ()
) -> Filters:
    """Return filters of a pool, which have constants and no weights to speak of."""
    ones = np.ones((channels, 1, 1, 1), np.int8)
    return Filters(ones, np.zeros(channels, np.int32), scale, second, tables)

"""Layers and operations for the driver's tests."""

from __future__ import annotations

import numpy as np

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.lowering import lower
from trirow_driver.operation import Operation
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Tiling, tile
from trirow_driver.view import View
from trirow_hw.config import Config


def conv(weights, stride=(1, 1), pad=(0, 0, 0, 0), name="conv1", zero_in=0, zero_out=0, **fields):
    """Return a layer of random numbers with weights of the shape (K, R, S, C / groups)."""
    rng = np.random.default_rng(5)
    filters = weights[0]
    return ConvLayer(
        name,
        rng.integers(-128, 128, weights, dtype=np.int8),
        rng.integers(-1000, 1000, filters, dtype=np.int32),
        rng.uniform(1e-6, 4, filters).astype(np.float32),
        stride,
        pad,
        Quantisation(1.0, zero_in),
        Quantisation(1.0, zero_out),
        **fields,
    )


def operations(layer, height, width, config: Config, channels=None) -> list[Operation]:
    """Return the operations of a layer on one image; all blobs begin at 0."""
    channels = layer.in_channels if channels is None else channels
    shape = (height, width, channels)
    target = View.whole(0, *layer.output_extents(shape))
    second = target if len(layer.inputs) > 1 else None
    return lower(layer, View.whole(0, *shape), target, second, config)


def tiled(layer, height, width, config: Config) -> Tiling:
    """Return the passes of a layer on one image."""
    return tile(layer.name, operations(layer, height, width, config), config)


def addresses(view: View) -> list[int]:
    """Return the addresses of all bytes of a view, by its definition."""
    return [
        view.address + y * view.row_pitch + x * view.pixel_pitch + c
        for y in range(view.rows)
        for x in range(view.columns)
        for c in range(view.channels)
    ]


def walk(fields, prefix) -> list[int]:
    """Return the addresses of all bytes of the spans in a descriptor."""
    found: list[int] = []
    at, left = fields[f"{prefix}_address"], fields[f"{prefix}_bytes"]
    span = fields.get(f"{prefix}_first", fields[f"{prefix}_span"])
    while left:
        span = min(span, left)
        found += range(at, at + span)
        left -= span
        ends = len(found) % fields[f"{prefix}_line"] == 0
        at = (at + span + fields[f"{prefix}_{'turn' if ends else 'gap'}"]) % (1 << 32)
        span = fields[f"{prefix}_span"]
    return found

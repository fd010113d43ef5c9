"""Layers of the accelerator for the operations of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trirow_driver.combine_layer import Combine, CombineLayer, combine_scales
from trirow_driver.conv_layer import ConvLayer, quantise_conv
from trirow_driver.graph import (
    AveragePool,
    Convolution,
    Eltwise,
    InnerProduct,
    Operation,
    Pool,
    Prelu,
    Relu,
)
from trirow_driver.layer import Layer, Shape
from trirow_driver.pool_layer import PoolLayer
from trirow_driver.quantise import Quantisation

__all__ = ["ACTIVATIONS", "OnHost", "Surroundings", "can_follow", "layer_of"]

#: Operations that can be part of the layer in front of them.
ACTIVATIONS = (Relu, Prelu)
_Floats = npt.NDArray[np.float32]


class OnHost(Exception):
    """The accelerator cannot compute an operation; the message says why."""


@dataclass(frozen=True)
class Surroundings:
    """What a layer needs to know of the tensors around it.

    Parameters
    ----------
    shape : (int, int, int)
        Rows, columns and channels of the first input.
    inputs : tuple of Quantisation
    output : Quantisation
        Of what the activation behind it gives, or without one the operation.
    """

    shape: Shape
    inputs: tuple[Quantisation, ...]
    output: Quantisation


def can_follow(operation: Operation, activation: Operation) -> bool:
    """Return whether an activation can be part of the layer of an operation."""
    if isinstance(operation, Convolution | InnerProduct):
        return isinstance(activation, ACTIVATIONS)
    plain = isinstance(activation, Relu) and activation.negative_slope == 0
    return plain and isinstance(operation, Pool | Eltwise)


def layer_of(
    name: str, operation: Operation, activation: Operation | None, around: Surroundings
) -> Layer:
    """Return the layer of an operation, and of the activation behind it.

    Parameters
    ----------
    name : str
        Of the layer.
    operation, activation : Operation
        `can_follow` allows them.
    around : Surroundings

    Raises
    ------
    OnHost
        If the accelerator has no such layer.
    ValueError
        If it has, but not with such numbers; the message names the layer.
    """
    match operation:
        case Convolution(weights=weights, bias=bias):
            options = {
                "stride": operation.stride,
                "pad": operation.pad,
                "dilation": operation.dilation,
                "groups": operation.group,
            }
            return _convolution(name, weights, bias, options, activation, around)
        case InnerProduct(weights=weights, bias=bias):
            rows, columns, channels = around.shape
            # From the order of Caffe's features, CHW, which the convolution takes for NHWC.
            kernels = weights.reshape(-1, channels, rows, columns)
            return _convolution(name, kernels, bias, {}, activation, around)
        case Pool():
            return _pool(name, operation, activation, around)
        case Eltwise():
            return _combine(name, operation, activation, around)
    raise OnHost(f"the accelerator has no {operation.kind}")


def _convolution(
    name: str,
    weights: _Floats,
    bias: _Floats | None,
    options: Mapping[str, object],
    activation: Operation | None,
    around: Surroundings,
) -> ConvLayer:
    filters = weights.shape[0]
    layer = quantise_conv(
        name,
        weights.transpose(0, 2, 3, 1),
        np.zeros(filters) if bias is None else bias,
        input=around.inputs[0],
        output=around.output,
    )
    layer = replace(layer, **options)  # type: ignore[arg-type]
    match activation:
        case Relu(negative_slope=0):
            return replace(layer, low=layer.output.zero_point)
        case Relu(negative_slope=slope):
            slopes = np.full(filters, slope, np.float32)
        case Prelu(slopes=slopes):
            pass
        case _:
            return layer
    negative = (layer.multiplier * slopes).astype(np.float32)
    return replace(layer, negative_multiplier=negative)


def _pool(name: str, pool: Pool, activation: Operation | None, around: Surroundings) -> PoolLayer:
    q = around.inputs[0]
    return PoolLayer(
        name,
        "average" if isinstance(pool, AveragePool) else "maximum",
        pool.kernel or around.shape[:2],
        pool.stride,
        pool.pad,
        q,
        ceil=pool.ceil and pool.kernel is not None,
        count_padding=isinstance(pool, AveragePool),
        low=-128 if activation is None else q.zero_point,
    )


def _combine(
    name: str, eltwise: Eltwise, activation: Operation | None, around: Surroundings
) -> CombineLayer:
    if eltwise.operation == "product":
        raise OnHost("the accelerator has no product of feature maps")
    if len(around.inputs) != 2 or set(eltwise.coefficients or (1,)) != {1}:
        raise OnHost("the accelerator combines two feature maps, without coefficients")
    kind = "add" if eltwise.operation == "sum" else "maximum"
    first, second = around.inputs
    scales = combine_scales(kind, first, second, around.output)
    low = -128 if activation is None else around.output.zero_point
    return CombineLayer(name, first, Combine(kind, scales, second, around.output, low))

"""Fold what is linear in each channel into the convolution in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from trirow_driver.graph.graph import Graph, Node
from trirow_driver.graph.matrix import Convolution, Deconvolution, InnerProduct
from trirow_driver.graph.operation import Identity, Operation, Shape, axis_from_front
from trirow_driver.graph.pointwise import BatchNorm, Bias, Power, Scale

__all__ = ["fold"]

_Float64 = npt.NDArray[np.float64]


def fold(graph: Graph) -> Graph:
    """Return a graph that computes the same with fewer operations.

    Identities (Dropout, Split) disappear. A batch normalisation, scale or bias of channels, or a
    power of exponent 1, goes into weights and bias of the convolution, deconvolution or inner
    product in front of it, unless something else reads what is between them. Without one in front
    it becomes a depthwise convolution of 1x1, if it is of a feature map. Products and sums are
    computed in float64, and rounded to float32 at the end of each fold.

    Parameters
    ----------
    graph : Graph
        Is not changed.

    Returns
    -------
    Graph
        With the inputs and outputs of the other. Its tensors have the names, and but for rounding
        the values, that they had there.
    """
    nodes: dict[str, Node] = {}  # by the first tensor that they write
    same: dict[str, str] = {}  # tensors that are another one
    for node in graph.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if isinstance(node.operation, Identity):
            kept = [name for name in node.outputs if name in graph.outputs]
            same |= dict.fromkeys(set(node.outputs) - set(kept), node.inputs[0])
            if not kept:
                continue
            node = Node(node.name, Identity(len(kept)), node.inputs, tuple(kept))
        affine = _affine(node.operation, graph.shapes[node.outputs[0]])
        if affine is not None:
            front = nodes.get(node.inputs[0])
            if front is not None and _alone(graph, front.outputs[0], node, same):
                folded = _folded(front.operation, *affine)
                if folded is not None:
                    del nodes[front.outputs[0]]
                    node = Node(front.name, folded, front.inputs, node.outputs)
                    affine = None
            if affine is not None and len(graph.shapes[node.outputs[0]]) == 4:
                node = replace(node, operation=_depthwise(*affine))
        nodes[node.outputs[0]] = node
    return Graph(graph.inputs, list(nodes.values()), graph.outputs)


def _alone(graph: Graph, tensor: str, node: Node, same: Mapping[str, str]) -> bool:
    """Return whether nothing but a node reads a tensor, under whichever name."""
    names = {tensor, *(name for name, source in same.items() if source == tensor)}
    readers = {
        reader.name
        for name in names
        for reader in graph.consumers(name)
        if not isinstance(reader.operation, Identity) or set(reader.outputs) & set(graph.outputs)
    }
    return readers == {node.name} and not names & set(graph.outputs)


def _affine(operation: Operation, shape: Shape) -> tuple[_Float64, _Float64] | None:
    """Return factor and offset of each channel, if that is all that an operation does."""
    if len(shape) < 2:
        return None
    channels = shape[1]
    one, zero = np.ones(channels), np.zeros(channels)
    match operation:
        case BatchNorm(mean=mean, variance=variance, eps=eps):
            factor = 1 / np.sqrt(variance.astype(np.float64) + eps)
            return factor, -mean * factor
        case Scale(factors=factors, offsets=offsets, axis=axis) if _per_channel(
            axis, shape, factors.ndim
        ):
            return one * factors, zero if offsets is None else one * offsets
        case Bias(offsets=offsets, axis=axis) if _per_channel(axis, shape, offsets.ndim):
            return one, one * offsets
        case Power(power=1, scale=scale, shift=shift):
            return one * scale, zero + shift
    return None


def _per_channel(axis: int, shape: Shape, axes: int) -> bool:
    return axes == 1 and axis_from_front(axis, shape) == 1


def _folded(operation: Operation, factor: _Float64, offset: _Float64) -> Operation | None:
    """Return the operation with channels multiplied and added to; None if it has no weights."""
    match operation:
        case Convolution(weights=weights, bias=bias):
            scaled = weights * factor[:, None, None, None]
        case Deconvolution(weights=weights, bias=bias, group=group):
            # Of each input channel, the kernels of its group's output channels.
            of_group = factor.reshape(group, 1, -1)
            grouped = weights.reshape(group, -1, *weights.shape[1:])
            scaled = (grouped * of_group[..., None, None]).reshape(weights.shape)
        case InnerProduct(weights=weights, bias=bias, axis=axis) if axis == 1:
            scaled = weights * factor[:, None]
        case _:
            return None
    total = offset if bias is None else bias * factor + offset
    return replace(operation, weights=scaled.astype(np.float32), bias=total.astype(np.float32))


def _depthwise(factor: _Float64, offset: _Float64) -> Convolution:
    weights = factor.astype(np.float32)[:, None, None, None]
    return Convolution(weights, offset.astype(np.float32), group=len(factor))

"""A network of Caffe as a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trirow_driver.blob import Blob
from trirow_driver.caffe.files import named, read_caffemodel, read_prototxt
from trirow_driver.caffe.layers import CaffeLayer, blobs_of, inputs_of, layers_of, read_blobs
from trirow_driver.caffe.operations import operation_of
from trirow_driver.graph import Graph, Node

__all__ = ["CaffeNet", "load_caffe"]


@dataclass(frozen=True, eq=False)
class CaffeNet:
    """A network of Caffe.

    Parameters
    ----------
    graph : Graph
        Its tensors are Caffe's blobs. What a layer writes over, as those do that work in place, is
        called ``BLOB@LAYER`` after the layer that gave it; the last content has the blob's name.
    layers : tuple of CaffeLayer
        In order; each is the node of the same name.
    params : mapping of str to list of Blob
        Trained values of the layers that have any.
    """

    graph: Graph
    layers: tuple[CaffeLayer, ...]
    params: Mapping[str, list[Blob]]


def load_caffe(
    prototxt: str | os.PathLike[str], caffemodel: str | os.PathLike[str] | None = None
) -> CaffeNet:
    """Read a network.

    Blobs are found by the names of layers. Layers that only the caffemodel has do not matter.

    Parameters
    ----------
    prototxt : path-like
        What it is made of.
    caffemodel : path-like, optional
        Its trained values; without it no layer may have any.

    Raises
    ------
    CaffeFileError
        If a file cannot be read, or something in it is wrong or not supported; the message names
        the file and the layer.
    """
    net = read_prototxt(prototxt)
    stored: dict[str, list[Any]] = {}
    if caffemodel is not None:
        trained = read_caffemodel(caffemodel)
        with named(caffemodel):
            stored = blobs_of(trained)
    with named(prototxt):
        layers = layers_of(net)
        inputs = inputs_of(net, layers)
        last = {top: layer for layer in layers for top in layer.tops}
    fed = {name: f"{name}@" if name in last else name for name in inputs}
    tensors = dict(fed)  # what each blob is at present
    nodes, params = [], {}
    for layer in layers:
        with named(prototxt, layer.name):
            reads = tuple(_tensor(tensors, bottom) for bottom in layer.bottoms)
        with named(caffemodel or prototxt, layer.name):
            blobs = read_blobs(layer, stored)
        with named(prototxt, layer.name):
            operation = operation_of(layer, blobs)
        if blobs:
            params[layer.name] = blobs
        for top in layer.tops:
            tensors[top] = top if last[top] is layer else f"{top}@{layer.name}"
        nodes.append(Node(layer.name, operation, reads, tuple(tensors[t] for t in layer.tops)))
    with named(prototxt):
        shapes = {fed[name]: shape for name, shape in inputs.items()}
        return CaffeNet(Graph(shapes, nodes), tuple(layers), params)


def _tensor(tensors: Mapping[str, str], blob: str) -> str:
    if blob not in tensors:
        raise ValueError(f"reads blob {blob!r}, which no layer before it gives")
    return tensors[blob]

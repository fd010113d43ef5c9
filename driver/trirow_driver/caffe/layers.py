"""Layers of a network, whichever way its files were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trirow_driver.blob import Blob
from trirow_driver.caffe.blobs import blob_from_proto
from trirow_driver.caffe.messages import V1_TYPES

__all__ = ["CaffeLayer", "blobs_of", "inputs_of", "layers_of", "read_blobs"]

_TEST = 1
#: Layers that feed a network.
_SOURCES = ("Input", "Data", "MemoryData", "DummyData", "ImageData", "HDF5Data", "AnnotatedData")
#: Layers that only training or its statistics need.
_DROPPED = (
    "Accuracy",
    "DetectionEvaluate",
    "EuclideanLoss",
    "MultiBoxLoss",
    "SigmoidCrossEntropyLoss",
    "Silence",
)


@dataclass(frozen=True, eq=False)
class CaffeLayer:
    """A layer.

    Parameters
    ----------
    name, type : str
        The type as V2 calls it.
    bottoms, tops : tuple of str
        Blobs that it reads and writes.
    message : LayerParameter or V1LayerParameter
        For its parameters.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    message: Any


def layers_of(net: Any) -> list[CaffeLayer]:
    """Return the layers that a network has when it is used.

    Layers of the training phase, losses and statistics are left out; the softmax of a loss stays.

    Parameters
    ----------
    net : NetParameter

    Raises
    ------
    ValueError
        If a V1 layer has a type that is not known.
    """
    layers = []
    for entry in _entries(net):
        if entry.type in _DROPPED or not _used(entry.message):
            continue
        if entry.type == "SoftmaxWithLoss":
            tops = entry.tops[:1] or (entry.name,)
            entry = CaffeLayer(entry.name, "Softmax", entry.bottoms[:1], tops, entry.message)
        layers.append(entry)
    return layers


def inputs_of(net: Any, layers: list[CaffeLayer]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the blobs that a network is fed with; their layers leave the list.

    Parameters
    ----------
    net : NetParameter
    layers : list of CaffeLayer
        As `layers_of` returns them; is changed.

    Raises
    ------
    ValueError
        If there is no shape for an input.
    """
    shapes = [tuple(shape.dim) for shape in net.input_shape]
    if not shapes:
        dims = tuple(net.input_dim)
        shapes = [dims[k : k + 4] for k in range(0, len(dims), 4)]
    if len(shapes) < len(net.input):
        raise ValueError(f"input {net.input[len(shapes)]!r} has no shape")
    inputs = dict(zip(net.input, shapes, strict=False))
    for layer in [layer for layer in layers if layer.type in _SOURCES]:
        layers.remove(layer)
        given = _source_shapes(layer)
        if not given or not layer.tops:
            raise ValueError(
                f"layer {layer.name!r} ({layer.type}) says no shape; a layer of type Input can"
            )
        # Where there is one shape for several blobs, it is that of all; labels have none.
        tops = layer.tops if layer.type == "Input" else layer.tops[: len(given)]
        for number, top in enumerate(tops):
            inputs[top] = given[min(number, len(given) - 1)]
    if not inputs:
        raise ValueError("has no input")
    return inputs


def blobs_of(net: Any) -> dict[str, list[Any]]:
    """Return the blobs of the layers of a trained network, as messages, by the layer's name."""
    return {layer.name: list(layer.message.blobs) for layer in _entries(net)}


def read_blobs(layer: CaffeLayer, stored: Mapping[str, list[Any]]) -> list[Blob]:
    """Return the blobs of a layer; none if there are none.

    Raises
    ------
    ValueError
        If one is wrong.
    """
    protos: Iterable[Any] = stored.get(layer.name) or layer.message.blobs
    return [blob_from_proto(proto) for proto in protos]


def _entries(net: Any) -> list[CaffeLayer]:
    """Return all layers; a network has those of V1 or of V2."""
    entries = []
    for old in net.layers:
        if old.type not in V1_TYPES:
            raise ValueError(f"layer {old.name!r} has V1 type {old.type}, which is not known")
        name = V1_TYPES[old.type][1]
        entries.append(CaffeLayer(old.name, name, tuple(old.bottom), tuple(old.top), old))
    for new in net.layer:
        entries.append(CaffeLayer(new.name, new.type, tuple(new.bottom), tuple(new.top), new))
    return entries


def _used(message: Any) -> bool:
    """Return whether the rules of a layer let it be there in the TEST phase."""
    if message.include:
        return any(_meets(rule) for rule in message.include)
    return not any(_meets(rule) for rule in message.exclude)


def _meets(rule: Any) -> bool:
    # There is no stage, and the level is 0.
    return (
        (not rule.HasField("phase") or rule.phase == _TEST)
        and rule.min_level <= 0 <= (rule.max_level if rule.HasField("max_level") else 0)
        and not rule.stage
    )


def _source_shapes(layer: CaffeLayer) -> list[tuple[int, ...]]:
    message = layer.message
    if layer.type == "Input":
        return [tuple(shape.dim) for shape in message.input_param.shape]
    if layer.type == "MemoryData" and message.HasField("memory_data_param"):
        data = message.memory_data_param
        return [(data.batch_size, data.channels, data.height, data.width)]
    if layer.type == "DummyData" and message.HasField("dummy_data_param"):
        data = message.dummy_data_param
        old = zip(data.num, data.channels, data.height, data.width, strict=False)
        return [tuple(shape.dim) for shape in data.shape] or [tuple(shape) for shape in old]
    return []

"""Networks of Caffe for `trirow sim`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from trirow.model_options import Work
from trirow.options import InputError
from trirow_driver.graph import Graph, Softmax
from trirow_driver.picture import CHANNELS, PictureError, load_picture
from trirow_driver.quantised_net import QuantisedNet, quantise_graph

__all__ = ["SUFFIXES", "caffe_work"]

#: Files that are networks of Caffe; either of the two names both.
SUFFIXES = (".prototxt", ".caffemodel")


def caffe_work(
    model: Path,
    weights: Path | None,
    image: Path,
    shape: tuple[int, int, int] | None,
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
    name: str | None,
) -> Work:
    """Return what the accelerator does of a network, or one layer of it.

    The network is quantised with the picture as its calibration.

    Parameters
    ----------
    model : Path
        The prototxt.
    weights : Path, optional
        The caffemodel; without it the one beside the prototxt.
    image : Path
    shape : (int, int, int), optional
        Rows, columns and channels of the input, instead of the network's.
    mean, scale, channels
        As for `load_picture`.
    name : str, optional
        Of the layer.

    Raises
    ------
    InputError
        If a file is wrong, or does not go with the others.
    """
    try:
        graph = _graph(model, weights, shape)
        ((tensor, extents),) = graph.inputs.items()
        values = _picture(image, extents, mean, scale, channels)
        feeds = {tensor: np.ascontiguousarray(values.transpose(0, 3, 1, 2))}
        net = quantise_graph(graph, [feeds])
    except PictureError as error:
        raise InputError(str(error)) from error
    except ValueError as error:
        raise InputError(f"{model}: {error}") from error
    if not net.nodes:
        raise InputError(f"{model}: the accelerator has no layer of it: {net.host[0].reason}")
    if name is None:
        return Work(model.stem, net.nodes, net.features(feeds), net.slices, _classifies(net))
    return _one_layer(model, net, feeds, name)


def _graph(model: Path, weights: Path | None, shape: tuple[int, int, int] | None) -> Graph:
    try:
        from trirow_driver.caffe import CaffeFileError, load_caffe  # an extra
    except ImportError as error:
        raise InputError(
            f"{model}: networks of Caffe need protobuf: pip install 'trirow[caffe]'"
        ) from error
    if model.suffix.lower() == ".caffemodel":
        model, weights = model.with_suffix(".prototxt"), model
    try:
        graph = load_caffe(model, weights or _beside(model)).graph
    except CaffeFileError as error:
        raise InputError(str(error)) from error
    if len(graph.inputs) != 1:
        raise ValueError(f"must have one input for a picture, not {len(graph.inputs)}")
    ((tensor, extents),) = graph.inputs.items()
    if len(extents) != 4:
        raise ValueError(f"input {tensor!r} must be a feature map, not of shape {extents}")
    rows, columns, channels = shape or (*extents[2:], extents[1])
    return graph.with_inputs({tensor: (1, channels, rows, columns)})


def _beside(model: Path) -> Path:
    """Return the caffemodel of a prototxt: of the same name, or the only one there."""
    same = model.with_suffix(".caffemodel")
    if same.exists():
        return same
    found = sorted(model.parent.glob("*.caffemodel"))
    if len(found) != 1:
        raise ValueError(f"there is no {same.name} beside it; --weights says where it is")
    return found[0]


def _picture(
    image: Path,
    extents: tuple[int, ...],
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
) -> npt.NDArray[np.float32]:
    _, wanted, rows, columns = extents
    # Caffe's own tools read pictures as BGR.
    order = channels or ("grey" if wanted == 1 else "bgr")
    if CHANNELS[order] != wanted:
        raise ValueError(
            f"takes {wanted} channels, and a picture as {order} has {CHANNELS[order]}; change "
            "--channels or the model"
        )
    return load_picture(image, (rows, columns), channels=order, mean=mean, scale=scale)


def _classifies(net: QuantisedNet) -> bool:
    """Return whether the last layer's largest output is the answer."""
    (last, *more) = net.graph.outputs
    rows, columns, _ = net.shapes[net.nodes[-1].output]
    behind = all(isinstance(step.node.operation, Softmax) for step in net.host)
    reaches = last == net.nodes[-1].output or any(last in step.node.outputs for step in net.host)
    return not more and behind and reaches and (rows, columns) == (1, 1)


def _one_layer(
    model: Path, net: QuantisedNet, feeds: dict[str, npt.NDArray[np.float32]], name: str
) -> Work:
    """Return one layer with the feature maps that golden gives it."""
    nodes = {node.layer.name: node for node in net.nodes}
    if name not in nodes:
        reasons = {step.node.name: step.reason for step in net.host}
        text = f"has no layer {name!r}; --layer is one of {', '.join(nodes)}"
        if name in reasons:
            text = f"layer {name!r} is computed on the host: {reasons[name]}"
        raise InputError(f"{model}: {text}")
    node = nodes[name]
    maps, _ = net.golden(feeds)
    slices = {t: net.slices[t] for t in (*node.inputs, node.output) if t in net.slices}
    roots = [slices[t].whole if t in slices else t for t in node.inputs]
    features = {root: maps[root] for root in roots}
    classifies = node is net.nodes[-1] and _classifies(net)
    return Work(model.stem, [node], features, slices, classifies)

"""Trirow's own networks as networks of Caffe."""

from __future__ import annotations

from typing import Any

import numpy as np

from trirow_driver.blob import Blob
from trirow_driver.caffe.blobs import blob_to_proto
from trirow_driver.caffe.messages import message
from trirow_driver.float_network import FloatConv, FloatNetwork

__all__ = ["to_caffe"]


def to_caffe(network: FloatNetwork, *, name: str = "network", blob: str = "data") -> Any:
    """Return a network as Caffe has it, with its trained values.

    Each convolution has the name of its layer, as has the blob that it gives; a ReLU works in
    place. The ranges of activations are not in it.

    Parameters
    ----------
    network : FloatNetwork
        With an input shape.
    name : str
        Of the network.
    blob : str
        Of the input.

    Returns
    -------
    NetParameter
        For `write_prototxt` and `write_caffemodel`.

    Raises
    ------
    ValueError
        If the network has no input shape, or a layer's padding differs between top and bottom or
        left and right, which Caffe cannot say.
    """
    if network.input_shape is None:
        raise ValueError("network must have an input shape")
    net = message("NetParameter")(name=name)
    source = net.layer.add(name=blob, type="Input", top=[blob])
    rows, columns, channels = network.input_shape
    source.input_param.shape.add(dim=[1, channels, rows, columns])
    for layer in network.layers:
        _add_convolution(net, layer, blob)
        blob = layer.name
        if layer.relu:
            net.layer.add(name=f"{blob}/relu", type="ReLU", bottom=[blob], top=[blob])
    return net


def _add_convolution(net: Any, layer: FloatConv, bottom: str) -> None:
    top, left, below, right = layer.pad
    if (top, left) != (below, right):
        raise ValueError(f"layer {layer.name!r}: padding must be symmetric, not {layer.pad}")
    entry = net.layer.add(name=layer.name, type="Convolution", bottom=[bottom], top=[layer.name])
    param = entry.convolution_param
    param.num_output, param.kernel_h, param.kernel_w = layer.weights.shape[:3]
    param.stride_h, param.stride_w = layer.stride
    param.pad_h, param.pad_w = top, left
    for values in (layer.weights.transpose(0, 3, 1, 2), layer.bias):
        stored = Blob(values.shape)
        stored.data[...] = np.asarray(values, np.float32)
        entry.blobs.append(blob_to_proto(stored))

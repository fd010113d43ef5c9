"""The digit classifier in floating point: its layers, its weights file and its forward pass.

Images and activations are NHWC, weights are (K, R, S, C), padding is (top, left, bottom, right).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WEIGHTS = Path(__file__).resolve().parent / "weights.npz"
CHUNK = 500  # images per pass, which bounds the memory of the unrolled windows


@dataclass
class FloatConv:
    """One convolution, with bias and optional ReLU.

    Attributes
    ----------
    name : str
        Name of the layer, unique in its network.
    weights : numpy.ndarray
        float32, (K, R, S, C).
    bias : numpy.ndarray
        float32, (K,).
    stride : tuple of int
        Vertical and horizontal stride.
    pad : tuple of int
        Zeros added at (top, left, bottom, right).
    relu : bool
        Whether negative outputs become zero.
    output_range : tuple of float
        Smallest and largest output, after ReLU, seen over the training images.
    """

    name: str
    weights: np.ndarray
    bias: np.ndarray
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    relu: bool = False
    output_range: tuple[float, float] = (0.0, 0.0)


@dataclass
class Network:
    """A chain of convolutions.

    Attributes
    ----------
    layers : list of FloatConv
        The layers, first to last.
    input_range : tuple of float
        Smallest and largest value of the training images.
    """

    layers: list[FloatConv]
    input_range: tuple[float, float] = (0.0, 1.0)


def load_network(path: str | os.PathLike[str] | None = None) -> Network:
    """Read a network from a weights file.

    Parameters
    ----------
    path : path-like, optional
        The file that `train.py` wrote; `weights.npz` beside this module if left out.

    Returns
    -------
    Network
        The layers with their measured ranges.
    """
    with np.load(WEIGHTS if path is None else path) as file:
        layers = []
        for name in file["layers"].tolist():
            top, left, bottom, right = file[f"{name}.pad"].tolist()
            down, across = file[f"{name}.stride"].tolist()
            low, high = file[f"{name}.output_range"].tolist()
            layers.append(
                FloatConv(
                    name=name,
                    weights=file[f"{name}.weights"],
                    bias=file[f"{name}.bias"],
                    stride=(down, across),
                    pad=(top, left, bottom, right),
                    relu=bool(file[f"{name}.relu"]),
                    output_range=(low, high),
                )
            )
        low, high = file["input_range"].tolist()
    return Network(layers, (low, high))


def save_network(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network to a weights file, which appears whole or not at all.

    Parameters
    ----------
    network : Network
        What to write.
    path : path-like
        Where to; a file already there is replaced.
    """
    arrays = {
        "layers": np.array([layer.name for layer in network.layers]),
        "input_range": np.array(network.input_range, np.float32),
    }
    for layer in network.layers:
        arrays[f"{layer.name}.weights"] = layer.weights.astype(np.float32)
        arrays[f"{layer.name}.bias"] = layer.bias.astype(np.float32)
        arrays[f"{layer.name}.stride"] = np.array(layer.stride, np.int32)
        arrays[f"{layer.name}.pad"] = np.array(layer.pad, np.int32)
        arrays[f"{layer.name}.relu"] = np.array(layer.relu)
        arrays[f"{layer.name}.output_range"] = np.array(layer.output_range, np.float32)
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def unroll(layer: FloatConv, x: np.ndarray) -> np.ndarray:
    """Copy the window of every output position into a row.

    Parameters
    ----------
    layer : FloatConv
        The layer whose windows to take.
    x : numpy.ndarray
        (N, H, W, C).

    Returns
    -------
    numpy.ndarray
        (N, P, Q, R*S*C) for P x Q output positions.
    """
    top, left, bottom, right = layer.pad
    _, height, width, channels = layer.weights.shape
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    windows = windows[:, :: layer.stride[0], :: layer.stride[1]].transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(*windows.shape[:3], height * width * channels)


def conv_float(layer: FloatConv, x: np.ndarray) -> np.ndarray:
    """Compute one layer.

    Parameters
    ----------
    layer : FloatConv
        The layer.
    x : numpy.ndarray
        (N, H, W, C).

    Returns
    -------
    numpy.ndarray
        (N, P, Q, K).
    """
    y = unroll(layer, x) @ layer.weights.reshape(len(layer.weights), -1).T + layer.bias
    return np.maximum(y, 0) if layer.relu else y


def activations(network: Network, images: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Compute the output of every layer, some hundred images at a time.

    Parameters
    ----------
    network : Network
        The network.
    images : numpy.ndarray
        (N, 28, 28, 1), values 0 to 1.

    Yields
    ------
    list of numpy.ndarray
        The outputs of all layers, first to last, for the next images.
    """
    for start in range(0, len(images), CHUNK):
        x = np.asarray(images[start : start + CHUNK], np.float32)
        outputs = []
        for layer in network.layers:
            x = conv_float(layer, x)
            outputs.append(x)
        yield outputs


def forward_float(network: Network, images: np.ndarray) -> np.ndarray:
    """Classify images.

    Parameters
    ----------
    network : Network
        The network.
    images : numpy.ndarray
        (N, 28, 28, 1), values 0 to 1; white digits on black.

    Returns
    -------
    numpy.ndarray
        float32 logits, (N, 10); the largest of a row names the digit.
    """
    chunks = [outputs[-1][:, 0, 0] for outputs in activations(network, images)]
    classes = len(network.layers[-1].bias)
    return np.concatenate(chunks) if chunks else np.empty((0, classes), np.float32)

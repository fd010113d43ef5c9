"""The digit classifier in floating point: its weights file and its forward pass.

Layers, network and file format are those of `trirow_driver.float_network`. Images and activations
are NHWC, weights are (K, R, S, C), padding is (top, left, bottom, right).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trirow_driver.float_network import FloatConv, load_npz
from trirow_driver.float_network import FloatNetwork as Network
from trirow_driver.float_network import save_npz as save_network

__all__ = [
    "WEIGHTS",
    "FloatConv",
    "Network",
    "activations",
    "conv_float",
    "forward_float",
    "load_network",
    "save_network",
    "unroll",
]

WEIGHTS = Path(__file__).resolve().parent / "weights.npz"
CHUNK = 500  # images per pass, which bounds the memory of the unrolled windows


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
    return load_npz(WEIGHTS if path is None else path)


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

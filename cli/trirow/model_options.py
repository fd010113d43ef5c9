"""Options of `trirow sim` that describe a network and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from trirow.options import InputError, Numbers, Ratio, Shape, add_options
from trirow_driver.float_network import FloatNetwork, load_npz, quantise_network
from trirow_driver.picture import CHANNELS, load_picture
from trirow_driver.program import INPUT, Node, Slice, chain
from trirow_driver.quantise import quantise
from trirow_sim.simulate import golden_outputs

__all__ = ["Work", "load_input", "load_network", "model_options", "network_work"]

#: Files of other frameworks, which cannot be read so far.
_FOREIGN = {
    ".onnx": "ONNX",
    ".tflite": "TensorFlow Lite",
}

_OPTIONS = [
    click.option(
        "--model",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Network to simulate instead of a random layer: a .prototxt of Caffe, or Trirow's own "
        ".npz. All its layers are run, each fed with what the one before gave. It is quantised "
        "first. Needs --image.",
    ),
    click.option(
        "--weights",
        type=click.Path(path_type=Path),
        metavar="FILE",
        show_default="the .caffemodel beside the .prototxt",
        help="Trained values of a network of Caffe.",
    ),
    click.option("--layer", metavar="NAME", help="Only this layer of the model."),
    click.option(
        "--image",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Picture for the model (PNG, JPEG, ...). It is resized to the model's input.",
    ),
    click.option(
        "--input-shape",
        type=Shape(),
        metavar="HxWxC",
        show_default="the model's, or else the picture's",
        help="Size to bring the picture to.",
    ),
    click.option(
        "--mean",
        type=Numbers(),
        metavar="NUMBER[,...]",
        default="0",
        show_default=True,
        help="The model gets (byte - mean) * scale for each byte of the picture. One number, or "
        "one for each channel.",
    ),
    click.option("--scale", type=Ratio(), default="1/255", show_default=True, help="See --mean."),
    click.option(
        "--channels",
        type=click.Choice(list(CHANNELS)),
        show_default="grey for models of one channel, bgr for those of Caffe, else rgb",
        help="Order of the channels that the model expects.",
    ),
]

model_options = add_options(_OPTIONS)


@dataclass(frozen=True, eq=False)
class Work:
    """What is simulated.

    Parameters
    ----------
    name : str
        Name for the report.
    nodes : sequence of Node
    features : mapping of str to int8 array of shape (N, H, W, C)
    slices : mapping of str to Slice
    classifies : bool
        The last layer is the last one of a network.
    """

    name: str
    nodes: Sequence[Node]
    features: Mapping[str, npt.NDArray[np.int8]]
    slices: Mapping[str, Slice] = field(default_factory=dict)
    classifies: bool = False


def load_network(path: Path) -> FloatNetwork:
    """Read a network of Trirow's own format; InputError if that fails."""
    foreign = _FOREIGN.get(path.suffix.lower())
    if foreign is not None:
        raise InputError(
            f"{path}: networks of {foreign} cannot be read so far; --model takes Caffe's .prototxt "
            "and Trirow's own .npz"
        )
    try:
        return load_npz(path)
    except ValueError as error:
        raise InputError(str(error)) from error


def load_input(
    network: FloatNetwork,
    path: Path,
    shape: tuple[int, int, int] | None,
    mean: tuple[float, ...],
    scale: float,
    channels: str | None,
) -> npt.NDArray[np.float32]:
    """Return the picture as the network's input."""
    first = network.layers[0]
    wanted = int(first.weights.shape[3])
    channels = channels or ("grey" if wanted == 1 else "rgb")
    if CHANNELS[channels] != wanted:
        raise InputError(
            f"layer {first.name!r} takes {wanted} channels, and a picture as {channels} has "
            f"{CHANNELS[channels]}; change --channels or the model"
        )
    shape = shape or network.input_shape
    if shape is not None and shape[2] != wanted:
        raise InputError(
            f"layer {first.name!r} takes {wanted} channels, not the {shape[2]} of --input-shape"
        )
    try:
        return load_picture(path, shape and shape[:2], channels=channels, mean=mean, scale=scale)
    except ValueError as error:
        raise InputError(str(error)) from error


def network_work(
    path: Path, network: FloatNetwork, values: npt.NDArray[np.float32], name: str | None
) -> Work:
    """Return the layers of a network, or one with the feature map that golden gives it."""
    names = [layer.name for layer in network.layers]
    if name is not None and name not in names:
        raise InputError(f"{path}: has no layer {name!r}; --layer is one of {', '.join(names)}")
    try:
        layers = quantise_network(network)
        features = quantise(values, layers[0].input)
        if name is not None:
            index = names.index(name)
            for layer in layers[:index]:
                features = golden_outputs([layer], features)[0]
            layers = [layers[index]]
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return Work(path.stem, chain(layers), {INPUT: features}, {}, layers[-1].name == names[-1])

"""Networks of convolutions in floating point: Trirow's own file, and their quantisation.

The file is an ``.npz`` archive of numpy. It holds no pickled objects, and no other arrays than:

======================= ==================== ====================================================
array                   type and shape       what it is
======================= ==================== ====================================================
``layers``              str, (N,)            names of the layers, first to last; unique
``input_range``         float, (2,)          smallest and largest input, over sample data
``input_shape``         int, (3,)            optional: rows, columns, channels of the input
``<name>.weights``      float, (K, R, S, C)  filters; C is the K of the layer before
``<name>.bias``         float, (K,)          added to each output channel
``<name>.stride``       int, (2,)            steps in rows and columns
``<name>.pad``          int, (4,)            zeros at the top, left, bottom and right
``<name>.relu``         bool, ()             whether negative outputs become 0
``<name>.output_range`` float, (2,)          smallest and largest output after ReLU, likewise
======================= ==================== ====================================================

Floats are float32 when written; any floating type is read.
"""

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import numpy.typing as npt

from trirow_driver.conv_layer import ConvLayer, quantise_conv
from trirow_driver.files import replacing
from trirow_driver.quantise import Quantisation, from_range

__all__ = [
    "FloatConv",
    "FloatNetwork",
    "NetworkFileError",
    "load_npz",
    "quantise_network",
    "save_npz",
]

_Floats = npt.NDArray[Any]

_LAYER_ARRAYS = ("weights", "bias", "stride", "pad", "relu", "output_range")


class NetworkFileError(ValueError):
    """A network file is wrong; the message is one line that names file and array."""


@dataclass
class FloatConv:
    """One convolution, with bias and optional ReLU.

    Parameters
    ----------
    name : str
        Name of the layer, unique in its network.
    weights : float array of shape (K, R, S, C)
        The filters.
    bias : float array of shape (K,)
        Added to each output channel.
    stride : (int, int)
        Steps in rows and columns.
    pad : (int, int, int, int)
        Zeros added at (top, left, bottom, right).
    relu : bool
        Whether negative outputs become zero.
    output_range : (float, float)
        Smallest and largest output, after ReLU, seen over sample data.
    """

    name: str
    weights: _Floats
    bias: _Floats
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    relu: bool = False
    output_range: tuple[float, float] = (0.0, 0.0)


@dataclass
class FloatNetwork:
    """A chain of convolutions.

    Parameters
    ----------
    layers : list of FloatConv
        The layers, first to last.
    input_range : (float, float)
        Smallest and largest value of the input, seen over sample data.
    input_shape : (int, int, int), optional
        Rows, columns and channels of the input that the network was made for.
    """

    layers: list[FloatConv]
    input_range: tuple[float, float] = (0.0, 1.0)
    input_shape: tuple[int, int, int] | None = None


def load_npz(path: str | os.PathLike[str]) -> FloatNetwork:
    """Read a network from a file.

    Parameters
    ----------
    path : path-like
        The file; the module's text says what it holds.

    Returns
    -------
    FloatNetwork
        Weights and biases have the type that they have in the file.

    Raises
    ------
    NetworkFileError
        If the file cannot be read, an array is missing or unknown, or one is not as it should be.
    """
    path = Path(path)
    arrays = _Arrays(path, _read(path))
    names = arrays.get("layers", "U", (None,))
    if not len(names) or len(set(names.tolist())) != len(names) or "" in names:
        arrays.refuse("layers", "must be names, at least one, each once and none empty")
    layers: list[FloatConv] = []
    for name in names.tolist():
        layer = _layer(arrays, name)
        if layers and layer.weights.shape[3] != len(layers[-1].bias):
            arrays.refuse(
                f"{name}.weights",
                f"must be for the {len(layers[-1].bias)} channels of layer {layers[-1].name!r}, "
                f"not {layer.weights.shape[3]}",
            )
        layers.append(layer)
    input_shape = None
    if "input_shape" in arrays:
        height, width, channels = arrays.integers("input_shape", 3, 1)
        if channels != layers[0].weights.shape[3]:
            arrays.refuse(
                "input_shape",
                f"must have the {layers[0].weights.shape[3]} channels of layer "
                f"{layers[0].name!r}, not {channels}",
            )
        input_shape = (height, width, channels)
    network = FloatNetwork(layers, arrays.range("input_range"), input_shape)
    arrays.check_all_used()
    return network


def save_npz(network: FloatNetwork, path: str | os.PathLike[str]) -> None:
    """Write a network to a file, which appears whole or not at all.

    Parameters
    ----------
    network : FloatNetwork
        What to write; equal networks give equal files.
    path : path-like
        Where to; a file already there is replaced.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    arrays: dict[str, npt.NDArray[Any]] = {
        "layers": np.array([layer.name for layer in network.layers]),
        "input_range": np.array(network.input_range, np.float32),
    }
    if network.input_shape is not None:
        arrays["input_shape"] = np.array(network.input_shape, np.int32)
    for layer in network.layers:
        arrays[f"{layer.name}.weights"] = layer.weights.astype(np.float32)
        arrays[f"{layer.name}.bias"] = layer.bias.astype(np.float32)
        arrays[f"{layer.name}.stride"] = np.array(layer.stride, np.int32)
        arrays[f"{layer.name}.pad"] = np.array(layer.pad, np.int32)
        arrays[f"{layer.name}.relu"] = np.array(layer.relu)
        arrays[f"{layer.name}.output_range"] = np.array(layer.output_range, np.float32)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def quantise_network(network: FloatNetwork) -> list[ConvLayer]:
    """Quantise a network to int8: what each layer gives is what the next one takes.

    Parameters
    ----------
    network : FloatNetwork
        Its ranges must have been measured.

    Returns
    -------
    list of ConvLayer
        The layers, first to last.

    Raises
    ------
    ValueError
        If a range is not one, or a layer cannot be quantised; the message names the layer.
    """
    given = _quantisation("the network's input", network.input_range)
    layers = []
    for layer in network.layers:
        output = _quantisation(f"layer {layer.name!r}", layer.output_range)
        layers.append(
            quantise_conv(
                layer.name,
                layer.weights,
                layer.bias,
                input=given,
                output=output,
                stride=layer.stride,
                pad=layer.pad,
                relu=layer.relu,
            )
        )
        given = output
    return layers


class _Arrays:
    """The arrays of a file; each is checked as it is taken."""

    def __init__(self, path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self._path = path
        self._arrays = arrays
        self._unused = set(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def refuse(self, name: str, text: str) -> NoReturn:
        """Raise the error that names file and array."""
        raise NetworkFileError(f"{self._path}: array {name!r} {text}")

    def get(self, name: str, kinds: str, shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        """Return an array after checking the kind of its type and its shape; None is any extent."""
        if name not in self._arrays:
            raise NetworkFileError(f"{self._path}: array {name!r} is missing")
        array = self._arrays[name]
        self._unused.discard(name)
        if array.dtype.kind not in kinds:
            wanted = {"U": "strings", "f": "floats", "iu": "integers", "b": "a truth value"}[kinds]
            self.refuse(name, f"must be {wanted}, not {array.dtype}")
        fits = len(array.shape) == len(shape) and all(
            extent >= 1 if wanted is None else extent == wanted
            for extent, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits:
            axes = ", ".join("any" if extent is None else str(extent) for extent in shape)
            self.refuse(name, f"must have shape ({axes}), not {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            self.refuse(name, "must be finite")
        return array

    def integers(self, name: str, count: int, least: int) -> tuple[int, ...]:
        """Return an array of a few integers."""
        values = tuple(int(value) for value in self.get(name, "iu", (count,)))
        if min(values) < least:
            self.refuse(name, f"must be at least {least}, not {values}")
        return values

    def range(self, name: str) -> tuple[float, float]:
        """Return an array of two floats in order."""
        low, high = self.get(name, "f", (2,)).tolist()
        if low > high:
            self.refuse(name, f"must not be reversed: {low} .. {high}")
        return low, high

    def check_all_used(self) -> None:
        """Refuse arrays that no layer has: they are probably misnamed."""
        if self._unused:
            self.refuse(min(self._unused), "belongs to no layer")


def _read(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return all arrays of a file."""
    try:
        with path.open("rb") as file:
            return _arrays(path, file)
    except OSError as error:
        raise NetworkFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _arrays(path: Path, file: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    try:
        content: Any = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise NetworkFileError(f"{path}: must be an .npz archive of numpy") from error
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise NetworkFileError(f"{path}: must be an .npz archive of numpy, not a single array")
    arrays = {}
    for name in content.files:
        try:
            arrays[name] = np.asarray(content[name])
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise NetworkFileError(f"{path}: array {name!r} cannot be read: {error}") from error
    return arrays


def _layer(arrays: _Arrays, name: str) -> FloatConv:
    weights = arrays.get(f"{name}.weights", "f", (None, None, None, None))
    down, across = arrays.integers(f"{name}.stride", 2, 1)
    top, left, bottom, right = arrays.integers(f"{name}.pad", 4, 0)
    return FloatConv(
        name=name,
        weights=weights,
        bias=arrays.get(f"{name}.bias", "f", weights.shape[:1]),
        stride=(down, across),
        pad=(top, left, bottom, right),
        relu=bool(arrays.get(f"{name}.relu", "b", ())),
        output_range=arrays.range(f"{name}.output_range"),
    )


def _quantisation(label: str, limits: tuple[float, float]) -> Quantisation:
    try:
        return from_range(*limits)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error

"""Pack a chain of layers into a DDR image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trirow_driver.image import DdrImage, ImageBuilder
from trirow_driver.layer import ConvLayer
from trirow_driver.layout import Layout
from trirow_driver.passes import chunk_bytes, pass_fields
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Tiling, tile
from trirow_hw.config import CONSTANT_BYTES, Config
from trirow_hw.descriptor import DESCRIPTOR_BYTES, pack_descriptor

__all__ = ["DESCRIPTORS", "INPUT", "Program", "Step", "pack_layers"]

#: Names of the regions with the descriptors and with the feature map of the first layer.
DESCRIPTORS = "descriptors"
INPUT = "input"


@dataclass(frozen=True)
class Step:
    """One layer of a program.

    Parameters
    ----------
    layer : ConvLayer
    in_shape, out_shape : (int, int, int)
        Feature map (H, W, C) and output.
    tiling : Tiling
    source, target : str
        Names of the regions that it reads and writes.
    """

    layer: ConvLayer
    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    tiling: Tiling
    source: str
    target: str

    @property
    def passes(self) -> int:
        """Passes, which is the number of weight chunks."""
        return len(self.tiling.chunks)

    @property
    def macs(self) -> int:
        """Multiplications of the layer, those with padding among them."""
        return int(np.prod(self.out_shape[:2])) * int(self.layer.weights.size)

    @property
    def macs_useful(self) -> int:
        """Multiplications of the layer without those with padding."""

        def taps(size: int, outputs: int, kernel: int, stride: int, before: int) -> int:
            starts = np.arange(outputs) * stride - before
            inside = np.minimum(starts + kernel, size) - np.maximum(starts, 0)
            return int(np.maximum(inside, 0).sum())

        (rows, columns), (sy, sx), pad = self.layer.kernel, self.layer.stride, self.layer.pad
        down = taps(self.in_shape[0], self.out_shape[0], rows, sy, pad[0])
        across = taps(self.in_shape[1], self.out_shape[1], columns, sx, pad[1])
        return int(down * across * self.layer.in_channels * self.layer.out_channels)

    @property
    def bytes_ideal(self) -> int:
        """Bytes of input, weights, constants and output, each once."""
        constants: int = CONSTANT_BYTES * self.layer.out_channels
        feature_maps = int(np.prod(self.in_shape)) + int(np.prod(self.out_shape))
        return feature_maps + int(self.layer.weights.size) + constants


@dataclass(frozen=True)
class Program:
    """A DDR image, and the layers that it computes.

    Parameters
    ----------
    image : DdrImage
    steps : tuple of Step
        In order; each reads what the one before it writes.
    """

    image: DdrImage
    steps: tuple[Step, ...]


def pack_layers(
    layers: Sequence[ConvLayer],
    features: npt.NDArray[np.int8],
    config: Config,
    *,
    base: int = 0,
) -> Program:
    """Pack layers, each of which reads the output of the one before, and the first one's input.

    Parameters
    ----------
    layers : sequence of ConvLayer
        At least one; names must be unique.
    features : int8 array of shape (1, H, W, C)
        Feature map of the first layer.
    config : Config
    base : int
        Address at which the image will be loaded; a multiple of 128, as descriptors must be.

    Returns
    -------
    Program
        The same bytes for the same input.

    Raises
    ------
    UnsupportedError
        If the configuration cannot compute a layer.
    ValueError
        If the shapes do not fit each other, or the image does not fit 32-bit addresses.
    """
    if features.dtype != np.int8 or features.ndim != 4 or features.shape[0] != 1:
        raise ValueError(
            f"features must be int8 of shape (1, H, W, C), not {features.dtype} of shape "
            f"{features.shape}"
        )
    steps = _steps(layers, features.shape[1:], config)
    builder = ImageBuilder(
        config.bus_bytes, base, alignment=max(config.bus_bytes, DESCRIPTOR_BYTES)
    )
    passes = sum(step.passes for step in steps)
    builder.add(DESCRIPTORS, "descriptors", size=passes * DESCRIPTOR_BYTES)
    for step in steps:
        for k, chunk in enumerate(step.tiling.chunks):
            builder.add(_weights(step, k), "weights", chunk_bytes(step.layer, chunk, config))
    _add_blob(builder, INPUT, features.shape[1:], steps[0].layer.input, features.tobytes())
    for step in steps:
        _add_blob(builder, step.target, step.out_shape, step.layer.output)
    builder.fill(DESCRIPTORS, _descriptors(steps, builder, config))
    image = builder.build(config.to_dict())
    if base + len(image.data) >= 1 << 32:
        raise ValueError(f"an image of {len(image.data)} bytes at {base:#x} is beyond 32 bits")
    return Program(image, tuple(steps))


def _steps(layers: Sequence[ConvLayer], shape: tuple[int, ...], config: Config) -> list[Step]:
    if not layers:
        raise ValueError("a program needs at least one layer")
    steps: list[Step] = []
    height, width, channels = shape
    source = INPUT
    for layer in layers:
        if channels != layer.in_channels:
            raise ValueError(
                f"layer {layer.name!r}: its weights are for {layer.in_channels} channels, its "
                f"feature map has {channels}"
            )
        if steps and layer.input != steps[-1].layer.output:
            raise ValueError(
                f"layer {layer.name!r}: its input has {layer.input}, the layer before gives "
                f"{steps[-1].layer.output}"
            )
        out_rows, out_columns = layer.output_shape(height, width)
        out_shape = (out_rows, out_columns, layer.out_channels)
        tiling = tile(layer, height, width, config)
        steps.append(
            Step(layer, (height, width, channels), out_shape, tiling, source, f"blob.{layer.name}")
        )
        height, width, channels = out_shape
        source = steps[-1].target
    return steps


def _weights(step: Step, chunk: int) -> str:
    return f"weights.{step.layer.name}.{chunk}"


def _add_blob(
    builder: ImageBuilder,
    name: str,
    shape: tuple[int, ...],
    quantisation: Quantisation,
    data: bytes | None = None,
) -> None:
    height, width, channels = shape
    builder.add(
        name,
        "blob",
        data,
        height * width * channels,
        shape=(1, channels, height, width),
        layout=Layout.NHWC,
        scale=quantisation.scale,
        zero_point=quantisation.zero_point,
    )


def _descriptors(steps: Sequence[Step], builder: ImageBuilder, config: Config) -> bytes:
    passes = [(step, k, chunk) for step in steps for k, chunk in enumerate(step.tiling.chunks)]
    address = builder.address(DESCRIPTORS)
    packed = []
    for index, (step, k, chunk) in enumerate(passes):
        last = index == len(passes) - 1
        fields = pass_fields(
            step.layer,
            *step.in_shape[:2],
            step.tiling,
            chunk,
            config,
            in_address=builder.address(step.source),
            weight_address=builder.address(_weights(step, k)),
            out_address=builder.address(step.target),
            # The layer before has landed when the first chunk's features are read.
            wait=k == 0 and step.source != INPUT,
            last=last,
            next_address=0 if last else address + (index + 1) * DESCRIPTOR_BYTES,
        )
        packed.append(pack_descriptor(fields))
    return b"".join(packed)

"""Pack layers, and the feature maps between them, into a DDR image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from trirow_driver.image import DdrImage, ImageBuilder
from trirow_driver.layer import Layer, Shape
from trirow_driver.layout import Layout
from trirow_driver.passes import Places, chunk_bytes, pass_fields
from trirow_driver.plan import Node, Plan, Slice, Step
from trirow_driver.quantise import Quantisation
from trirow_hw.config import Config
from trirow_hw.descriptor import DESCRIPTOR_BYTES, pack_descriptor

__all__ = [
    "DESCRIPTORS",
    "INPUT",
    "Node",
    "Program",
    "Slice",
    "Step",
    "chain",
    "pack",
    "pack_layers",
]

#: Names of the region with the descriptors, and of the feature map that a chain begins with.
DESCRIPTORS = "descriptors"
INPUT = "input"
#: Bytes of an int32 sum.
_SUM_BYTES = 4
_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Program:
    """A DDR image, and the layers that it computes.

    Parameters
    ----------
    image : DdrImage
    steps : tuple of Step
        In order.
    slices : mapping of str to Slice
        Feature maps that are part of others.
    """

    image: DdrImage
    steps: tuple[Step, ...]
    slices: Mapping[str, Slice]

    def place(self, tensor: str) -> tuple[str, int]:
        """Return the region of a feature map, and its first channel there."""
        part = self.slices.get(tensor)
        return (_region(tensor), 0) if part is None else (_region(part.whole), part.first)

    @property
    def starts(self) -> list[int]:
        """Address of the first descriptor of each layer."""
        counts = [len(step.tiling.passes) for step in self.steps]
        address = self.image.address(DESCRIPTORS)
        return [address + sum(counts[:k]) * DESCRIPTOR_BYTES for k in range(len(counts))]


def chain(layers: Sequence[Layer]) -> list[Node]:
    """Return layers, each of which reads the output of the one before.

    The first reads the feature map `INPUT`; a layer that takes a second feature map reads that of
    ``second.NAME``, with its own name.
    """
    nodes, source = [], INPUT
    for layer in layers:
        more = tuple(f"second.{layer.name}" for _ in layer.inputs[1:])
        nodes.append(Node(layer, (source, *more), layer.name))
        source = layer.name
    return nodes


def pack(
    nodes: Sequence[Node],
    features: Mapping[str, _Int8],
    config: Config,
    *,
    slices: Mapping[str, Slice] | None = None,
    base: int = 0,
    stops: bool = False,
) -> Program:
    """Pack layers and the feature maps that they begin with.

    Parameters
    ----------
    nodes : sequence of Node
        At least one, in order; names of layers and of outputs must be unique.
    features : mapping of str to int8 array of shape (N, H, W, C)
        Feature maps that no layer writes; N is the same for all.
    config : Config
    slices : mapping of str to Slice, optional
        Feature maps that are part of others.
    base : int
        Address at which the image will be loaded; a multiple of 256, as descriptors must be.
    stops : bool
        End the chain of descriptors after each layer, so that each one is a run of its own, which
        begins at its entry of `Program.starts`.

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
    plan = Plan(nodes, features, dict(slices or {}), config)
    builder = ImageBuilder(
        config.bus_bytes, base, alignment=max(config.bus_bytes, DESCRIPTOR_BYTES)
    )
    builder.add(DESCRIPTORS, "descriptors", size=_descriptor_count(plan) * DESCRIPTOR_BYTES)
    for step in plan.steps:
        for k, one in enumerate(step.tiling.passes):
            if one.load:
                builder.add(_weights(step, k), "weights", chunk_bytes(one.operation, config))
        if step.tiling.partial:
            outputs = plan.batch * prod(plan.shapes[plan.root(step.node.output)])
            builder.add(_sums(step), "sums", size=outputs * _SUM_BYTES)
    for tensor, shape in plan.shapes.items():
        if tensor not in plan.slices:
            data = features[tensor].tobytes() if tensor in features else None
            _add_blob(builder, _region(tensor), shape, plan, tensor, data)
    builder.fill(DESCRIPTORS, _descriptors(plan, builder, config, stops))
    image = builder.build(config.to_dict())
    if base + len(image.data) >= 1 << 32:
        raise ValueError(f"an image of {len(image.data)} bytes at {base:#x} is beyond 32 bits")
    return Program(image, tuple(plan.steps), plan.slices)


def _region(tensor: str) -> str:
    return tensor if tensor == INPUT else f"blob.{tensor}"


def _weights(step: Step, number: int) -> str:
    return f"weights.{step.layer.name}.{number}"


def _sums(step: Step) -> str:
    return f"sums.{step.layer.name}"


def _add_blob(
    builder: ImageBuilder,
    region: str,
    shape: Shape,
    plan: Plan,
    tensor: str,
    data: bytes | None,
) -> None:
    height, width, channels = shape
    quantisation = plan.quantisations.get(tensor, Quantisation(1.0, 0))
    builder.add(
        region,
        "blob",
        data,
        plan.batch * height * width * channels,
        shape=(plan.batch, channels, height, width),
        layout=Layout.NHWC,
        scale=quantisation.scale,
        zero_point=quantisation.zero_point,
    )


def _descriptor_count(plan: Plan) -> int:
    return sum(len(step.tiling.passes) for step in plan.steps)


def _descriptors(plan: Plan, builder: ImageBuilder, config: Config, stops: bool) -> bytes:
    address = builder.address(DESCRIPTORS)
    total = _descriptor_count(plan)
    packed: list[bytes] = []
    for step in plan.steps:
        blobs = [
            builder.address(_region(plan.root(tensor)))
            for tensor in (*step.node.inputs, step.node.output)
        ]
        target = blobs[-1]
        sums = builder.address(_sums(step)) if step.tiling.partial else 0
        weights = 0
        for k, one in enumerate(step.tiling.passes):
            if one.load:
                weights = builder.address(_weights(step, k))
            source = target if one.source_is_target else blobs[0]
            last = len(packed) == total - 1 or (stops and k == len(step.tiling.passes) - 1)
            fields = pass_fields(
                step.layer.name,
                one,
                config,
                Places(source, target, weights, blobs[1], sums),
                last=last,
                next_address=0 if last else address + (len(packed) + 1) * DESCRIPTOR_BYTES,
            )
            packed.append(pack_descriptor(fields))
    return b"".join(packed)


def pack_layers(
    layers: Sequence[Layer], features: _Int8, config: Config, *, base: int = 0
) -> Program:
    """Pack layers of one input each, each of which reads the output of the one before.

    Parameters
    ----------
    layers : sequence of Layer
    features : int8 array of shape (N, H, W, C)
        Feature map of the first layer.
    config, base
        See `pack`.
    """
    return pack(chain(layers), {INPUT: features}, config, base=base)

"""Work out the shapes of all feature maps, and how each layer of a program is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from trirow_driver.layer import Layer, Shape
from trirow_driver.lowering import lower
from trirow_driver.operation import Operation
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Tiling, tile
from trirow_driver.view import View
from trirow_hw.config import Config

__all__ = ["Node", "Plan", "Slice", "Step"]

_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Node:
    """A layer, the feature maps that it reads, and the one that it writes, by name."""

    layer: Layer
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Slice:
    """Some channels of a feature map: ``channels`` of them from ``first`` on.

    A feature map that is declared as a slice has no memory of its own. Layers that write slices of
    one feature map concatenate their outputs; one that reads a slice sees part of the channels.
    """

    whole: str
    first: int
    channels: int


@dataclass(frozen=True, eq=False)
class Step:
    """One layer of a program.

    Parameters
    ----------
    node : Node
    batch : int
        Images.
    in_shape, out_shape : (int, int, int)
        First feature map (H, W, C) and output.
    tiling : Tiling
    bytes_ideal : int
        Each byte of inputs, weights, constants and output once.
    """

    node: Node
    batch: int
    in_shape: Shape
    out_shape: Shape
    tiling: Tiling
    bytes_ideal: int

    @property
    def layer(self) -> Layer:
        """The layer."""
        return self.node.layer

    @property
    def passes(self) -> int:
        """Passes of the accelerator, as it counts them: those that write outputs."""
        return sum(not one.kept_out for one in self.tiling.passes)

    @property
    def macs(self) -> int:
        """Multiplications of the layer, those with padding among them."""
        return self.batch * self.layer.macs(self.in_shape)

    @property
    def macs_useful(self) -> int:
        """Multiplications of the layer without those with padding."""
        return self.batch * self.layer.macs(self.in_shape, padding=False)


class Plan:
    """Shapes and quantisations of all feature maps, and the steps.

    Parameters
    ----------
    nodes, features, config, slices
        As for `trirow_driver.program.pack`.

    Attributes
    ----------
    batch : int
        Images.
    shapes, quantisations : dict
        Of the feature maps that have memory of their own, by name.
    steps : list of Step
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        features: Mapping[str, _Int8],
        slices: dict[str, Slice],
        config: Config,
    ) -> None:
        if not nodes:
            raise ValueError("a program needs at least one layer")
        self.slices = slices
        self.shapes: dict[str, Shape] = {}
        self.quantisations: dict[str, Quantisation] = {}
        self.written: set[str] = set()
        batches = {_batch(name, array) for name, array in features.items()}
        if len(batches) != 1:
            raise ValueError(f"feature maps must have one number of images, not {sorted(batches)}")
        self.batch = batches.pop()
        for name, array in features.items():
            if name in slices:
                raise ValueError(f"feature map {name!r} is declared as a slice: it has no memory")
            self.shapes[name] = array.shape[1:]
        self._check_slices()
        self.steps = [self._step(node, config) for node in nodes]

    def root(self, tensor: str) -> str:
        """Return the feature map that has the memory of another."""
        return self.slices[tensor].whole if tensor in self.slices else tensor

    def view(self, tensor: str) -> View:
        """Return the first image of a feature map; addresses begin at 0."""
        view = View.whole(0, *self.shapes[self.root(tensor)])
        part = self.slices.get(tensor)
        return view if part is None else view.take_channels(part.first, part.channels)

    def _check_slices(self) -> None:
        for name, part in self.slices.items():
            if part.whole in self.slices:
                raise ValueError(f"slice {name!r}: {part.whole!r} is a slice itself")
            shape = self.shapes.get(part.whole)
            if min(part.first, part.channels - 1) < 0 or (
                shape and part.first + part.channels > shape[2]
            ):
                raise ValueError(
                    f"slice {name!r}: channels {part.first} to {part.first + part.channels} are "
                    f"not in {part.whole!r}" + (f", which has {shape[2]}" if shape else "")
                )

    def _shape(self, tensor: str, layer: Layer) -> Shape:
        part = self.slices.get(tensor)
        whole = self.shapes.get(self.root(tensor))
        if whole is None:
            raise ValueError(f"layer {layer.name!r}: nothing gives its input {tensor!r}")
        return whole if part is None else (*whole[:2], part.channels)

    def _step(self, node: Node, config: Config) -> Step:
        layer = node.layer
        if len(node.inputs) != len(layer.inputs):
            raise ValueError(
                f"layer {layer.name!r}: it takes {len(layer.inputs)} feature maps, "
                f"not {len(node.inputs)}"
            )
        shapes = [self._shape(tensor, layer) for tensor in node.inputs]
        for tensor, quantisation in zip(node.inputs, layer.inputs, strict=True):
            found = self.quantisations.setdefault(self.root(tensor), quantisation)
            if found != quantisation:
                raise ValueError(
                    f"layer {layer.name!r}: its input {tensor!r} has {found}, "
                    f"the layer takes {quantisation}"
                )
        out_shape = layer.output_extents(shapes[0])
        if len(shapes) > 1 and shapes[1] != out_shape:
            raise ValueError(
                f"layer {layer.name!r}: its second feature map must have the extents of its "
                f"output, {_by(out_shape)}, not {_by(shapes[1])}"
            )
        waits = [self.root(tensor) in self.written for tensor in node.inputs]
        self._declare(node, out_shape)
        tensors = [*node.inputs, node.output]
        source, *second, target = (self.view(tensor) for tensor in tensors)
        first = lower(layer, source, target, second[0] if second else None, config)
        # Those of all images share their weights.
        sizes = [prod(self.shapes[self.root(tensor)]) for tensor in tensors]
        operations = [
            _moved(operation, [image * size for size in sizes])
            for image in range(self.batch)
            for operation in first
        ]
        tiling = tile(layer.name, operations, config)
        ideal = self.batch * (sum(map(prod, shapes)) + prod(out_shape)) + layer.parameter_bytes
        return Step(node, self.batch, shapes[0], out_shape, _waiting(tiling, waits), ideal)

    def _declare(self, node: Node, out_shape: Shape) -> None:
        """Give the output its place."""
        layer, tensor = node.layer, node.output
        root = self.root(tensor)
        if tensor in self.shapes or tensor in self.written:
            raise ValueError(f"layer {layer.name!r}: its output {tensor!r} is there already")
        part = self.slices.get(tensor)
        shape = out_shape
        if part is not None:
            ends = [p.first + p.channels for p in self.slices.values() if p.whole == root]
            shape = (*out_shape[:2], max(ends))
            if part.channels != out_shape[2] or self.shapes.get(root, shape) != shape:
                raise ValueError(
                    f"layer {layer.name!r}: its output {_by(out_shape)} does not fit slice "
                    f"{tensor!r} of {_by(self.shapes.get(root, shape))}"
                )
            self.written.add(tensor)
        self.shapes[root] = shape
        found = self.quantisations.setdefault(root, layer.result)
        if found != layer.result:
            raise ValueError(
                f"layer {layer.name!r}: its output has {layer.result}, {root!r} has {found}"
            )
        self.written.add(root)


def _moved(operation: Operation, by: Sequence[int]) -> Operation:
    """Return an operation on another image: inputs and output lie so many bytes further on."""

    def moved(view: View, by: int) -> View:
        return replace(view, address=view.address + by)

    return replace(
        operation,
        source=moved(operation.source, by[0]),
        second=operation.second and moved(operation.second, by[1]),
        target=moved(operation.target, by[-1]),
    )


def _waiting(tiling: Tiling, waits: Sequence[bool]) -> Tiling:
    """Let the first pass that reads an output of an earlier layer wait for it."""
    passes = list(tiling.passes)
    if waits[0]:
        passes[0] = replace(passes[0], wait=True)
    if len(waits) > 1 and waits[1]:
        for k, one in enumerate(passes):
            if one.operation.second is not None and not one.second_is_target:
                passes[k] = replace(one, second_wait=True)
                break
    return replace(tiling, passes=tuple(passes))


def _batch(name: str, array: _Int8) -> int:
    if array.dtype != np.int8 or array.ndim != 4 or 0 in array.shape:
        raise ValueError(
            f"feature map {name!r} must be int8 of shape (N, H, W, C), not {array.dtype} of shape "
            f"{array.shape}"
        )
    return int(array.shape[0])


def _by(shape: Shape) -> str:
    return "x".join(map(str, shape))

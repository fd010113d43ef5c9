"""Networks in int8: what the accelerator computes of a graph, and what is left to the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trirow_driver.calibrate import METHODS, calibrate
from trirow_driver.feature_maps import FeatureMaps
from trirow_driver.graph import (
    Concat,
    Flatten,
    Graph,
    Pool,
    Reshape,
    Slice,
    fold,
)
from trirow_driver.graph import Node as GraphNode
from trirow_driver.graph_layers import OnHost, Surroundings, can_follow, layer_of
from trirow_driver.layer import Shape
from trirow_driver.plan import Node
from trirow_driver.plan import Slice as Part
from trirow_driver.pool_layer import CopyLayer
from trirow_driver.quantise import Quantisation, dequantise, from_range, quantise

__all__ = ["HostStep", "QuantisedNet", "quantise_graph"]

_Int8 = npt.NDArray[np.int8]
_Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HostStep:
    """A node that the host computes in float32, and why."""

    node: GraphNode
    reason: str


@dataclass(frozen=True, eq=False)
class QuantisedNet:
    """A network whose first part is layers in int8, and the rest operations in float32.

    Parameters
    ----------
    graph : Graph
        The float network, folded.
    nodes : tuple of Node
        Layers of the accelerator, in order.
    slices : mapping of str to Slice
        Feature maps that are channels of others.
    host : tuple of HostStep
        What the host computes behind them, in order.
    quantisations : mapping of str to Quantisation
        Of the tensors that the accelerator reads and writes.
    shapes : mapping of str to (int, int, int)
        Rows, columns and channels of these as feature maps. One that was flattened still has its
        rows and columns.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    slices: Mapping[str, Part]
    host: tuple[HostStep, ...]
    quantisations: Mapping[str, Quantisation]
    shapes: Mapping[str, Shape]
    same: Mapping[str, str] = field(repr=False)

    def features(self, feeds: Mapping[str, _Floats]) -> dict[str, _Int8]:
        """Return the feature maps of shape (N, H, W, C) that the accelerator begins with.

        Parameters
        ----------
        feeds : mapping of str to float array
            Inputs of the graph.
        """
        maps = {}
        for name in self.graph.inputs:
            if name in self.quantisations:
                real = np.asarray(feeds[name], np.float32)
                if real.ndim == 2:
                    real = real[:, :, None, None]
                maps[name] = quantise(real.transpose(0, 2, 3, 1), self.quantisations[name])
        return maps

    def real(self, tensor: str, values: _Int8) -> _Floats:
        """Return the real values of a feature map, in the shape that the tensor has in the graph.

        Parameters
        ----------
        tensor : str
        values : int8 array of shape (N, H, W, C)
        """
        q = self.quantisations[self.same.get(tensor, tensor)]
        real = dequantise(values, q).transpose(0, 3, 1, 2)
        return np.ascontiguousarray(real).reshape(-1, *self.graph.shapes[tensor][1:])

    def finish(self, feeds: Mapping[str, _Floats], maps: Mapping[str, _Int8]) -> dict[str, _Floats]:
        """Compute on the host what is behind the accelerator.

        Parameters
        ----------
        feeds : mapping of str to float array
            Inputs of the graph.
        maps : mapping of str to int8 array of shape (N, H, W, C)
            What the accelerator gave.

        Returns
        -------
        dict of str to float32 array
            Outputs of the graph.
        """
        values = {name: np.asarray(array, np.float32) for name, array in feeds.items()}
        written = FeatureMaps(maps, self.slices)

        def read(name: str) -> _Floats:
            source = self.same.get(name, name)
            if name not in values and source in self.quantisations:
                values[name] = self.real(name, written.read(source))
            return values[name]

        for step in self.host:
            results = step.node.operation.compute([read(name) for name in step.node.inputs])
            values.update(zip(step.node.outputs, results, strict=True))
        return {name: read(name) for name in self.graph.outputs}

    def golden(self, feeds: Mapping[str, _Floats]) -> tuple[dict[str, _Int8], dict[str, _Floats]]:
        """Return what golden computes: all feature maps, and the outputs of the graph."""
        maps = FeatureMaps(self.features(feeds), self.slices)
        for node in self.nodes:
            maps.write(node.output, node.layer.golden(*map(maps.read, node.inputs)))
        return maps.known, self.finish(feeds, maps.known)


def quantise_graph(
    graph: Graph,
    batches: Iterable[Mapping[str, _Floats]],
    *,
    method: str = METHODS[0],
    percentile: float = 99.99,
) -> QuantisedNet:
    """Quantise a network.

    The graph is folded, the ranges of its tensors are measured, and all that the accelerator can
    compute of the first part becomes layers. Tensors around pools and concatenations have one
    quantisation. What reads a result of the host is left to the host.

    Parameters
    ----------
    graph : Graph
    batches : iterable of mapping of str to float array
        Inputs to calibrate with.
    method, percentile
        See `Calibrator.range`.

    Raises
    ------
    ValueError
        If there is nothing to calibrate with, or a layer's numbers do not fit int8.
    """
    graph = fold(graph)
    ranges = {
        name: found.range(method, percentile=percentile)
        for name, found in calibrate(graph, batches).items()
        if found.count
    }
    return _Quantiser(graph, ranges).run()


class _Quantiser:
    """Goes through a graph once."""

    def __init__(self, graph: Graph, ranges: Mapping[str, tuple[float, float]]):
        self.graph = graph
        self.nodes: list[Node] = []
        self.slices: dict[str, Part] = {}
        self.host: list[HostStep] = []
        self.shapes: dict[str, Shape] = {}
        self.same: dict[str, str] = {}
        self.quantisations = self._unified(ranges)

    def run(self) -> QuantisedNet:
        for name, shape in self.graph.inputs.items():
            if len(shape) in (2, 4):
                self.shapes[name] = (*(shape[2:] or (1, 1)), shape[1])  # type: ignore[assignment]
        done: set[str] = set()
        for node in self.graph.nodes:
            if node.name in done:
                continue
            try:
                done |= self._add(node)
            except OnHost as error:
                self.host.append(HostStep(node, str(error)))
        read = {name for node in self.nodes for name in (*node.inputs, node.output)}
        read |= {part.whole for part in self.slices.values()} | set(self.slices)
        return QuantisedNet(
            self.graph,
            tuple(self.nodes),
            self.slices,
            tuple(self.host),
            {name: q for name, q in self.quantisations.items() if name in read},
            {name: shape for name, shape in self.shapes.items() if name in read},
            self.same,
        )

    def _unified(self, ranges: Mapping[str, tuple[float, float]]) -> dict[str, Quantisation]:
        """Return quantisations; tensors that a node only selects from, or averages, share one."""
        leader: dict[str, str] = {}

        def find(name: str) -> str:
            while name in leader:
                name = leader[name]
            return name

        for node in self.graph.nodes:
            if isinstance(node.operation, Pool | Concat | Slice | Flatten | Reshape):
                first = find(node.inputs[0])
                for name in (*node.inputs[1:], *node.outputs):
                    other = find(name)
                    if other != first:
                        leader[other] = first
        wide: dict[str, tuple[float, float]] = {}
        for name, (low, high) in ranges.items():
            root = find(name)
            lowest, highest = wide.get(root, (0.0, 0.0))
            wide[root] = min(lowest, low), max(highest, high)
        return {name: from_range(*wide[find(name)]) for name in ranges}

    def _source(self, name: str) -> str:
        """Return the feature map that a tensor is, which the accelerator has."""
        source = self.same.get(name, name)
        if source not in self.shapes:
            raise OnHost(f"it reads {name!r}, which the host computes")
        return source

    def _add(self, node: GraphNode) -> set[str]:
        """Add the layers of a node; return the names of the nodes that are done with that."""
        operation = node.operation
        sources = tuple(self._source(name) for name in node.inputs)
        match operation:
            case Flatten() | Reshape() if len(self.graph.shapes[node.outputs[0]]) == 2:
                if self.graph.shapes[node.outputs[0]][0] != self.graph.shapes[node.inputs[0]][0]:
                    raise OnHost("it moves values from image to image")
                self.same[node.outputs[0]] = sources[0]
                return {node.name}
            case Concat():
                return self._concatenate(node, sources)
            case Slice():
                return self._slice(node, sources[0])
        output, names = node.outputs[0], {node.name}
        readers = self.graph.consumers(output)
        activation = None
        alone = len(readers) == 1 and output not in self.graph.outputs
        if alone and can_follow(operation, readers[0].operation):
            activation = readers[0].operation
            names.add(readers[0].name)
            output = readers[0].outputs[0]
        around = Surroundings(
            self.shapes[sources[0]],
            tuple(self.quantisations[name] for name in sources),
            self.quantisations[output],
        )
        if isinstance(operation, Pool) and activation is not None:
            # The pool's quantisation is its input's.
            self.quantisations[output] = around.inputs[0]
        layer = layer_of(node.name, operation, activation, around)
        self.nodes.append(Node(layer, sources, output))
        self.shapes[output] = layer.output_extents(self.shapes[sources[0]])
        return names

    def _concatenate(self, node: GraphNode, sources: tuple[str, ...]) -> set[str]:
        """Copy each feature map to its channels of the whole."""
        shapes = [self.graph.shapes[name] for name in node.inputs]
        if {len(shape) for shape in shapes} != {4} or node.operation.axis % 4 != 1:  # type: ignore[attr-defined]
            raise OnHost("the accelerator puts feature maps one behind the other in channels only")
        (output,) = node.outputs
        first = 0
        for number, (source, shape) in enumerate(zip(sources, shapes, strict=True)):
            part = f"{output}.{number}"
            self.slices[part] = Part(output, first, shape[1])
            copy = CopyLayer(f"{node.name}.{number}", self.quantisations[output])
            self.nodes.append(Node(copy, (source,), part))
            self.shapes[part] = self.shapes[source]
            first += shape[1]
        self.shapes[output] = (*self.shapes[sources[0]][:2], first)
        return {node.name}

    def _slice(self, node: GraphNode, source: str) -> set[str]:
        """Let feature maps be channels of another."""
        shape = self.graph.shapes[node.inputs[0]]
        if len(shape) != 4 or node.operation.axis % 4 != 1:  # type: ignore[attr-defined]
            raise OnHost("the accelerator slices channels of feature maps only")
        if source in self.slices:
            raise OnHost(f"{source!r} is channels of another feature map itself")
        first = 0
        for name in node.outputs:
            channels = self.graph.shapes[name][1]
            self.slices[name] = Part(source, first, channels)
            self.shapes[name] = (*self.shapes[source][:2], channels)
            first += channels
        return {node.name}

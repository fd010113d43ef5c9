"""A network: operations with named tensors between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trirow_driver.graph.operation import Floats, Operation, Shape, elements

__all__ = ["LARGEST_TENSOR", "Graph", "GraphError", "Node"]

#: Values that a tensor may have: 4 GiB in float32. More is a wrong file, not a network.
LARGEST_TENSOR = 1 << 30


class GraphError(ValueError):
    """A network is wrong; the message is one line that names the node."""


@dataclass(frozen=True, eq=False)
class Node:
    """An operation, the tensors that it reads, and those that it writes, by name."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph:
    """Operations in an order in which they can be computed.

    Importers make it, and everything else is made of it. Shapes and axes are those of NCHW.

    Parameters
    ----------
    inputs : mapping of str to tuple of int
        Shapes of the tensors that no node writes.
    nodes : sequence of Node
        Each reads what inputs or nodes before it give.
    outputs : sequence of str, optional
        Tensors that are the answer; by default those that no node reads.

    Raises
    ------
    GraphError
        If a name occurs twice, a tensor is read that nobody has written, or an operation cannot
        take its inputs.

    Attributes
    ----------
    inputs, nodes, outputs
        As above.
    shapes : dict of str to tuple of int
        Of all tensors.
    """

    def __init__(
        self,
        inputs: Mapping[str, Shape],
        nodes: Sequence[Node],
        outputs: Sequence[str] | None = None,
    ) -> None:
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.nodes = tuple(nodes)
        self.shapes = dict(self.inputs)
        for name, shape in self.inputs.items():
            if not shape or min(shape) < 1 or elements(shape) > LARGEST_TENSOR:
                raise GraphError(f"input {name!r} must have positive extents, not {shape}")
        self._producers: dict[str, Node] = {}
        self._consumers: dict[str, list[Node]] = {}
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise GraphError(f"node {node.name!r} is there twice")
            seen.add(node.name)
            self._add(node)
        read = self._consumers.keys()
        self.outputs = tuple(
            [name for name in self.shapes if name not in read] if outputs is None else outputs
        )
        for name in self.outputs:
            if name not in self.shapes:
                raise GraphError(f"output {name!r} is written by no node")

    def _add(self, node: Node) -> None:
        arity = node.operation.arity
        if not node.inputs or arity not in (None, len(node.inputs)):
            wanted = "one or more inputs" if arity is None else f"{arity} inputs"
            raise GraphError(
                f"node {node.name!r} ({node.operation.kind}) must have {wanted}, not "
                f"{len(node.inputs)}"
            )
        for name in node.inputs:
            if name not in self.shapes:
                raise GraphError(
                    f"node {node.name!r} reads {name!r}, which nothing before it gives"
                )
            readers = self._consumers.setdefault(name, [])
            if node not in readers:
                readers.append(node)
        try:
            shapes = node.operation.infer([self.shapes[name] for name in node.inputs])
        except ValueError as error:
            raise GraphError(f"node {node.name!r} ({node.operation.kind}): {error}") from error
        if len(shapes) != len(node.outputs):
            raise GraphError(
                f"node {node.name!r} ({node.operation.kind}) gives {len(shapes)} tensors, not "
                f"{len(node.outputs)}"
            )
        for name, shape in zip(node.outputs, shapes, strict=True):
            if name in self.shapes:
                raise GraphError(f"node {node.name!r} writes {name!r}, which is there already")
            if elements(shape) > LARGEST_TENSOR:
                raise GraphError(f"node {node.name!r} gives {shape}, more than {LARGEST_TENSOR}")
            self.shapes[name] = shape
            self._producers[name] = node

    def producer(self, tensor: str) -> Node | None:
        """Return the node that writes a tensor; None if it is an input."""
        return self._producers.get(tensor)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """Return the nodes that read a tensor, in order."""
        return tuple(self._consumers.get(tensor, ()))

    def macs(self, node: Node) -> int:
        """Return the multiplications of a node, those with padding among them."""
        return node.operation.macs([self.shapes[name] for name in node.inputs])

    def with_inputs(self, inputs: Mapping[str, Shape]) -> Graph:
        """Return the graph for inputs of other shapes; those that are not named keep theirs.

        Raises
        ------
        GraphError
            If there is no such input, or an operation cannot take the shapes that follow.
        """
        for name in inputs:
            if name not in self.inputs:
                raise GraphError(f"there is no input {name!r}, only {', '.join(self.inputs)}")
        return Graph({**self.inputs, **inputs}, self.nodes, self.outputs)

    def compute(
        self, feeds: Mapping[str, Floats], keep: Iterable[str] | None = None
    ) -> dict[str, Floats]:
        """Compute in float32.

        Parameters
        ----------
        feeds : mapping of str to float array
            Every input, in its shape.
        keep : iterable of str, optional
            Tensors to return; by default the outputs. Others are forgotten after their last use.

        Returns
        -------
        dict of str to float32 array

        Raises
        ------
        ValueError
            If an input is missing or has another shape.
        """
        wanted = set(self.outputs if keep is None else keep)
        values: dict[str, Floats] = {}
        for name, shape in self.inputs.items():
            if name not in feeds:
                raise ValueError(f"input {name!r} is missing")
            values[name] = np.asarray(feeds[name], np.float32)
            if values[name].shape != shape:
                raise ValueError(
                    f"input {name!r} must have shape {shape}, not {values[name].shape}"
                )
        last = {name: nodes[-1] for name, nodes in self._consumers.items()}
        for node in self.nodes:
            results = node.operation.compute([values[name] for name in node.inputs])
            values |= zip(node.outputs, results, strict=True)
            for name in {*node.inputs, *node.outputs}:
                if name not in wanted and last.get(name, node) is node:
                    del values[name]
        return {name: values[name] for name in wanted}

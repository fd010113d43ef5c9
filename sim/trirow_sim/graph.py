"""Graphs of layers: what golden computes, and which layers the host does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trirow_driver.feature_maps import FeatureMaps
from trirow_driver.layer import Layer
from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import INPUT, Node, Slice, chain

__all__ = ["Division", "divide", "golden_graph", "golden_outputs", "run_on_host"]

_Int8 = npt.NDArray[np.int8]


def golden_graph(
    nodes: Sequence[Node],
    features: Mapping[str, _Int8],
    slices: Mapping[str, Slice] | None = None,
) -> list[_Int8]:
    """Return the output of each layer as golden computes it, from golden's own inputs.

    Parameters
    ----------
    nodes, features, slices
        See `trirow_sim.simulate.simulate_graph`.
    """
    maps = FeatureMaps(features, slices)
    outputs = []
    for node in nodes:
        outputs.append(node.layer.golden(*map(maps.read, node.inputs)))
        maps.write(node.output, outputs[-1])
    return outputs


def golden_outputs(layers: Sequence[Layer], features: _Int8) -> list[_Int8]:
    """Return the output of each layer of a chain as golden computes it.

    Parameters
    ----------
    layers : sequence of Layer
        Of one input each; each reads the output of the one before.
    features : int8 array of shape (N, H, W, C)
        Feature map of the first layer.
    """
    return golden_graph(chain(layers), {INPUT: features})


@dataclass(frozen=True)
class Division:
    """The layers of a graph by where they run, each list in the order of the graph.

    Parameters
    ----------
    before : list of Node
        Run on the host, and read nothing that the accelerator writes.
    accelerator : list of Node
    after : list of Node
        Run on the host when the accelerator is done.
    """

    before: list[Node]
    accelerator: list[Node]
    after: list[Node]

    @property
    def host(self) -> list[Node]:
        """All layers that run on the host."""
        return [*self.before, *self.after]


def divide(
    nodes: Sequence[Node],
    features: Mapping[str, _Int8],
    slices: Mapping[str, Slice] | None = None,
) -> Division:
    """Return where each layer of a graph runs.

    Parameters
    ----------
    nodes, features, slices
        See `trirow_sim.simulate.simulate_graph`.

    Raises
    ------
    UnsupportedError
        If a layer of the host stands between layers of the accelerator, or writes a slice.
    """
    maps = FeatureMaps(features, slices)
    division = Division([], [], [])
    late: set[str] = set()  # what is there only when the accelerator is done
    behind: dict[str, str] = {}  # the part of it that the host computes, and the layers' names
    for node in nodes:
        name, sources = node.layer.name, [maps.root(tensor) for tensor in node.inputs]
        if not node.layer.on_host:
            for source in sources:
                if source in behind:
                    raise UnsupportedError(
                        f"layer {name!r}: it reads what layer {behind[source]!r} computes on the "
                        "host from outputs of the accelerator; so far the host's layers can only "
                        "stand in front of all others or behind them"
                    )
            division.accelerator.append(node)
            late.add(maps.root(node.output))
            continue
        if maps.root(node.output) != node.output:
            raise UnsupportedError(
                f"layer {name!r}: it runs on the host, which so far cannot write a part of a "
                f"feature map, such as {node.output!r}"
            )
        if late.intersection(sources):
            division.after.append(node)
            late.add(node.output)
            behind[node.output] = name
        else:
            division.before.append(node)
    return division


def run_on_host(nodes: Sequence[Node], maps: FeatureMaps) -> dict[str, _Int8]:
    """Compute layers as golden does, and keep their outputs among the feature maps.

    Returns
    -------
    dict of str to int8 array of shape (N, H, W, K)
        Outputs by name.

    Raises
    ------
    ValueError
        If the inputs of a layer are not there, or their shapes do not fit.
    """
    outputs: dict[str, _Int8] = {}
    for node in nodes:
        layer = node.layer
        if len(node.inputs) != len(layer.inputs):
            raise ValueError(
                f"layer {layer.name!r}: it takes {len(layer.inputs)} feature maps, "
                f"not {len(node.inputs)}"
            )
        try:
            inputs = [maps.read(tensor) for tensor in node.inputs]
        except KeyError as error:
            raise ValueError(
                f"layer {layer.name!r}: nothing gives its input {error.args[0]!r}"
            ) from None
        wanted = (inputs[0].shape[0], *layer.output_extents(inputs[0].shape[1:]))
        for other in inputs[1:]:
            if other.shape != wanted:
                raise ValueError(
                    f"layer {layer.name!r}: its second feature map must have shape {wanted}, "
                    f"not {other.shape}"
                )
        if node.output in maps:
            raise ValueError(f"layer {layer.name!r}: its output {node.output!r} is there already")
        outputs[node.output] = layer.golden(*inputs)
        maps.write(node.output, outputs[node.output])
    return outputs

"""What all operations of a graph have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "Floats",
    "Identity",
    "Operation",
    "Shape",
    "axis_from_front",
    "check_features",
    "check_size",
    "elements",
    "parameter",
]

#: Extents of a tensor; of a feature map (N, C, H, W).
Shape = tuple[int, ...]
Floats = npt.NDArray[np.float32]


class Operation(ABC):
    """What a node computes, with its parameters.

    Operations are dataclasses that cannot be changed and compare by identity. Axes are those of
    NCHW, as in Caffe and ONNX. What one computes is what `trirow_golden.float32` computes.

    Attributes
    ----------
    arity : int or None
        Tensors that it takes; None is one or more.
    """

    arity: ClassVar[int | None] = 1

    @abstractmethod
    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shapes of the outputs for those of the inputs.

        Raises
        ------
        ValueError
            If the operation cannot take such inputs.
        """

    @abstractmethod
    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the outputs for inputs in float32."""

    def macs(self, shapes: Sequence[Shape]) -> int:
        """Return the multiplications for inputs of some shapes, those with padding among them."""
        return 0

    @property
    def kind(self) -> str:
        """Name of the operation."""
        return type(self).__name__


class Identity(Operation):
    """Pass a tensor on, to one output or to several: Dropout at inference, Split.

    Parameters
    ----------
    outputs : int
    """

    def __init__(self, outputs: int = 1):
        self.outputs = outputs

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input for each output."""
        return (shapes[0],) * self.outputs

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the input for each output."""
        return (inputs[0],) * self.outputs


def axis_from_front(axis: int, shape: Shape, *, behind: int = 0) -> int:
    """Return an axis counted from the front.

    Parameters
    ----------
    axis : int
        A negative one counts from the end.
    shape : tuple of int
    behind : int
        Axes behind the last that are allowed, too.

    Raises
    ------
    ValueError
        If there is no such axis.
    """
    axes = len(shape) + behind
    if not -axes <= axis < axes:
        raise ValueError(f"axis must be from {-axes} to {axes - 1} for shape {shape}, not {axis}")
    return axis % axes


def check_features(shape: Shape) -> None:
    """Refuse a shape that is not a feature map's.

    Raises
    ------
    ValueError
        If it has not four axes.
    """
    if len(shape) != 4:
        raise ValueError(f"input must have 4 axes (N, C, H, W), not shape {shape}")


def check_size(name: str, size: int, wanted: int, what: str) -> None:
    """Refuse parameters of another number than there has to be."""
    if size != wanted:
        raise ValueError(f"{name} must have a value for each of the {wanted} {what}, not {size}")


def elements(shape: Shape) -> int:
    """Return the values of a tensor."""
    return prod(shape)


def parameter(operation: Any, *names: str) -> None:
    """Let fields be contiguous float32 arrays that cannot be written to; None stays."""
    for name in names:
        value = getattr(operation, name)
        if value is not None:
            array = np.array(value, np.float32, order="C", copy=True)
            array.setflags(write=False)
            object.__setattr__(operation, name, array)

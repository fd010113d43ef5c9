"""Operations on each value by itself, and on values at the same place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trirow_driver.graph.operation import (
    Floats,
    Operation,
    Shape,
    axis_from_front,
    check_size,
    parameter,
)
from trirow_golden import float32

__all__ = [
    "Absolute",
    "BatchNorm",
    "Bias",
    "Eltwise",
    "Power",
    "Prelu",
    "Relu",
    "Scale",
    "Sigmoid",
    "Tanh",
]


class _Pointwise(Operation):
    """The output has the shape of the input."""

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        return (shapes[0],)


def _channels(shape: Shape) -> int:
    if len(shape) < 2:
        raise ValueError(f"input must have an axis of channels, not shape {shape}")
    return shape[1]


@dataclass(frozen=True, eq=False)
class Relu(_Pointwise):
    """Multiply negative values by a slope.

    Parameters
    ----------
    negative_slope : float
    """

    negative_slope: float = 0.0

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.relu(inputs[0], negative_slope=self.negative_slope),)


@dataclass(frozen=True, eq=False)
class Prelu(_Pointwise):
    """Multiply negative values by the slope of their channel.

    Parameters
    ----------
    slopes : float array of shape (C,) or (1,)
    """

    slopes: Floats

    def __post_init__(self) -> None:
        parameter(self, "slopes")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        if self.slopes.size != 1:
            check_size("slopes", self.slopes.size, _channels(shapes[0]), "channels")
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.prelu(inputs[0], self.slopes),)


@dataclass(frozen=True, eq=False)
class Sigmoid(_Pointwise):
    """Logistic function."""

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.sigmoid(inputs[0]),)


@dataclass(frozen=True, eq=False)
class Tanh(_Pointwise):
    """Hyperbolic tangent."""

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.tanh(inputs[0]),)


@dataclass(frozen=True, eq=False)
class Absolute(_Pointwise):
    """Absolute value."""

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.absolute(inputs[0]),)


@dataclass(frozen=True, eq=False)
class Power(_Pointwise):
    """``(shift + scale * x) ** power``.

    Parameters
    ----------
    power, scale, shift : float
    """

    power: float = 1.0
    scale: float = 1.0
    shift: float = 0.0

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.power(inputs[0], power=self.power, scale=self.scale, shift=self.shift),)


@dataclass(frozen=True, eq=False)
class BatchNorm(_Pointwise):
    """Subtract the mean of each channel, and divide by its standard deviation.

    Parameters
    ----------
    mean, variance : float array of shape (C,)
    eps : float
        Added to the variance.
    """

    mean: Floats
    variance: Floats
    eps: float = 1e-5

    def __post_init__(self) -> None:
        parameter(self, "mean", "variance")
        if not np.all(self.variance + self.eps > 0):
            raise ValueError("variance plus eps must be positive")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        for name in ("mean", "variance"):
            check_size(name, getattr(self, name).size, _channels(shapes[0]), "channels")
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.batch_norm(inputs[0], self.mean, self.variance, eps=self.eps),)


@dataclass(frozen=True, eq=False)
class Scale(_Pointwise):
    """Multiply by factors and add offsets, which lie along some axes.

    Parameters
    ----------
    factors : float array
        Of the extents of the axes from `axis` on, as many as it has.
    offsets : float array of the same shape, optional
    axis : int
        The first of them; a negative one counts from the end.
    """

    factors: Floats
    offsets: Floats | None = None
    axis: int = 1

    def __post_init__(self) -> None:
        parameter(self, "factors", "offsets")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        _check_along(self.factors, "factors", shapes[0], self.axis)
        if self.offsets is not None:
            _check_along(self.offsets, "offsets", shapes[0], self.axis)
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.scale(inputs[0], self.factors, self.offsets, axis=self.axis),)


@dataclass(frozen=True, eq=False)
class Bias(_Pointwise):
    """Add offsets, which lie along some axes.

    Parameters
    ----------
    offsets, axis
        See `Scale`.
    """

    offsets: Floats
    axis: int = 1

    def __post_init__(self) -> None:
        parameter(self, "offsets")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        _check_along(self.offsets, "offsets", shapes[0], self.axis)
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.bias(inputs[0], self.offsets, axis=self.axis),)


@dataclass(frozen=True, eq=False)
class Eltwise(Operation):
    """Sum, product or maximum of tensors, value by value.

    Parameters
    ----------
    operation : str
        ``sum``, ``product`` or ``max``.
    coefficients : tuple of float, optional
        Of a sum, one for each input.
    """

    operation: Literal["sum", "product", "max"] = "sum"
    coefficients: tuple[float, ...] | None = None
    arity = None

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the inputs."""
        if len(set(shapes)) > 1:
            raise ValueError(f"inputs must have one shape, not {', '.join(map(str, shapes))}")
        if self.coefficients is not None:
            check_size("coefficients", len(self.coefficients), len(shapes), "inputs")
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        y = float32.eltwise(inputs, operation=self.operation, coefficients=self.coefficients)
        return (y,)


def _check_along(values: Floats, name: str, shape: Shape, axis: int) -> None:
    first = axis_from_front(axis, shape)
    if values.shape != shape[first : first + values.ndim]:
        raise ValueError(
            f"{name} must lie along the axes from {first} on of shape {shape}, not have shape "
            f"{values.shape}"
        )

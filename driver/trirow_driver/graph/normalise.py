"""Operations that normalise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trirow_driver.graph.operation import (
    Floats,
    Operation,
    Shape,
    axis_from_front,
    check_features,
    check_size,
    parameter,
)
from trirow_golden import float32

__all__ = ["Lrn", "Normalize", "Softmax"]


@dataclass(frozen=True, eq=False)
class Softmax(Operation):
    """Exponentials, divided by their sum along an axis.

    Parameters
    ----------
    axis : int
        A negative one counts from the end.
    """

    axis: int = 1

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        axis_from_front(self.axis, shapes[0])
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        return (float32.softmax(inputs[0], axis=self.axis),)


@dataclass(frozen=True, eq=False)
class Lrn(Operation):
    """Local response normalisation.

    Parameters
    ----------
    size : int
        Channels, or rows and columns, that are summed over; odd.
    alpha, beta, k : float
    region : str
        ``across_channels`` or ``within_channel``.
    """

    size: int = 5
    alpha: float = 1.0
    beta: float = 0.75
    k: float = 1.0
    region: Literal["across_channels", "within_channel"] = "across_channels"

    def __post_init__(self) -> None:
        if self.size < 1 or self.size % 2 == 0:
            raise ValueError(f"size must be odd and at least 1, not {self.size}")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        check_features(shapes[0])
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        y = float32.lrn(
            inputs[0],
            size=self.size,
            alpha=self.alpha,
            beta=self.beta,
            k=self.k,
            region=self.region,
        )
        return (y,)


@dataclass(frozen=True, eq=False)
class Normalize(Operation):
    """Divide by the Euclidean norm, and multiply by factors (Normalize of the SSD fork of Caffe).

    Parameters
    ----------
    factors : float array of shape (C,) or (1,)
    across_spatial : bool
        The norm is that of an image, else that of each pixel.
    eps : float
        Added to the sum of squares.
    """

    factors: Floats
    across_spatial: bool = True
    eps: float = 1e-10

    def __post_init__(self) -> None:
        parameter(self, "factors")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the input."""
        check_features(shapes[0])
        if self.factors.size != 1:
            check_size("factors", self.factors.size, shapes[0][1], "channels")
        return (shapes[0],)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the values."""
        y = float32.normalize(
            inputs[0], self.factors, across_spatial=self.across_spatial, eps=self.eps
        )
        return (y,)

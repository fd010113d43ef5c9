"""Two feature maps, element by element: sums, maxima and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.layer import Layer, Mode, Shape
from trirow_driver.quantise import Quantisation
from trirow_hw.config import REQUANTISE_MODES

__all__ = ["COMBINE_KINDS", "Combine", "CombineLayer", "MultiplyLayer", "combine_scales"]

#: What can be done with two elements.
COMBINE_KINDS = ("add", "maximum")
_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Combine:
    """Sum or maximum of two feature maps with scales of their own.

    Each operand is looked up in a table of int32 that brings it to a common scale; the sum, or the
    larger entry, is requantised in mode ``fixed``.

    Parameters
    ----------
    kind : str
        One of `COMBINE_KINDS`.
    scales : trirow_golden.Combination
        Tables and scale of the result, as `combine_scales` works them out.
    second, output : Quantisation
        Quantisation of the second operand and of the result.
    low, high : int
        Bounds of the result, both included.

    Raises
    ------
    ValueError
        If there is no such kind, or the bounds are not ordered.
    """

    kind: str
    scales: trirow_golden.Combination
    second: Quantisation
    output: Quantisation
    low: int = -128
    high: int = 127

    def __post_init__(self) -> None:
        if self.kind not in COMBINE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(COMBINE_KINDS)}, not {self.kind!r}")
        if not -128 <= self.low <= self.high <= 127:
            raise ValueError(
                f"low and high must be ordered and in -128 .. 127, not {self.low} and {self.high}"
            )

    def golden(self, first: _Int8, second: _Int8) -> _Int8:
        """Return what golden computes for two feature maps of one shape."""
        return trirow_golden.combine(
            first,
            second,
            self.scales,
            self.output.zero_point,
            self.low,
            self.high,
            maximum=self.kind == "maximum",
        )


def combine_scales(
    kind: str,
    first: Quantisation,
    second: Quantisation,
    output: Quantisation,
    mode: str = "fixed",
) -> trirow_golden.Combination:
    """Return tables and scale that bring two operands together.

    Parameters
    ----------
    kind : str
        One of `COMBINE_KINDS`.
    first, second, output : Quantisation
    mode : str
        Of a sum. ``fixed``: as TensorFlow Lite's reference kernels add; ``float32``: as XNNPACK,
        the default of LiteRT, does.

    Raises
    ------
    ValueError
        If the scales are too far apart for XNNPACK.
    """
    add = trirow_golden.add_tflite if mode == "fixed" else trirow_golden.add_xnnpack
    scales = trirow_golden.max_tables if kind == "maximum" else add
    return scales(first.scale, first.zero_point, second.scale, second.zero_point, output.scale)


@dataclass(frozen=True, eq=False)
class CombineLayer(Layer):
    """Two feature maps, combined in a pass of their own.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    input : Quantisation
        Of the first operand.
    combine : Combine
        What is done with them, and the quantisations of the second operand and of the result.

    Raises
    ------
    ValueError
        If a field is not as above; the message begins with the name of the layer.
    """

    name: str
    input: Quantisation
    combine: Combine

    def __post_init__(self) -> None:
        if not isinstance(self.combine, Combine):
            self._refuse(f"combine must be a Combine, not {self.combine!r}")
        self._check_base()

    @property
    def output(self) -> Quantisation:  # type: ignore[override]
        """Quantisation of the result."""
        return self.combine.output

    @property
    def inputs(self) -> tuple[Quantisation, ...]:
        """Quantisation of both operands."""
        return (self.input, self.combine.second)

    def output_extents(self, shape: Shape) -> Shape:
        """Return the extents of the first operand, which both have."""
        return shape

    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for two feature maps of shape (N, H, W, C)."""
        return self.combine.golden(*inputs)


@dataclass(frozen=True, eq=False)
class MultiplyLayer(Layer):
    """Product of two feature maps, element by element; the host computes it.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    input, second, output : Quantisation
        Of the two operands and of the product.
    mode : str
        Requantisation mode, ``float32`` or ``fixed``.

    Raises
    ------
    ValueError
        If a field is not as above; the message begins with the name of the layer.
    """

    name: str
    input: Quantisation
    second: Quantisation
    output: Quantisation
    mode: Mode = "fixed"
    on_host: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_base()
        if not isinstance(self.second, Quantisation):
            self._refuse(f"second must be a Quantisation, not {self.second!r}")
        if self.mode not in REQUANTISE_MODES:
            self._refuse(f"mode must be one of {', '.join(REQUANTISE_MODES)}, not {self.mode!r}")

    @property
    def inputs(self) -> tuple[Quantisation, ...]:
        """Quantisation of both operands."""
        return (self.input, self.second)

    def output_extents(self, shape: Shape) -> Shape:
        """Return the extents of the first operand, which both have."""
        return shape

    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for two feature maps of shape (N, H, W, C)."""
        return trirow_golden.multiply(
            inputs[0],
            inputs[1],
            self.input.zero_point,
            self.second.zero_point,
            self.input.scale * self.second.scale / self.output.scale,
            self.output.zero_point,
            mode=self.mode,
        )

"""Operations with weights: convolution, deconvolution, inner product."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trirow_golden
from trirow_driver.graph.operation import (
    Floats,
    Operation,
    Shape,
    axis_from_front,
    check_features,
    check_size,
    elements,
    parameter,
)
from trirow_golden import float32

__all__ = ["Convolution", "Deconvolution", "InnerProduct"]


@dataclass(frozen=True, eq=False)
class _Kernels(Operation):
    """What convolution and deconvolution have in common."""

    weights: Floats
    bias: Floats | None = None
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1

    def __post_init__(self) -> None:
        parameter(self, "weights", "bias")
        if self.weights.ndim != 4 or not self.weights.size:
            raise ValueError(
                f"weights must have four axes, none empty, not shape {self.weights.shape}"
            )
        if self.group < 1 or self.weights.shape[0] % self.group:
            raise ValueError(
                f"group must divide the first axis of {self.weights.shape}, not {self.group}"
            )
        _check_bias(self.bias, self.filters)
        for name, least in (("stride", 1), ("dilation", 1), ("pad", 0)):
            values = getattr(self, name)
            if min(values) < least:
                raise ValueError(f"{name} must be at least {least}, not {values}")

    @property
    @abstractmethod
    def filters(self) -> int:
        """Number K of output channels."""

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.weights.shape[2], self.weights.shape[3]

    @property
    def _options(self) -> dict[str, Any]:
        """What golden's functions take besides weights and bias."""
        return {name: getattr(self, name) for name in ("stride", "pad", "dilation", "group")}


class Convolution(_Kernels):
    """Convolve a feature map with kernels.

    Parameters
    ----------
    weights : float array of shape (K, C / group, R, S)
    bias : float array of shape (K,), optional
    stride : (int, int)
        Steps in rows and columns.
    pad : (int, int, int, int)
        Zeros at the top, left, bottom and right.
    dilation : (int, int)
        Distance of taps in rows and columns.
    group : int
        Groups of channels.
    """

    @property
    def filters(self) -> int:
        """Number K of output channels."""
        return int(self.weights.shape[0])

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (N, K, OH, OW)."""
        (shape,) = shapes
        check_features(shape)
        channels = self.weights.shape[1]
        if shape[1] != channels * self.group:
            raise ValueError(
                f"input must have {channels * self.group} channels, {channels} in each of "
                f"{self.group} groups, not {shape[1]}"
            )
        size = trirow_golden.output_size(
            (shape[2], shape[3]), self.kernel, self.stride, self.pad, self.dilation
        )
        return ((shape[0], self.filters, *size),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the convolution."""
        return (float32.convolution(inputs[0], self.weights, self.bias, **self._options),)

    def macs(self, shapes: Sequence[Shape]) -> int:
        """Return the multiplications, those with padding among them."""
        (out,) = self.infer(shapes)
        return elements(out) * elements(self.weights.shape[1:])


class Deconvolution(_Kernels):
    """Transposed convolution.

    Parameters
    ----------
    weights : float array of shape (C, K / group, R, S)
    bias : float array of shape (K,), optional
    stride, dilation : (int, int)
        Steps of the output in rows and columns; distance of taps.
    pad : (int, int, int, int)
        Rows and columns cut off the output at the top, left, bottom and right.
    group : int
        Groups of channels.
    """

    @property
    def filters(self) -> int:
        """Number K of output channels."""
        return int(self.weights.shape[1]) * self.group

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (N, K, OH, OW)."""
        (shape,) = shapes
        check_features(shape)
        channels = self.weights.shape[0]
        if shape[1] != channels:
            raise ValueError(f"input must have {channels} channels, not {shape[1]}")
        size = trirow_golden.transposed_output_size(
            (shape[2], shape[3]), self.kernel, self.stride, self.pad, self.dilation
        )
        return ((shape[0], self.filters, *size),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the deconvolution."""
        return (float32.deconvolution(inputs[0], self.weights, self.bias, **self._options),)

    def macs(self, shapes: Sequence[Shape]) -> int:
        """Return the multiplications, those whose products are cut off among them."""
        return elements(shapes[0]) * elements(self.weights.shape[1:])


@dataclass(frozen=True, eq=False)
class InnerProduct(Operation):
    """Multiply all axes from one on, flattened in C order, by a matrix.

    Parameters
    ----------
    weights : float array of shape (K, values)
    bias : float array of shape (K,), optional
    axis : int
        First axis that is flattened; negative ones count from the end.
    """

    weights: Floats
    bias: Floats | None = None
    axis: int = 1

    def __post_init__(self) -> None:
        parameter(self, "weights", "bias")
        if self.weights.ndim != 2 or not self.weights.size:
            raise ValueError(f"weights must have shape (K, values), not {self.weights.shape}")
        _check_bias(self.bias, self.weights.shape[0])

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the axes before `axis`, and K."""
        (shape,) = shapes
        axis = axis_from_front(self.axis, shape)
        values = elements(shape[axis:])
        if values != self.weights.shape[1]:
            raise ValueError(
                f"input must have {self.weights.shape[1]} values from axis {axis} on, not {values} "
                f"(shape {shape})"
            )
        return ((*shape[:axis], self.weights.shape[0]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the product."""
        return (float32.inner_product(inputs[0], self.weights, self.bias, axis=self.axis),)

    def macs(self, shapes: Sequence[Shape]) -> int:
        """Return the multiplications."""
        return elements(shapes[0]) * int(self.weights.shape[0])


def _check_bias(bias: Floats | None, filters: int) -> None:
    if bias is not None:
        check_size("bias", bias.size, filters, "output channels")

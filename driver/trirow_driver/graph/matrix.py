"""Operations with weights: convolution, deconvolution, inner product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import trirow_golden
from trirow_driver.graph.operation import (
    Floats,
    Operation,
    Shape,
    axis_from_front,
    check_axes,
    check_size,
    elements,
    parameter,
)
from trirow_golden import float32

__all__ = ["Convolution", "Deconvolution", "InnerProduct"]


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
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

    weights: Floats
    bias: Floats | None = None
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1

    def __post_init__(self) -> None:
        parameter(self, "weights", "bias")
        _check_weights(self)

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.weights.shape[2], self.weights.shape[3]

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (N, K, OH, OW)."""
        (shape,) = shapes
        check_axes(shape)
        filters, channels = self.weights.shape[:2]
        if shape[1] != channels * self.group:
            raise ValueError(
                f"input must have {channels * self.group} channels, {channels} in each of "
                f"{self.group} groups, not {shape[1]}"
            )
        size = trirow_golden.output_size(
            (shape[2], shape[3]), self.kernel, self.stride, self.pad, self.dilation
        )
        return ((shape[0], filters, *size),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the convolution."""
        y = float32.convolution(
            inputs[0],
            self.weights,
            self.bias,
            stride=self.stride,
            pad=self.pad,
            dilation=self.dilation,
            group=self.group,
        )
        return (y,)

    def macs(self, shapes: Sequence[Shape]) -> int:
        """Return the multiplications, those with padding among them."""
        (out,) = self.infer(shapes)
        return elements(out) * elements(self.weights.shape[1:])


@dataclass(frozen=True, eq=False)
class Deconvolution(Operation):
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

    weights: Floats
    bias: Floats | None = None
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1

    def __post_init__(self) -> None:
        parameter(self, "weights", "bias")
        _check_weights(self)

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.weights.shape[2], self.weights.shape[3]

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (N, K, OH, OW)."""
        (shape,) = shapes
        check_axes(shape)
        channels, filters = self.weights.shape[:2]
        if shape[1] != channels:
            raise ValueError(f"input must have {channels} channels, not {shape[1]}")
        size = trirow_golden.transposed_output_size(
            (shape[2], shape[3]), self.kernel, self.stride, self.pad, self.dilation
        )
        return ((shape[0], filters * self.group, *size),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the deconvolution."""
        y = float32.deconvolution(
            inputs[0],
            self.weights,
            self.bias,
            stride=self.stride,
            pad=self.pad,
            dilation=self.dilation,
            group=self.group,
        )
        return (y,)

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


def _check_weights(operation: Convolution | Deconvolution) -> None:
    weights, group = operation.weights, operation.group
    if weights.ndim != 4 or not weights.size:
        raise ValueError(f"weights must have four axes, none empty, not shape {weights.shape}")
    if group < 1 or weights.shape[0] % group:
        raise ValueError(f"group must divide the first axis of {weights.shape}, not {group}")
    transposed = isinstance(operation, Deconvolution)
    _check_bias(operation.bias, weights.shape[1] * group if transposed else weights.shape[0])
    for name, least in (("stride", 1), ("dilation", 1), ("pad", 0)):
        values = getattr(operation, name)
        if min(values) < least:
            raise ValueError(f"{name} must be at least {least}, not {values}")


def _check_bias(bias: Floats | None, filters: int) -> None:
    if bias is not None:
        check_size("bias", bias.size, filters, "output channels")

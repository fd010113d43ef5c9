"""Dilated and transposed convolutions, and pools, as plain ones on strided views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd

import numpy as np

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.operation import Operation
from trirow_driver.view import View

__all__ = ["cut_dilation", "cut_transposed", "every"]


@dataclass(frozen=True)
class Axis:
    """Windows along one axis.

    Parameters
    ----------
    kernel, stride, dilation : int
        Taps, and positions from one window, and from one tap, to the next.
    before : int
        Padding in front; below 0 the first window begins inside the feature map.
    """

    kernel: int
    stride: int
    dilation: int
    before: int


def every(view: View, a: int, rows: int, b: int, columns: int) -> View:
    """Return every ``rows``-th row from ``a`` on, and every ``columns``-th column from ``b`` on."""
    view = view.take_rows(a, max(0, -(-(view.rows - a) // rows)), rows)
    return view.take_columns(b, max(0, -(-(view.columns - b) // columns)), columns)


def cut_dilation(base: Operation, dilation: tuple[int, int]) -> Iterator[Operation]:
    """Cut into convolutions without dilation: outputs that see the same rows and columns.

    Parameters
    ----------
    base : Operation
        A convolution or pool whose taps are ``dilation`` apart; its padding may be below 0.
    dilation : (int, int)
        In rows and columns.
    """
    axes = [
        Axis(*values)
        for values in zip(base.kernel, base.stride, dilation, (base.top, base.left), strict=True)
    ]
    down = _phases(axes[0], base.target.rows)
    across = _phases(axes[1], base.target.columns)
    for (a, rows, down_axis), (b, columns, across_axis) in product(down, across):
        target = every(base.target, a, rows, b, columns)
        first_row, first_column = _first(a, axes[0]), _first(b, axes[1])
        source = every(base.source, first_row, dilation[0], first_column, dilation[1])
        second = base.second and every(base.second, a, rows, b, columns)
        yield place(replace(base, target=target, second=second), source, down_axis, across_axis)


def _first(phase: int, axis: Axis) -> int:
    """Return the first row that windows of an output phase can see, of those ``dilation`` apart."""
    return (phase * axis.stride - axis.before) % axis.dilation


def _phases(axis: Axis, outputs: int) -> list[tuple[int, int, Axis]]:
    """Return for each phase of so many outputs: first position, step, and its windows undilated.

    Window j of phase q begins at ``(q + j * d / g) * stride - before``, with g the common divisor
    of stride and dilation d: multiples of d apart, as its taps are.
    """
    common = gcd(axis.stride, axis.dilation)
    step = axis.dilation // common
    phases = []
    for q in range(min(step, outputs)):
        begin = (q * axis.stride - axis.before) // axis.dilation
        phases.append((q, step, Axis(axis.kernel, axis.stride // common, 1, -begin)))
    return phases


def cut_transposed(layer: ConvLayer, base: Operation) -> Iterator[Operation]:
    """Cut into convolutions of stride 1: one for each phase of the output.

    Output row ``a + j * stride`` takes kernel row r from input row ``j + offset[r]``, for those r
    for which the offset is whole.
    """
    phases = (
        range(min(layer.stride[0], base.target.rows)),
        range(min(layer.stride[1], base.target.columns)),
    )
    for a, b in product(*phases):
        target = every(base.target, a, layer.stride[0], b, layer.stride[1])
        second = base.second and every(base.second, a, layer.stride[0], b, layer.stride[1])
        taps, axes = [], []
        for axis, phase in enumerate((a, b)):
            stride, dilation = layer.stride[axis], layer.dilation[axis]
            shift = phase + layer.pad[axis]
            # In descending order of kernel rows the input rows ascend.
            whole = [
                r
                for r in reversed(range(layer.kernel[axis]))
                if (shift - r * dilation) % stride == 0
            ]
            taps.append(whole)
            first = (shift - whole[0] * dilation) // stride if whole else 0
            apart = dilation // gcd(stride, dilation)
            axes.append(Axis(len(whole), 1, apart, -first))
        if all(taps):
            weights = np.ascontiguousarray(base.filters.weights[:, taps[0]][:, :, taps[1]])
        else:
            # No input reaches these outputs: a window that sees nothing gives the bias.
            weights = np.zeros_like(base.filters.weights[:, :1, :1])
            axes = [Axis(1, 1, 1, target.rows), Axis(1, 1, 1, target.columns)]
        part = replace(
            base,
            target=target,
            second=second,
            filters=replace(base.filters, weights=weights),
            kernel=(axes[0].kernel, axes[1].kernel),
            stride=(1, 1),
        )
        if not all(taps):
            yield replace(part, source=base.source.take_rows(0, 0), top=axes[0].before, left=0)
            continue
        yield from cut_dilation(
            replace(part, top=axes[0].before, left=axes[1].before),
            (axes[0].dilation, axes[1].dilation),
        )


def place(base: Operation, source: View, down: Axis, across: Axis) -> Operation:
    """Let the windows begin inside the view or in the padding, never behind its beginning."""
    skipped_rows, skipped_columns = max(0, -down.before), max(0, -across.before)
    source = source.take_rows(skipped_rows, max(0, source.rows - skipped_rows))
    source = source.take_columns(skipped_columns, max(0, source.columns - skipped_columns))
    return replace(
        base,
        source=source,
        kernel=(down.kernel, across.kernel),
        stride=(down.stride, across.stride),
        top=max(0, down.before),
        left=max(0, across.before),
    )

"""Pools, and layers that only move bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.layer import Layer, Shape
from trirow_driver.quantise import Quantisation

__all__ = ["POOL_KINDS", "CopyLayer", "PoolLayer"]

#: What a window becomes.
POOL_KINDS = ("maximum", "average")
_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class PoolLayer(Layer):
    """Largest value or average of each window; the quantisation stays.

    Averages are rounded half away from zero, as TensorFlow Lite does. Those without padding in the
    count are averages of the int8 values themselves; with it, padding is the zero point.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    kind : str
        One of `POOL_KINDS`.
    kernel, stride : (int, int)
        Rows and columns, at least 1.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right), at least 0.
    input : Quantisation
        Of the feature map and of the output.
    dilation : (int, int)
        Distance of taps in rows and columns, at least 1; for maxima only.
    ceil : bool
        A last window that is not whole counts too, if it begins inside the map or the padding in
        front of it: Caffe's rule and ONNX's ``ceil_mode``.
    count_padding : bool
        Padding counts for an average, as in Caffe; else windows are divided by the values inside.
    low, high : int
        Bounds of the output, both included; -128 <= low <= high <= 127.

    Raises
    ------
    ValueError
        If a field is not as above; the message begins with the name of the layer.
    """

    name: str
    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    input: Quantisation
    dilation: tuple[int, int] = (1, 1)
    ceil: bool = False
    count_padding: bool = False
    low: int = -128
    high: int = 127

    def __post_init__(self) -> None:
        self._check_base()
        if self.kind not in POOL_KINDS:
            self._refuse(f"kind must be one of {', '.join(POOL_KINDS)}, not {self.kind!r}")
        for field in ("kernel", "stride", "dilation"):
            self._keep(field, self._integers(field, 2, 1))
        self._keep("pad", self._integers("pad", 4, 0))
        self._check_bounds()

    @property
    def output(self) -> Quantisation:  # type: ignore[override]
        """Quantisation of the output, which is the input's."""
        return self.input

    def output_extents(self, shape: Shape) -> Shape:
        """Return rows, columns and channels of the output for those of the input."""
        try:
            rows, columns = trirow_golden.output_size(
                shape[:2], self.kernel, self.stride, self.pad, self.dilation, self.ceil
            )
        except ValueError as error:
            raise ValueError(f"layer {self.name!r}: {error}") from error
        return rows, columns, shape[2]

    @property
    def zero_point(self) -> int:
        """The value that counts as 0 in an average."""
        return self.input.zero_point if self.count_padding else 0

    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for a feature map of shape (N, H, W, C)."""
        if self.kind == "maximum":
            y = trirow_golden.max_pool2d(
                inputs[0],
                self.kernel,
                self.stride,
                self.pad,
                dilation=self.dilation,
                ceil=self.ceil,
            )
            clipped: _Int8 = np.clip(y, self.low, self.high).astype(np.int8)
            return clipped
        return trirow_golden.average_pool2d(
            inputs[0],
            self.kernel,
            self.stride,
            self.pad,
            dilation=self.dilation,
            ceil=self.ceil,
            count_padding=self.count_padding,
            zero_point=self.zero_point,
            low=self.low,
            high=self.high,
        )


@dataclass(frozen=True, eq=False)
class CopyLayer(Layer):
    """The same values elsewhere: a slice, a part of a concatenation, or each pixel repeated.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    input : Quantisation
        Of the feature map and of the output.
    factor : int
        Rows and columns that each pixel becomes, at least 1: 1 copies, 2 upsamples to the nearest.

    Raises
    ------
    ValueError
        If a field is not as above; the message begins with the name of the layer.
    """

    name: str
    input: Quantisation
    factor: int = 1

    def __post_init__(self) -> None:
        self._check_base()
        self._keep("factor", self._integer("factor", self.factor))
        if self.factor < 1:
            self._refuse(f"factor must be at least 1, not {self.factor}")

    @property
    def output(self) -> Quantisation:  # type: ignore[override]
        """Quantisation of the output, which is the input's."""
        return self.input

    def output_extents(self, shape: Shape) -> Shape:
        """Return rows, columns and channels of the output for those of the input."""
        return shape[0] * self.factor, shape[1] * self.factor, shape[2]

    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for a feature map of shape (N, H, W, C)."""
        return trirow_golden.upsample_nearest(inputs[0], self.factor)

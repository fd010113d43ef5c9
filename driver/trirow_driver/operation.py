"""What the accelerator can do: one convolution or pool on views of memory, however large."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.view import View
from trirow_hw.config import CONSTANT_BYTES, TABLE_ENTRY_BYTES, WIDE_CONSTANT_BYTES, Config
from trirow_hw.descriptor import OP_DENSE, OP_MAX_POOL, OP_SUM_POOL

__all__ = ["Filters", "Operation", "Sum", "UnsupportedError", "fixed_scale"]


class UnsupportedError(ValueError):
    """The configuration cannot compute the layer; the message names the layer and the limit."""


def fixed_scale(
    multiplier: npt.NDArray[np.floating],
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the words of the scales in mode ``fixed``: mantissas, and shifts left and right."""
    mantissa, left, right = trirow_golden.encode_fixed(multiplier)
    return mantissa.astype(np.uint32), (left | right << 8).astype(np.uint32)


@dataclass(frozen=True, eq=False)
class Filters:
    """Weights and constants. Operations with the same object can share what is on chip.

    Parameters
    ----------
    weights : int8 array of shape (K, R, S, C)
        C is 1 for depthwise convolutions. For pools the weights are not looked at.
    bias : int32 array of shape (K,)
    scale : uint32 array of shape (K,)
        First scale as the requantiser takes it: see docs/memory-image.md.
    second : uint32 array of shape (K,) or None
        Second scale: shifts of mode ``fixed``, or the scale of negative sums.
    tables : tuple of int32 arrays of shape (256,)
        None, the table of the outputs, or those of the two operands of a sum.
    zero_point : int
        Zero point of the weights.
    """

    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32]
    scale: npt.NDArray[np.uint32]
    second: npt.NDArray[np.uint32] | None = None
    tables: tuple[npt.NDArray[np.int32], ...] = ()
    zero_point: int = 0

    @property
    def channels(self) -> int:
        """Output channels K."""
        return len(self.bias)

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of one channel."""
        return int(CONSTANT_BYTES if self.second is None else WIDE_CONSTANT_BYTES)

    @property
    def table_bytes(self) -> int:
        """Bytes of the tables."""
        return sum(TABLE_ENTRY_BYTES * len(table) for table in self.tables)

    def slice(self, outputs: slice, weights: npt.NDArray[np.int8]) -> Filters:
        """Return some of the output channels, with other weights."""
        return replace(
            self,
            weights=weights,
            bias=self.bias[outputs],
            scale=self.scale[outputs],
            second=None if self.second is None else self.second[outputs],
        )


@dataclass(frozen=True)
class Sum:
    """How outputs are combined with a second feature map.

    Parameters
    ----------
    maximum : bool
        The larger one of the two table entries is taken, not their sum.
    mantissa, left, right : int
        Scale of the result in mode ``fixed``.
    zero_out, low, high : int
        Zero point and bounds of the result.
    """

    maximum: bool
    mantissa: int
    left: int
    right: int
    zero_out: int
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Operation:
    """One convolution or pool, before it is cut to fit the accelerator.

    Parameters
    ----------
    op : int
        ``OP_DENSE``, ``OP_DEPTHWISE``, ``OP_SUM_POOL`` or ``OP_MAX_POOL``.
    source, target : View
        Feature map and output. The source may be empty: then all windows lie in the padding.
    kernel, stride : (int, int)
    top, left : int
        Padding; that on the other sides follows from the output.
    filters : Filters
    zero_in, zero_out, low, high : int
        Zero points and bounds.
    fixed : bool
        Requantisation mode.
    second : View or None
        Second feature map, of the extents of the target, for ``sum``.
    sum : Sum or None
    """

    op: int
    source: View
    target: View
    kernel: tuple[int, int]
    stride: tuple[int, int]
    top: int
    left: int
    filters: Filters
    zero_in: int = 0
    zero_out: int = 0
    low: int = -128
    high: int = 127
    fixed: bool = False
    second: View | None = None
    sum: Sum | None = None

    @property
    def dense(self) -> bool:
        """Each output channel takes all input channels."""
        return bool(self.op == OP_DENSE)

    @property
    def pools(self) -> bool:
        """There are no weights to speak of."""
        return self.op in (OP_SUM_POOL, OP_MAX_POOL)

    def lanes(self, config: Config) -> int:
        """Return the output channels that are computed at once: those of a lane group."""
        return int(config.out_lanes if self.dense else config.depthwise_lanes)

    def columns(self, config: Config) -> int:
        """Return the columns of results of all pixels; one has results of ``post_lanes`` lanes."""
        lanes, width = self.lanes(config), int(config.post_lanes)
        whole, rest = divmod(self.filters.channels, lanes)
        pixels = self.target.rows * self.target.columns
        return pixels * (whole * -(-lanes // width) + -(-rest // width))

    def group_words(self, config: Config) -> int:
        """Return the words that a lane group takes in the memory of each lane."""
        rows, columns = self.kernel
        if self.pools:
            return 1
        if self.dense:
            return rows * -(-columns * self.source.channels // int(config.in_lanes))
        return -(-rows // int(config.tap_rows)) * columns

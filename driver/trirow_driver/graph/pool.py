"""Pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import trirow_golden
from trirow_driver.graph.operation import Floats, Operation, Shape, check_features
from trirow_golden import float32

__all__ = ["AveragePool", "MaxPool", "Pool"]


@dataclass(frozen=True, eq=False)
class Pool(Operation):
    """Make one pixel of each window.

    Parameters
    ----------
    kernel : (int, int) or None
        Rows and columns; None is the whole feature map.
    stride : (int, int)
    pad : (int, int, int, int)
        At the top, left, bottom and right.
    ceil : bool
        A last window that is not whole counts too, if it begins inside the map or the padding in
        front of it.
    """

    kernel: tuple[int, int] | None
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    ceil: bool = True

    def __post_init__(self) -> None:
        for name, least in (("kernel", 1), ("stride", 1), ("pad", 0)):
            values = getattr(self, name)
            if values is not None and min(values) < least:
                raise ValueError(f"{name} must be at least {least}, not {values}")

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return (N, C, OH, OW)."""
        (shape,) = shapes
        check_features(shape)
        if self.kernel is None:
            return ((*shape[:2], 1, 1),)
        size = trirow_golden.output_size(
            (shape[2], shape[3]), self.kernel, self.stride, self.pad, ceil=self.ceil
        )
        return ((*shape[:2], *size),)

    @property
    def _options(self) -> dict[str, Any]:
        """What golden's functions take besides the kernel."""
        return {"stride": self.stride, "pad": self.pad, "ceil": self.ceil}


class MaxPool(Pool):
    """Take the largest pixel of each window. Parameters: see `Pool`."""

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the largest pixels."""
        return (float32.max_pool(inputs[0], self.kernel, **self._options),)


class AveragePool(Pool):
    """Average each window; padding counts as zeros, what is beyond it does not (Caffe).

    Parameters: see `Pool`.
    """

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the averages."""
        return (float32.average_pool(inputs[0], self.kernel, **self._options),)

"""Orders in which the elements of a batch of feature maps lie in memory."""

import enum
import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Layout", "convert", "offset"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


class Layout(enum.Enum):
    """Order of the axes in memory, outermost first.

    The axes are N (image of the batch), C (channel), H (row) and W (column). Shapes that go with a
    layout are always given as (N, C, H, W), whatever the order in memory; `shape` reorders them.
    """

    NCHW = "NCHW"
    """Caffe, PyTorch and ONNX: plane by plane."""

    NHWC = "NHWC"
    """The accelerator and TensorFlow: pixel by pixel, all channels of a pixel adjacent."""

    CHWN = "CHWN"
    """The images of the batch interleaved element by element."""

    def shape(self, shape_nchw: Sequence[int]) -> tuple[int, int, int, int]:
        """Return the shape in the order of this layout.

        Parameters
        ----------
        shape_nchw : (int, int, int, int)
            Extents (N, C, H, W), 0 or more.

        Raises
        ------
        ValueError
            If there are not four extents or one is negative.
        """
        extents = dict(zip("NCHW", _checked(shape_nchw), strict=True))
        first, second, third, fourth = (extents[axis] for axis in self.value)
        return first, second, third, fourth


def convert(array: npt.NDArray[_Scalar], source: Layout, target: Layout) -> npt.NDArray[_Scalar]:
    """Bring an array from one layout into another.

    Parameters
    ----------
    array : array with four axes
        Elements of any type, in the order of `source`.
    source, target : Layout
        Layout of `array`, and of the result.

    Returns
    -------
    array of the same type
        The elements in the order of `target`; C-contiguous, and never a view of `array`.

    Raises
    ------
    ValueError
        If `array` does not have four axes.
    """
    if array.ndim != 4:
        raise ValueError(f"array in layout {source.name} must have 4 axes, not shape {array.shape}")
    axes = [source.value.index(axis) for axis in target.value]
    return np.array(array.transpose(axes), order="C", copy=True)


def offset(layout: Layout, shape_nchw: Sequence[int], n: int, c: int, h: int, w: int) -> int:
    """Return where the element (n, c, h, w) lies in memory.

    Parameters
    ----------
    layout : Layout
        Order in memory.
    shape_nchw : (int, int, int, int)
        Extents (N, C, H, W).
    n, c, h, w : int
        Image, channel, row and column, each 0 .. extent - 1.

    Returns
    -------
    int
        Distance from the first element, in elements.

    Raises
    ------
    IndexError
        If an index is outside its extent.
    ValueError
        If the shape is not four extents of 0 or more.
    """
    shape = _checked(shape_nchw)
    n, c, h, w = (operator.index(index) for index in (n, c, h, w))
    for axis, index, extent in zip("NCHW", (n, c, h, w), shape, strict=True):
        if not 0 <= index < extent:
            raise IndexError(f"index {index} on axis {axis} is out of range for shape NCHW {shape}")
    images, channels, height, width = shape
    if layout is Layout.NCHW:
        return ((n * channels + c) * height + h) * width + w
    if layout is Layout.NHWC:
        return ((n * height + h) * width + w) * channels + c
    return ((c * height + h) * width + w) * images + n


def _checked(shape_nchw: Sequence[Any]) -> tuple[int, int, int, int]:
    """Return the four extents, or raise ValueError."""
    shape = tuple(shape_nchw)
    if len(shape) != 4:
        raise ValueError(f"shape NCHW must have 4 extents, not {shape}")
    for axis, extent in zip("NCHW", shape, strict=True):
        if extent < 0:
            raise ValueError(f"axis {axis} of shape NCHW {shape} must be 0 or more, not {extent}")
    images, channels, height, width = (operator.index(extent) for extent in shape)
    return images, channels, height, width

"""Layers that give an array other axes: Caffe's Flatten and Reshape, SSD's Permute.

The results are new arrays, never views of the input.
"""

from collections.abc import Sequence

import numpy as np

from trirow_golden.checks import check_type
from trirow_golden.float32.checks import FloatArray, check_axis


def flatten(x: FloatArray, *, axis: int = 1, end_axis: int = -1) -> FloatArray:
    """Make one axis of those from `axis` to `end_axis`, both included (Caffe's Flatten).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    axis, end_axis : int
        First and last axis; negative ones count from the end.

    Returns
    -------
    float32 array

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x has no such axes, or the last is before the first.
    """
    check_type("x", x, np.float32)
    first = check_axis("axis", axis, x.ndim)
    last = check_axis("end_axis", end_axis, x.ndim)
    if last < first:
        raise ValueError(f"end_axis must not be before axis {axis!r}, not {end_axis!r}")
    whole = int(np.prod(x.shape[first : last + 1]))
    y: FloatArray = x.reshape(*x.shape[:first], whole, *x.shape[last + 1 :]).copy()
    return y


def reshape(
    x: FloatArray, shape: Sequence[int], *, axis: int = 0, num_axes: int = -1
) -> FloatArray:
    """Give axes another shape, in C order (Caffe's Reshape).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    shape : sequence of int
        Lengths of the new axes. 0 is that of the axis of x at this place, -1, at most once, what
        remains.
    axis : int
        First axis that `shape` replaces, from 0 to the number of axes; -1 is behind the last.
    num_axes : int
        How many it replaces; -1 is all from `axis` on.

    Returns
    -------
    float32 array

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x has no such axes, or shape does not have as many values as they have.
    """
    check_type("x", x, np.float32)
    first = check_axis("axis", axis, x.ndim + 1)
    last = x.ndim if num_axes == -1 else first + num_axes
    if not first <= last <= x.ndim:
        raise ValueError(
            f"num_axes must be -1 or from 0 to {x.ndim - first}, the axes of x from axis {first} "
            f"on, not {num_axes!r}"
        )
    text = f"shape must fit an array of shape {x.shape}, axis {first} on, not {tuple(shape)!r}"
    if list(shape).count(-1) > 1 or min(shape, default=0) < -1:
        raise ValueError(text)
    if any(length == 0 and first + i >= x.ndim for i, length in enumerate(shape)):
        raise ValueError(text)
    lengths = [length or x.shape[first + i] for i, length in enumerate(shape)]
    try:
        y: FloatArray = x.reshape(*x.shape[:first], *lengths, *x.shape[last:]).copy()
    except ValueError:
        raise ValueError(text) from None
    return y


def permute(x: FloatArray, order: Sequence[int]) -> FloatArray:
    """Put the axes in another order: Permute of the SSD fork of Caffe.

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    order : sequence of int
        Axes of x in the order of the result, each at most once, counted from the front. The others
        follow in their order.

    Returns
    -------
    float32 array

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x has no such axis, or one occurs twice.
    """
    check_type("x", x, np.float32)
    if len(set(order)) != len(order) or any(not 0 <= axis < x.ndim for axis in order):
        raise ValueError(
            f"order must be different axes from 0 to {x.ndim - 1}, not {tuple(order)!r}"
        )
    others = [axis for axis in range(x.ndim) if axis not in order]
    y: FloatArray = x.transpose(*order, *others).copy()
    return y

"""Layers that join and cut arrays: Caffe's Concat, Slice and Crop.

The results are new arrays, never views of the input.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from trirow_golden.checks import check_type
from trirow_golden.float32.checks import FloatArray, check_axis, check_inputs


def concat(inputs: Sequence[FloatArray], *, axis: int = 1) -> FloatArray:
    """Put arrays one behind the other along an axis (Caffe's Concat).

    Parameters
    ----------
    inputs : sequence of float32 arrays
        At least one; they agree in all other axes.
    axis : int
        The axis; a negative one counts from the end.

    Returns
    -------
    float32 array

    Raises
    ------
    TypeError
        If an input is not float32.
    ValueError
        If there are no inputs, they have no such axis, or their shapes do not fit together.
    """
    check_inputs(inputs)
    first = inputs[0].shape
    axis = check_axis("axis", axis, len(first))
    for index, array in enumerate(inputs):
        shape = array.shape
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != (
            first[:axis] + first[axis + 1 :]
        ):
            raise ValueError(
                f"inputs[{index}] must have the shape {first} of inputs[0] but for axis {axis}, "
                f"not {shape}"
            )
    return np.concatenate(inputs, axis=axis)


def slice_(
    x: FloatArray, parts: int, *, points: Sequence[int] | None = None, axis: int = 1
) -> list[FloatArray]:
    """Cut an array along an axis (Caffe's Slice).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    parts : int
        How many arrays to cut it into, at least 1.
    points : sequence of int, optional
        Where all but the first of them begin, ascending (Caffe's ``slice_point``). By default, or
        if empty, they are equally long.
    axis : int
        The axis; a negative one counts from the end.

    Returns
    -------
    list of float32 arrays

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If x has no such axis, parts does not divide it, or the points are not parts - 1 positions
        that ascend within it.
    """
    check_type("x", x, np.float32)
    axis = check_axis("axis", axis, x.ndim)
    length = x.shape[axis]
    if parts < 1:
        raise ValueError(f"parts must be at least 1, not {parts!r}")
    if not points:
        if length % parts:
            raise ValueError(f"parts must divide the length {length} of axis {axis}, not {parts!r}")
        points = range(length // parts, length, length // parts)
    ends = [0, *points, length]
    if len(ends) != parts + 1 or any(a >= b for a, b in pairwise(ends)):
        raise ValueError(
            f"points must be {parts - 1} ascending positions within an axis of length {length}, "
            f"not {list(points)!r}"
        )
    return [part.copy() for part in np.split(x, ends[1:-1], axis=axis)]


def crop(
    x: FloatArray, shape: Sequence[int], *, offsets: Sequence[int] = (), axis: int = 2
) -> FloatArray:
    """Cut the trailing axes down to a shape (Caffe's Crop).

    Parameters
    ----------
    x : float32 array of any shape
        Input.
    shape : sequence of int
        Shape of the reference, Caffe's second input: of all axes, of which those before `axis` are
        not looked at.
    offsets : sequence of int
        Where the result begins along each of the axes from `axis` on; one value holds for all,
        none is 0.
    axis : int
        First axis that is cut; a negative one counts from the end.

    Returns
    -------
    float32 array

    Raises
    ------
    TypeError
        If x is not float32.
    ValueError
        If shape has another number of axes, x has no such axis, there are too few or too many
        offsets, or the result reaches beyond x.
    """
    check_type("x", x, np.float32)
    axis = check_axis("axis", axis, x.ndim)
    if len(shape) != x.ndim:
        raise ValueError(f"shape must have the {x.ndim} axes of x, not {tuple(shape)!r}")
    cut = x.ndim - axis
    starts = list(offsets) * cut if len(offsets) == 1 else list(offsets) or [0] * cut
    if len(starts) != cut:
        raise ValueError(f"offsets must be none, 1 or {cut}, not {tuple(offsets)!r}")
    index = [slice(None)] * axis
    for i, start in enumerate(starts, axis):
        if start < 0 or shape[i] < 1 or start + shape[i] > x.shape[i]:
            raise ValueError(
                f"Crop of axis {i} must be within its length {x.shape[i]}, "
                f"not {start} to {start + shape[i]}"
            )
        index.append(slice(start, start + shape[i]))
    y: FloatArray = x[tuple(index)].copy()
    return y

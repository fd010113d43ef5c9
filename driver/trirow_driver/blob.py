"""Blob: the N-dimensional float array with a gradient that Caffe's networks are made of."""

import math
import operator
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_AXES", "MAX_COUNT", "Blob"]

MAX_AXES = 32
"""Largest number of axes of a blob."""

MAX_COUNT = 2**31 - 1
"""Largest number of elements of a blob."""

_LEGACY_AXES = ("num", "channels", "height", "width")

_Floats = npt.NDArray[np.float32]


class Blob:
    """N-D float32 array in C order, with a second array of the same shape for its gradient.

    The behaviour is that of the Blob of Caffe (`include/caffe/blob.hpp`), where it ends the process
    an exception is raised instead, and a call that raises leaves the blob as it was.

    `Blob()` has no memory and count 0 until it is reshaped; `Blob(())` has no axes and one element;
    `Blob((2, 3))` and `Blob(2, 3)` have two axes. New memory is zero.

    Parameters
    ----------
    *shape
        Extent of each axis, outermost first: one sequence, or one integer per axis. At most
        `MAX_AXES` axes of 0 or more, at most `MAX_COUNT` elements in all.

    Raises
    ------
    ValueError
        If the shape is outside these limits.
    """

    def __init__(self, *shape: int | Sequence[int]) -> None:
        self._shape: tuple[int, ...] = ()
        self._count = 0
        self._data: _Floats = np.zeros(0, dtype=np.float32)
        self._diff: _Floats = np.zeros(0, dtype=np.float32)
        if shape:
            self.reshape(*shape)

    def __repr__(self) -> str:
        return f"Blob({self.shape_string()})"

    # Shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis, outermost first."""
        return self._shape

    @property
    def num_axes(self) -> int:
        """Number of axes."""
        return len(self._shape)

    @property
    def capacity(self) -> int:
        """Number of elements up to which `reshape` keeps the memory of data and diff."""
        return min(self._data.size, self._diff.size)

    def shape_string(self) -> str:
        """Return the extents and, in parentheses, the count: `2 3 (6)`."""
        return " ".join([*map(str, self._shape), f"({self._count})"])

    def canonical_axis(self, axis: int) -> int:
        """Return `axis` counted from the front; -1 is the last axis, -2 the one before.

        Raises
        ------
        IndexError
            If `axis` is not in -num_axes .. num_axes - 1.
        """
        if not -self.num_axes <= axis < self.num_axes:
            raise IndexError(f"axis {axis} is out of range for {self._described()}")
        return axis % self.num_axes

    def dim(self, axis: int) -> int:
        """Return the extent of one axis, which may be negative as in `canonical_axis`.

        Raises
        ------
        IndexError
            If there is no such axis.
        """
        return self._shape[self.canonical_axis(axis)]

    def count(self, start: int = 0, end: int | None = None) -> int:
        """Return the number of elements of a slice: the product of the extents of start .. end - 1.

        As in Caffe, negative axes are refused here: pass them through `canonical_axis`.

        Parameters
        ----------
        start : int
            First axis that counts, 0 .. num_axes.
        end : int, optional
            First axis that no longer counts, start .. num_axes; all the rest by default.

        Raises
        ------
        IndexError
            If the axes are outside these ranges.
        """
        if start == 0 and end is None:
            return self._count
        stop = self.num_axes if end is None else end
        for axis in (start, stop):
            if not 0 <= axis <= self.num_axes:
                raise IndexError(f"axis {axis} bounds no slice of {self._described()}")
        if start > stop:
            raise IndexError(
                f"slice from axis {start} to {stop} of {self._described()} is reversed"
            )
        return math.prod(self._shape[start:stop])

    @property
    def num(self) -> int:
        """Extent of axis 0 of at most 4, or 1; ValueError if there are more than 4."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Extent of axis 1 of at most 4, or 1; ValueError if there are more than 4."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Extent of axis 2 of at most 4, or 1; ValueError if there are more than 4."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Extent of axis 3 of at most 4, or 1; ValueError if there are more than 4."""
        return self._legacy(3)

    def offset(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> int:
        """Return the place of one element in C order, in elements.

        There are two forms: up to four integers, for blobs of up to 4 axes (missing axes have
        extent 1), and one sequence of at most `num_axes` indices (those not given are 0).

        Every offset returned is that of an element. Caffe's form with four integers also takes an
        index that equals its extent, and does not look for negative c, h and w; with such an offset
        a neighbour or memory beyond the blob would be read, so both are refused here. The end of
        the blob is `count()`.

        Raises
        ------
        IndexError
            If an index is outside 0 .. extent - 1, or more indices than axes are given.
        ValueError
            If four integers are given for a blob of more than 4 axes.
        """
        if isinstance(n, Iterable):
            if (c, h, w) != (0, 0, 0):
                raise IndexError("offset takes one sequence of indices or up to four integers")
            indices, extents = list(n), list(self._shape)
            if len(indices) > len(extents):
                raise IndexError(f"{len(indices)} indices are too many for {self._described()}")
            indices += [0] * (len(extents) - len(indices))
        else:
            indices, extents = [n, c, h, w], [self._legacy(axis) for axis in range(4)]
        if self._is_bare():
            raise IndexError(f"{self._described()} has no elements")
        offset = 0
        for axis, (index, extent) in enumerate(zip(indices, extents, strict=True)):
            index = operator.index(index)
            if not 0 <= index < extent:
                raise IndexError(
                    f"index {index} on axis {axis} is out of range for {self._described()}"
                )
            offset = offset * extent + index
        return offset

    def reshape(self, *shape: int | Sequence[int]) -> None:
        """Change the shape; elements keep their place in memory as far as the memory is kept.

        Memory is allocated, as zeros and for data and diff at once, only if the new count exceeds
        `capacity`, and never given back. Until then, memory shared with other blobs stays shared.

        Unlike Caffe, which remembers the largest count ever asked for, the capacity is that of the
        memory held now. So a blob that has shared smaller memory does not grow beyond its end.

        Parameters
        ----------
        *shape
            As for the class.

        Raises
        ------
        ValueError
            If the shape is outside the limits.
        """
        extents = _extents(shape)
        count = math.prod(extents)
        if count > self.capacity:
            data, diff = (np.zeros(count, dtype=np.float32) for _ in range(2))
            self._data, self._diff = data, diff
        self._shape = extents
        self._count = count

    def reshape_like(self, other: "Blob") -> None:
        """Take the shape of another blob, as `reshape` does."""
        self.reshape(other.shape)

    # Contents

    @property
    def data(self) -> _Floats:
        """The values: a writable view, shape `shape`; ValueError for a blob without memory."""
        return self._view(self._data)

    @property
    def diff(self) -> _Floats:
        """The gradient: a writable view, shape `shape`; ValueError for a blob without memory."""
        return self._view(self._diff)

    def data_at(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> float:
        """Return one value; arguments and errors are those of `offset`."""
        return float(self._data[self.offset(n, c, h, w)])

    def diff_at(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> float:
        """Return one element of the gradient; arguments and errors are those of `offset`."""
        return float(self._diff[self.offset(n, c, h, w)])

    def copy_from(self, source: "Blob", copy_diff: bool = False, reshape: bool = False) -> None:
        """Copy the values of another blob, or its gradient instead.

        Parameters
        ----------
        source : Blob
            The blob to copy from.
        copy_diff : bool
            Copy diff to diff rather than data to data.
        reshape : bool
            Take the shape of `source` first, where it differs.

        Raises
        ------
        ValueError
            If the shapes differ and `reshape` is not set, or `source` has no memory.
        """
        values = source.diff if copy_diff else source.data
        if self._is_bare() or self._shape != source.shape:
            if not reshape:
                raise ValueError(
                    f"copy of a blob with shape {source.shape_string()} into "
                    f"{self._described()} needs reshape=True"
                )
            self.reshape_like(source)
        np.copyto(self.diff if copy_diff else self.data, values)

    def share_data(self, other: "Blob") -> None:
        """Use the memory of the data of another blob of the same count; the shape may differ.

        Writes through either blob show in both until one of them allocates in `reshape`.

        Raises
        ------
        ValueError
            If the counts differ, or the other blob has no memory.
        """
        self._check_sharing(other)
        self._data = other._data

    def share_diff(self, other: "Blob") -> None:
        """Use the memory of the diff of another blob; as `share_data`."""
        self._check_sharing(other)
        self._diff = other._diff

    # Arithmetic

    def asum_data(self) -> float:
        """Return the sum of the absolute values of data, added in float64."""
        return _asum(self._data[: self._count])

    def asum_diff(self) -> float:
        """Return the sum of the absolute values of diff, added in float64."""
        return _asum(self._diff[: self._count])

    def sumsq_data(self) -> float:
        """Return the sum of the squares of data, added in float64."""
        return _sumsq(self._data[: self._count])

    def sumsq_diff(self) -> float:
        """Return the sum of the squares of diff, added in float64."""
        return _sumsq(self._diff[: self._count])

    def scale_data(self, factor: float) -> None:
        """Multiply data by `factor`, in float32."""
        self._data[: self._count] *= np.float32(factor)

    def scale_diff(self, factor: float) -> None:
        """Multiply diff by `factor`, in float32."""
        self._diff[: self._count] *= np.float32(factor)

    def update(self) -> None:
        """Subtract diff from data; ValueError for a blob without memory."""
        values = self.data
        values -= self.diff

    def _is_bare(self) -> bool:
        return not self._shape and self._count == 0

    def _described(self) -> str:
        return f"a {self.num_axes}-D blob with shape {self.shape_string()}"

    def _legacy(self, axis: int) -> int:
        if self.num_axes > 4:
            raise ValueError(
                f"{_LEGACY_AXES[axis]} (axis {axis} of 4) is not defined for {self._described()}"
            )
        return self._shape[axis] if axis < self.num_axes else 1

    def _view(self, memory: _Floats) -> _Floats:
        if self._is_bare():
            raise ValueError(f"{self._described()} has no memory: reshape it first")
        return memory[: self._count].reshape(self._shape)

    def _check_sharing(self, other: "Blob") -> None:
        if other._is_bare():
            raise ValueError(f"{other._described()} has no memory to share")
        if self._count != other._count:
            raise ValueError(
                f"{self._described()} cannot share the memory of a blob with shape "
                f"{other.shape_string()}: the counts differ"
            )


def _extents(shape: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """Return the checked extents of a shape given as one sequence or as integers."""
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
    try:
        extents = tuple(operator.index(extent) for extent in given)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"shape must be integers, not {given!r}") from None
    if len(extents) > MAX_AXES:
        raise ValueError(f"shape must have at most {MAX_AXES} axes, not {len(extents)}")
    for axis, extent in enumerate(extents):
        if extent < 0:
            raise ValueError(f"axis {axis} of shape {extents} must be 0 or more, not {extent}")
    if math.prod(extents) > MAX_COUNT:
        raise ValueError(
            f"shape {extents} has {math.prod(extents)} elements, more than {MAX_COUNT}"
        )
    return extents


def _asum(values: _Floats) -> float:
    return float(np.abs(values).sum(dtype=np.float64))


def _sumsq(values: _Floats) -> float:
    return float(np.square(values, dtype=np.float64).sum())

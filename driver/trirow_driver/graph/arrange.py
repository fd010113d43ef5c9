"""Operations that move values and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trirow_driver.graph.operation import (
    Floats,
    Operation,
    Shape,
    axis_from_front,
    elements,
)
from trirow_golden import float32

__all__ = ["Concat", "Crop", "Flatten", "Permute", "Reshape", "Slice"]


@dataclass(frozen=True, eq=False)
class Concat(Operation):
    """Put tensors one behind the other.

    Parameters
    ----------
    axis : int
        Along this axis; a negative one counts from the end.
    """

    axis: int = 1
    arity = None

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape of the inputs with the sum of their extents along the axis."""
        axis = axis_from_front(self.axis, shapes[0])
        rests = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
        if len(rests) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise ValueError(
                f"inputs must agree but in axis {axis}, not have shapes "
                f"{', '.join(map(str, shapes))}"
            )
        length = sum(shape[axis] for shape in shapes)
        return ((*shapes[0][:axis], length, *shapes[0][axis + 1 :]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the tensor."""
        return (float32.concat(inputs, axis=self.axis),)


@dataclass(frozen=True, eq=False)
class Slice(Operation):
    """Cut a tensor into parts.

    Parameters
    ----------
    parts : int
    points : tuple of int
        Where all but the first of them begin; without any they are equally long.
    axis : int
        Along this axis; a negative one counts from the end.
    """

    parts: int
    points: tuple[int, ...] = ()
    axis: int = 1

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shapes of the parts."""
        (shape,) = shapes
        axis = axis_from_front(self.axis, shape)
        length = shape[axis]
        if not self.points and length % self.parts:
            raise ValueError(f"parts must divide the {length} of axis {axis}, not {self.parts}")
        points = self.points or range(length // self.parts, length, length // self.parts)
        ends = [0, *points, length]
        if len(ends) != self.parts + 1 or any(a >= b for a, b in pairwise(ends)):
            raise ValueError(
                f"points must be {self.parts - 1} ascending positions within the {length} of axis "
                f"{axis}, not {self.points}"
            )
        return tuple((*shape[:axis], b - a, *shape[axis + 1 :]) for a, b in pairwise(ends))

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the parts."""
        return tuple(float32.slice_(inputs[0], self.parts, points=self.points, axis=self.axis))


@dataclass(frozen=True, eq=False)
class Crop(Operation):
    """Cut the trailing axes down to those of a second tensor.

    Parameters
    ----------
    axis : int
        The first that is cut; a negative one counts from the end.
    offsets : tuple of int
        Where the result begins; one value holds for all axes, none is 0.
    """

    axis: int = 2
    offsets: tuple[int, ...] = ()
    arity = 2

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the leading axes of the first input, and the trailing ones of the second."""
        shape, wanted = shapes
        axis = axis_from_front(self.axis, shape)
        cut = len(shape) - axis
        if len(wanted) != len(shape) or len(self.offsets) not in (0, 1, cut):
            raise ValueError(
                f"inputs must have as many axes, and offsets be none, 1 or {cut}, not shapes "
                f"{shape} and {wanted} and offsets {self.offsets}"
            )
        starts = self.offsets if len(self.offsets) == cut else (self.offsets or (0,)) * cut
        for i, start in enumerate(starts, axis):
            if start < 0 or wanted[i] < 1 or start + wanted[i] > shape[i]:
                raise ValueError(
                    f"crop of axis {i} must be within its length {shape[i]}, not {start} to "
                    f"{start + wanted[i]}"
                )
        return ((*shape[:axis], *wanted[axis:]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the part."""
        shape = inputs[1].shape
        return (float32.crop(inputs[0], shape, offsets=self.offsets, axis=self.axis),)


@dataclass(frozen=True, eq=False)
class Flatten(Operation):
    """Make one axis of several.

    Parameters
    ----------
    axis, end_axis : int
        The first and the last; negative ones count from the end.
    """

    axis: int = 1
    end_axis: int = -1

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape with their product in their place."""
        (shape,) = shapes
        first, last = axis_from_front(self.axis, shape), axis_from_front(self.end_axis, shape)
        if first > last:
            raise ValueError(f"end_axis must not lie before axis {first}, not be {last}")
        return ((*shape[:first], elements(shape[first : last + 1]), *shape[last + 1 :]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the tensor."""
        return (float32.flatten(inputs[0], axis=self.axis, end_axis=self.end_axis),)


@dataclass(frozen=True, eq=False)
class Reshape(Operation):
    """Give axes another shape, in C order.

    Parameters
    ----------
    shape : tuple of int
        0 is the extent of the input at this place, -1, at most once, what remains.
    axis : int
        The first axis that it replaces; -1 is behind the last.
    num_axes : int
        How many it replaces; -1 is all from `axis` on.
    """

    shape: tuple[int, ...]
    axis: int = 0
    num_axes: int = -1

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape."""
        (given,) = shapes
        first = axis_from_front(self.axis, given, behind=1)
        last = len(given) if self.num_axes == -1 else first + self.num_axes
        if not first <= last <= len(given):
            raise ValueError(
                f"num_axes must be -1 or up to {len(given) - first}, not {self.num_axes}"
            )
        error = ValueError(f"shape must fit {given} from axis {first} on, not be {self.shape}")
        beyond = any(not n and first + i >= len(given) for i, n in enumerate(self.shape))
        if self.shape.count(-1) > 1 or min(self.shape, default=0) < -1 or beyond:
            raise error
        extents = [n or given[first + i] for i, n in enumerate(self.shape)]
        values = elements(given[first:last])
        known = elements(tuple(n for n in extents if n != -1))
        if -1 in extents and known:
            extents[extents.index(-1)] = values // known
        if elements(tuple(extents)) != values:
            raise error
        return ((*given[:first], *extents, *given[last:]),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the tensor."""
        y = float32.reshape(inputs[0], self.shape, axis=self.axis, num_axes=self.num_axes)
        return (y,)


@dataclass(frozen=True, eq=False)
class Permute(Operation):
    """Put the axes in another order.

    Parameters
    ----------
    order : tuple of int
        Axes of the input in the order of the output; the others follow in theirs.
    """

    order: tuple[int, ...]

    def infer(self, shapes: Sequence[Shape]) -> tuple[Shape, ...]:
        """Return the shape."""
        (shape,) = shapes
        order = self.order
        if len(set(order)) != len(order) or any(not 0 <= axis < len(shape) for axis in order):
            raise ValueError(f"order must be different axes of shape {shape}, not {order}")
        rest = [axis for axis in range(len(shape)) if axis not in order]
        return (tuple(shape[axis] for axis in (*order, *rest)),)

    def compute(self, inputs: Sequence[Floats]) -> tuple[Floats, ...]:
        """Return the tensor."""
        return (float32.permute(inputs[0], self.order),)

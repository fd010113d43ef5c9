"""What all layers have in common: a name, quantisations, and fields that are checked."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from trirow_driver.quantise import Quantisation

__all__ = ["Layer", "Mode", "Shape"]

#: Requantisation mode.
Mode = Literal["float32", "fixed"]
#: Rows, columns and channels of a feature map.
Shape = tuple[int, int, int]
_Int8 = npt.NDArray[np.int8]


class Layer(ABC):
    """A layer in the numbers that the accelerator computes with.

    Layers are dataclasses that cannot be changed, and compare by identity. Their arrays are copies
    that cannot be written to.

    Attributes
    ----------
    name : str
        For messages and regions; not empty.
    input, output : Quantisation
        Quantisation of the first input and of what the layer gives.
    on_host : bool
        The accelerator cannot compute it: the host does.
    """

    name: str
    input: Quantisation
    output: Quantisation
    on_host: ClassVar[bool] = False

    @property
    def inputs(self) -> tuple[Quantisation, ...]:
        """Quantisation of each feature map that the layer takes."""
        return (self.input,)

    @property
    def result(self) -> Quantisation:
        """Quantisation of the feature map that the layer gives."""
        return self.output

    @abstractmethod
    def output_extents(self, shape: Shape) -> Shape:
        """Return rows, columns and channels of the output for those of the first input.

        Raises
        ------
        ValueError
            If the layer cannot take such an input; the message names the layer.
        """

    @abstractmethod
    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for feature maps of shape (N, H, W, C)."""

    def macs(self, shape: Shape, *, padding: bool = True) -> int:
        """Return the multiplications for one image, those with padding among them or not.

        Pools, copies and elementwise layers have none.
        """
        return 0

    @property
    def parameter_bytes(self) -> int:
        """Bytes of weights and constants, each once."""
        return 0

    def _check_base(self) -> None:
        """Check the fields that all layers have."""
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"layer name must be a string that is not empty, not {self.name!r}")
        for field in ("input", "output"):
            if not isinstance(getattr(self, field), Quantisation):
                self._refuse(f"{field} must be a Quantisation, not {getattr(self, field)!r}")

    def _check_bounds(self) -> None:
        """Check ``low`` and ``high``."""
        for field in ("low", "high"):
            self._keep(field, self._integer(field, getattr(self, field)))
        low, high = getattr(self, "low"), getattr(self, "high")  # noqa: B009
        if not -128 <= low <= high <= 127:
            self._refuse(f"low and high must be ordered and in -128 .. 127, not {low} and {high}")

    def _array(
        self, field: str, dtype: type[Any], axes: int, shape: tuple[int, ...] | None = None
    ) -> npt.NDArray[Any]:
        """Return a read-only copy of a field after checking its type and shape."""
        array = getattr(self, field)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            found = getattr(array, "dtype", type(array).__name__)
            self._refuse(f"{field} must be an array of {np.dtype(dtype)}, not {found}")
        if array.ndim != axes or 0 in array.shape or shape not in (None, array.shape):
            wanted = shape or "(K, R, S, C) without an empty axis"
            self._refuse(f"{field} must have shape {wanted}, not {array.shape}")
        array = np.array(array, order="C", copy=True)
        array.setflags(write=False)
        return array

    def _integers(self, field: str, length: int, least: int) -> tuple[int, ...]:
        values = getattr(self, field)
        if not isinstance(values, Sequence) or len(values) != length:
            self._refuse(f"{field} must be {length} integers, not {values!r}")
        integers = tuple(self._integer(field, value) for value in values)
        if min(integers) < least:
            self._refuse(f"{field} must be at least {least}, not {integers}")
        return integers

    def _integer(self, field: str, value: Any) -> int:
        try:
            return operator.index(value)
        except TypeError:
            raise ValueError(
                f"layer {self.name!r}: {field} must be an integer, not {value!r}"
            ) from None

    def _keep(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)

    def _refuse(self, text: str) -> NoReturn:
        raise ValueError(f"layer {self.name!r}: {text}")

"""A convolution in the numbers that the accelerator computes with."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.quantise import Quantisation, quantise_bias, quantise_weights

__all__ = ["ConvLayer", "quantise_conv"]

_INT32_MAX = 2**31 - 1
_LARGEST_BIAS = 2**30  # leaves half of the accumulator to the products


@dataclass(frozen=True, eq=False)
class ConvLayer:
    """Convolution of int8 feature maps with int8 weights, requantised to int8.

    For each output channel k, over the kernel's rows r, columns s and input channels c:

        acc = bias[k] + sum((x[r, s, c] - input.zero_point) * weights[k, r, s, c])
        y = clip(rint(acc * multiplier[k]) + output.zero_point, low, high)

    Padding contributes nothing to the sum, and the input's zero point is not folded into the bias.
    The arrays are copied and cannot be written to. Layers compare by identity.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    weights : int8 array of shape (K, R, S, C)
        K filters of R rows, S columns and C channels, each at least 1.
    bias : int32 array of shape (K,)
        Start value of the accumulators, in units of the input's scale times the weights'.
    multiplier : float32 array of shape (K,)
        From accumulators to output values; finite and at least 0.
    stride : (int, int)
        Steps (sy, sx) in rows and columns, at least 1.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right) in rows and columns, at least 0.
    input, output : Quantisation
        Quantisation of the two feature maps.
    low, high : int
        Bounds of the output, both included; -128 <= low <= high <= 127.

    Raises
    ------
    ValueError
        If a field is not as above, or an accumulator can exceed int32. The message begins with the
        name of the layer and that of the field.
    """

    name: str
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32]
    multiplier: npt.NDArray[np.float32]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    input: Quantisation
    output: Quantisation
    low: int = -128
    high: int = 127

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"layer name must be a string that is not empty, not {self.name!r}")
        self._keep("weights", self._array("weights", np.int8, 4))
        filters = (self.out_channels,)
        self._keep("bias", self._array("bias", np.int32, 1, filters))
        self._keep("multiplier", self._array("multiplier", np.float32, 1, filters))
        bad = ~np.isfinite(self.multiplier) | np.signbit(self.multiplier)
        if bad.any():
            k = int(bad.argmax())
            self._refuse(
                f"multiplier of output channel {k} must be finite and at least 0, "
                f"not {self.multiplier[k]}"
            )
        self._keep("stride", self._integers("stride", 2, 1))
        self._keep("pad", self._integers("pad", 4, 0))
        for field in ("input", "output"):
            if not isinstance(getattr(self, field), Quantisation):
                self._refuse(f"{field} must be a Quantisation, not {getattr(self, field)!r}")
        for field in ("low", "high"):
            self._keep(field, self._integer(field, getattr(self, field)))
        if not -128 <= self.low <= self.high <= 127:
            self._refuse(
                f"low and high must be ordered and in -128 .. 127, not {self.low} and {self.high}"
            )
        self._check_accumulators()

    @property
    def kernel(self) -> tuple[int, int]:
        """Rows and columns (R, S) of the kernel."""
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def out_channels(self) -> int:
        """Number K of output channels."""
        return int(self.weights.shape[0])

    @property
    def in_channels(self) -> int:
        """Number C of input channels."""
        return int(self.weights.shape[3])

    def output_shape(self, h: int, w: int) -> tuple[int, int]:
        """Return the rows and columns of the output.

        Parameters
        ----------
        h, w : int
            Rows and columns of the input.

        Raises
        ------
        ValueError
            If the kernel does not fit into the padded input; the message names the layer.
        """
        try:
            return trirow_golden.output_size((h, w), self.kernel, self.stride, self.pad)
        except ValueError as error:
            raise ValueError(f"layer {self.name!r}: {error}") from error

    def _check_accumulators(self) -> None:
        bounds = trirow_golden.accumulator_bound(self.weights, self.bias, self.input.zero_point)
        k = int(bounds.argmax())
        if bounds[k] > _INT32_MAX:
            self._refuse(
                f"weights and bias of output channel {k} let the accumulator reach {bounds[k]}, "
                f"beyond int32"
            )

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


def quantise_conv(
    name: str,
    weights: npt.ArrayLike,
    bias: npt.ArrayLike,
    *,
    input: Quantisation,
    output: Quantisation,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    relu: bool = False,
) -> ConvLayer:
    """Quantise a convolution of real numbers.

    Weights get one symmetric scale per output channel. Where a channel's weights are so small that
    its bias would need more than 31 bits in units of their scale, as in the dead channels that
    folding a batch normalisation leaves behind, the scale is widened until the bias fits: there the
    bias matters, and the weights next to it do not.

    Parameters
    ----------
    name : str
        Name of the layer.
    weights : float array of shape (K, R, S, C)
        The filters.
    bias : float array of shape (K,)
        Added to each output channel.
    input, output : Quantisation
        Quantisation of the two feature maps.
    stride, pad : tuples of int
        As for `ConvLayer`.
    relu : bool
        Replace negative results by 0, which is the lower bound `output.zero_point`.

    Returns
    -------
    ConvLayer
        The layer in int8.

    Raises
    ------
    ValueError
        If weights or bias have the wrong shape or are not finite, or the layer is one that
        `ConvLayer` refuses; the message begins with the name of the layer.
    """
    try:
        real_bias = np.asarray(bias).astype(np.float64)
        fits = np.abs(real_bias) <= np.finfo(np.float32).max
        if real_bias.shape != np.shape(weights)[:1] or not fits.all():
            raise ValueError(
                f"bias must be one finite float32 number for each output channel of weights with "
                f"shape {np.shape(weights)}"
            )
        least = np.abs(real_bias) / input.scale / _LARGEST_BIAS
        values, scales = quantise_weights(weights, least_scales=least)
        units = quantise_bias(real_bias, input.scale, scales)
        multiplier = trirow_golden.conv_multiplier(input.scale, scales, output.scale)
    except ValueError as error:
        raise ValueError(f"layer {name!r}: {error}") from error
    low = output.zero_point if relu else -128
    return ConvLayer(name, values, units, multiplier, stride, pad, input, output, low)

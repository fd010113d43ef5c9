"""Convolutions in the numbers that the accelerator computes with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.combine_layer import Combine
from trirow_driver.layer import Layer, Mode, Shape
from trirow_driver.quantise import Quantisation, quantise_bias, quantise_weights
from trirow_hw.config import CONSTANT_BYTES, REQUANTISE_MODES, TABLE_ENTRIES

__all__ = ["ConvLayer", "quantise_conv", "shuffle_layer"]

_INT32_MAX = 2**31 - 1
_LARGEST_BIAS = 2**30  # leaves half of the accumulator to the products
_Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class ConvLayer(Layer):
    """Convolution of int8 feature maps with int8 weights, requantised to int8.

    For each output channel k, over the kernel's rows r, columns s and input channels c:

        acc = bias[k] + sum((x[r, s, c] - input.zero_point) * (weights[k, r, s, c] - weight_zero))
        y = clip(rint(acc * multiplier[k]) + output.zero_point, low, high)

    Padding contributes nothing to the sum, and the input's zero point is not folded into the bias.
    After that a table, or a second feature map that is added, as the last fields say. A fully
    connected layer is the case in which the kernel is as large as the feature map.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and regions; not empty.
    weights : int8 array of shape (K, R, S, C / groups)
        K filters of R rows and S columns, each extent at least 1.
    bias : int32 array of shape (K,)
        Start value of the accumulators, in units of the input's scale times the weights'.
    multiplier : float32 array of shape (K,)
        From accumulators to output values; finite and at least 0. In mode ``fixed`` float64.
    stride : (int, int)
        Steps (sy, sx) in rows and columns, at least 1.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right) in rows and columns, at least 0.
    input, output : Quantisation
        Quantisation of the feature map and of the requantised sums.
    low, high : int
        Bounds of the output, both included; -128 <= low <= high <= 127.
    dilation : (int, int)
        Distance of taps in rows and columns, at least 1.
    groups : int
        Parts of the channels that are convolved apart; K is a multiple of it. With as many groups
        as channels the convolution is depthwise.
    weight_zero_point : int
        Zero point of the weights, -128 .. 127.
    mode : str
        Requantisation mode, ``float32`` or ``fixed``.
    negative_multiplier : float32 array of shape (K,), optional
        Multiplier of sums below 0, of any sign: PReLU with its slopes. Mode ``float32`` only.
    table : int8 array of shape (256,), optional
        The output y becomes ``table[y mod 256]``.
    transposed : bool
        Transposed convolution: every input value spreads over the kernel, input pixels are
        ``stride`` apart in the output, and the padding is cut off.
    output_padding : (int, int)
        Rows and columns added to the output of a transposed convolution at its end.
    combine : Combine, optional
        A second feature map, of the output's extents, with which the output is combined.

    Raises
    ------
    ValueError
        If a field is not as above, or an accumulator can exceed int32. The message begins with the
        name of the layer and that of the field.
    """

    name: str
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32]
    multiplier: npt.NDArray[np.float32] | npt.NDArray[np.float64]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    input: Quantisation
    output: Quantisation
    low: int = -128
    high: int = 127
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    weight_zero_point: int = 0
    mode: Mode = "float32"
    negative_multiplier: npt.NDArray[np.float32] | None = None
    table: npt.NDArray[np.int8] | None = None
    transposed: bool = False
    output_padding: tuple[int, int] = (0, 0)
    combine: Combine | None = None

    def __post_init__(self) -> None:
        self._check_base()
        if self.mode not in REQUANTISE_MODES:
            self._refuse(f"mode must be one of {', '.join(REQUANTISE_MODES)}, not {self.mode!r}")
        self._keep("weights", self._array("weights", np.int8, 4))
        filters = (self.out_channels,)
        self._keep("bias", self._array("bias", np.int32, 1, filters))
        single = self.mode == "float32"
        kind = np.float32 if single else np.float64
        self._keep("multiplier", self._array("multiplier", kind, 1, filters))
        bad = ~np.isfinite(self.multiplier) | np.signbit(self.multiplier)
        if bad.any():
            k = int(bad.argmax())
            self._refuse(
                f"multiplier of output channel {k} must be finite and at least 0, "
                f"not {self.multiplier[k]}"
            )
        self._keep("stride", self._integers("stride", 2, 1))
        self._keep("pad", self._integers("pad", 4, 0))
        self._keep("dilation", self._integers("dilation", 2, 1))
        self._keep("output_padding", self._integers("output_padding", 2, 0))
        self._check_bounds()
        for field, least in (("groups", 1), ("weight_zero_point", -128)):
            self._keep(field, self._integer(field, getattr(self, field)))
            if getattr(self, field) < least:
                self._refuse(f"{field} must be at least {least}, not {getattr(self, field)}")
        if self.weight_zero_point > 127:
            self._refuse(f"weight_zero_point must be at most 127, not {self.weight_zero_point}")
        if self.out_channels % self.groups:
            self._refuse(
                f"output channels must be a multiple of groups ({self.groups}), "
                f"not {self.out_channels}"
            )
        self._check_options(filters)
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
        return int(self.weights.shape[3]) * self.groups

    @property
    def inputs(self) -> tuple[Quantisation, ...]:
        """Quantisation of each feature map that the layer takes."""
        return (self.input,) if self.combine is None else (self.input, self.combine.second)

    @property
    def result(self) -> Quantisation:
        """Quantisation of the feature map that the layer gives."""
        return self.output if self.combine is None else self.combine.output

    @property
    def parameter_bytes(self) -> int:
        """Bytes of weights and constants, each once."""
        return int(self.weights.size + CONSTANT_BYTES * self.out_channels)

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
            if self.transposed:
                return trirow_golden.transposed_output_size(
                    (h, w), self.kernel, self.stride, self.pad, self.dilation, self.output_padding
                )
            return trirow_golden.output_size(
                (h, w), self.kernel, self.stride, self.pad, self.dilation
            )
        except ValueError as error:
            raise ValueError(f"layer {self.name!r}: {error}") from error

    def output_extents(self, shape: Shape) -> Shape:
        """Return rows, columns and channels of the output for those of the input."""
        height, width, channels = shape
        if channels != self.in_channels:
            self._refuse(
                f"its weights are for {self.in_channels} channels, its feature map has {channels}"
            )
        return (*self.output_shape(height, width), self.out_channels)

    def golden(self, *inputs: _Int8) -> _Int8:
        """Return what golden computes for feature maps of shape (N, H, W, C)."""
        options: dict[str, Any] = {
            "stride": self.stride,
            "pad": self.pad,
            "dilation": self.dilation,
            "groups": self.groups,
            "zero_in": self.input.zero_point,
            "zero_out": self.output.zero_point,
            "low": self.low,
            "high": self.high,
            "weight_zero_point": self.weight_zero_point,
            "mode": self.mode,
            "negative_multiplier": self.negative_multiplier,
            "table": self.table,
        }
        convolve = trirow_golden.conv2d_int8
        if self.transposed:
            convolve = trirow_golden.transposed_conv2d_int8
            options["output_padding"] = self.output_padding
        y: _Int8 = convolve(inputs[0], self.weights, self.bias, self.multiplier, **options)
        return y if self.combine is None else self.combine.golden(y, inputs[1])

    def macs(self, shape: Shape, *, padding: bool = True) -> int:
        """Return the multiplications for one image, those with padding among them or not."""
        out = self.output_extents(shape)
        per_tap = int(self.weights.shape[3]) * self.out_channels
        if padding and self.transposed:
            return shape[0] * shape[1] * self.kernel[0] * self.kernel[1] * per_tap
        if padding:
            return out[0] * out[1] * self.kernel[0] * self.kernel[1] * per_tap
        taps = per_tap
        for axis in range(2):
            taps *= self._taps(axis, shape[axis], out[axis])
        return taps

    def _taps(self, axis: int, size: int, outputs: int) -> int:
        """Count the pairs of an output position and a kernel position inside the map."""
        positions = np.arange(self.kernel[axis]) * self.dilation[axis]
        if self.transposed:
            at = np.arange(size)[:, None] * self.stride[axis] + positions - self.pad[axis]
            return int(np.count_nonzero((at >= 0) & (at < outputs)))
        at = np.arange(outputs)[:, None] * self.stride[axis] + positions - self.pad[axis]
        return int(((at >= 0) & (at < size)).sum())

    def _check_options(self, filters: tuple[int, ...]) -> None:
        """Check the fields that most layers do without."""
        if self.negative_multiplier is not None:
            slopes = self._array("negative_multiplier", np.float32, 1, filters)
            if self.mode != "float32" or not np.isfinite(slopes).all():
                self._refuse("negative_multiplier must be finite, and takes mode float32")
            self._keep("negative_multiplier", slopes)
        if self.table is not None:
            self._keep("table", self._array("table", np.int8, 1, (TABLE_ENTRIES,)))
        if self.combine is not None and not isinstance(self.combine, Combine):
            self._refuse(f"combine must be a Combine, not {self.combine!r}")
        if not self.transposed and self.output_padding != (0, 0):
            self._refuse("output_padding is for transposed convolutions only")

    def _check_accumulators(self) -> None:
        bounds = trirow_golden.accumulator_bound(
            self.weights, self.bias, self.input.zero_point, self.weight_zero_point
        )
        k = int(bounds.argmax())
        if bounds[k] > _INT32_MAX:
            self._refuse(
                f"weights and bias of output channel {k} let the accumulator reach {bounds[k]}, "
                f"beyond int32"
            )
        if self.mode == "fixed":
            # TensorFlow Lite shifts the sum left in 32 bits before it multiplies.
            _, left, _ = trirow_golden.encode_fixed(self.multiplier)
            shifted = [int(bound) << int(by) for bound, by in zip(bounds, left, strict=True)]
            if max(shifted) > _INT32_MAX:
                k = shifted.index(max(shifted))
                self._refuse(
                    f"the sum of output channel {k} is beyond int32 once it is shifted left by "
                    f"{left[k]} bits for multiplier {self.multiplier[k]}; mode float32 can do it"
                )


def shuffle_layer(name: str, channels: int, groups: int, quantisation: Quantisation) -> ConvLayer:
    """Return a channel shuffle as a 1x1 convolution that picks channels.

    Output channel k is input channel ``(k % groups) * (channels / groups) + k // groups``.

    Raises
    ------
    ValueError
        If the channels are not a multiple of the groups.
    """
    if groups < 1 or channels % groups:
        raise ValueError(
            f"layer {name!r}: channels must be a multiple of groups ({groups}), not {channels}"
        )
    k = np.arange(channels)
    weights = np.zeros((channels, 1, 1, channels), np.int8)
    weights[k, 0, 0, k % groups * (channels // groups) + k // groups] = 1
    return ConvLayer(
        name,
        weights,
        np.zeros(channels, np.int32),
        np.ones(channels, np.float32),
        (1, 1),
        (0, 0, 0, 0),
        quantisation,
        quantisation,
    )


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

"""Layers of random numbers, described by what `trirow sim` takes as options."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.combine_layer import Combine, CombineLayer, MultiplyLayer, combine_scales
from trirow_driver.conv_layer import ConvLayer, shuffle_layer
from trirow_driver.layer import Layer, Mode, Shape
from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.program import INPUT, Node, Slice
from trirow_driver.quantise import Quantisation

__all__ = ["ACTIVATIONS", "OPERATIONS", "OPTIONS_OF", "Case", "random_layer"]

OPERATIONS = (
    "conv",
    "depthwise",
    "transposed",
    "fc",
    "maxpool",
    "avgpool",
    "add",
    "maximum",
    "multiply",
    "concat",
    "slice",
    "upsample",
    "shuffle",
)
"""Operations that `trirow sim` knows."""

ACTIVATIONS = ("none", "relu", "relu6", "leaky", "sigmoid", "hardswish", "prelu")
"""What can follow a convolution: clipping, a table, or a slope for each channel."""

_WINDOWED = ("conv", "depthwise", "transposed")
_WINDOWS = (*_WINDOWED, "maxpool", "avgpool")
_FILTERS = (*_WINDOWED, "fc")

OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "out": ("conv", "transposed", "fc", "concat", "slice"),
    "kernel": _WINDOWS,
    "stride": _WINDOWS,
    "pad": _WINDOWS,
    "dilation": _WINDOWS,
    "groups": ("conv", "transposed", "shuffle"),
    "multiplier": ("depthwise",),
    "output_padding": ("transposed",),
    "mode": (*_FILTERS, "add", "multiply", "concat"),
    "activation": _FILTERS,
    "residual": _FILTERS,
    "weight_zero_point": _FILTERS,
    "ceil": ("maxpool", "avgpool"),
    "count_padding": ("avgpool",),
    "factor": ("upsample",),
    "extreme": ("add", "maximum"),
}
"""Operations that each option is for; one that is not here is for all of them."""

#: What the outputs deviate by.
_DEVIATION = 60
_ADDRESSES = 1 << 32
_Int8 = npt.NDArray[np.int8]
_Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """One layer of random numbers; the same for the same fields.

    Parameters
    ----------
    op : str
        One of `OPERATIONS`.
    shape : (int, int, int)
        Rows, columns and channels of the feature map.
    out : int, optional
        Output channels of a convolution; by default as many as the input has, for a depthwise
        convolution ``multiplier`` times as many. Of ``slice``: channels that are taken.
    kernel, stride, dilation : (int, int)
    pad : (int, int, int, int)
        Padding (top, left, bottom, right).
    groups : int
        Of a convolution or a shuffle.
    multiplier : int
        Output channels for each input channel of a depthwise convolution.
    output_padding : (int, int)
        Of a transposed convolution.
    batch : int
        Images.
    mode : str
        Requantisation mode, ``float32`` or ``fixed``.
    activation : str
        One of `ACTIVATIONS`, after a convolution.
    residual : bool
        A second feature map is added to the output of a convolution.
    weight_zero_point : int
    ceil, count_padding : bool
        See `PoolLayer`.
    factor : int
        Of upsampling.
    extreme : bool
        Scales of the two operands of a sum that differ by six orders of magnitude.
    seed : int
    """

    op: str = "conv"
    shape: Shape = (8, 8, 8)
    out: int | None = None
    kernel: _Pair = (3, 3)
    stride: _Pair = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: _Pair = (1, 1)
    groups: int = 1
    multiplier: int = 1
    output_padding: _Pair = (0, 0)
    batch: int = 1
    mode: Mode = "float32"
    activation: str = "none"
    residual: bool = False
    weight_zero_point: int = 0
    ceil: bool = False
    count_padding: bool = False
    factor: int = 2
    extreme: bool = False
    seed: int = 1

    def command(self, **options: object) -> str:
        """Return the command that runs this case; ``options`` are those of the simulation."""
        words = ["trirow", "sim"]
        for field in fields(self):
            value = getattr(self, field.name)
            if self.op not in OPTIONS_OF.get(field.name, OPERATIONS):
                continue
            if field.name == "out" and value is None:
                value = self.shape[2] if self.op != "slice" else max(1, self.shape[2] // 2)
            elif value == field.default and field.name not in ("shape", "kernel", "stride", "pad"):
                continue
            name = f"--{field.name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(name)
            elif isinstance(value, tuple):
                words += [name, ("," if field.name == "pad" else "x").join(map(str, value))]
            else:
                words += [name, str(value)]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        return shlex.join(words)

    def build(self) -> tuple[list[Node], dict[str, _Int8], dict[str, Slice]]:
        """Return layers, the feature maps that they begin with, and slices.

        Raises
        ------
        ValueError
            If the layer has no output, or a field is out of range.
        """
        self._check()
        rng = np.random.default_rng(self.seed)
        features = {INPUT: _random_map(rng, (self.batch, *self.shape))}
        slices: dict[str, Slice] = {}
        zero_in, zero_out = _zero_points(rng)
        input = Quantisation(1 / 64, zero_in)
        if self.op in _FILTERS:
            layer: Layer = self._convolution(rng, input, Quantisation(1 / 32, zero_out))
        elif self.op in ("maxpool", "avgpool"):
            layer = PoolLayer(
                self.op,
                "maximum" if self.op == "maxpool" else "average",
                self.kernel,
                self.stride,
                self.pad,
                input,
                self.dilation,
                self.ceil,
                self.count_padding,
            )
        elif self.op in ("add", "maximum"):
            layer = CombineLayer(self.op, input, self._combine(rng, input))
        elif self.op == "multiply":
            second = Quantisation(1 / 50, zero_out)
            layer = MultiplyLayer(self.op, input, second, Quantisation(1 / 40, 3), self.mode)
        elif self.op == "upsample":
            layer = CopyLayer(self.op, input, self.factor)
        elif self.op == "shuffle":
            layer = shuffle_layer(self.op, self.shape[2], self.groups, input)
        elif self.op == "slice":
            taken = self.out or max(1, self.shape[2] // 2)
            first = (self.shape[2] - taken) // 2
            slices["part"] = Slice(INPUT, first, taken)
            return [Node(CopyLayer(self.op, input), ("part",), self.op)], features, slices
        else:
            return self._concat(rng, features, input)
        sources = [INPUT]
        if len(layer.inputs) > 1:
            extents = layer.output_extents(self.shape)
            features["second"] = _random_map(rng, (self.batch, *extents))
            sources.append("second")
        return [Node(layer, tuple(sources), self.op)], features, slices

    def _check(self) -> None:
        if self.op not in OPERATIONS:
            raise ValueError(f"op must be one of {', '.join(OPERATIONS)}, not {self.op!r}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}"
            )
        extents = dict(zip(("height", "width", "channels"), self.shape, strict=True))
        extents |= {"batch": self.batch, "multiplier": self.multiplier, "factor": self.factor}
        extents["groups"] = self.groups
        if self.out is not None:
            extents["out channels"] = self.out
        for field, value in extents.items():
            if value < 1:
                raise ValueError(f"{field} must be at least 1, not {value}")
        size = self.batch * self.shape[0] * self.shape[1] * self.shape[2]
        taps = self.kernel[0] * self.kernel[1] * self.shape[2] * (self.out or 1)
        if self.op in _FILTERS:
            size += taps
        if size >= _ADDRESSES:
            raise ValueError(f"a layer of {size:,} bytes is beyond 32-bit addresses")

    def _convolution(
        self, rng: np.random.Generator, input: Quantisation, output: Quantisation
    ) -> ConvLayer:
        channels = self.shape[2]
        groups, kernel = self.groups, self.kernel
        out = self.out if self.out is not None else channels
        if self.op == "depthwise":
            groups, out = channels, channels * self.multiplier
        elif self.op == "fc":
            kernel = self.shape[:2]
        if channels % groups:
            raise ValueError(f"channels must be a multiple of groups ({groups}), not {channels}")
        options: dict[str, Any] = {
            "pad": (0, 0, 0, 0) if self.op == "fc" else self.pad,
            "stride": (1, 1) if self.op == "fc" else self.stride,
            "dilation": (1, 1) if self.op == "fc" else self.dilation,
        }
        transposed = self.op == "transposed"
        out_shape = _extents(self.shape, kernel, self.output_padding, transposed, options)
        if self.batch * out_shape[0] * out_shape[1] * out >= _ADDRESSES:
            raise ValueError(f"an output of {out_shape} pixels is beyond 32-bit addresses")
        taps = kernel[0] * kernel[1] * (channels // groups)
        zero = self.weight_zero_point
        # Below 127 only for more taps than the accumulator has room for at full size.
        largest = max(1, min(127, (1 << 30) // (160 * taps)))
        weights = rng.integers(
            -largest, largest + 1, (out, *kernel, channels // groups), dtype=np.int8
        )
        # What a sum deviates by, from the variances of uniform numbers.
        spread = np.sqrt(
            taps
            * ((256**2 - 1) / 12 + (input.zero_point + 0.5) ** 2)
            * (largest * (largest + 1) / 3 + zero**2)
        )
        bias = np.rint(spread * rng.uniform(-0.5, 0.5, out)).astype(np.int32)
        multiplier = _DEVIATION / spread * rng.uniform(0.8, 1.4, out)
        slopes = rng.uniform(-0.3, 0.9, out)
        low, high, table = -128, 127, None
        if self.activation in ("relu", "relu6"):
            low = output.zero_point
            high = 127 if self.activation == "relu" else min(127, low + round(2 / output.scale))
        elif self.activation not in ("none", "prelu"):
            table = _table(self.activation, output)
        return ConvLayer(
            self.op,
            weights,
            bias,
            multiplier.astype(np.float32) if self.mode == "float32" else multiplier,
            options["stride"],
            options["pad"],
            input,
            output,
            low,
            high,
            options["dilation"],
            groups,
            zero,
            self.mode,
            (multiplier * slopes).astype(np.float32) if self.activation == "prelu" else None,
            table,
            transposed,
            self.output_padding if transposed else (0, 0),
            self._combine(rng, output) if self.residual else None,
        )

    def _combine(self, rng: np.random.Generator, first: Quantisation) -> Combine:
        zero, zero_out = _zero_points(rng)
        second = Quantisation(first.scale * (1e6 if self.extreme else rng.uniform(0.3, 3)), zero)
        output = Quantisation(max(first.scale, second.scale) * rng.uniform(0.7, 1.6), zero_out)
        kind = "maximum" if self.op == "maximum" else "add"
        return Combine(
            kind,
            combine_scales(kind, first, second, output, self.mode),
            second,
            output,
        )

    def _concat(
        self, rng: np.random.Generator, features: dict[str, _Int8], input: Quantisation
    ) -> tuple[list[Node], dict[str, _Int8], dict[str, Slice]]:
        """Two feature maps side by side: a copy and a convolution write slices of one output."""
        channels = self.shape[2]
        conv = Case("conv", self.shape, self.out, (1, 1), seed=self.seed, mode=self.mode)
        layer = conv._convolution(rng, input, input)
        slices = {
            "left": Slice("both", 0, channels),
            "right": Slice("both", channels, layer.out_channels),
        }
        nodes = [
            Node(CopyLayer("copy", input), (INPUT,), "left"),
            Node(layer, (INPUT,), "right"),
        ]
        return nodes, features, slices


def random_layer(
    height: int,
    width: int,
    channels: int,
    out_channels: int,
    kernel: _Pair = (3, 3),
    stride: _Pair = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    seed: int = 1,
) -> tuple[ConvLayer, _Int8]:
    """Return a convolution and a feature map of random numbers, the same for the same seed.

    Multipliers and bias are such that the outputs of each channel spread over the whole of int8 and
    some of them saturate. No zero point is 0.

    Parameters
    ----------
    height, width, channels : int
        Feature map, each at least 1.
    out_channels : int
        Number of filters, at least 1.
    kernel, stride : (int, int)
        Rows and columns.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right).
    seed : int
        At least 0.

    Raises
    ------
    ValueError
        If the layer has no output, an extent is below 1, or the data are beyond 32-bit addresses.
    """
    case = Case("conv", (height, width, channels), out_channels, kernel, stride, pad, seed=seed)
    nodes, features, _ = case.build()
    layer = nodes[0].layer
    assert isinstance(layer, ConvLayer)
    return layer, features[INPUT]


def _extents(
    shape: Shape, kernel: _Pair, more: _Pair, transposed: bool, options: Mapping[str, Any]
) -> _Pair:
    stride, pad, dilation = options["stride"], options["pad"], options["dilation"]
    if transposed:
        return trirow_golden.transposed_output_size(shape[:2], kernel, stride, pad, dilation, more)
    return trirow_golden.output_size(shape[:2], kernel, stride, pad, dilation)


def _random_map(rng: np.random.Generator, shape: tuple[int, ...]) -> _Int8:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def _zero_points(rng: np.random.Generator) -> _Pair:
    first, second = (int(z) for z in rng.integers(1, 25, 2) * rng.choice([-1, 1], 2))
    return first, second


def _table(activation: str, q: Quantisation) -> _Int8:
    functions: dict[str, Callable[[float], float]] = {
        "leaky": lambda x: x if x > 0 else 0.1 * x,
        "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
        "hardswish": lambda x: x * min(max(x + 3, 0), 6) / 6,
    }
    return trirow_golden.table_of(
        functions[activation], q.scale, q.zero_point, q.scale, q.zero_point
    )

"""Int8 TFLite models of one operator, built without TensorFlow, and random ones with results.

A model is put together from the classes that ``ai_edge_litert.schema_py_generated`` generates from
TFLite's flatbuffer schema. Feature maps are NHWC; scales are float32, as the file format stores
them, so that a test can compute with the very numbers that the interpreter reads.

`RANDOM_CASES` draws parameters and operands of an operator, for comparison of any interpreter with
the golden model. `tie_case` and `pair_case` choose operands that tell one rounding from another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

import trirow_golden as golden

Code = schema.BuiltinOperator

#: Fused activations by name: member of the schema, bounds of the real output.
ACTIVATIONS = {
    "none": (schema.ActivationFunctionType.NONE, None, None),
    "relu": (schema.ActivationFunctionType.RELU, 0.0, None),
    "relu6": (schema.ActivationFunctionType.RELU6, 0.0, 6.0),
    "relu_n1_to_1": (schema.ActivationFunctionType.RELU_N1_TO_1, -1.0, 1.0),
}
_PADDING = {"SAME": schema.Padding.SAME, "VALID": schema.Padding.VALID}
_TYPES = {np.dtype(np.int8): schema.TensorType.INT8, np.dtype(np.int32): schema.TensorType.INT32}
#: First version of each operator that has int8 tensors with the features used here; the kernels
#: of TFLite Micro do not look at it, those of LiteRT are registered for a range of versions.
_VERSIONS = {
    Code.CONV_2D: 3,
    Code.DEPTHWISE_CONV_2D: 3,
    Code.FULLY_CONNECTED: 4,
    Code.MAX_POOL_2D: 2,
    Code.AVERAGE_POOL_2D: 2,
    Code.ADD: 2,
    Code.MUL: 2,
    Code.LOGISTIC: 2,
    Code.TRANSPOSE_CONV: 3,
}


@dataclass(frozen=True)
class Quantised:
    """Quantisation of a feature map: real value = (value - zero) * scale."""

    scale: np.float32
    zero: int


@dataclass
class _Tensor:
    """A tensor of the model; one that has data is a constant."""

    shape: Sequence[int]
    dtype: Any = np.int8
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    data: NDArray[Any] | None = field(default=None, repr=False)

    @classmethod
    def feature(cls, shape: Sequence[int], quantised: Quantised) -> _Tensor:
        return cls(shape, scale=quantised.scale, zero=quantised.zero)

    @classmethod
    def constant(cls, data: NDArray[Any], scale: Any = None, axis: int = 0) -> _Tensor:
        return cls(data.shape, data.dtype, scale, 0, axis, data)

    def to_schema(self, name: str, buffer: int) -> schema.TensorT:
        tensor = schema.TensorT()
        tensor.shape = [int(n) for n in self.shape]
        tensor.type = _TYPES[np.dtype(self.dtype)]
        tensor.buffer = buffer
        tensor.name = name
        if self.scale is not None:
            quantization = schema.QuantizationParametersT()
            quantization.scale = np.atleast_1d(np.asarray(self.scale, np.float32))
            quantization.zeroPoint = np.full(quantization.scale.shape, self.zero, np.int64)
            quantization.quantizedDimension = self.axis
            tensor.quantization = quantization
        return tensor


def activation_bounds(activation: str, output: Quantised) -> tuple[int, int]:
    """Return the clip bounds of a fused activation, as TFLite's kernels work them out."""
    _, least, most = ACTIVATIONS[activation]

    def quantised(real: float) -> int:
        ratio = float(np.float32(real) / output.scale)
        return output.zero + int(np.trunc(ratio + np.copysign(0.5, ratio)))  # std::round

    low = -128 if least is None else max(-128, quantised(least))
    high = 127 if most is None else min(127, quantised(most))
    return low, high


def _build(code: int, options: Any, inputs: Sequence[_Tensor], output: _Tensor) -> bytes:
    """Serialise a model with one operator; tensors without data are inputs of the model."""
    model, graph, operator = schema.ModelT(), schema.SubGraphT(), schema.OperatorT()
    operator_code = schema.OperatorCodeT()
    operator_code.builtinCode = code
    operator_code.deprecatedBuiltinCode = min(code, 127)
    operator_code.version = _VERSIONS[code]
    model.version = 3
    model.operatorCodes = [operator_code]
    model.buffers = [schema.BufferT()]  # buffer 0 is empty by convention
    graph.tensors, graph.inputs = [], []
    for index, tensor in enumerate([*inputs, output]):
        buffer = 0
        if tensor.data is not None:
            buffer = len(model.buffers)
            model.buffers.append(schema.BufferT())
            model.buffers[-1].data = np.frombuffer(tensor.data.tobytes(), np.uint8)
        elif index < len(inputs):
            graph.inputs.append(index)
        graph.tensors.append(tensor.to_schema(f"tensor_{index}", buffer))
    graph.outputs = [len(inputs)]
    operator.inputs = list(range(len(inputs)))
    operator.outputs = [len(inputs)]
    if options is not None:
        operator.builtinOptions = options
        name = type(options).__name__.removesuffix("T")
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
    graph.operators = [operator]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _set_window(
    options: Any, padding: str, stride: tuple[int, int], activation: str | None = None
) -> None:
    """Set what all operators with a moving window have in common."""
    options.padding = _PADDING[padding]
    options.strideH, options.strideW = stride
    if activation is not None:
        options.fusedActivationFunction = ACTIVATIONS[activation][0]


def _bias_scale(x: Quantised, scales: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scale of the biases; the kernels check that it belongs to the other two."""
    return x.scale * scales


def conv_2d(
    x_shape: Sequence[int],
    x: Quantised,
    weights: NDArray[np.int8],
    scales: NDArray[np.float32],
    bias: NDArray[np.int32],
    y_shape: Sequence[int],
    y: Quantised,
    *,
    padding: str = "VALID",
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    activation: str = "none",
) -> bytes:
    """Build CONV_2D; weights are (K, R, S, C / groups), scales and biases have K values."""
    options = schema.Conv2DOptionsT()
    _set_window(options, padding, stride, activation)
    options.dilationHFactor, options.dilationWFactor = dilation
    inputs = [
        _Tensor.feature(x_shape, x),
        _Tensor.constant(weights, scales),
        _Tensor.constant(bias, _bias_scale(x, scales)),
    ]
    return _build(Code.CONV_2D, options, inputs, _Tensor.feature(y_shape, y))


def depthwise_conv_2d(
    x_shape: Sequence[int],
    x: Quantised,
    weights: NDArray[np.int8],
    scales: NDArray[np.float32],
    bias: NDArray[np.int32],
    y_shape: Sequence[int],
    y: Quantised,
    *,
    padding: str = "VALID",
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    activation: str = "none",
) -> bytes:
    """Build DEPTHWISE_CONV_2D; weights are (K, R, S, 1) with K = C * multiplier.

    Output channel k belongs to input channel ``k // multiplier``, as with groups. The file keeps
    the weights as (1, R, S, K).
    """
    options = schema.DepthwiseConv2DOptionsT()
    _set_window(options, padding, stride, activation)
    options.dilationHFactor, options.dilationWFactor = dilation
    options.depthMultiplier = weights.shape[0] // x_shape[3]
    inputs = [
        _Tensor.feature(x_shape, x),
        _Tensor.constant(np.ascontiguousarray(weights.transpose(3, 1, 2, 0)), scales, axis=3),
        _Tensor.constant(bias, _bias_scale(x, scales)),
    ]
    return _build(Code.DEPTHWISE_CONV_2D, options, inputs, _Tensor.feature(y_shape, y))


def fully_connected(
    batch: int,
    x: Quantised,
    weights: NDArray[np.int8],
    scales: NDArray[np.float32],
    bias: NDArray[np.int32],
    y: Quantised,
    *,
    activation: str = "none",
) -> bytes:
    """Build FULLY_CONNECTED; weights are (K, C), scales have 1 value or K."""
    options = schema.FullyConnectedOptionsT()
    options.fusedActivationFunction = ACTIVATIONS[activation][0]
    inputs = [
        _Tensor.feature((batch, weights.shape[1]), x),
        _Tensor.constant(weights, scales),
        _Tensor.constant(bias, _bias_scale(x, scales)),
    ]
    output = _Tensor.feature((batch, weights.shape[0]), y)
    return _build(Code.FULLY_CONNECTED, options, inputs, output)


def pool_2d(
    kind: str,
    x_shape: Sequence[int],
    quantised: Quantised,
    kernel: tuple[int, int],
    y_shape: Sequence[int],
    *,
    padding: str = "VALID",
    stride: tuple[int, int] = (1, 1),
    activation: str = "none",
) -> bytes:
    """Build MAX_POOL_2D or AVERAGE_POOL_2D (kind "max" or "average").

    The kernels want input and output to have the same scale and zero point.
    """
    options = schema.Pool2DOptionsT()
    _set_window(options, padding, stride, activation)
    options.filterHeight, options.filterWidth = kernel
    code = {"max": Code.MAX_POOL_2D, "average": Code.AVERAGE_POOL_2D}[kind]
    feature = _Tensor.feature(x_shape, quantised)
    return _build(code, options, [feature], _Tensor.feature(y_shape, quantised))


def elementwise(
    kind: str,
    shape: Sequence[int],
    a: Quantised,
    b: Quantised,
    y: Quantised,
    *,
    activation: str = "none",
) -> bytes:
    """Build ADD or MUL (kind "add" or "mul") of two feature maps of the same shape."""
    options = {"add": schema.AddOptionsT, "mul": schema.MulOptionsT}[kind]()
    options.fusedActivationFunction = ACTIVATIONS[activation][0]
    code = {"add": Code.ADD, "mul": Code.MUL}[kind]
    inputs = [_Tensor.feature(shape, a), _Tensor.feature(shape, b)]
    return _build(code, options, inputs, _Tensor.feature(shape, y))


def logistic(shape: Sequence[int], x: Quantised) -> bytes:
    """Build LOGISTIC; the kernels want an output of scale 1/256 and zero point -128."""
    output = Quantised(np.float32(1 / 256), -128)
    return _build(Code.LOGISTIC, None, [_Tensor.feature(shape, x)], _Tensor.feature(shape, output))


def transpose_conv(
    x_shape: Sequence[int],
    x: Quantised,
    weights: NDArray[np.int8],
    scales: NDArray[np.float32],
    bias: NDArray[np.int32],
    y_shape: Sequence[int],
    y: Quantised,
    *,
    padding: str = "VALID",
    stride: tuple[int, int] = (1, 1),
) -> bytes:
    """Build TRANSPOSE_CONV; weights are (K, R, S, C), y_shape is part of the model."""
    options = schema.TransposeConvOptionsT()
    _set_window(options, padding, stride)
    inputs = [
        _Tensor.constant(np.array(y_shape, np.int32)),
        _Tensor.constant(weights, scales),
        _Tensor.feature(x_shape, x),
        _Tensor.constant(bias, _bias_scale(x, scales)),
    ]
    return _build(Code.TRANSPOSE_CONV, options, inputs, _Tensor.feature(y_shape, y))


@dataclass(frozen=True)
class Case:
    """A model, its inputs, and what golden makes of them.

    `expected` takes the requantisation: "fixed" as in TFLite's reference kernels and TFLite Micro,
    "float32" as in XNNPACK. Two operators have "float64" as well: fully connected, which LiteRT's
    reference kernel requantises in float64, and MUL, whose multiplier TFLite Micro works out in
    float64, but uses as in "fixed".
    """

    text: str
    model: bytes
    inputs: tuple[NDArray[np.int8], ...]
    expected: Callable[[str], NDArray[np.int8]]


def random_int8(rng: np.random.Generator, shape: Sequence[int]) -> NDArray[np.int8]:
    """Return int8 values, all equally likely."""
    return rng.integers(-128, 128, shape, dtype=np.int8)


def random_quantised(rng: np.random.Generator) -> Quantised:
    """Return a scale from 0.001 to 1 and a zero point, at the ends of int8 now and then."""
    zero = rng.choice([-128, 0, 127, rng.integers(-128, 128), rng.integers(-128, 128)])
    return Quantised(np.float32(10 ** rng.uniform(-3, 0)), int(zero))


def random_activation(rng: np.random.Generator) -> str:
    """Return no fused activation half the time."""
    return str(rng.choice(["none", "none", "none", "relu", "relu6", "relu_n1_to_1"]))


def requantise(
    sums: NDArray[np.int32],
    x: Quantised,
    scales: NDArray[np.float32],
    y: Quantised,
    bounds: tuple[int, int] = (-128, 127),
    mode: str = "fixed",
) -> NDArray[np.int8]:
    """Requantise the sums of a convolution as `Case` says."""
    if mode == "float32":
        multiplier = golden.conv_multiplier(x.scale, scales, y.scale)
        return golden.requantise(sums, multiplier, y.zero, *bounds)
    exact = golden.conv_multiplier_fixed(x.scale, scales, y.scale)
    if mode == "fixed":
        return golden.requantise_fixed(sums, *golden.encode_fixed(exact), y.zero, *bounds)
    assert mode == "float64"
    real = sums.astype(np.float64) * exact
    # Half away from zero, as C's round; adding 1/2 first could round up 1/2 less an ulp.
    whole = np.trunc(real) + np.where(np.abs(real - np.trunc(real)) >= 0.5, np.sign(real), 0)
    return np.clip(whole + y.zero, *bounds).astype(np.int8)


def spread_scales(
    rng: np.random.Generator, sums: NDArray[np.int32], x: Quantised, y: Quantised
) -> NDArray[np.float32]:
    """Return scales of the kernels that spread each channel's sums over int8."""
    spread = sums.reshape(-1, sums.shape[-1]).astype(np.float64).std(axis=0)
    spread = np.maximum(spread, np.abs(sums).mean()) + 1
    wanted = rng.uniform(20, 100, sums.shape[-1])
    return (wanted / spread * y.scale / x.scale).astype(np.float32)


def random_bias(
    rng: np.random.Generator, weights: NDArray[np.int8], small: bool
) -> NDArray[np.int32]:
    """Return biases that are as large as the sums are."""
    if small:
        return rng.integers(-10, 11, len(weights), dtype=np.int32)
    most = int(6000 * np.sqrt(weights[0].size))
    return rng.integers(-most, most + 1, len(weights), dtype=np.int32)


def random_window(
    rng: np.random.Generator, dilate: bool = True
) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return padding, stride and dilation for a builder, then kernel, input size, output size."""
    while True:
        size, kernel, stride, dilation = (
            (int(a), int(b))
            for a, b in (
                rng.integers(1, 15, 2),
                rng.integers(1, 6, 2),
                rng.integers(1, 4, 2),
                rng.integers(1, 4, 2) if dilate and rng.random() < 0.4 else (1, 1),
            )
        )
        padding = str(rng.choice(["SAME", "VALID"]))
        pad = golden.same_padding(size, kernel, stride, dilation)
        try:
            out = golden.output_size(
                size, kernel, stride, pad if padding == "SAME" else (0, 0, 0, 0), dilation
            )
        except ValueError:  # the kernel does not fit
            continue
        window = {"padding": padding, "stride": stride}
        return (window | {"dilation": dilation} if dilate else window), kernel, size, out


def golden_window(
    window: dict[str, Any], kernel: tuple[int, int], size: tuple[int, int]
) -> dict[str, Any]:
    """Return the same window as golden's functions take it."""
    rest = {key: value for key, value in window.items() if key != "padding"}
    pad = (0, 0, 0, 0)
    if window["padding"] == "SAME":
        pad = golden.same_padding(size, kernel, **rest)
    return rest | {"pad": pad}


def random_conv(rng: np.random.Generator, depthwise: bool = False) -> Case:
    """Draw CONV_2D, with groups now and then, or DEPTHWISE_CONV_2D with a multiplier.

    Every third one has few and small operands, which take a multiplier above 1.
    """
    window, kernel, size, _ = random_window(rng)
    small = rng.random() < 1 / 3
    groups = int(rng.integers(1, 18)) if depthwise else int(rng.choice([1, 1, 2, 3]))
    of_group = (1, int(rng.integers(1, 5))) if depthwise else rng.integers(1, 14, 2).tolist()
    channels, filters = groups * of_group[0], groups * of_group[1]
    x, y = random_quantised(rng), random_quantised(rng)
    images = random_int8(rng, (int(rng.integers(1, 3)), *size, channels))
    weights = random_int8(rng, (filters, *kernel, of_group[0]))
    if small:
        images = np.clip(x.zero + rng.integers(-2, 3, images.shape), -128, 127).astype(np.int8)
        weights = rng.integers(-1, 2, weights.shape, dtype=np.int8)
    bias = random_bias(rng, weights, small)
    numbers = golden_window(window, kernel, size) | {"groups": groups}
    sums = golden.conv2d(images, weights, bias, zero_point=x.zero, **numbers)
    scales = spread_scales(rng, sums, x, y)
    activation = random_activation(rng)
    bounds = activation_bounds(activation, y)
    build = depthwise_conv_2d if depthwise else conv_2d
    arguments = (images.shape, x, weights, scales, bias, sums.shape, y)
    multipliers: dict[str, Any] = {
        "float32": golden.conv_multiplier(x.scale, scales, y.scale),
        "fixed": golden.conv_multiplier_fixed(x.scale, scales, y.scale),
    }

    def expected(mode: str) -> NDArray[np.int8]:
        behind: dict[str, Any] = {"zero_in": x.zero, "zero_out": y.zero, "mode": mode}
        behind |= dict(zip(("low", "high"), bounds, strict=True))
        return golden.conv2d_int8(images, weights, bias, multipliers[mode], **behind, **numbers)

    text = f"{images.shape} * {weights.shape} {numbers} {activation} x={x} y={y} {scales=}"
    return Case(text, build(*arguments, **window, activation=activation), (images,), expected)


def random_depthwise_conv(rng: np.random.Generator) -> Case:
    """Draw DEPTHWISE_CONV_2D."""
    return random_conv(rng, depthwise=True)


def random_fully_connected(rng: np.random.Generator) -> Case:
    """Draw FULLY_CONNECTED with one scale or one per channel."""
    batch, channels, filters = (int(n) for n in rng.integers(1, [5, 200, 40]))
    x, y = random_quantised(rng), random_quantised(rng)
    images, weights = random_int8(rng, (batch, channels)), random_int8(rng, (filters, channels))
    bias = random_bias(rng, weights, small=False)
    pixels, kernels = images[:, None, None], weights[:, None, None]
    sums = golden.conv2d(pixels, kernels, bias, zero_point=x.zero)
    scales = spread_scales(rng, sums, x, y)
    if rng.random() < 0.5:
        scales = scales[:1]
    activation = random_activation(rng)
    bounds = activation_bounds(activation, y)
    model = fully_connected(batch, x, weights, scales, bias, y, activation=activation)
    each = np.broadcast_to(scales, filters)

    def expected(mode: str) -> NDArray[np.int8]:
        return requantise(sums, x, each, y, bounds, mode).reshape(batch, filters)

    return Case(f"{weights.shape} {activation} {x=} {y=} {scales=}", model, (images,), expected)


def random_transpose_conv(rng: np.random.Generator) -> Case:
    """Draw TRANSPOSE_CONV; the window is that of the convolution from the output to the input."""
    padding = str(rng.choice(["SAME", "VALID"]))
    size, kernel, stride = ([int(n) for n in rng.integers(1, most, 2)] for most in (9, 5, 4))
    pad, extra, out = [0, 0, 0, 0], [0, 0], [0, 0]
    for axis in range(2):
        full = (size[axis] - 1) * stride[axis] + kernel[axis]
        out[axis] = size[axis] * stride[axis] if padding == "SAME" else full
        over = max(full - out[axis], 0)
        pad[axis], pad[axis + 2] = over // 2, over - over // 2
        extra[axis] = max(out[axis] - full, 0)
    channels, filters = (int(n) for n in rng.integers(1, 14, 2))
    x, y = random_quantised(rng), random_quantised(rng)
    images = random_int8(rng, (int(rng.integers(1, 3)), *size, channels))
    weights = random_int8(rng, (filters, *kernel, channels))
    bias = random_bias(rng, weights, small=False)
    numbers: dict[str, Any] = {
        "stride": tuple(stride),
        "pad": tuple(pad),
        "output_padding": tuple(extra),
    }
    sums = golden.transposed_conv2d(images, weights, bias, zero_point=x.zero, **numbers)
    assert sums.shape[1:3] == tuple(out)
    scales = spread_scales(rng, sums, x, y)
    arguments = (images.shape, x, weights, scales, bias, sums.shape, y)
    model = transpose_conv(*arguments, padding=padding, stride=(stride[0], stride[1]))

    def expected(mode: str) -> NDArray[np.int8]:
        return requantise(sums, x, scales, y, mode=mode)

    text = f"{images.shape} * {weights.shape} {padding} {numbers} {x=} {y=} {scales=}"
    return Case(text, model, (images,), expected)


def random_pool(rng: np.random.Generator, kind: str) -> Case:
    """Draw MAX_POOL_2D or AVERAGE_POOL_2D; every fourth one is global."""
    window, kernel, size, out = random_window(rng, dilate=False)
    if rng.random() < 0.25:
        kernel, out, window["padding"] = size, (1, 1), "VALID"
    quantised = random_quantised(rng)
    images = random_int8(rng, (int(rng.integers(1, 3)), *size, int(rng.integers(1, 20))))
    activation = random_activation(rng)
    low, high = activation_bounds(activation, quantised)
    y_shape = (len(images), *out, images.shape[3])
    model = pool_2d(kind, images.shape, quantised, kernel, y_shape, **window, activation=activation)
    numbers = golden_window(window, kernel, size)

    def expected(mode: str) -> NDArray[np.int8]:
        if kind == "average":
            return golden.average_pool2d(images, kernel, **numbers, low=low, high=high)
        return np.clip(golden.max_pool2d(images, kernel, **numbers), low, high)

    text = f"{kind} {images.shape} {kernel} {numbers} {activation} {quantised}"
    return Case(text, model, (images,), expected)


def random_max_pool(rng: np.random.Generator) -> Case:
    """Draw MAX_POOL_2D."""
    return random_pool(rng, "max")


def random_average_pool(rng: np.random.Generator) -> Case:
    """Draw AVERAGE_POOL_2D."""
    return random_pool(rng, "average")


def random_elementwise(rng: np.random.Generator, kind: str) -> Case:
    """Draw ADD or MUL of maps whose scales differ by up to 30."""
    shape = tuple(int(n) for n in rng.integers(1, [3, 12, 12, 20]))
    a, b = random_quantised(rng), random_quantised(rng)
    if kind == "add":
        b = Quantised(np.float32(a.scale * 10 ** rng.uniform(-1.5, 1.5)), b.zero)
        middle = max(a.scale, b.scale)
    else:
        middle = 60 * a.scale * b.scale
    y = Quantised(np.float32(middle * 10 ** rng.uniform(-0.5, 0.5)), random_quantised(rng).zero)
    operands = (random_int8(rng, shape), random_int8(rng, shape))
    return elementwise_case(kind, operands, a, b, y, random_activation(rng))


def pair_case(rng: np.random.Generator, kind: str) -> Case:
    """Combine all pairs of values by scales that make many ties, or nearly.

    The ratios of the scales are simple fractions; or for a product any scales, whose ratio is a
    simple fraction but for rounding, so that the last bit of the multiplier decides.
    """
    scales = (rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 10, 12], 3) / 16).astype(np.float32)
    if kind == "mul":
        scales[2] *= 40 * scales[0]
        if rng.random() < 0.5:
            scales[:2] = 10 ** rng.uniform(-2, 0, 2)
            exact = float(scales[0]) * float(scales[1])
            scales[2] = exact / rng.choice([0.625, 0.75, 0.875, 1.5])
    a, b, y = (Quantised(scale, int(rng.integers(-128, 128))) for scale in scales)
    values = np.arange(-128, 128).astype(np.int8)
    first, second = (m[None, ..., None].copy() for m in np.meshgrid(values, values))
    return elementwise_case(kind, (first, second), a, b, y)


def elementwise_case(
    kind: str,
    operands: tuple[NDArray[np.int8], NDArray[np.int8]],
    a: Quantised,
    b: Quantised,
    y: Quantised,
    activation: str = "none",
) -> Case:
    """Make a case of ADD or MUL."""
    shape = operands[0].shape
    bounds = activation_bounds(activation, y)
    model = elementwise(kind, shape, a, b, y, activation=activation)

    def expected(mode: str) -> NDArray[np.int8]:
        if kind == "add":
            prepare = {"fixed": golden.add_tflite, "float32": golden.add_xnnpack}[mode]
            combination = prepare(a.scale, a.zero, b.scale, b.zero, y.scale)
            return golden.combine(*operands, combination, y.zero, *bounds)
        multiplier = float(a.scale * b.scale / y.scale)
        if mode == "float64":
            multiplier, mode = float(a.scale) * float(b.scale) / float(y.scale), "fixed"
        return golden.multiply(*operands, a.zero, b.zero, multiplier, y.zero, *bounds, mode=mode)

    return Case(f"{kind} {shape} {activation} {a=} {b=} {y=}", model, operands, expected)


def random_add(rng: np.random.Generator) -> Case:
    """Draw ADD."""
    return random_elementwise(rng, "add")


def random_mul(rng: np.random.Generator) -> Case:
    """Draw MUL."""
    return random_elementwise(rng, "mul")


RANDOM_CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "conv": random_conv,
    "depthwise_conv": random_depthwise_conv,
    "fully_connected": random_fully_connected,
    "transpose_conv": random_transpose_conv,
    "max_pool": random_max_pool,
    "average_pool": random_average_pool,
    "add": random_add,
    "mul": random_mul,
}


def tie_case(rng: np.random.Generator, operator: str) -> Case:
    """Requantise sums next to ties, by multipliers from 2**-31 to 2**7, one sum a channel.

    The weights are 0, so that a sum is the bias. "fully_connected_per_tensor" has one multiplier.
    """
    channels = 20_000
    x, y = random_quantised(rng), random_quantised(rng)
    ratios = np.exp2(rng.uniform(-31, 7, channels))
    if operator == "fully_connected_per_tensor":
        ratios[:] = np.exp2(rng.uniform(-20, -14))
    scales = (ratios * y.scale / x.scale).astype(np.float32)
    exact = golden.conv_multiplier_fixed(x.scale, scales, y.scale)
    near = np.rint((rng.integers(-200, 200, channels) + 0.5) / exact)
    near += rng.integers(-2, 3, channels)
    bias = np.clip(near, -(2.0**31), 2.0**31 - 1).astype(np.int32)
    weights = np.zeros((channels, 1, 1, 1), np.int8)
    images = np.full((1, 1, 1, 1), x.zero, np.int8)
    if operator.startswith("fully_connected"):
        images = images[0, 0]
        given = scales[:1] if operator.endswith("per_tensor") else scales
        model = fully_connected(1, x, weights[:, 0, 0], given, bias, y)
    else:
        build = {
            "conv": conv_2d,
            "depthwise_conv": depthwise_conv_2d,
            "transpose_conv": transpose_conv,
        }[operator]
        model = build(images.shape, x, weights, scales, bias, (1, 1, 1, channels), y)
    sums = bias.reshape((*images.shape[:-1], channels))

    def expected(mode: str) -> NDArray[np.int8]:
        return requantise(sums, x, scales, y, mode=mode)

    return Case(f"{operator} {x=} {y=}", model, (images,), expected)

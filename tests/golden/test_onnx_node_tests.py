"""The golden model against ONNX's own node tests, with equality.

ONNX ships tests of every operator: a model of one node, its inputs and the outputs they must give.
`expressible_cases` translates all that int8 arithmetic can express, by rules that lose nothing:

- uint8 tensors become int8: 128 is subtracted from values and zero points.
- Floats that are whole numbers of int8 keep their values (scale 1, zero point 0). The sums of a
  convolution then leave with the multiplier 1; where they exceed 127 the zero point is -128.
- The maximum commutes with every monotone map, so a max pool of other floats is compared after
  quantising input and expected output alike.
- The average of whole numbers, which ONNX gives as a float, is rounded half away from zero. The
  sums and counts behind it must give the float itself, too.
- QuantizeLinear of whole numbers is a requantisation of these numbers as accumulators;
  DequantizeLinear by a whole scale is a depthwise 1x1 convolution to int32.
- A map of one spatial axis has height 1.

`INEXPRESSIBLE` says why each of the other cases cannot be run. A case in neither fails the test.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trirow_golden as golden

onnx = pytest.importorskip("onnx")
from onnx.backend.test.case import node as node_tests  # noqa: E402  (after the check for onnx)
from onnx.reference import ReferenceEvaluator  # noqa: E402

OPERATORS = (
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "QLinearConv",
    "MaxPool",
    "AveragePool",
    "GlobalMaxPool",
    "GlobalAveragePool",
    "QuantizeLinear",
    "DequantizeLinear",
)

_3D = "three spatial axes; feature maps have two"
_REALS = "averages floats that no int8 scale holds exactly, and rounding does not commute with it"
_REALS_RUN = _REALS + "; its model runs on whole numbers in test_average_pool_of_whole_numbers"
_TYPE = "16-bit, float8 or sub-byte tensor; feature maps are int8"
_BLOCKED = "a scale for each block along an axis; feature maps have one scale"
_INDICES = "asks for the indices of the maxima; the maxima are those of the case without argmax"
INEXPRESSIBLE = {
    "test_averagepool_1d_default": _REALS_RUN,
    "test_averagepool_2d_ceil_last_window_starts_on_pad": _REALS_RUN,
    "test_averagepool_2d_default": _REALS_RUN,
    "test_averagepool_2d_pads": _REALS_RUN,
    "test_averagepool_2d_pads_count_include_pad": _REALS_RUN,
    "test_averagepool_2d_same_lower": _REALS_RUN,
    "test_averagepool_2d_same_upper": _REALS_RUN,
    "test_averagepool_2d_strides": _REALS_RUN,
    "test_averagepool_3d_default": _3D,
    "test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_False": _3D,
    "test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_True": _3D,
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_False": _3D,
    "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True": _3D,
    "test_averagepool_3d_dilations_small": _3D,
    "test_convtranspose_3d": _3D,
    "test_dequantizelinear_blocked": _BLOCKED,
    "test_dequantizelinear_e4m3fn": _TYPE,
    "test_dequantizelinear_e4m3fn_float16": _TYPE,
    "test_dequantizelinear_e4m3fn_zero_point": _TYPE,
    "test_dequantizelinear_e5m2": _TYPE,
    "test_dequantizelinear_float4e2m1": _TYPE,
    "test_dequantizelinear_int16": _TYPE,
    "test_dequantizelinear_int2": _TYPE,
    "test_dequantizelinear_int4": _TYPE,
    "test_dequantizelinear_uint16": _TYPE,
    "test_dequantizelinear_uint2": _TYPE,
    "test_dequantizelinear_uint4": _TYPE,
    "test_globalaveragepool": _REALS_RUN,
    "test_maxpool_3d_default": _3D,
    "test_maxpool_3d_dilations": _3D,
    "test_maxpool_3d_dilations_use_ref_impl": _3D,
    "test_maxpool_3d_dilations_use_ref_impl_large": _3D,
    "test_maxpool_with_argmax_2d_precomputed_pads": _INDICES,
    "test_maxpool_with_argmax_2d_precomputed_strides": _INDICES,
    "test_quantizelinear_blocked_asymmetric": _BLOCKED,
    "test_quantizelinear_blocked_symmetric": _BLOCKED,
    "test_quantizelinear_e4m3fn": _TYPE,
    "test_quantizelinear_e5m2": _TYPE,
    "test_quantizelinear_float4e2m1": _TYPE,
    "test_quantizelinear_int16": _TYPE,
    "test_quantizelinear_int2": _TYPE,
    "test_quantizelinear_int4": _TYPE,
    "test_quantizelinear_uint16": _TYPE,
    "test_quantizelinear_uint2": _TYPE,
    "test_quantizelinear_uint4": _TYPE,
}


@dataclass(frozen=True)
class NodeCase:
    """A node test in terms of int8 arithmetic; what an operation does not have is left at default.

    `op` is "conv", "transposed_conv", "max_pool", "average_pool" or "requantise"; x is an int8
    array (N, H, W, C), except for "requantise", where it holds int32 accumulators. `expected` is
    int8, or int32 where there is no `multiplier` to requantise a convolution. Averages are rounded
    half away from zero; `real` has them before that.
    """

    name: str
    op: str
    x: NDArray[Any]
    expected: NDArray[Any]
    weights: NDArray[np.int8] | None = None  # (K, R, S, C / groups)
    weight_zero: NDArray[np.int32] | None = None  # (K,), from -128 to 127
    bias: NDArray[np.int32] | None = None  # (K,)
    multiplier: NDArray[np.float32] | None = None  # (K,)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    output_padding: tuple[int, int] = (0, 0)
    ceil: bool = False
    count_padding: bool = False
    zero_in: int = 0
    zero_out: int = 0
    real: NDArray[np.float64] | None = None


def nhwc(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of ONNX, (N, C, H, W) or (N, C, W), with the channels last."""
    array = array[:, :, None] if array.ndim == 3 else array
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def to_int8(array: Any) -> NDArray[np.int8]:
    """Return uint8 less 128, and whole numbers as they are."""
    array = np.asarray(array)
    moved = array.astype(np.float64) - (128 if array.dtype == np.uint8 else 0)
    result = moved.astype(np.int8)
    assert np.array_equal(result, moved), "values that int8 does not hold"
    return result


def round_half_away(real: NDArray[np.float64]) -> NDArray[np.int8]:
    """Round averages, which must not lie so near to a half that float32 leaves it open."""
    from_half = np.abs(np.abs(real) % 1 - 0.5)
    assert np.all((from_half == 0) | (from_half > 1e-3))
    return np.trunc(real + np.copysign(0.5, real)).astype(np.int8)


def window(attributes: dict[str, Any], x: NDArray[Any], kernel: Any) -> dict[str, Any]:
    """Return kernel, stride, dilation and padding of a node on x, which is NHWC."""

    def pair(name: str, default: Any) -> tuple[int, ...]:
        values = tuple(attributes.get(name, default))
        return (1,) * (2 - len(values)) + values  # one spatial axis: height 1

    kernel = pair("kernel_shape", kernel)
    stride, dilation = pair("strides", (1, 1)), pair("dilations", (1, 1))
    pads = tuple(attributes.get("pads", (0, 0, 0, 0)))
    auto_pad = attributes.get("auto_pad", b"NOTSET")
    if auto_pad in (b"SAME_UPPER", b"SAME_LOWER"):
        span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        sums = [
            max((-(-size // step) - 1) * step + width - size, 0)
            for size, step, width in zip(x.shape[1:3], stride, span, strict=True)
        ]
        half = [(s + (auto_pad == b"SAME_LOWER")) // 2 for s in sums]
        pads = (*half, *(s - h for s, h in zip(sums, half, strict=True)))
    else:
        assert auto_pad in (b"NOTSET", b"VALID")
    return {"kernel": kernel, "stride": stride, "dilation": dilation, "pad": pads}


def requantised(sums: NDArray[Any]) -> dict[str, Any]:
    """Return how sums leave as they are: multiplier 1, and an offset where they exceed 127."""
    zero_out = -128 if sums.max() > 127 else 0
    return {
        "expected": to_int8(sums.astype(np.float64) + zero_out),
        "multiplier": np.ones(sums.shape[3], np.float32),
        "zero_out": zero_out,
    }


def translate_conv(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate Conv of whole numbers."""
    x = to_int8(nhwc(inputs[0]))
    weights = to_int8(nhwc(inputs[1]))  # (K, R, S, C / groups)
    groups = attributes.get("group", 1)
    case = {"x": x, "weights": weights, "groups": groups, **requantised(nhwc(y))}
    return case | window(attributes, x, weights.shape[1:3])


def translate_transposed(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate ConvTranspose; its weights are (C, K / groups, R, S), and outputs give the size."""
    x, groups = to_int8(nhwc(inputs[0])), attributes.get("group", 1)
    weights = inputs[1][:, :, None] if inputs[1].ndim == 3 else inputs[1]
    channels, filters, *kernel = weights.shape
    split = weights.reshape(groups, channels // groups, filters, *kernel)
    weights = split.transpose(0, 2, 3, 4, 1).reshape(-1, *kernel, channels // groups)
    case = {"x": x, "weights": to_int8(weights), "groups": groups, **requantised(nhwc(y))}
    asked = {k: v for k, v in attributes.items() if k != "auto_pad"}
    geometry = window(asked, x, kernel)
    # ONNX derives the padding from the size of the output where that is asked for, by output_shape
    # or auto_pad. What is missing is added at the bottom and right; of what is over, the cases
    # have no more than 1, which SAME_UPPER cuts off at the bottom and right.
    pad, extra = [*geometry["pad"][:2], 0, 0], [0, 0]
    for axis in range(2):
        span = (kernel[axis] - 1) * geometry["dilation"][axis] + 1
        full = geometry["stride"][axis] * (x.shape[axis + 1] - 1) + span
        over = full - pad[axis] - case["expected"].shape[axis + 1]
        assert "pads" in attributes or over <= (attributes.get("auto_pad") == b"SAME_UPPER")
        pad[axis + 2], extra[axis] = max(over, 0), max(-over, 0)
    return case | geometry | {"pad": tuple(pad), "output_padding": tuple(extra)}


def translate_conv_integer(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate ConvInteger of uint8, whose zero points are optional inputs."""
    x, weights = to_int8(nhwc(inputs[0])), to_int8(nhwc(inputs[1]))
    zeros = [np.broadcast_to(inputs[i] if len(inputs) > i else np.uint8(0), n)
             for i, n in ((2, ()), (3, (len(weights),)))]  # fmt: skip
    return {
        "x": x,
        "weights": weights,
        "zero_in": int(to_int8(zeros[0])),
        "weight_zero": to_int8(zeros[1]).astype(np.int32),
        "expected": nhwc(y),
        "groups": attributes.get("group", 1),
    } | window(attributes, x, weights.shape[1:3])


def translate_qlinear_conv(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate QLinearConv of uint8."""
    x, x_scale, x_zero, weights, w_scale, w_zero, y_scale, y_zero, *bias = inputs
    case = translate_conv_integer(attributes, [x, weights, x_zero, w_zero], y)
    return case | {
        "expected": to_int8(nhwc(y)),
        "multiplier": golden.conv_multiplier(x_scale, w_scale, y_scale),
        "zero_out": int(to_int8(y_zero)),
        "bias": bias[0] if bias else None,
    }


def translate_max_pool(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate MaxPool, quantising input and output alike where the floats are not whole."""
    x, y = nhwc(inputs[0]), nhwc(y)
    if not np.array_equal(x, np.rint(x)):
        scale = np.abs(x).max() / 127
        x, y = np.rint(x / scale), np.rint(y / scale)
    case = {"x": to_int8(x), "expected": to_int8(y), "ceil": bool(attributes.get("ceil_mode", 0))}
    return case | window(attributes, x, x.shape[1:3])


def translate_average_pool(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate AveragePool of whole numbers."""
    x, real = to_int8(nhwc(inputs[0])), nhwc(y).astype(np.float64)
    return {
        "x": x,
        "expected": round_half_away(real),
        "real": real,
        "ceil": bool(attributes.get("ceil_mode", 0)),
        "count_padding": bool(attributes.get("count_include_pad", 0)),
    } | window(attributes, x, x.shape[1:3])


def channels_last(array: NDArray[Any]) -> NDArray[Any]:
    """Return NHWC, and a vector as one pixel row of one channel."""
    return nhwc(array) if array.ndim == 4 else array.reshape(1, 1, -1, 1)


def translate_quantize(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate QuantizeLinear of whole numbers to uint8 into a requantisation of them."""
    x, scale, zero = inputs
    accumulators = channels_last(x).astype(np.int32)
    assert np.array_equal(accumulators, channels_last(x))
    expected, zeros = to_int8(channels_last(y)), to_int8(zero)
    multiplier = np.broadcast_to(np.float32(1) / scale, accumulators.shape[3])
    # The quotient and the product by the reciprocal, both in float32, must not round differently.
    quotient = channels_last(x) / scale
    assert np.array_equal(np.rint(quotient), np.rint(channels_last(x) * multiplier))
    if np.ndim(zero):  # A zero point for each channel: whole, so that it may be added before
        accumulators = accumulators + (zeros.astype(np.int32) * scale).astype(np.int32)
        zeros = np.int8(0)
    return {
        "x": accumulators,
        "expected": expected,
        "multiplier": np.ascontiguousarray(multiplier),
        "zero_out": int(zeros),
    }


def translate_dequantize(attributes: dict[str, Any], inputs: list[Any], y: Any) -> dict[str, Any]:
    """Translate DequantizeLinear of uint8 by whole scales: scale * x - scale * zero, to int32."""
    x, scale, zero = inputs
    x, y = to_int8(channels_last(x)), channels_last(y)
    channels = x.shape[3]
    scales = to_int8(np.broadcast_to(scale, channels))
    zeros = np.broadcast_to(to_int8(zero), channels).astype(np.int32)
    assert np.array_equal(y.astype(np.int32), y)
    return {
        "x": x,
        "weights": scales.reshape(channels, 1, 1, 1),
        "groups": channels,
        "bias": -zeros * scales,
        "expected": y.astype(np.int32),
    }


TRANSLATIONS = {
    "Conv": ("conv", translate_conv),
    "ConvTranspose": ("transposed_conv", translate_transposed),
    "ConvInteger": ("conv", translate_conv_integer),
    "QLinearConv": ("conv", translate_qlinear_conv),
    "MaxPool": ("max_pool", translate_max_pool),
    "GlobalMaxPool": ("max_pool", translate_max_pool),
    "AveragePool": ("average_pool", translate_average_pool),
    "GlobalAveragePool": ("average_pool", translate_average_pool),
    "QuantizeLinear": ("requantise", translate_quantize),
    "DequantizeLinear": ("conv", translate_dequantize),
}


def node_cases() -> list[Any]:
    """Return ONNX's test cases of `OPERATORS`.

    `collect_testcases` of ONNX makes those of all operators, which takes several seconds and
    warns; the cases of a module are registered when it is imported, so only these are.
    """
    for operator in OPERATORS:
        importlib.import_module(f"{node_tests.__name__}.{operator.lower()}")
    cases = [c for c in node_tests._NodeTestCases if c.model.graph.node[0].op_type in OPERATORS]
    return sorted(cases, key=lambda case: case.name)


def expressible_cases() -> Iterator[NodeCase]:
    """Yield the node tests that int8 arithmetic can express, in order of their names."""
    for case in node_cases():
        if case.name not in INEXPRESSIBLE:
            (node,) = case.model.graph.node
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            ((inputs, (y,)),) = case.data_sets
            op, translate = TRANSLATIONS[node.op_type]
            yield NodeCase(case.name, op, **translate(attributes, inputs, y))


def run_conv(case: NodeCase) -> NDArray[Any]:
    """Convolve filter by filter, since golden has one zero point for all weights."""
    assert case.weights is not None
    filters = len(case.weights)
    bias = np.zeros(filters, np.int32) if case.bias is None else case.bias
    zeros = np.zeros(filters, np.int32) if case.weight_zero is None else case.weight_zero
    geometry: dict[str, Any] = {
        "stride": case.stride,
        "pad": case.pad,
        "dilation": case.dilation,
        "groups": case.groups,
        "zero_point": case.zero_in,
    }
    if case.op == "transposed_conv":
        geometry["output_padding"] = case.output_padding
    convolve = {"conv": golden.conv2d, "transposed_conv": golden.transposed_conv2d}[case.op]
    sums = np.concatenate(
        [
            convolve(case.x, case.weights, bias, weight_zero_point=int(zero), **geometry)[
                ..., channel : channel + 1
            ]
            for channel, zero in enumerate(zeros)
        ],
        axis=3,
    )
    if case.multiplier is None:
        return sums
    return golden.requantise(sums, case.multiplier, case.zero_out)


def run_pool(case: NodeCase) -> NDArray[Any]:
    """Pool; check that the sums and counts of an average also give its real value."""
    geometry: dict[str, Any] = {"dilation": case.dilation, "ceil": case.ceil}
    where = (case.kernel, case.stride, case.pad)
    if case.op == "max_pool":
        return golden.max_pool2d(case.x, *where, **geometry)
    counting: dict[str, Any] = geometry | {"count_padding": case.count_padding}
    counts = golden.pool_counts(case.x.shape[1:3], *where, **counting)[:, :, np.newaxis]
    sums = golden.sum_pool2d(case.x, *where, **geometry)
    assert case.real is not None
    np.testing.assert_array_equal((sums / counts).astype(np.float32), case.real.astype(np.float32))
    return golden.average_pool2d(case.x, *where, **counting)


def run(case: NodeCase) -> NDArray[Any]:
    """Run a case through the golden model."""
    if case.op == "requantise":
        assert case.multiplier is not None
        return golden.requantise(case.x, case.multiplier, case.zero_out)
    return run_pool(case) if case.op.endswith("pool") else run_conv(case)


CASES = {case.name: case for case in expressible_cases()}


@pytest.mark.parametrize("name", CASES)
def test_node_case(name: str) -> None:
    case = CASES[name]
    result = run(case)
    assert result.dtype == case.expected.dtype
    np.testing.assert_array_equal(result, case.expected)


def test_reasons_name_cases_that_exist() -> None:
    assert not set(INEXPRESSIBLE) - {case.name for case in node_cases()}


def test_no_other_module_has_cases_of_these_operators() -> None:
    """`node_cases` imports one module for each operator: no other one makes such a node."""
    pattern = re.compile(rf'make_node\(\s*["\'](?:{"|".join(OPERATORS)})["\']')
    sources = Path(node_tests.__file__).parent.glob("*.py")
    modules = {path.stem for path in sources if pattern.search(path.read_text("utf-8"))}
    assert modules == {operator.lower() for operator in OPERATORS}


@pytest.mark.parametrize(
    "name", [name for name, reason in INEXPRESSIBLE.items() if reason is _REALS_RUN]
)
def test_average_pool_of_whole_numbers(name: str) -> None:
    """The geometry of the cases whose own data are floats, by ONNX's reference evaluator."""
    (model,) = (case.model for case in node_cases() if case.name == name)
    (node,) = model.graph.node
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, shape).astype(np.float32)
    (y,) = ReferenceEvaluator(model).run(None, {node.input[0]: x})
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    case = NodeCase(name, "average_pool", **translate_average_pool(attributes, [x], y))
    np.testing.assert_array_equal(run(case), case.expected)


# The padding of a transposed convolution follows from its output.
SAME = [c.name for c in node_cases() if "same" in c.name and "convtranspose" not in c.name]


@pytest.mark.parametrize("name", SAME)
def test_same_padding(name: str) -> None:
    """SAME_UPPER and SAME_LOWER: golden's padding is the one that the specification defines."""
    (test,) = (case for case in node_cases() if case.name == name)
    (node,) = test.model.graph.node
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    x = nhwc(test.data_sets[0][0][0])
    geometry = window(attributes, x, None)
    pad = golden.same_padding(
        x.shape[1:3],
        geometry["kernel"],
        geometry["stride"],
        geometry["dilation"],
        upper=attributes["auto_pad"] == b"SAME_UPPER",
    )
    assert pad == geometry["pad"]

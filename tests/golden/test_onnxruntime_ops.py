"""The golden model against ONNX Runtime: groups, dilation, weight zero points, QDQ, pools, matmul.

What ONNX Runtime computes with integers is equal. It averages and adds in float32, where the
result depends on the order of summation: there the difference is measured, not asserted
(docs/references.md has the figures).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import trirow_golden as golden

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NAMES = {np.dtype(np.int8): onnx.TensorProto.INT8, np.dtype(np.uint8): onnx.TensorProto.UINT8}
MICROSOFT = "com.microsoft"


def nchw(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def nhwc(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def random_int8(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int8]:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def run(
    nodes: list[Any],
    inputs: dict[str, NDArray[Any]],
    constants: dict[str, Any],
    *,
    opset: int = 19,
    optimised: Any = None,
) -> NDArray[Any]:
    """Run a graph whose output is y, of the type of the first input.

    `optimised` is a path for the graph that ONNX Runtime makes of it.
    """
    first = next(iter(inputs.values()))
    graph = onnx.helper.make_graph(
        nodes,
        "operator",
        [
            onnx.helper.make_tensor_value_info(name, NAMES[value.dtype], value.shape)
            for name, value in inputs.items()
        ],
        [onnx.helper.make_tensor_value_info("y", NAMES[first.dtype], None)],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: it warns that an optimised graph fits one CPU
    # Without it QDQ graphs of int8 run as uint8 on x86, whose products with int8 may saturate.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (y,) = session.run(None, inputs)
    return y


def operators(path: Any) -> list[str]:
    """Return the operators of a graph that was written."""
    return [node.op_type for node in onnx.load(path).graph.node]


def random_window(
    rng: np.random.Generator, pools: bool = False, dilate: bool = True
) -> dict[str, Any]:
    """Return size, kernel, stride, dilation and padding of which the output is not empty.

    The padding is different on all sides; that of a pool must be less than the kernel, and `ceil`
    is drawn, too.
    """
    while True:
        size, kernel = rng.integers(1, 18, 2), rng.integers(1, 6, 2)
        stride, dilation = rng.integers(1, 5, 2), rng.choice([1, 1, 2, 3] if dilate else [1], 2)
        pad = rng.integers(0, [*kernel, *kernel] if pools else [4] * 4)
        window: dict[str, Any] = {
            "kernel": kernel,
            "stride": stride,
            "pad": pad,
            "dilation": dilation,
        }
        window = {name: tuple(int(v) for v in values) for name, values in window.items()}
        if pools:
            window["ceil"] = bool(rng.integers(2))
        image = (int(size[0]), int(size[1]))
        try:
            out = golden.output_size(image, **window)
            if pools and golden.pool_counts(image, **window).min() == 0:
                continue  # a window wholly in the padding: ONNX does not say what it gives
        except ValueError:
            continue
        return {"size": image, "out": out, **window}


def onnx_window(window: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of ONNX for a window."""
    return {
        "kernel_shape": window["kernel"],
        "strides": window["stride"],
        "dilations": window["dilation"],
        "pads": window["pad"],
    } | ({"ceil_mode": int(window["ceil"])} if "ceil" in window else {})


class RandomConv:
    """Operands, scales and zero points of a convolution with groups."""

    def __init__(self, seed: int, weight_zero: bool = False):
        rng = np.random.default_rng(seed)
        self.window = random_window(rng)
        kind = seed % 3  # dense, groups, depthwise
        self.groups = [1, int(rng.integers(2, 5)), int(rng.integers(2, 40))][kind]
        of_group = [int(n) for n in rng.integers(1, 20, 2)]
        if kind == 2:
            of_group = [1, int(rng.choice([1, 1, 2, 3]))]
        self.filters = self.groups * of_group[1]
        shape = (int(rng.integers(1, 3)), *self.window["size"], self.groups * of_group[0])
        self.x = random_int8(rng, shape)
        self.weights = random_int8(rng, (self.filters, *self.window["kernel"], of_group[0]))
        self.bias = rng.integers(-(2**14), 2**14, self.filters, dtype=np.int32)
        self.zero_in, self.zero_out = (int(rng.integers(-128, 128)) for _ in range(2))
        self.weight_zero = int(rng.integers(-128, 128)) if weight_zero else 0
        self.numbers = {key: self.window[key] for key in ("stride", "pad", "dilation")}
        sums = golden.conv2d(
            self.x,
            self.weights,
            self.bias,
            zero_point=self.zero_in,
            weight_zero_point=self.weight_zero,
            groups=self.groups,
            **self.numbers,
        )
        self.scale_in = np.float32(10 ** rng.uniform(-3, 0))
        spread = np.abs(sums.astype(np.float64)).mean(axis=(0, 1, 2)) + 1
        self.scale_out = np.float32(10 ** rng.uniform(-3, 0))
        wanted = rng.uniform(20, 100, 1 if weight_zero else self.filters)
        ratio = wanted / (spread.mean() if weight_zero else spread)
        self.scales = (ratio * self.scale_out / self.scale_in).astype(np.float32)

    def expected(self) -> NDArray[np.int8]:
        """Return golden's result."""
        multiplier = golden.conv_multiplier(self.scale_in, self.scales, self.scale_out)
        return golden.conv2d_int8(
            self.x,
            self.weights,
            self.bias,
            np.ascontiguousarray(np.broadcast_to(multiplier, self.filters)),
            zero_in=self.zero_in,
            zero_out=self.zero_out,
            weight_zero_point=self.weight_zero,
            groups=self.groups,
            **self.numbers,
        )

    def attributes(self) -> dict[str, Any]:
        return {"group": self.groups, **onnx_window(self.window)}


@pytest.mark.parametrize("seed", range(60))
def test_qlinear_conv(seed: int) -> None:
    case = RandomConv(seed)
    constants = {
        "x_scale": case.scale_in,
        "x_zero": np.int8(case.zero_in),
        "w": nchw(case.weights),
        "w_scale": case.scales,
        "w_zero": np.zeros(case.filters, np.int8),
        "y_scale": case.scale_out,
        "y_zero": np.int8(case.zero_out),
        "bias": case.bias,
    }
    node = onnx.helper.make_node("QLinearConv", ["x", *constants], ["y"], **case.attributes())
    y = run([node], {"x": nchw(case.x)}, constants)
    np.testing.assert_array_equal(nhwc(y), case.expected(), err_msg=str(case.window))


@pytest.mark.parametrize("seed", range(40))
def test_qlinear_conv_with_weight_zero_point(seed: int) -> None:
    """uint8 throughout; 128 less in values and zero points makes it int8."""
    case = RandomConv(seed, weight_zero=True)
    constants = {
        "x_scale": case.scale_in,
        "x_zero": np.uint8(case.zero_in + 128),
        "w": nchw(case.weights).view(np.uint8) ^ 128,
        "w_scale": case.scales[0],
        "w_zero": np.uint8(case.weight_zero + 128),
        "y_scale": case.scale_out,
        "y_zero": np.uint8(case.zero_out + 128),
        "bias": case.bias,
    }
    node = onnx.helper.make_node("QLinearConv", ["x", *constants], ["y"], **case.attributes())
    y = run([node], {"x": nchw(case.x).view(np.uint8) ^ 128}, constants)
    result = (nhwc(y) ^ 128).view(np.int8)
    np.testing.assert_array_equal(result, case.expected(), err_msg=str(case.window))


@pytest.mark.parametrize("seed", range(40))
def test_qdq_conv(seed: int, tmp_path: Path) -> None:
    case = RandomConv(seed)
    constants = {
        "x_scale": case.scale_in,
        "x_zero": np.int8(case.zero_in),
        "w": nchw(case.weights),
        "w_scale": case.scales,
        "w_zero": np.zeros(case.filters, np.int8),
        "bias": case.bias,
        "b_scale": case.scale_in * case.scales,
        "b_zero": np.zeros(case.filters, np.int32),
        "y_scale": case.scale_out,
        "y_zero": np.int8(case.zero_out),
    }
    make = onnx.helper.make_node
    nodes = [
        make("DequantizeLinear", ["x", "x_scale", "x_zero"], ["real_x"]),
        make("DequantizeLinear", ["w", "w_scale", "w_zero"], ["real_w"], axis=0),
        make("DequantizeLinear", ["bias", "b_scale", "b_zero"], ["real_b"], axis=0),
        make("Conv", ["real_x", "real_w", "real_b"], ["real_y"], **case.attributes()),
        make("QuantizeLinear", ["real_y", "y_scale", "y_zero"], ["y"]),
    ]
    path = tmp_path / "optimised.onnx"
    y = run(nodes, {"x": nchw(case.x)}, constants, optimised=path)
    assert "QLinearConv" in operators(path)
    np.testing.assert_array_equal(nhwc(y), case.expected(), err_msg=str(case.window))


@pytest.mark.parametrize("seed", range(100))
def test_max_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    window = random_window(rng, pools=True)
    size, out = window.pop("size"), window.pop("out")
    x = random_int8(rng, (int(rng.integers(1, 3)), *size, int(rng.integers(1, 20))))
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], **onnx_window(window))
    y = nhwc(run([node], {"x": nchw(x)}, {}))
    assert y.shape[1:3] == out
    np.testing.assert_array_equal(y, golden.max_pool2d(x, **window), err_msg=str(window))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_qlinear_matmul(seed: int, per_channel: bool) -> None:
    """Fully connected: a 1x1 convolution without biases on one pixel."""
    rng = np.random.default_rng(seed)
    rows, channels, filters = (int(n) for n in rng.integers(1, [9, 300, 50]))
    x, weights = random_int8(rng, (rows, channels)), random_int8(rng, (filters, channels))
    zero_in, zero_out = (int(rng.integers(-128, 128)) for _ in range(2))
    scale_in, scale_out = (np.float32(10 ** rng.uniform(-3, 0)) for _ in range(2))
    wanted = rng.uniform(0.003, 0.02, filters if per_channel else 1) / np.sqrt(channels)
    scales = (wanted * scale_out / scale_in).astype(np.float32)
    constants = {
        "x_scale": scale_in,
        "x_zero": np.int8(zero_in),
        "w": np.ascontiguousarray(weights.T),
        "w_scale": scales if per_channel else scales[0],
        "w_zero": np.zeros(filters, np.int8) if per_channel else np.int8(0),
        "y_scale": scale_out,
        "y_zero": np.int8(zero_out),
    }
    node = onnx.helper.make_node("QLinearMatMul", ["x", *constants], ["y"])
    y = run([node], {"x": x}, constants)
    multiplier = golden.conv_multiplier(scale_in, np.broadcast_to(scales, filters), scale_out)
    expected = golden.conv2d_int8(
        x[:, None, None],
        weights[:, None, None],
        np.zeros(filters, np.int32),
        multiplier,
        zero_in=zero_in,
        zero_out=zero_out,
    )
    np.testing.assert_array_equal(y, expected[:, 0, 0])


def report(name: str, differences: list[NDArray[Any]], record_property: Any) -> None:
    """Print and record how often the results differ by how much."""
    all_of_them = np.concatenate(differences)
    histogram: dict[Any, int] = {
        value: int(np.count_nonzero(all_of_them == value)) for value in (-1, 0, 1)
    }
    histogram["larger"] = int(np.count_nonzero(np.abs(all_of_them) > 1))
    record_property(name, histogram)
    print(f"\n{name}, golden less ONNX Runtime: {histogram}")


def average_pool_case(seed: int, ceil: bool, count_padding: bool, path: Any) -> tuple[Any, ...]:
    """Return the differences of an average pool, and which of its averages are exact ties."""
    rng = np.random.default_rng(seed)
    # QLinearAveragePool, which ONNX Runtime makes of it, has no dilation.
    window = random_window(rng, pools=True, dilate=False) | {"ceil": ceil}
    size = window.pop("size")
    del window["out"]
    zero = int(rng.integers(-128, 128))
    x = random_int8(rng, (1, *size, int(rng.integers(1, 20))))
    constants = {"scale": np.float32(10 ** rng.uniform(-3, 0)), "zero": np.int8(zero)}
    make = onnx.helper.make_node
    attributes = {"count_include_pad": int(count_padding), **onnx_window(window)}
    del attributes["dilations"]
    nodes = [
        make("DequantizeLinear", ["x", "scale", "zero"], ["real_x"]),
        make("AveragePool", ["real_x"], ["real_y"], **attributes),
        make("QuantizeLinear", ["real_y", "scale", "zero"], ["y"]),
    ]
    y = nhwc(run(nodes, {"x": nchw(x)}, constants, optimised=path))
    assert operators(path) == ["QLinearAveragePool"]
    expected = golden.average_pool2d(x, **window, zero_point=zero, count_padding=count_padding)
    assert y.shape == expected.shape
    counts = golden.pool_counts(size, **window, count_padding=count_padding)[:, :, np.newaxis]
    ties = 2 * golden.sum_pool2d(x, **window, zero_point=zero) % (2 * counts) == counts
    return expected.astype(np.int16) - y, ties


@pytest.mark.parametrize(
    ("ceil", "count_padding"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_difference_of_average_pools(
    ceil: bool, count_padding: bool, tmp_path: Path, record_property: Any
) -> None:
    """Measured only; the shapes must agree."""
    parts: dict[str, list[NDArray[Any]]] = {"ties": [], "others": []}
    for seed in range(50):
        try:
            difference, ties = average_pool_case(seed, ceil, count_padding, tmp_path / str(seed))
        except ValueError:  # the window fits with ceil only
            continue
        parts["ties"].append(difference[ties])
        parts["others"].append(difference[~ties])
    for name, differences in parts.items():
        report(f"average pool, {ceil=}, {count_padding=}, {name}", differences, record_property)


@pytest.mark.parametrize("scales", ["any", "simple fractions"])
@pytest.mark.parametrize("combination", ["add_tflite", "add_xnnpack"])
def test_difference_of_additions(combination: str, scales: str, record_property: Any) -> None:
    """Measured only: all pairs of values through QLinearAdd."""
    values = np.arange(-128, 128).astype(np.int8)
    a, b = (np.ascontiguousarray(m) for m in np.meshgrid(values, values))
    differences = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        drawn = 10 ** rng.uniform(-2, 0, 3) if scales == "any" else rng.integers(1, 17, 3) / 16
        a_scale, b_scale, y_scale = drawn.astype(np.float32)
        zeros = [int(zero) for zero in rng.integers(-128, 128, 3)]
        constants = {"a_scale": a_scale, "b_scale": b_scale, "y_scale": y_scale}
        constants |= {f"{n}_zero": np.int8(zero) for n, zero in zip("aby", zeros, strict=True)}
        names = ["a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "y_scale", "y_zero"]
        node = onnx.helper.make_node("QLinearAdd", names, ["y"], domain=MICROSOFT)
        y = run([node], {"a": a, "b": b}, constants)
        assert y.shape == a.shape
        tables = getattr(golden, combination)(a_scale, zeros[0], b_scale, zeros[1], y_scale)
        result = golden.combine(a, b, tables, zeros[2])
        differences.append((result.astype(np.int16) - y).ravel())
    report(f"QLinearAdd, {combination}, {scales} scales", differences, record_property)

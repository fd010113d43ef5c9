"""The golden convolution against QLinearConv of ONNX Runtime, every output equal."""

import numpy as np
import pytest

from trirow_golden import conv2d, conv2d_int8, conv_multiplier, output_size, requantise

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def qlinear_conv(
    x,
    weights,
    bias,
    scales,
    *,
    stride=(1, 1),
    pad=(0, 0, 0, 0),
    dilation=(1, 1),
    groups=1,
    zero_in=0,
    zero_out=0,
):
    """Run QLinearConv on NHWC arrays; scales are those of input, kernels and output."""
    scale_in, scale_weights, scale_out = scales
    constants = {
        "x_scale": np.float32(scale_in),
        "x_zero": np.int8(zero_in),
        "w": np.ascontiguousarray(weights.transpose(0, 3, 1, 2)),
        "w_scale": scale_weights,
        "w_zero": np.zeros(len(scale_weights), np.int8),
        "y_scale": np.float32(scale_out),
        "y_zero": np.int8(zero_out),
        "bias": bias,
    }
    node = onnx.helper.make_node(
        "QLinearConv",
        ["x", *constants],
        ["y"],
        kernel_shape=weights.shape[1:3],
        strides=stride,
        pads=pad,
        dilations=dilation,
        group=groups,
    )
    images, height, width, channels = x.shape
    int8 = onnx.TensorProto.INT8
    graph = onnx.helper.make_graph(
        [node],
        "convolution",
        [onnx.helper.make_tensor_value_info("x", int8, [images, channels, height, width])],
        [onnx.helper.make_tensor_value_info("y", int8, None)],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (y,) = session.run(None, {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})
    return y.transpose(0, 2, 3, 1)


def assert_equal(x, weights, bias, scales, **keywords):
    """Require that both give the same output."""
    golden = conv2d_int8(x, weights, bias, conv_multiplier(*scales), **keywords)
    np.testing.assert_array_equal(golden, qlinear_conv(x, weights, bias, scales, **keywords))


def random_int8(rng, shape):
    return rng.integers(-128, 128, shape, dtype=np.int8)


def random_place(rng, most_dilation=1):
    """Return size, kernel, and keywords of a convolution with an output that is not empty."""
    while True:
        size, kernel = rng.integers(1, 20, 2), rng.integers(1, 8, 2)
        stride = rng.integers(1, 5, 2)
        pad = rng.integers(0, rng.choice([1, 2, 4, 9]), 4)
        dilation = rng.integers(1, most_dilation + 1, 2)
        size, kernel, stride, pad, dilation = (
            tuple(int(v) for v in t) for t in (size, kernel, stride, pad, dilation)
        )
        try:
            output_size(size, kernel, stride, pad, dilation)
        except ValueError:
            continue
        return size, kernel, {"stride": stride, "pad": pad, "dilation": dilation}


def random_zeros(rng):
    """Return the keywords of the zero points."""
    zeros = [int(rng.choice([-128, 0, 127, rng.integers(-128, 128)])) for _ in range(2)]
    return {"zero_in": zeros[0], "zero_out": zeros[1]}


def scales_for(rng, acc):
    """Return scales of input, kernels and output that spread these accumulators over int8."""
    scale_in = np.float32(10 ** rng.uniform(-4, 1))
    scale_weights = (10 ** rng.uniform(-4, -2, acc.shape[-1])).astype(np.float32)
    spread = np.abs(acc.astype(np.float64)).mean(axis=(0, 1, 2)) * scale_in * scale_weights
    return scale_in, scale_weights, np.float32(spread.mean() / rng.uniform(10, 100) + 1e-9)


@pytest.mark.parametrize("seed", range(150))
def test_random(seed):
    rng = np.random.default_rng(seed)
    size, kernel, place = random_place(rng)
    channels, filters = int(rng.choice([1, 2, 3, 13, 16, 40])), int(rng.integers(1, 34))
    x = random_int8(rng, (int(rng.integers(1, 3)), *size, channels))
    weights = random_int8(rng, (filters, *kernel, channels))
    bias_bits = [10, 16, 24, 30][seed % 4]
    bias = rng.integers(-(2**bias_bits), 2**bias_bits, filters, dtype=np.int32)
    zeros = random_zeros(rng)
    acc = conv2d(x, weights, bias, zero_point=zeros["zero_in"], **place)
    assert_equal(x, weights, bias, scales_for(rng, acc), **place, **zeros)


@pytest.mark.parametrize("kind", ["dilated", "grouped", "depthwise", "multiplier"])
@pytest.mark.parametrize("seed", range(25))
def test_dilations_and_groups(seed, kind):
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    size, kernel, place = random_place(rng, 4)
    channels = int(rng.choice([1, 2, 3, 8, 17]))
    groups = {"dilated": 1, "grouped": int(rng.choice([2, 3, 5]))}.get(kind, channels)
    if kind == "grouped":
        channels *= groups
    filters = channels
    if kind != "depthwise":
        filters = groups * (8 if seed % 2 else int(rng.integers(1, 9)))
    x = random_int8(rng, (1, *size, channels))
    weights = random_int8(rng, (filters, *kernel, channels // groups))
    bias = rng.integers(-5000, 5000, filters, dtype=np.int32)
    zeros = random_zeros(rng)
    acc = conv2d(x, weights, bias, zero_point=zeros["zero_in"], groups=groups, **place)
    assert_equal(x, weights, bias, scales_for(rng, acc), groups=groups, **place, **zeros)


@pytest.mark.parametrize("seed", range(12))
def test_products_alone_exceed_2_to_24(seed):
    rng = np.random.default_rng(seed)
    x = rng.choice(np.array([-128, -127, 126, 127], np.int8), (1, 7, 7, 128))
    signs = rng.choice(np.array([-1, 1]), (8, 1, 1, 1))
    weights = np.where(x[:, 2:5, 2:5] > 0, 127, -128) * signs + rng.integers(0, 2, (8, 3, 3, 128))
    weights = np.clip(weights, -128, 127).astype(np.int8)
    bias = rng.integers(-1000, 1000, 8, dtype=np.int32)
    keywords = {"pad": (1, 1, 1, 1), "zero_in": int(rng.integers(-20, 20))}
    acc = conv2d(x, weights, bias, pad=(1, 1, 1, 1), zero_point=keywords["zero_in"])
    assert np.abs(acc.astype(np.int64)).max() > 2**24
    scales = (0.5, np.full(8, 2.0**-10, np.float32), 2.0**-11 * 2**17 * rng.uniform(0.9, 1.1))
    assert_equal(x, weights, bias, scales, zero_out=int(rng.integers(-9, 9)), **keywords)


@pytest.mark.parametrize("x", [-128, 127])
@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("zero_in", [-128, 127])
def test_extremes(x, weight, zero_in):
    images = np.full((1, 5, 6, 64), x, np.int8)
    weights = np.full((9, 3, 3, 64), weight, np.int8)
    bias = np.arange(9, dtype=np.int32)
    scales = (0.01, np.full(9, 0.001, np.float32), 2.0)
    assert_equal(images, weights, bias, scales, pad=(1, 2, 0, 1), zero_in=zero_in)


def constant_accumulators(acc, scales, zero_out=0):
    """Requantise in ONNX Runtime: one channel for each accumulator, which is its bias."""
    x = np.zeros((1, 1, 1, 1), np.int8)
    weights = np.zeros((len(acc), 1, 1, 1), np.int8)
    return qlinear_conv(x, weights, acc, scales, zero_out=zero_out).reshape(-1)


@pytest.mark.parametrize("seed", range(4))
def test_requantisation_near_ties(seed):
    rng = np.random.default_rng(seed)
    size = 50000
    multiplier = np.exp2(rng.uniform(-31, 8, size)).astype(np.float32)
    acc = np.clip((rng.integers(-200, 200, size) + 0.5) / multiplier, -(2.0**31), 2.0**31 - 1)
    acc = np.clip(np.rint(acc) + rng.integers(-2, 3, size), -(2**31), 2**31 - 1).astype(np.int32)
    zero_out = int(rng.integers(-128, 128))
    result = constant_accumulators(acc, (1.0, multiplier, 1.0), zero_out)
    np.testing.assert_array_equal(result, requantise(acc, multiplier, zero_out))


@pytest.mark.parametrize("power", [-149, -140, -126, -60, -33, 0, 23, 24, 60, 120])
def test_requantisation_by_extreme_multipliers(power):
    acc = np.array([0, 1, -1, 2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
    multiplier = np.full(len(acc), 2.0**power, np.float32)
    result = constant_accumulators(acc, (1.0, multiplier, 1.0), 3)
    np.testing.assert_array_equal(result, requantise(acc, multiplier, 3))


def test_order_in_which_the_multiplier_is_evaluated():
    rng = np.random.default_rng(0)
    size = 400000
    scale_in, scale_out = np.float32(0.0173), np.float32(0.0419)
    scale_weights = np.exp2(rng.uniform(-20, -8, size)).astype(np.float32)
    multiplier = conv_multiplier(scale_in, scale_weights, scale_out)
    acc = np.rint((rng.integers(-120, 120, size) + 0.5) / multiplier).astype(np.int32)
    expected = requantise(acc, multiplier, 0)
    wide = np.float64(scale_in) * scale_weights.astype(np.float64) / np.float64(scale_out)
    others = {
        "scale_in * (scale_weights / scale_out)": scale_in * (scale_weights / scale_out),
        "(scale_in / scale_out) * scale_weights": scale_in / scale_out * scale_weights,
        "scale_in * scale_weights * (1 / scale_out)": scale_in
        * scale_weights
        * (np.float32(1) / scale_out),
        "in float64": wide.astype(np.float32),
    }
    telling = np.zeros(size, bool)
    for name, other in others.items():
        differs = requantise(acc, other, 0) != expected
        assert np.count_nonzero(differs) > 20, f"no accumulator tells the order from {name}"
        telling |= differs
    result = constant_accumulators(acc[telling], (scale_in, scale_weights[telling], scale_out))
    np.testing.assert_array_equal(result, expected[telling])


@pytest.mark.parametrize("shape", [(4,), (5, 1), ()])
def test_multiplier_of_another_shape(shape):
    x, weights = np.zeros((1, 4, 4, 3), np.int8), np.zeros((5, 1, 1, 3), np.int8)
    with pytest.raises(ValueError, match=r"^multiplier must have the shape of bias, \(5,\), not "):
        conv2d_int8(x, weights, np.zeros(5, np.int32), np.ones(shape, np.float32))

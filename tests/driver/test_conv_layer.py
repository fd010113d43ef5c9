import dataclasses
import re

import numpy as np
import pytest

import trirow_golden
from trirow_driver.conv_layer import ConvLayer, quantise_conv, shuffle_layer
from trirow_driver.quantise import Quantisation, dequantise, quantise

FIELDS = {
    "name": "conv1",
    "weights": np.ones((4, 3, 5, 2), dtype=np.int8),
    "bias": np.zeros(4, dtype=np.int32),
    "multiplier": np.full(4, 0.5, dtype=np.float32),
    "stride": (2, 1),
    "pad": (1, 2, 0, 3),
    "input": Quantisation(0.5, -3),
    "output": Quantisation(0.25, 4),
}


def refused(field, value, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        ConvLayer(**{**FIELDS, field: value})


def test_properties():
    layer = ConvLayer(**FIELDS)
    assert (layer.out_channels, layer.kernel, layer.in_channels) == (4, (3, 5), 2)
    assert (layer.low, layer.high) == (-128, 127)


def test_integers_of_numpy_become_python_integers():
    layer = ConvLayer(**{**FIELDS, "stride": [np.int64(2), np.int8(1)], "low": np.int8(-5)})
    assert layer.stride == (2, 1)
    assert [type(step) for step in layer.stride] == [int, int]
    assert type(layer.low) is int


def test_layer_does_not_change():
    weights = np.ones((4, 3, 5, 2), dtype=np.int8)
    layer = ConvLayer(**{**FIELDS, "weights": weights})
    weights[...] = 2
    assert (layer.weights == 1).all()
    for array in (layer.weights, layer.bias, layer.multiplier):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.name = "other"


def test_arrays_become_contiguous():
    weights = np.arange(120, dtype=np.int8).reshape(2, 5, 3, 4).transpose(3, 2, 1, 0)
    layer = ConvLayer(**{**FIELDS, "weights": weights})
    assert layer.weights.flags.c_contiguous
    np.testing.assert_array_equal(layer.weights, weights)


# Each field


@pytest.mark.parametrize("name", ["", None, 3])
def test_wrong_name(name):
    refused("name", name, f"layer name must be a string that is not empty, not {name!r}")


@pytest.mark.parametrize(
    ("field", "wanted"), [("weights", "int8"), ("bias", "int32"), ("multiplier", "float32")]
)
def test_wrong_type_of_array(field, wanted):
    array = FIELDS[field].astype(np.float64)
    refused(field, array, f"layer 'conv1': {field} must be an array of {wanted}, not float64")
    refused(field, [1], f"layer 'conv1': {field} must be an array of {wanted}, not list")


@pytest.mark.parametrize("shape", [(4, 3, 2), (0, 3, 5, 2), (4, 3, 5, 0)])
def test_wrong_shape_of_weights(shape):
    wanted = "(K, R, S, C) without an empty axis"
    text = f"layer 'conv1': weights must have shape {wanted}, not {shape}"
    refused("weights", np.zeros(shape, dtype=np.int8), text)


@pytest.mark.parametrize("field", ["bias", "multiplier"])
@pytest.mark.parametrize("shape", [(3,), (4, 1), ()])
def test_wrong_shape_of_constants(field, shape):
    array = np.zeros(shape, dtype=FIELDS[field].dtype)
    refused(field, array, f"layer 'conv1': {field} must have shape (4,), not {shape}")


@pytest.mark.parametrize("bad", [-1.0, -0.0, np.inf, np.nan])
def test_wrong_multiplier(bad):
    array = np.array([1, 0, bad, 1], dtype=np.float32)
    text = "multiplier of output channel 2 must be finite and at least 0"
    refused("multiplier", array, f"layer 'conv1': {text}, not {bad}")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("stride", (1,), "stride must be 2 integers, not (1,)"),
        ("stride", 1, "stride must be 2 integers, not 1"),
        ("stride", (1, 0), "stride must be at least 1, not (1, 0)"),
        ("stride", (1, 1.0), "stride must be an integer, not 1.0"),
        ("pad", (1, 1), "pad must be 4 integers, not (1, 1)"),
        ("pad", (0, 0, -1, 0), "pad must be at least 0, not (0, 0, -1, 0)"),
        ("input", (0.5, 0), "input must be a Quantisation, not (0.5, 0)"),
        ("output", None, "output must be a Quantisation, not None"),
        ("low", -129, "low and high must be ordered and in -128 .. 127, not -129 and 127"),
        ("high", 128, "low and high must be ordered and in -128 .. 127, not -128 and 128"),
        ("high", -129, "low and high must be ordered and in -128 .. 127, not -128 and -129"),
        ("low", 0.5, "low must be an integer, not 0.5"),
    ],
)
def test_wrong_field(field, value, text):
    refused(field, value, f"layer 'conv1': {text}")


def test_accumulator_at_the_end_of_int32():
    # One tap of weight 1, zero point -3: x - zero_point reaches 130.
    fields = {**FIELDS, "weights": np.ones((1, 1, 1, 1), dtype=np.int8)}
    fields["multiplier"] = np.ones(1, dtype=np.float32)
    ConvLayer(**{**fields, "bias": np.array([2**31 - 1 - 130], dtype=np.int32)})
    text = (
        "layer 'conv1': weights and bias of output channel 0 let the accumulator reach "
        "2147483648, beyond int32"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        ConvLayer(**{**fields, "bias": np.array([2**31 - 130], dtype=np.int32)})


# Output shape


def test_output_shape():
    layer = ConvLayer(**FIELDS)
    # rows: (7 + 1 + 0 - 3) // 2 + 1; columns: (6 + 2 + 3 - 5) // 1 + 1
    assert layer.output_shape(7, 6) == (3, 7)


def test_output_shape_of_an_input_below_the_kernel():
    with pytest.raises(ValueError, match=r"^layer 'conv1': "):
        ConvLayer(**FIELDS).output_shape(1, 6)


# Quantising


def float_conv(x, weights, bias, stride, pad):
    """Convolution of real numbers, by its definition; all arrays NHWC and (K, R, S, C)."""
    top, left, bottom, right = pad
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    _, rows, columns, _ = weights.shape
    height = (x.shape[1] - rows) // stride[0] + 1
    width = (x.shape[2] - columns) // stride[1] + 1
    y = np.empty((x.shape[0], height, width, weights.shape[0]))
    for i in range(height):
        for j in range(width):
            window = x[:, i * stride[0] :, j * stride[1] :][:, :rows, :columns]
            y[:, i, j] = np.einsum("nrsc,krsc->nk", window, weights) + bias
    return y


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("stride", "pad"), [((1, 1), (0, 0, 0, 0)), ((2, 3), (1, 2, 0, 1))])
def test_quantised_layer_computes_the_real_one(relu, stride, pad):
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 2, size=(2, 9, 8, 3))
    weights = rng.normal(size=(6, 3, 3, 3)) * rng.uniform(0.1, 3, size=(6, 1, 1, 1))
    bias = rng.normal(size=6)
    expected = float_conv(x, weights, bias, stride, pad)
    expected = np.maximum(expected, 0) if relu else expected
    q_in = Quantisation(3 / 255, -43)
    reach = float(np.abs(expected).max())
    q_out = Quantisation(reach / 127, -128 if relu else 0)
    layer = quantise_conv(
        "c", weights, bias, input=q_in, output=q_out, stride=stride, pad=pad, relu=relu
    )
    y = trirow_golden.conv2d_int8(
        quantise(x, layer.input),
        layer.weights,
        layer.bias,
        layer.multiplier,
        stride=layer.stride,
        pad=layer.pad,
        zero_in=layer.input.zero_point,
        zero_out=layer.output.zero_point,
        low=layer.low,
        high=layer.high,
    )
    assert y.shape[1:3] == layer.output_shape(9, 8)
    error = np.abs(dequantise(y, q_out) - expected)
    assert error.max() < 0.03 * reach
    assert error.mean() < 0.005 * reach


def test_quantise_conv_by_hand():
    weights = np.array([[127.0, -1.0], [0.0, 63.5]]).reshape(2, 1, 1, 2)
    layer = quantise_conv(
        "c", weights, [3.0, -1.0], input=Quantisation(0.5, 1), output=Quantisation(2.0, -7)
    )
    assert layer.weights.reshape(2, 2).tolist() == [[127, -1], [0, 127]]
    assert layer.bias.tolist() == [6, -4]
    assert layer.multiplier.tolist() == [0.25, 0.125]
    assert (layer.stride, layer.pad, layer.low, layer.high) == ((1, 1), (0, 0, 0, 0), -128, 127)


def test_relu_clips_at_the_zero_point_of_the_output():
    weights, q = np.ones((1, 1, 1, 1)), Quantisation(1.0, -7)
    assert quantise_conv("c", weights, [0], input=q, output=q, relu=True).low == -7
    assert quantise_conv("c", weights, [0], input=q, output=q).low == -128


@pytest.mark.parametrize("largest", [0.0, 1e-30, 1e-9])
def test_dead_channel_keeps_its_bias(largest):
    q_in, q_out = Quantisation(0.5, 0), Quantisation(0.1, 0)
    weights = np.full((1, 3, 3, 4), largest)
    layer = quantise_conv("dead", weights, [7.0], input=q_in, output=q_out)
    y = trirow_golden.conv2d_int8(
        np.zeros((1, 3, 3, 4), dtype=np.int8), layer.weights, layer.bias, layer.multiplier
    )
    assert y.item() in (69, 70, 71)


def test_quantise_conv_refuses_an_accumulator_that_can_overflow():
    weights = np.ones((1, 1, 1, 70000))  # 70,000 * 127 * 255 > 2**31
    q = Quantisation(1.0, -128)
    with pytest.raises(ValueError, match=r"^layer 'wide': weights and bias of output channel 0 le"):
        quantise_conv("wide", weights, [0.0], input=q, output=q)


@pytest.mark.parametrize("bias", [[1.0], [[1.0, 2.0]], [1.0, float("nan")], [1.0, 1e300]])
def test_quantise_conv_wrong_bias(bias):
    q = Quantisation(1.0, 0)
    text = "layer 'c': bias must be one finite float32 number for each output channel of weights"
    with pytest.raises(ValueError, match=f"^{re.escape(text)} with shape"):
        quantise_conv("c", np.ones((2, 1, 1, 1)), bias, input=q, output=q)


def test_quantise_conv_wrong_weights():
    q = Quantisation(1.0, 0)
    with pytest.raises(ValueError, match=r"^layer 'c': weights must have shape \(K, R, S, C\)"):
        quantise_conv("c", np.ones((2, 1, 1)), [1.0, 2.0], input=q, output=q)
    with pytest.raises(ValueError, match=r"^layer 'c': weights of output channel 1 must be finite"):
        quantise_conv("c", [[[[1.0]]], [[[np.inf]]]], [1.0, 2.0], input=q, output=q)


# Options


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dilation", (1, 0), "dilation must be at least 1, not (1, 0)"),
        ("groups", 0, "groups must be at least 1, not 0"),
        ("groups", 3, "output channels must be a multiple of groups (3), not 4"),
        ("groups", 1.0, "groups must be an integer, not 1.0"),
        ("weight_zero_point", 128, "weight_zero_point must be at most 127, not 128"),
        ("weight_zero_point", -129, "weight_zero_point must be at least -128, not -129"),
        ("mode", "exact", "mode must be one of float32, fixed, not 'exact'"),
        ("mode", "fixed", "multiplier must be an array of float64, not float32"),
        ("output_padding", (1, 0), "output_padding is for transposed convolutions only"),
        ("table", np.zeros(255, np.int8), "table must have shape (256,), not (255,)"),
        ("combine", 1, "combine must be a Combine, not 1"),
        (
            "negative_multiplier",
            np.full(4, np.inf, np.float32),
            "negative_multiplier must be finite, and takes mode float32",
        ),
    ],
)
def test_wrong_option(field, value, text):
    refused(field, value, f"layer 'conv1': {text}")


def test_sum_that_is_shifted_out_of_32_bits():
    """Mode `fixed` shifts left for multipliers above 1, before it multiplies."""
    fields = {**FIELDS, "mode": "fixed", "multiplier": np.full(4, 100.0)}
    ConvLayer(**fields)
    text = "^layer 'conv1': the sum of output channel 2 is beyond int32 once it is shifted left by "
    fields["bias"] = np.array([0, 0, 1 << 25, 0], np.int32)
    with pytest.raises(ValueError, match=text):
        ConvLayer(**fields)


def test_properties_with_groups():
    layer = ConvLayer(**{**FIELDS, "groups": 2})
    assert layer.in_channels == 4
    assert layer.parameter_bytes == 4 * 3 * 5 * 2 + 4 * 8
    assert layer.output_extents((7, 6, 4)) == (3, 7, 4)
    with pytest.raises(ValueError, match=r"^layer 'conv1': its weights are for 4 channels, its f"):
        layer.output_extents((7, 6, 2))


def test_output_shape_with_dilation():
    layer = ConvLayer(**{**FIELDS, "dilation": (3, 2)})
    # rows: (9 + 1 + 0 - 7) // 2 + 1; columns: (10 + 2 + 3 - 9) // 1 + 1
    assert layer.output_shape(9, 10) == (2, 7)


def transposed_fields(**changes):
    return {**FIELDS, "transposed": True, "pad": (1, 2, 0, 1), "stride": (3, 2), **changes}


def test_output_shape_of_a_transposed_convolution():
    layer = ConvLayer(**transposed_fields(output_padding=(2, 1)))
    # rows: (4 - 1) * 3 + 3 - 1 - 0 + 2; columns: (5 - 1) * 2 + 5 - 2 - 1 + 1
    assert layer.output_shape(4, 5) == (13, 11)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_multiplications_against_brute_force(transposed, dilation):
    fields = transposed_fields() if transposed else FIELDS
    layer = ConvLayer(**{**fields, "transposed": transposed, "dilation": dilation})
    height, width = 9, 17
    rows, columns, _ = layer.output_extents((height, width, 2))
    small = (height, width) if transposed else (rows, columns)
    large = (rows, columns) if transposed else (height, width)
    every = useful = 0
    for y in range(small[0]):
        for x in range(small[1]):
            for r in range(3):
                for s in range(5):
                    row = y * layer.stride[0] + r * dilation[0] - layer.pad[0]
                    column = x * layer.stride[1] + s * dilation[1] - layer.pad[1]
                    every += 8
                    useful += 8 * (0 <= row < large[0] and 0 <= column < large[1])
    assert layer.macs((height, width, 2)) == every
    assert layer.macs((height, width, 2), padding=False) == useful


def test_golden_of_all_options_by_hand():
    """One pixel, two groups of one channel and one filter: (x - zero) * (w - zero) + bias."""
    fields = {
        "name": "g",
        "weights": np.array([10, -20], np.int8).reshape(2, 1, 1, 1),
        "bias": np.array([7, 8], np.int32),
        "multiplier": np.array([0.5, 0.5], np.float32),
        "negative_multiplier": np.array([0.125, 0.125], np.float32),
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "input": Quantisation(1.0, 2),
        "output": Quantisation(1.0, -1),
        "groups": 2,
        "weight_zero_point": 4,
    }
    x = np.array([5, 6], np.int8).reshape(1, 1, 1, 2)
    # (5 - 2) * (10 - 4) + 7 = 25, half is 12; (6 - 2) * (-20 - 4) + 8 = -88, an eighth is -11.
    assert ConvLayer(**fields).golden(x).tolist() == [[[[12 - 1, -11 - 1]]]]
    table = np.arange(256).astype(np.uint8).view(np.int8)[::-1]  # y becomes -1 - y
    assert ConvLayer(**fields, table=table).golden(x).tolist() == [[[[-12, 11]]]]


@pytest.mark.parametrize(("channels", "groups"), [(6, 2), (6, 3), (5, 5), (4, 1)])
def test_shuffle(channels, groups):
    layer = shuffle_layer("shuffle", channels, groups, Quantisation(0.5, -7))
    x = np.random.default_rng(1).integers(-128, 128, (2, 3, 2, channels), dtype=np.int8)
    expected = x.reshape(2, 3, 2, groups, -1).swapaxes(3, 4).reshape(x.shape)
    np.testing.assert_array_equal(layer.golden(x), expected)


def test_shuffle_of_groups_that_do_not_divide():
    with pytest.raises(
        ValueError, match=r"^layer 's': channels must be a multiple of groups \(4\)"
    ):
        shuffle_layer("s", 6, 4, Quantisation(1.0, 0))

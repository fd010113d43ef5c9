"""Dilation, groups and zero points of weights; depthwise convolution is a case of groups."""

import time

import numpy as np
import pytest

from trirow_golden import accumulator_bound, conv2d, conv2d_plain, output_size

FORMS = [conv2d_plain, conv2d]


def definition(x, weights, bias, stride, pad, dilation, groups, zero_point, weight_zero_point):
    """Convolve by one product after the other, in Python's integers."""
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, _ = weights.shape
    out = output_size((height, width), (kernel_height, kernel_width), stride, pad, dilation)
    acc = np.empty((images, *out, filters), object)
    for image, oy, ox, k in np.ndindex(acc.shape):
        total = int(bias[k])
        first_channel = k // (filters // groups) * (channels // groups)
        for r, s, c in np.ndindex(weights.shape[1:]):
            y = oy * stride[0] + r * dilation[0] - pad[0]
            z = ox * stride[1] + s * dilation[1] - pad[1]
            if 0 <= y < height and 0 <= z < width:
                value = int(x[image, y, z, first_channel + c]) - zero_point
                total += value * (int(weights[k, r, s, c]) - weight_zero_point)
        acc[image, oy, ox, k] = total
    return acc


def random_operands(rng, size, kernel, channels, filters, groups, images=1):
    x = rng.integers(-128, 128, (images, *size, channels), dtype=np.int8)
    shape = (filters, *kernel, channels // groups)
    weights = rng.integers(-128, 128, shape, dtype=np.int8)
    return x, weights, rng.integers(-(2**20), 2**20, filters, dtype=np.int32)


def assert_defined(operands, **changes):
    keywords = {
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": 1,
        "zero_point": 0,
        "weight_zero_point": 0,
        **changes,
    }
    expected = definition(*operands, *keywords.values())
    for form in FORMS:
        acc = form(*operands, **keywords)
        assert acc.dtype == np.int32
        np.testing.assert_array_equal(acc, expected.astype(np.int64))


@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    groups = int(rng.choice([1, 2, 3, 5]))
    channels = groups * int(rng.integers(1, 4))
    filters = groups * int(rng.integers(1, 4))
    while True:
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (8, 4, 4, 4)
        )
        pad = tuple(int(v) for v in rng.integers(0, 5, 4))
        try:
            out = output_size(size, kernel, stride, pad, dilation)
        except ValueError:
            continue
        if out[0] * out[1] * kernel[0] * kernel[1] * filters * channels // groups < 8000:
            break
    zeros = [int(rng.choice([-128, 0, 127, rng.integers(-128, 128)])) for _ in range(2)]
    assert_defined(
        random_operands(rng, size, kernel, channels, filters, groups, 1 + seed % 2),
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        zero_point=zeros[0],
        weight_zero_point=zeros[1],
    )


@pytest.mark.parametrize(
    ("size", "kernel", "channels", "filters", "groups", "keywords"),
    [
        pytest.param((3, 4), (3, 3), 1, 1, 1, {}, id="depthwise_of_one_channel"),
        pytest.param((3, 4), (2, 2), 1, 8, 1, {}, id="multiplier_8_of_one_channel"),
        pytest.param((4, 4), (3, 2), 3, 24, 3, {}, id="multiplier_8_of_three_channels"),
        pytest.param((5, 4), (3, 3), 7, 7, 7, {"pad": (1, 1, 1, 1)}, id="depthwise"),
        pytest.param((2, 3), (1, 1), 6, 4, 2, {}, id="pointwise_in_groups"),
        pytest.param(
            (3, 2),
            (2, 3),
            2,
            3,
            1,
            {"dilation": (5, 4), "pad": (4, 4, 5, 6)},
            id="dilation_larger_than_the_input",
        ),
        pytest.param(
            (2, 2),
            (2, 1),
            4,
            4,
            4,
            {"pad": (5, 4, 3, 6), "dilation": (2, 3), "stride": (2, 3)},
            id="padding_larger_than_the_kernel",
        ),
    ],
)
def test_named(size, kernel, channels, filters, groups, keywords):
    print("seed 7")
    rng = np.random.default_rng(7)
    operands = random_operands(rng, size, kernel, channels, filters, groups)
    for zeros in ((0, 0), (-128, 127), (127, -128), (5, -3)):
        zero_point, weight_zero_point = zeros
        assert_defined(
            operands,
            groups=groups,
            zero_point=zero_point,
            weight_zero_point=weight_zero_point,
            **keywords,
        )


@pytest.mark.parametrize("form", FORMS)
def test_filters_of_a_channel_are_adjacent(form):
    x = np.array([[[[1, 10]]]], np.int8)
    weights = np.arange(1, 7, dtype=np.int8).reshape(6, 1, 1, 1)
    acc = form(x, weights, np.zeros(6, np.int32), groups=2)
    np.testing.assert_array_equal(acc, [[[[1, 2, 3, 40, 50, 60]]]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("groups", [1, 64])
@pytest.mark.parametrize(("value", "zero"), [(127, -128), (-128, 127)])
def test_largest_differences_do_not_wrap(form, groups, value, zero):
    x = np.full((1, 2, 2, 64), value, np.int8)
    weights = np.full((64, 2, 2, 64 // groups), value, np.int8)
    acc = form(
        x, weights, np.zeros(64, np.int32), groups=groups, zero_point=zero, weight_zero_point=zero
    )
    np.testing.assert_array_equal(acc, np.full((1, 1, 1, 64), 4 * 64 // groups * 255**2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("groups", [2, 4])
def test_overflow_in_a_group_is_named(form, groups):
    x = np.ones((1, 1, 1, 4), np.int8)
    weights = np.ones((4, 1, 1, 4 // groups), np.int8)
    bias = np.array([0, 0, 2**31 - 1, 0], np.int32)
    reached = 2**31 - 1 + 4 // groups
    message = rf"^Accumulator of output channel 2 leaves int32: it reaches {reached}$"
    with pytest.raises(OverflowError, match=message):
        form(x, weights, bias, groups=groups)


def test_several_blocks(monkeypatch):
    monkeypatch.setattr("trirow_golden.convolution._BLOCK_BYTES", 3000)
    print("seed 1")
    rng = np.random.default_rng(1)
    for groups in (1, 2, 6):
        operands = random_operands(rng, (11, 7), (3, 2), 6, 6, groups, images=2)
        keywords = {"pad": (1, 0, 1, 2), "dilation": (2, 1), "groups": groups}
        np.testing.assert_array_equal(
            conv2d(*operands, **keywords), conv2d_plain(*operands, **keywords)
        )


def test_depthwise_is_quick():
    print("seed 2")
    operands = random_operands(np.random.default_rng(2), (56, 56), (3, 3), 128, 128, 128)
    start = time.perf_counter()
    conv2d(*operands, pad=(1, 1, 1, 1), groups=128)
    assert time.perf_counter() - start < 2  # takes 0.05 s


@pytest.mark.parametrize("seed", range(10))
def test_bound_with_zero_point_of_weights(seed):
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    _, weights, bias = random_operands(rng, (1, 1), (2, 3), 6, 4, 2)
    zeros = {
        "zero_point": int(rng.integers(-128, 128)),
        "weight_zero_point": int(rng.choice([-128, 127, rng.integers(-128, 128)])),
    }
    bound = accumulator_bound(weights, bias, *zeros.values())
    reached = np.zeros(4, np.int64)
    for target in range(4):
        positive = weights[target].astype(int) > zeros["weight_zero_point"]
        for most, least in ((127, -128), (-128, 127)):
            x = np.where(positive, most, least).astype(np.int8)
            x = np.concatenate([x, x], axis=-1)[np.newaxis]
            acc = conv2d(x, weights, bias, groups=2, **zeros)[0, 0, 0]
            reached = np.maximum(reached, np.abs(acc.astype(np.int64)))
    np.testing.assert_array_equal(reached, bound)


GOOD = {
    "x": np.zeros((1, 4, 4, 6), np.int8),
    "weights": np.zeros((9, 3, 3, 2), np.int8),
    "bias": np.zeros(9, np.int32),
    "groups": 3,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": 0}, "^groups must be at least 1, not 0$"),
        ({"groups": 2}, "^groups must divide the 6 channels of x and the 9 output .* 2 does not$"),
        ({"groups": 9}, "^groups must divide the 6 channels .* 9 does not$"),
        (
            {"weights": np.zeros((9, 3, 3, 6), np.int8)},
            "^weights must have 2 channels, the 6 of x in 3 groups, not 6$",
        ),
        ({"weight_zero_point": 128}, "^weight_zero_point must be from -128 to 127, not 128$"),
        ({"dilation": (1, 0)}, "^Dilation must be at least 1x1, not 1x0$"),
        ({"dilation": (2, 1)}, "^Output of kernel 3x3 with dilation 2x1 on input 4x4 "),
    ],
)
def test_wrong_operands(form, change, message):
    assert form(**GOOD).shape == (1, 2, 2, 9)
    with pytest.raises(ValueError, match=message):
        form(**{**GOOD, **change})

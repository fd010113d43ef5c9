"""Transposed convolution against its definition, and against the convolution it transposes."""

import numpy as np
import pytest

from trirow_golden import conv2d, transposed_conv2d, transposed_output_size


def definition(x, weights, bias, **keywords):
    """Add every product to the output that it belongs to."""
    stride, dilation = keywords["stride"], keywords["dilation"]
    top, left, _, _ = keywords["pad"]
    images, height, width, channels = x.shape
    filters, kernel_height, kernel_width, seen = weights.shape
    size = transposed_output_size(
        (height, width),
        (kernel_height, kernel_width),
        stride,
        keywords["pad"],
        dilation,
        keywords["output_padding"],
    )
    y = np.zeros((images, *size, filters), np.int64) + bias
    for image, iy, ix, r, s, k, c in np.ndindex(
        images, height, width, kernel_height, kernel_width, filters, seen
    ):
        oy, ox = iy * stride[0] + r * dilation[0] - top, ix * stride[1] + s * dilation[1] - left
        if 0 <= oy < size[0] and 0 <= ox < size[1]:
            channel = k // (filters // keywords["groups"]) * seen + c
            value = int(x[image, iy, ix, channel]) - keywords["zero_point"]
            y[image, oy, ox, k] += value * (
                int(weights[k, r, s, c]) - keywords["weight_zero_point"]
            )
    assert seen * keywords["groups"] == channels
    return y


DEFAULTS = {
    "stride": (1, 1),
    "pad": (0, 0, 0, 0),
    "dilation": (1, 1),
    "groups": 1,
    "output_padding": (0, 0),
    "zero_point": 0,
    "weight_zero_point": 0,
}


def assert_defined(rng, size, kernel, channels=2, filters=3, images=1, **changes):
    keywords = {**DEFAULTS, **changes}
    x = rng.integers(-128, 128, (images, *size, channels), dtype=np.int8)
    shape = (filters, *kernel, channels // keywords["groups"])
    weights = rng.integers(-128, 128, shape, dtype=np.int8)
    bias = rng.integers(-(2**20), 2**20, filters, dtype=np.int32)
    acc = transposed_conv2d(x, weights, bias, **keywords)
    assert acc.dtype == np.int32
    np.testing.assert_array_equal(acc, definition(x, weights, bias, **keywords))


@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    groups = int(rng.choice([1, 2, 3]))
    while True:
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (5, 5, 4, 4)
        )
        pad = tuple(int(v) for v in rng.integers(0, 4, 4))
        more = tuple(int(rng.integers(0, step)) for step in stride)
        try:
            transposed_output_size(size, kernel, stride, pad, dilation, more)
        except ValueError:
            continue
        break
    assert_defined(
        rng,
        size,
        kernel,
        channels=groups * int(rng.integers(1, 3)),
        filters=groups * int(rng.integers(1, 3)),
        images=1 + seed % 2,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        output_padding=more,
        zero_point=int(rng.integers(-128, 128)),
        weight_zero_point=int(rng.choice([0, -128, 127])),
    )


@pytest.mark.parametrize(
    ("size", "kernel", "keywords"),
    [
        pytest.param((3, 3), (1, 1), {"stride": (3, 2)}, id="stride_beyond_the_kernel"),
        pytest.param((2, 3), (4, 4), {"stride": (2, 2), "pad": (1, 1, 1, 1)}, id="twice"),
        pytest.param(
            (3, 3),
            (3, 3),
            {"stride": (2, 2), "pad": (1, 1, 1, 1), "output_padding": (1, 1)},
            id="twice_with_output_padding",
        ),
        pytest.param((4, 3), (2, 2), {"pad": (3, 0, 1, 2)}, id="padding_larger_than_the_kernel"),
        pytest.param((2, 2), (2, 3), {"dilation": (5, 4)}, id="dilation_larger_than_the_input"),
        pytest.param(
            (3, 2),
            (2, 2),
            {"channels": 4, "filters": 4, "groups": 4, "stride": (2, 2)},
            id="depthwise",
        ),
        pytest.param((2, 2), (2, 2), {"channels": 1, "filters": 8}, id="8_filters_of_1_channel"),
    ],
)
def test_named(size, kernel, keywords):
    print("seed 3")
    assert_defined(np.random.default_rng(3), size, kernel, zero_point=-9, **keywords)


def test_by_hand():
    x = np.array([[[[1], [2]]]], np.int8)
    weights = np.array([[[[1], [10], [100]]]], np.int8)
    acc = transposed_conv2d(x, weights, np.array([1000], np.int32), stride=(1, 2))
    np.testing.assert_array_equal(acc[0, 0, :, 0], [1001, 1010, 1102, 1020, 1200])


@pytest.mark.parametrize("seed", range(10))
def test_is_the_transpose_of_the_convolution(seed):
    # <conv(x), y> = <x, transposed(y)> for the same kernels with K and C exchanged
    rng = np.random.default_rng(seed)
    print(f"seed {seed}")
    stride, dilation = (tuple(int(v) for v in rng.integers(1, 3, 2)) for _ in range(2))
    keywords = {"stride": stride, "pad": (1, 0, 2, 1), "dilation": dilation}
    weights = rng.integers(-128, 128, (4, 3, 2, 3), dtype=np.int8)
    y = rng.integers(-128, 128, (1, 5, 4, 4), dtype=np.int8)
    back = transposed_conv2d(
        y, weights.transpose(3, 1, 2, 0).copy(), np.zeros(3, np.int32), **keywords
    )
    x = rng.integers(-128, 128, back.shape, dtype=np.int8)
    forth = conv2d(x, weights, np.zeros(4, np.int32), **keywords)
    assert forth.shape == y.shape
    assert np.sum(forth.astype(np.int64) * y) == np.sum(back.astype(np.int64) * x)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": np.zeros((1, 2, 2, 3), np.int16)}, TypeError, "^x must be int8 of shape "),
        ({"bias": np.zeros(4, np.int32)}, ValueError, "^bias must have one value for each of the "),
        ({"groups": 3}, ValueError, "^groups must divide the 3 channels of x and the 5 output "),
        ({"stride": (0, 1)}, ValueError, "^Stride must be at least 1x1, not 0x1$"),
        ({"output_padding": (1, 0)}, ValueError, "^output_padding must be at least 0 and below "),
        ({"pad": (2, 0, 2, 0)}, ValueError, "^Output of transposed kernel 3x3 on input 2x2 is "),
        ({"zero_point": -129}, ValueError, "^zero_point must be from -128 to 127, not -129$"),
        ({"weight_zero_point": 999}, ValueError, "^weight_zero_point must be from -128 to 127"),
    ],
)
def test_wrong_operands(change, error, message):
    good = {
        "x": np.zeros((1, 2, 2, 3), np.int8),
        "weights": np.zeros((5, 3, 3, 3), np.int8),
        "bias": np.zeros(5, np.int32),
    }
    assert transposed_conv2d(**good).shape == (1, 4, 4, 5)
    with pytest.raises(error, match=message):
        transposed_conv2d(**{**good, **change})


def test_overflow_is_named_unless_it_is_cut_off():
    x, weights = np.ones((1, 1, 1, 1), np.int8), np.array([0, 1], np.int8).reshape(1, 1, 2, 1)
    bias = np.array([2**31 - 1], np.int32)
    message = r"^Accumulator of output channel 0 leaves int32: it reaches 2147483648$"
    with pytest.raises(OverflowError, match=message):
        transposed_conv2d(x, weights, bias)
    acc = transposed_conv2d(x, weights, bias, pad=(0, 0, 0, 1))
    np.testing.assert_array_equal(acc, [[[[2**31 - 1]]]])

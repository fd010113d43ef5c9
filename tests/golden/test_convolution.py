import numpy as np
import pytest

from trirow_golden import accumulator_bound, conv2d, conv2d_plain, output_size

FORMS = [conv2d_plain, conv2d]
INT32_MAX = 2**31 - 1


def int8(values):
    return np.array(values, np.int8)


def int32(values):
    return np.array(values, np.int32)


def random_int8(rng, shape):
    return rng.integers(-128, 128, shape, dtype=np.int8)


# Geometry


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "expected"),
    [
        ((224, 224), (7, 7), (2, 2), (3, 3, 3, 3), (112, 112)),
        ((224, 224), (3, 3), (2, 2), (0, 0, 1, 1), (112, 112)),
        ((5, 9), (5, 9), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((5, 9), (1, 2), (4, 3), (0, 0, 0, 0), (2, 3)),
        ((1, 1), (3, 3), (1, 1), (7, 0, 0, 2), (6, 1)),
        ((2, 3), (2, 2), (9, 9), (1, 1, 1, 1), (1, 1)),
        ((0, 4), (1, 1), (1, 1), (1, 0, 0, 0), (1, 4)),
    ],
)
def test_output_size(size, kernel, stride, pad, expected):
    assert output_size(size, kernel, stride, pad) == expected


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "message"),
    [
        (
            (1, 2),
            (3, 3),
            (1, 1),
            (0, 0, 1, 1),
            r"^Output of kernel 3x3 on input 1x2 with padding \(0, 0, 1, 1\) is empty: "
            r"the padded input is only 2x3$",
        ),
        ((4, 4), (1, 5), (1, 1), (9, 0, 9, 0), "the padded input is only 22x4"),
        ((-1, 4), (1, 1), (1, 1), (0, 0, 0, 0), "^Input size must not be negative, not -1x4$"),
        ((4, 4), (0, 3), (1, 1), (0, 0, 0, 0), "^Kernel must be at least 1x1, not 0x3$"),
        ((4, 4), (1, 1), (1, 0), (0, 0, 0, 0), "^Stride must be at least 1x1, not 1x0$"),
        ((4, 4), (1, 1), (-2, 1), (0, 0, 0, 0), "^Stride must be at least 1x1, not -2x1$"),
        (
            (4, 4),
            (1, 1),
            (1, 1),
            (0, 0, -1, 0),
            r"^Padding \(top, left, bottom, right\) must not be negative, not \(0, 0, -1, 0\)$",
        ),
    ],
)
def test_output_size_wrong(size, kernel, stride, pad, message):
    with pytest.raises(ValueError, match=message):
        output_size(size, kernel, stride, pad)


# Cases computed by hand

RAMP = int8([[[[1], [2], [3]], [[4], [5], [6]]]])  # 1 image, 2 rows, 3 columns, 1 channel


@pytest.mark.parametrize("form", FORMS)
def test_no_padding(form):
    weights = int8([[[[1], [-1]], [[10], [100]]]])
    # 1 - 2 + 40 + 500 and 2 - 3 + 50 + 600, plus 7
    np.testing.assert_array_equal(form(RAMP, weights, int32([7])), [[[[546], [656]]]])


@pytest.mark.parametrize("form", FORMS)
def test_kernel_is_not_flipped_and_each_pad_is_on_its_side(form):
    weights = int8([[[[1], [2]], [[4], [8]]]])
    result = form(RAMP, weights, int32([0]), pad=(1, 0, 0, 1))
    expected = [
        [4 * 1 + 8 * 2, 4 * 2 + 8 * 3, 4 * 3],
        [1 + 2 * 2 + 4 * 4 + 8 * 5, 2 + 2 * 3 + 4 * 5 + 8 * 6, 3 + 4 * 6],
    ]
    np.testing.assert_array_equal(result[0, :, :, 0], expected)


@pytest.mark.parametrize("form", FORMS)
def test_padding_contributes_nothing_whatever_the_zero_point(form):
    x = int8([[[[127]]]])
    weights = np.full((1, 3, 3, 1), 100, np.int8)
    result = form(x, weights, int32([-5]), pad=(2, 2, 2, 2), zero_point=-128)
    np.testing.assert_array_equal(result[0, :, :, 0], np.full((3, 3), 255 * 100 - 5))
    result = form(x, weights, int32([-5]), pad=(3, 3, 3, 3), zero_point=127)
    np.testing.assert_array_equal(result, np.full((1, 5, 5, 1), -5))


@pytest.mark.parametrize("form", FORMS)
def test_pads_wider_than_the_kernel_give_the_bias(form):
    result = form(RAMP, int8([[[[3]]]]), int32([11]), pad=(0, 2, 1, 0), zero_point=1)
    np.testing.assert_array_equal(
        result[0, :, :, 0], [[11, 11, 11, 14, 17], [11, 11, 20, 23, 26], [11] * 5]
    )


@pytest.mark.parametrize("form", FORMS)
def test_stride_beyond_the_kernel_skips_pixels(form):
    result = form(RAMP, int8([[[[1]]]]), int32([0]), stride=(3, 2))
    np.testing.assert_array_equal(result, [[[[1], [3]]]])


@pytest.mark.parametrize("form", FORMS)
def test_channels_and_filters(form):
    x = int8([[[[1, -2, 3]]], [[[-128, 0, 127]]]])
    weights = int8([[[[1, 1, 1]]], [[[-128, 127, -128]]]])
    result = form(x, weights, int32([0, 1000]), zero_point=1)
    # (0, -3, 2) and (-129, -1, 126): differences of 9 bits
    expected = [[[[-1, 1000 - 381 - 256]]], [[[-4, 1000 + 129 * 128 - 127 - 126 * 128]]]]
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.int32


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("x", "zero_point", "weight"), [(127, -128, -128), (-128, 127, 127)])
def test_largest_differences_do_not_wrap(form, x, zero_point, weight):
    images = np.full((1, 2, 2, 64), x, np.int8)
    weights = np.full((3, 2, 2, 64), weight, np.int8)
    result = form(images, weights, int32([0, 1, 2]), zero_point=zero_point)
    np.testing.assert_array_equal(result[0, 0, 0], 256 * (x - zero_point) * weight + np.arange(3))


# Fast against plain


def random_geometry(rng):
    """Return size, kernel, stride and pad of a convolution whose output is not empty."""
    while True:
        size = tuple(int(v) for v in rng.integers(1, 13, 2))
        kernel = tuple(int(v) for v in rng.integers(1, 12, 2))
        stride = tuple(int(v) for v in rng.integers(1, 5, 2))
        widest = int(rng.choice([0, 1, 3, 6, 14]))
        pad = tuple(int(v) for v in rng.integers(0, widest + 1, 4))
        try:
            height, width = output_size(size, kernel, stride, pad)
        except ValueError:
            continue
        if height * width * kernel[0] * kernel[1] <= 4000:  # keeps the plain form quick
            return size, kernel, stride, pad


def assert_forms_agree(rng, size, kernel, stride, pad, channels=None, images=1):
    channels = channels or int(rng.choice([1, 2, 3, 13, 16]))
    filters = int(rng.integers(1, 8))
    zero_point = int(rng.choice([-128, 127, 0, rng.integers(-128, 128)]))
    x = random_int8(rng, (images, *size, channels))
    weights = random_int8(rng, (filters, *kernel, channels))
    bias = rng.integers(-(2**30), 2**30, filters, dtype=np.int32)
    keywords = {"stride": stride, "pad": pad, "zero_point": zero_point}
    plain = conv2d_plain(x, weights, bias, **keywords)
    fast = conv2d(x, weights, bias, **keywords)
    assert plain.shape == (images, *output_size(size, kernel, stride, pad), filters)
    assert plain.dtype == fast.dtype == np.int32
    np.testing.assert_array_equal(fast, plain)


@pytest.mark.parametrize("seed", range(120))
def test_fast_equals_plain(seed):
    rng = np.random.default_rng(seed)
    assert_forms_agree(rng, *random_geometry(rng), images=1 + seed % 2)


@pytest.mark.parametrize("channels", [1, 3, 13])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad"),
    [
        ((1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
        ((3, 5), (3, 5), (1, 1), (0, 0, 0, 0)),  # 1x1 output
        ((2, 1), (5, 4), (1, 1), (2, 2, 1, 1)),  # input smaller than the kernel
        ((4, 4), (2, 1), (1, 1), (5, 3, 4, 6)),  # padding wider than the kernel
        ((9, 9), (2, 2), (4, 3), (1, 0, 0, 1)),  # stride beyond the kernel
        ((2, 2), (1, 1), (4, 4), (9, 9, 9, 9)),  # strides that step over the whole input
        ((12, 12), (11, 11), (4, 4), (2, 2, 2, 2)),
        ((12, 3), (11, 1), (1, 2), (0, 1, 5, 0)),
        ((3, 12), (1, 11), (2, 1), (1, 0, 0, 5)),
    ],
)
def test_fast_equals_plain_at_corners(size, kernel, stride, pad, channels):
    assert_forms_agree(np.random.default_rng(channels), size, kernel, stride, pad, channels)


def test_fast_equals_plain_over_several_blocks(monkeypatch):
    monkeypatch.setattr("trirow_golden.convolution._BLOCK_BYTES", 5000)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert_forms_agree(rng, (11, 7), (3, 2), (1 + seed % 2, 1), (1, 0, 1, 2), images=2)


@pytest.mark.parametrize("form", FORMS)
def test_operands_that_are_not_contiguous(form):
    rng = np.random.default_rng(0)
    x, weights = random_int8(rng, (2, 3, 6, 5)), random_int8(rng, (4, 3, 2, 2))
    bias = np.zeros(4, np.int32)
    views = (x.transpose(0, 2, 3, 1), weights.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(form(*views, bias), form(*(view.copy() for view in views), bias))


# The range of the accumulator


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sign", [1, -1])
def test_accumulator_at_the_ends_of_int32(form, sign):
    x = int8([[[[0], [1]]]])
    weights = int8([[[[0]]], [[[sign]]]])
    end = INT32_MAX if sign > 0 else -(2**31)
    result = form(x, weights, int32([end, end - sign]))
    np.testing.assert_array_equal(result, [[[[end, end - sign], [end, end]]]])
    message = rf"^Accumulator of output channel 1 leaves int32: it reaches {end + sign}$"
    with pytest.raises(OverflowError, match=message):
        form(x, weights, int32([end, end]))


@pytest.mark.parametrize("seed", range(30))
def test_bound_is_attained_and_never_exceeded(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, 4))
    weights = random_int8(rng, shape)
    bias = rng.integers(-100000, 100000, shape[0], dtype=np.int32)
    zero_point = int(rng.choice([-128, 127, rng.integers(-128, 128)]))
    bound = accumulator_bound(weights, bias, zero_point)
    assert bound.shape == (shape[0],)
    assert bound.dtype == np.int64
    pad = (2, 2, 2, 2)
    reached = np.zeros_like(bound)
    inputs = [random_int8(rng, shape[1:]) for _ in range(4)]
    inputs += [np.where(w > 0, 127, -128).astype(np.int8) for w in weights]  # the highest sums
    inputs += [np.where(w < 0, 127, -128).astype(np.int8) for w in weights]  # the lowest
    for x in inputs:
        acc = conv2d(x[np.newaxis], weights, bias, pad=pad, zero_point=zero_point)
        reached = np.maximum(reached, np.abs(acc.astype(np.int64)).max(axis=(0, 1, 2)))
    np.testing.assert_array_equal(reached, bound)


def test_bound_by_hand():
    weights = int8([[[[2, -3]]], [[[0, 0]]], [[[-128, -128]]]])
    # Differences from -118 to 137. Channel 0 from 1 - 2 * 118 - 3 * 137 to 1 + 2 * 137 + 3 * 118;
    # channel 1 has its bias alone; channel 2 from -100 - 256 * 137 to -100 + 256 * 118.
    bound = accumulator_bound(weights, int32([1, -(2**31), -100]), -10)
    np.testing.assert_array_equal(bound, [646, 2**31, 35172])


# Errors

GOOD = {
    "x": np.zeros((1, 4, 4, 3), np.int8),
    "weights": np.zeros((5, 3, 3, 3), np.int8),
    "bias": np.zeros(5, np.int32),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"x": np.zeros((4, 4, 3), np.int8)},
            ValueError,
            r"^x must be int8 of shape \(N, H, W, C\), not int8 of shape \(4, 4, 3\)$",
        ),
        (
            {"x": np.zeros((1, 4, 4, 3), np.uint8)},
            TypeError,
            r"^x must be int8 of shape \(N, H, W, C\), not uint8 of shape \(1, 4, 4, 3\)$",
        ),
        (
            {"weights": np.zeros((5, 3, 3, 3))},
            TypeError,
            r"^weights must be int8 of shape \(K, R, S, C\), not float64 of shape \(5, 3, 3, 3\)$",
        ),
        (
            {"weights": np.zeros((5, 27), np.int8)},
            ValueError,
            r"^weights must be int8 of shape \(K, R, S, C\), not int8 of shape \(5, 27\)$",
        ),
        (
            {"weights": np.zeros((5, 3, 3, 0), np.int8)},
            ValueError,
            r"^weights must not have an empty axis: shape \(5, 3, 3, 0\)$",
        ),
        (
            {"weights": np.zeros((5, 3, 3, 1), np.int8)},
            ValueError,
            "^x and weights must have the same number of channels, not 3 and 1$",
        ),
        (
            {"bias": np.zeros(5, np.int64)},
            TypeError,
            r"^bias must be int32 of shape \(K,\), not int64 of shape \(5,\)$",
        ),
        (
            {"bias": np.zeros((5, 1), np.int32)},
            ValueError,
            r"^bias must be int32 of shape \(K,\), not int32 of shape \(5, 1\)$",
        ),
        (
            {"bias": np.zeros(4, np.int32)},
            ValueError,
            "^bias must have one value for each of the 5 output channels, not 4$",
        ),
        ({"zero_point": 128}, ValueError, "^zero_point must be from -128 to 127, not 128$"),
        ({"zero_point": -129}, ValueError, "^zero_point must be from -128 to 127, not -129$"),
        ({"stride": (0, 1)}, ValueError, "^Stride must be at least 1x1, not 0x1$"),
        ({"pad": (0, -1, 0, 0)}, ValueError, "must not be negative"),
        ({"x": np.zeros((1, 2, 4, 3), np.int8)}, ValueError, "on input 2x4 .* is empty"),
    ],
)
def test_wrong_operands(form, change, error, message):
    with pytest.raises(error, match=message):
        form(**{**GOOD, **change})


def test_bound_of_wrong_operands():
    with pytest.raises(TypeError, match=r"^weights must be int8 "):
        accumulator_bound(GOOD["weights"].astype(np.int16), GOOD["bias"], 0)
    with pytest.raises(ValueError, match=r"^zero_point must be from "):
        accumulator_bound(GOOD["weights"], GOOD["bias"], 200)

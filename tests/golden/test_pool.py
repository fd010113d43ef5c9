"""Pools against loops over the windows, and the constants of averages against fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from trirow_golden import (
    average_constants,
    average_pool2d,
    global_average_pool,
    max_pool2d,
    output_size,
    pool_counts,
    requantise_fixed,
    sum_pool2d,
)


def windows(size, kernel, stride, pad, dilation, ceil):
    """Yield each output position, and the positions of its taps on the map and in its padding."""
    for oy, ox in np.ndindex(output_size(size, kernel, stride, pad, dilation, ceil)):
        inside, padding = [], []
        for r, s in np.ndindex(*kernel):
            y = oy * stride[0] + r * dilation[0] - pad[0]
            x = ox * stride[1] + s * dilation[1] - pad[1]
            if 0 <= y < size[0] and 0 <= x < size[1]:
                inside.append((y, x))
            elif y < size[0] + pad[2] and x < size[1] + pad[3]:
                padding.append((y, x))
        yield (oy, ox), inside, padding


def half_away(value):
    """Round a fraction, ties away from zero."""
    return math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1)


def assert_defined(x, kernel, stride, pad, dilation=(1, 1), ceil=False, zero_point=0):
    size = x.shape[1:3]
    place = {"dilation": dilation, "ceil": ceil}
    largest = max_pool2d(x, kernel, stride, pad, **place)
    sums = sum_pool2d(x, kernel, stride, pad, zero_point=zero_point, **place)
    counts = [
        pool_counts(size, kernel, stride, pad, count_padding=count_padding, **place)
        for count_padding in (False, True)
    ]
    averages = [
        average_pool2d(
            x, kernel, stride, pad, count_padding=padding, zero_point=zero_point, **place
        )
        for padding in (False, True)
    ]
    assert largest.dtype == averages[0].dtype == averages[1].dtype == np.int8
    assert sums.dtype == np.int32
    out = output_size(size, kernel, stride, pad, dilation, ceil)
    assert counts[0].shape == counts[1].shape == out
    for array in (largest, sums, *averages):
        assert array.shape == (x.shape[0], *out, x.shape[3])
    for (oy, ox), inside, padding in windows(size, kernel, stride, pad, dilation, ceil):
        assert counts[0][oy, ox] == len(inside)
        assert counts[1][oy, ox] == len(inside) + len(padding)
        for image, c in np.ndindex(x.shape[0], x.shape[3]):
            values = [int(x[image, y, z, c]) for y, z in inside]
            at = (image, oy, ox, c)
            total = sum(value - zero_point for value in values)
            assert largest[at] == max(values, default=-128)
            assert sums[at] == total
            for average, count in zip(averages, counts, strict=True):
                taps = int(count[oy, ox])
                mean = half_away(Fraction(total, taps)) if taps else 0
                assert average[at] == np.clip(mean + zero_point, -128, 127)


@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    ceil = bool(seed % 2)
    while True:
        size, kernel, stride, dilation = (
            tuple(int(v) for v in rng.integers(1, most, 2)) for most in (8, 5, 4, 3)
        )
        pad = tuple(int(v) for v in rng.integers(0, 4, 4))
        try:
            output_size(size, kernel, stride, pad, dilation, ceil)
        except ValueError:
            continue
        break
    x = rng.integers(-128, 128, (1 + seed % 3, *size, 2), dtype=np.int8)
    zero_point = int(rng.choice([-128, 0, 127, rng.integers(-128, 128)]))
    assert_defined(x, kernel, stride, pad, dilation, ceil, zero_point)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "options"),
    [
        pytest.param((3, 3), (2, 2), (1, 1), (4, 3, 2, 5), {}, id="windows_wholly_in_the_padding"),
        pytest.param((2, 2), (1, 1), (3, 3), (3, 3, 3, 3), {}, id="no_window_on_the_map_but_one"),
        pytest.param((6, 7), (3, 3), (2, 2), (0, 0, 0, 0), {"ceil": True}, id="caffe"),
        pytest.param((5, 5), (2, 2), (2, 2), (1, 1, 1, 1), {"ceil": True}, id="caffe_clipped"),
        pytest.param((2, 2), (3, 3), (2, 2), (0, 0, 0, 0), {"ceil": True}, id="beyond_the_map"),
        pytest.param(
            (3, 2),
            (2, 2),
            (1, 1),
            (4, 4, 4, 4),
            {"dilation": (5, 4)},
            id="dilation_larger_than_the_input",
        ),
        pytest.param((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), {}, id="single_pixel"),
    ],
)
def test_named(size, kernel, stride, pad, options):
    print("seed 5")
    x = np.random.default_rng(5).integers(-128, 128, (2, *size, 3), dtype=np.int8)
    for zero_point in (0, -128, 127, -5):
        assert_defined(x, kernel, stride, pad, zero_point=zero_point, **options)


def test_window_without_taps():
    x = np.full((1, 1, 1, 1), 50, np.int8)
    place = ((1, 1), (1, 1), (0, 1, 0, 0))
    np.testing.assert_array_equal(max_pool2d(x, *place)[0, 0, :, 0], [-128, 50])
    np.testing.assert_array_equal(average_pool2d(x, *place)[0, 0, :, 0], [0, 50])
    np.testing.assert_array_equal(average_pool2d(x, *place, zero_point=7)[0, 0, :, 0], [7, 50])


def test_ties_go_away_from_the_zero_point():
    x = np.array([[[[1], [2], [-1], [-2]]]], np.int8)
    place = ((1, 2), (1, 2))
    np.testing.assert_array_equal(average_pool2d(x, *place)[0, 0, :, 0], [2, -2])
    np.testing.assert_array_equal(average_pool2d(x, *place, zero_point=-9)[0, 0, :, 0], [2, -1])
    np.testing.assert_array_equal(average_pool2d(x, *place, zero_point=9)[0, 0, :, 0], [1, -2])


def test_padding_that_is_counted_stands_for_the_zero_point():
    x = np.array([[[[30], [40]]]], np.int8)
    place = ((1, 2), (1, 1), (0, 1, 0, 1))
    result = average_pool2d(x, *place, count_padding=True, zero_point=10)
    np.testing.assert_array_equal(result[0, 0, :, 0], [20, 35, 25])


def test_clip_bounds():
    x = np.array([[[[-100], [0], [100]]]], np.int8)
    result = average_pool2d(x, (1, 1), low=-20, high=30)
    np.testing.assert_array_equal(result[0, 0, :, 0], [-20, 0, 30])


def test_global_average():
    print("seed 0")
    x = np.random.default_rng(0).integers(-128, 128, (2, 5, 7, 3), dtype=np.int8)
    for zero_point in (0, 11):
        result = global_average_pool(x, zero_point=zero_point)
        sums = x.astype(int).sum(axis=(1, 2)) - 35 * zero_point
        expected = [[half_away(Fraction(int(v), 35)) + zero_point for v in row] for row in sums]
        np.testing.assert_array_equal(result, np.array(expected)[:, np.newaxis, np.newaxis])
    assert global_average_pool(x, high=-3).max() == -3


def test_global_average_of_a_large_map():
    x = np.full((1, 257, 256, 1), -128, np.int8)  # more taps than average_constants allow
    x[0, 0, 0, 0] = 127
    np.testing.assert_array_equal(global_average_pool(x), [[[[-128]]]])


# Averages by `requantise_fixed`


def divided(sums, count, zero_point=0):
    return requantise_fixed(sums.astype(np.int32), *average_constants(count), zero_point)


def expected_averages(sums, count, zero_point):
    magnitude = (2 * np.abs(sums) + count) // (2 * count)
    return np.clip(np.where(sums < 0, -magnitude, magnitude) + zero_point, -128, 127)


@pytest.mark.parametrize("zero_point", [-128, 0, 127])  # together they show all quotients
def test_constants_are_exact_for_every_sum(zero_point):
    for count in range(1, 151):
        sums = np.arange(-255 * count, 255 * count + 1)
        expected = expected_averages(sums, count, zero_point)
        np.testing.assert_array_equal(divided(sums, count, zero_point), expected, f"count {count}")


def test_constants_of_large_counts_near_every_tie():
    print("seed 0")
    powers = 1 << np.arange(8, 16)
    counts = [powers, powers - 1, powers + 1, [65535, 65534]]
    counts.append(np.random.default_rng(0).integers(256, 65536, 200))
    for count in np.concatenate(counts).tolist():
        halves = np.arange(-511, 512) * count  # twice the sums of all ties and integers
        near = np.unique(np.concatenate([halves // 2 + step for step in range(-2, 3)]))
        sums = near[np.abs(near) <= 255 * count]
        for zero_point in (-128, 127):
            expected = expected_averages(sums, count, zero_point)
            np.testing.assert_array_equal(
                divided(sums, count, zero_point), expected, f"count {count}"
            )


def test_constants_fit_their_fields():
    for count in range(1, 1 << 16):
        mantissa, left, right = average_constants(count)
        assert 0 <= mantissa < 1 << 31
        assert 0 <= left <= 9
        assert 0 <= right <= 31


@pytest.mark.parametrize("count", [0, -1, 1 << 16])
def test_constants_of_wrong_counts(count):
    with pytest.raises(ValueError, match=rf"^count must be from 1 to 65535, not {count}$"):
        average_constants(count)


# Errors

X = np.zeros((1, 4, 4, 2), np.int8)


@pytest.mark.parametrize("pool", [max_pool2d, sum_pool2d, average_pool2d])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (X.astype(np.uint8), (2, 2)),
            TypeError,
            r"^x must be int8 of shape \(N, H, W, C\), not u",
        ),
        ((X[0], (2, 2)), ValueError, r"^x must be int8 of shape \(N, H, W, C\), not int8 of "),
        ((X, (0, 2)), ValueError, "^Kernel must be at least 1x1, not 0x2$"),
        ((X, (2, 2), (1, 0)), ValueError, "^Stride must be at least 1x1, not 1x0$"),
        ((X, (2, 2), (1, 1), (0, 0, 0, -1)), ValueError, "must not be negative"),
        ((X, (5, 2)), ValueError, "^Output of kernel 5x2 on input 4x4 .* is empty"),
    ],
)
def test_wrong_arguments(pool, arguments, error, message):
    with pytest.raises(error, match=message):
        pool(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_point": 128}, "^zero_point must be from -128 to 127, not 128$"),
        ({"low": 1, "high": 0}, "^Clip bounds must satisfy .*, not low=1, high=0$"),
    ],
)
def test_wrong_output(options, message):
    with pytest.raises(ValueError, match=message):
        average_pool2d(X, (2, 2), **options)
    with pytest.raises(ValueError, match=message):
        global_average_pool(X, **options)


def test_sums_fit_int32():
    with pytest.raises(ValueError, match=r"^kernel must have at most 2\*\*23 taps, not 9000000$"):
        sum_pool2d(X, (3000, 3000), (1, 1), (3000, 3000, 0, 0))

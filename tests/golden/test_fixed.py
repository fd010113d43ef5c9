"""Mode "fixed" against gemmlowp's and TFLite's steps in Python's integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from trirow_golden import conv_multiplier_fixed, encode_fixed, requantise_fixed

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def high_mul(a, b):
    """Multiply as gemmlowp's SaturatingRoundingDoublingHighMul; no operand pair saturates here."""
    product = a * b
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    return int(math.copysign(1, nudged)) * (abs(nudged) // (1 << 31))  # C++ truncates


def divide_by_pot(x, exponent):
    """Divide as gemmlowp's RoundingDivideByPOT."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if (x & mask) > threshold else 0)


def plain(acc, mantissa, left, right, zero_point=0, low=-128, high=127):
    """Requantise one value as MultiplyByQuantizedMultiplier does."""
    scaled = divide_by_pot(high_mul(acc << left, mantissa), right)
    return min(max(scaled + zero_point, low), high)


def quantize_multiplier(multiplier):
    """Encode a multiplier as TFLite's QuantizeMultiplier: mantissa and shift."""
    if multiplier == 0:
        return 0, 0
    shift = 0
    fraction = Fraction(multiplier)
    while fraction >= 1:
        fraction, shift = fraction / 2, shift + 1
    while fraction < Fraction(1, 2):
        fraction, shift = fraction * 2, shift - 1
    mantissa = math.floor(fraction * 2**31 + Fraction(1, 2))
    if mantissa == 2**31:
        mantissa, shift = 2**30, shift + 1
    return (0, 0) if shift < -31 else (mantissa, shift)


def assert_encoded(multiplier):
    mantissa, left, right = (int(part) for part in encode_fixed(np.float64(multiplier)))
    expected, shift = quantize_multiplier(multiplier)
    assert (mantissa, left, right) == (expected, min(max(shift, 0), 9), max(-shift, 0))


@pytest.mark.parametrize(
    ("multiplier", "expected"),
    [
        (1.0, (2**30, 1, 0)),
        (0.5, (2**30, 0, 0)),
        (0.75, (3 << 29, 0, 0)),
        (0.25, (2**30, 0, 1)),
        (0.0, (0, 0, 0)),
        (2.0**-32, (2**30, 0, 31)),
        (math.nextafter(2.0**-32, 0), (2**30, 0, 31)),  # the mantissa is rounded up to 2**31
        (2.0**-32 * (1 - 2.0**-31), (0, 0, 0)),  # it is not
        (2.0**-33, (0, 0, 0)),
        (5e-324, (0, 0, 0)),
        (1 - 2.0**-31, (2**31 - 1, 0, 0)),
        (1 - 2.0**-32, (2**30, 1, 0)),  # half a unit below 2**31 goes up
        (1 - 2.0**-32 - 2.0**-53, (2**31 - 1, 0, 0)),
        (2.0**8 - 2.0**-20, (2**31 - 2**3, 8, 0)),
        (2.0**8, (2**30, 9, 0)),
        (2.0**20, (2**30, 9, 0)),  # 21, capped
    ],
)
def test_encode(multiplier, expected):
    mantissa, left, right = encode_fixed(np.array([multiplier]))
    assert mantissa.dtype == left.dtype == right.dtype == np.uint32
    assert (mantissa[0], left[0], right[0]) == expected
    assert_encoded(multiplier)


def test_encode_random():
    print("seed 0")
    rng = np.random.default_rng(0)
    values = np.exp2(rng.uniform(-35, 12, 3000))
    values[::3] = values[::3].astype(np.float32)
    values[:2] = 1e-300, 1e300
    for value in values:
        assert_encoded(float(value))
    mantissa, left, right = encode_fixed(values)
    alone = np.array([encode_fixed(value) for value in values])
    np.testing.assert_array_equal(np.stack([mantissa, left, right], axis=1), alone)


@pytest.mark.parametrize("value", [-1e-9, np.nan, np.inf])
def test_encode_wrong(value):
    message = rf"^multiplier of channel 1 must be at least 0 and finite, not {value}$"
    with pytest.raises(ValueError, match=message):
        encode_fixed(np.array([1.0, value]))


def test_encode_wants_float64():
    with pytest.raises(TypeError, match=r"^multiplier must be float64, not float32$"):
        encode_fixed(np.ones(3, np.float32))


def values_of_every_kind(rng, size):
    """Yield accumulators, mantissas and shifts, with many ties in both roundings."""
    anything = rng.integers(INT32_MIN, INT32_MAX + 1, size)
    mantissa = rng.integers(2**30, 2**31, size)
    zero = np.zeros(size, np.int64)
    yield anything, mantissa, zero, rng.integers(0, 32, size)
    small = rng.integers(-5000, 5001, size)
    yield small, mantissa, rng.integers(0, 10, size), rng.integers(0, 12, size)
    # any mantissa, also those that no encoder gives
    yield anything, rng.integers(0, 2**31, size), zero, rng.integers(20, 32, size)
    # powers of two make ties in the second rounding, and near the ends of int32
    yield small, np.full(size, 2**30), rng.integers(0, 2, size), rng.integers(0, 8, size)
    # ties of the first rounding: acc * mantissa is an odd multiple of 2**30
    odd = 2 * rng.integers(-1000, 1000, size) + 1
    yield odd, np.full(size, 2**30), zero, rng.integers(0, 6, size)
    ends = rng.choice([INT32_MIN, INT32_MIN + 1, -1, 0, 1, INT32_MAX], size)
    yield ends, rng.choice([0, 1, 2**30, 2**31 - 1], size), zero, rng.integers(0, 32, size)


@pytest.mark.parametrize("seed", range(3))
def test_requantise_random(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for acc, mantissa, left, right in values_of_every_kind(rng, 2000):
        zero_point = int(rng.choice([-128, 0, 3, 127]))
        low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
        result = requantise_fixed(
            acc.astype(np.int32), mantissa, left, right, zero_point, low, high
        )
        assert result.dtype == np.int8
        expected = [
            plain(*(int(v) for v in row), zero_point, low, high)
            for row in zip(acc, mantissa, left, right, strict=True)
        ]
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("acc", "multiplier", "expected"),
    [
        ([0, 1, -1, 100, -100, 200, -200], 1.0, [0, 1, -1, 100, -100, 127, -128]),
        # one rounding, half up
        ([1, 3, -1, -3], 0.5, [1, 2, 0, -1]),
        # two roundings: 1/4 of 1 is 1/2 in the first step, which becomes 1, then 1/2 goes to 1
        ([1, 2, 3, -1, -2, -3], 0.25, [1, 1, 1, 0, -1, -1]),
        ([1, -1], 256.0, [127, -128]),
        ([1, -1, INT32_MAX, INT32_MIN], 1e30, [127, -128, 127, -128]),
        ([INT32_MAX, INT32_MIN], 2.0**-31, [1, -1]),
        ([INT32_MAX, INT32_MIN], 2.0**-32, [1, -1]),  # ties go away from 0
        ([INT32_MAX, INT32_MIN, 5], 0.0, [0, 0, 0]),
    ],
)
def test_requantise_by_hand(acc, multiplier, expected):
    result = requantise_fixed(np.array(acc, np.int32), *encode_fixed(np.float64(multiplier)), 0)
    np.testing.assert_array_equal(result, expected)


def test_multiplier_per_channel_on_the_last_axis():
    acc = np.full((2, 1, 2, 3), 10, np.int32)
    result = requantise_fixed(acc, *encode_fixed(np.array([0.1, 1.0, 10.0])), 0)
    np.testing.assert_array_equal(result, np.broadcast_to([1, 10, 100], acc.shape))


ONE = np.ones(1, np.int32)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ONE.astype(np.int64), 1, 0, 0, 0), TypeError, "^acc must be int32, not int64$"),
        ((ONE, 1.0, 0, 0, 0), TypeError, "^mantissa must be of integers, not float64$"),
        ((ONE, 1, [0.0], 0, 0), TypeError, "^left must be of integers, not float64$"),
        ((ONE, 2**31, 0, 0, 0), ValueError, "^mantissa must be from 0 to 2147483647, not 2147"),
        ((ONE, [3, -1], 0, 0, 0), ValueError, "^mantissa must be from 0 to 2147483647, not -1$"),
        ((ONE, 1, 10, 0, 0), ValueError, "^left must be from 0 to 9, not 10$"),
        ((ONE, 1, 0, 32, 0), ValueError, "^right must be from 0 to 31, not 32$"),
        ((ONE, 1, 0, 0, 128), ValueError, "^zero_point must be from -128 to 127, not 128$"),
        ((ONE, 1, 0, 0, 0, 5, 4), ValueError, "^Clip bounds must satisfy "),
    ],
)
def test_requantise_wrong(arguments, error, message):
    with pytest.raises(error, match=message):
        requantise_fixed(*arguments)


def test_conv_multiplier_in_float64():
    weights = np.array([0.3, 0.0, 1e-30], np.float32)
    result = conv_multiplier_fixed(0.1, weights, 0.7)
    assert result.dtype == np.float64
    scale_in, scale_out = float(np.float32(0.1)), float(np.float32(0.7))
    assert list(result) == [scale_in * float(w) / scale_out for w in weights]


@pytest.mark.parametrize(
    ("scales", "error", "message"),
    [
        ((0.0, np.float32(1), 1.0), ValueError, "^scale_in must be positive and finite in float32"),
        ((1.0, np.float32(1), 1e50), ValueError, "^scale_out must be .* not inf$"),
        ((1.0, np.float32(-1), 1.0), ValueError, "^scale_weights of channel 1 must be at least 0 "),
        ((1.0, np.float64(1), 1.0), TypeError, "^scale_weights must be float32, not float64$"),
    ],
)
def test_conv_multiplier_wrong(scales, error, message):
    scale_in, scale_weight, scale_out = scales
    weights = np.array([0, scale_weight], scale_weight.dtype)
    with pytest.raises(error, match=message):
        conv_multiplier_fixed(scale_in, weights, scale_out)

"""Multipliers of negative sums (PReLU) and scales with a sign, in mode "float32"."""

from fractions import Fraction

import numpy as np
import pytest

from trirow_golden import encode_multiplier, encode_scale, requantise, requantise_integer

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def in_integers(acc, multiplier, negative_multiplier, *output):
    """Requantise by the scales that `encode_scale` gives, as the gateware takes them."""
    scale = np.where(acc < 0, encode_scale(negative_multiplier), encode_scale(multiplier))
    mantissa = scale & ((1 << 24) - 1)
    exponent = (scale >> 24 & 63).astype(np.uint8)
    return requantise_integer(acc, mantissa, exponent, *output, negative=scale >> 31 == 1)


def test_by_hand():
    acc = np.array([[-200, -100, -3, -1, 0, 1, 3, 100]], np.int32).T
    positive = np.array([1.0, 1.0, 0.5, 0.0], np.float32)
    negative = np.array([0.25, -0.5, 0.5, 1.0], np.float32)
    expected = [
        [-50, 100, -100, -128],
        [-25, 50, -50, -100],
        [-1, 2, -2, -3],  # ties of 3/2 go to the even neighbour
        [0, 0, 0, -1],
        [0, 0, 0, 0],
        [1, 1, 0, 0],
        [3, 3, 2, 0],
        [100, 100, 50, 0],
    ]
    np.testing.assert_array_equal(
        requantise(acc, positive, 0, negative_multiplier=negative), expected
    )


@pytest.mark.parametrize("seed", range(4))
def test_random(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    size = 20000
    multiplier, negative = (np.exp2(rng.uniform(-33, 8, size)).astype(np.float32) for _ in range(2))
    negative *= rng.choice([-1, 0, 1], size).astype(np.float32)
    near = (rng.integers(-300, 300, size) + 0.5) / np.where(negative == 0, 1, np.abs(negative))
    near = np.rint(near) + rng.integers(-2, 3, size)
    acc = np.where(rng.random(size) < 0.7, -np.abs(near), near)
    acc = np.clip(acc, INT32_MIN, INT32_MAX).astype(np.int32)
    output = (int(rng.integers(-128, 128)), *sorted(int(v) for v in rng.integers(-128, 128, 2)))
    result = requantise(acc, multiplier, *output, negative_multiplier=negative)
    factor = np.where(acc < 0, negative, multiplier)
    product = acc.astype(np.float32) * factor
    expected = np.clip(np.rint(product).astype(np.float64) + output[0], *output[1:])
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(in_integers(acc, multiplier, negative, *output), result)


def test_ends_of_int32_and_of_float32():
    acc = np.array([INT32_MIN, INT32_MIN + 1, -1, 0, INT32_MAX], np.int32)
    for slope in (3e38, -3e38, 1e-45, -1e-45, 0.0, -0.0, 2.0**-31, -(2.0**-32), -1.0):
        multiplier, negative = np.float32([1.0] * 5), np.float32([slope] * 5)
        result = requantise(acc, multiplier, 5, negative_multiplier=negative)
        exact = [Fraction(int(a)) * Fraction(float(np.float32(slope))) for a in acc[:3]]
        expected = [max(-128, min(127, round(value) + 5)) for value in exact]
        assert list(result) == [*expected, 5, 127]
        np.testing.assert_array_equal(in_integers(acc, multiplier, negative, 5), result)


@pytest.mark.parametrize(
    ("multiplier", "expected"),
    [
        (1.0, 2**23 | 23 << 24),
        (-1.0, 2**23 | 23 << 24 | 1 << 31),
        (-1.5, 3 << 22 | 23 << 24 | 1 << 31),
        (0.0, 0),
        (-0.0, 0),
        (-(2.0**-40), 2**23 | 56 << 24 | 1 << 31),
        (-(2.0**30), 2**23 | 0 << 24 | 1 << 31),
    ],
)
def test_encode_scale(multiplier, expected):
    scale = encode_scale(np.array([multiplier], np.float32))
    assert scale.dtype == np.uint32
    assert scale[0] == expected


def test_encode_scale_agrees_with_encode_multiplier():
    print("seed 0")
    bits = np.random.default_rng(0).integers(0, 0x7F800000, 10000, dtype=np.int32)
    multiplier = bits.view(np.float32)
    mantissa, exponent = encode_multiplier(multiplier)
    scale = mantissa.astype(np.int64) + exponent.astype(np.int64) * 2**24
    np.testing.assert_array_equal(encode_scale(multiplier), scale)
    signs = np.where(multiplier == 0, 0, 2**31)
    np.testing.assert_array_equal(encode_scale(-multiplier), scale + signs)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_wrong_values(value):
    multiplier = np.array([1.0, value], np.float32)
    with pytest.raises(ValueError, match=rf"^multiplier of channel 1 must be finite, not {value}$"):
        encode_scale(multiplier)
    message = rf"^negative_multiplier of channel 1 must be finite, not {value}$"
    with pytest.raises(ValueError, match=message):
        requantise(np.zeros(2, np.int32), np.ones(2, np.float32), 0, negative_multiplier=multiplier)


def test_wrong_types_and_shapes():
    acc, one = np.zeros(2, np.int32), np.ones(2, np.float32)
    with pytest.raises(TypeError, match=r"^multiplier must be float32, not float64$"):
        encode_scale(one.astype(np.float64))
    with pytest.raises(TypeError, match=r"^negative_multiplier must be float32, not float64$"):
        requantise(acc, one, 0, negative_multiplier=one.astype(np.float64))
    message = r"^negative_multiplier must have the shape of multiplier, \(2,\), not \(1,\)$"
    with pytest.raises(ValueError, match=message):
        requantise(acc, one, 0, negative_multiplier=one[:1])
    # the multiplier of the other sums keeps its sign
    with pytest.raises(ValueError, match=r"^multiplier of channel 0 must be at least 0 and "):
        requantise(acc, -one, 0, negative_multiplier=one)

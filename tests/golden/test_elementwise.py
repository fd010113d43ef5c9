"""Sums, maxima and products against the frameworks' steps in Python's integers."""

import math

import numpy as np
import pytest

from trirow_golden import (
    Combination,
    add_tflite,
    add_xnnpack,
    combine,
    max_tables,
    multiply,
)

BYTES = np.arange(-128, 128).astype(np.int8)
#: Every pair of int8 values.
A, B = (grid.astype(np.int8) for grid in np.meshgrid(BYTES, BYTES, indexing="ij"))


def single(value):
    """Round to float32."""
    return float(np.float32(value))


def quantize_multiplier(multiplier):
    """Encode as TFLite's QuantizeMultiplierSmallerThanOneExp: mantissa and right shift."""
    fraction, shift = math.frexp(multiplier)
    mantissa = math.floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, shift = 2**30, shift + 1
    if shift < -31:
        return 0, 0
    assert shift <= 0
    return mantissa, -shift


def scale(x, mantissa, right):
    """Scale as TFLite's MultiplyByQuantizedMultiplierSmallerThanOneExp."""
    product = x * mantissa
    nudged = product + (1 << 30 if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def tflite_add(a, b, scale_a, zero_a, scale_b, zero_b, scale_out, zero_out):
    """Add two values as TFLite's reference kernel does."""
    scale_a, scale_b, scale_out = single(scale_a), single(scale_b), single(scale_out)
    twice = 2 * max(scale_a, scale_b)
    first = scale((a - zero_a) * 2**20, *quantize_multiplier(scale_a / twice))
    second = scale((b - zero_b) * 2**20, *quantize_multiplier(scale_b / twice))
    total = scale(first + second, *quantize_multiplier(twice / (2**20 * scale_out)))
    return min(max(total + zero_out, -128), 127)


def xnnpack_add(a, b, scale_a, zero_a, scale_b, zero_b, scale_out, zero_out):
    """Add two values as XNNPACK's qs8-vadd does, its bias first."""
    ratio_a = np.float32(scale_a) / np.float32(scale_out)
    ratio_b = np.float32(scale_b) / np.float32(scale_out)
    exponent = (int(max(ratio_a, ratio_b).view(np.int32)) >> 23) - 127
    shift = 20 - exponent
    factor_a = int(np.rint(np.ldexp(ratio_a, shift)))
    factor_b = int(np.rint(np.ldexp(ratio_b, shift)))
    assert max(factor_a, factor_b) in range(2**20, 2**21 + 1)
    total = (1 << (shift - 1)) - factor_a * zero_a - factor_b * zero_b
    total += a * factor_a + b * factor_b
    return min(max(total >> shift, -128 - zero_out), 127 - zero_out) + zero_out


def assert_adds(rng, build, reference, quantisation, zero_out):
    """Compare 3,000 pairs of values, with the ends of int8 and the zero points among them."""
    zero_a, zero_b = quantisation[1], quantisation[3]
    a, b = rng.integers(-128, 128, (2, 3000))
    a[:500] = rng.choice([-128, 127, zero_a], 500)
    b[:500] = rng.choice([-128, 127, zero_b], 500)
    combination = build(*quantisation)
    result = combine(a.astype(np.int8), b.astype(np.int8), combination, zero_out)
    assert result.dtype == np.int8
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    expected = [reference(x, y, *quantisation, zero_out) for x, y in pairs]
    np.testing.assert_array_equal(result, expected)


def random_zeros(rng):
    return [int(rng.choice([-128, 0, 127, rng.integers(-128, 128)])) for _ in range(3)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("build", "reference"), [(add_tflite, tflite_add), (add_xnnpack, xnnpack_add)]
)
def test_add_random(build, reference, seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    scale_a, scale_b, scale_out = np.exp2(rng.uniform(-4, 4, 3)) / 50
    zero_a, zero_b, zero_out = random_zeros(rng)
    quantisation = (scale_a, zero_a, scale_b, zero_b, scale_out)
    assert_adds(rng, build, reference, quantisation, zero_out)


@pytest.mark.parametrize(
    "scales",
    [
        pytest.param((1e-6, 1.0, 1.0), id="one_operand_next_to_nothing"),
        pytest.param((1.0, 1e-6, 1.0), id="the_other_next_to_nothing"),
        pytest.param((1e-12, 1.0, 1.0), id="one_operand_nothing_at_all"),
        pytest.param((0.05, 0.05, 0.05), id="equal"),
        pytest.param((0.05, 0.05, 0.1), id="mean"),
        pytest.param((1.0, 1.0, 1e-5), id="saturating"),
        pytest.param((1.0, 1.0, 2.0**-18), id="at_the_limit"),
        pytest.param((1e-6, 1e-6, 1.0), id="vanishing"),
        pytest.param((3e38, 1e-38, 3e38), id="ends_of_float32"),
    ],
)
def test_add_tflite_extreme(scales):
    print("seed 9")
    rng = np.random.default_rng(9)
    for zeros in ((0, 0, 0), (-128, 127, 5), (127, -128, -128), (3, -4, 127)):
        quantisation = (scales[0], zeros[0], scales[1], zeros[1], scales[2])
        assert_adds(rng, add_tflite, tflite_add, quantisation, zeros[2])


@pytest.mark.parametrize(
    "scales",
    [
        pytest.param((0.05, 0.05, 0.05), id="equal"),
        pytest.param((2.0**-10, 2.0**-10, 1.0), id="least_ratios"),
        pytest.param((255.9, 2.0**-10, 1.0), id="most_unequal"),
        pytest.param((1.0, 255.99999, 1.0), id="saturating"),
        pytest.param((1 - 2.0**-24, 0.5, 1.0), id="multiplier_rounds_up_to_2_to_21"),
    ],
)
def test_add_xnnpack_extreme(scales):
    print("seed 9")
    rng = np.random.default_rng(9)
    for zeros in ((0, 0, 0), (-128, 127, 5), (127, -128, -128), (3, -4, 127)):
        quantisation = (scales[0], zeros[0], scales[1], zeros[1], scales[2])
        assert_adds(rng, add_xnnpack, xnnpack_add, quantisation, zeros[2])


def test_xnnpack_multipliers_come_from_float32_ratios():
    print("seed 4")
    scales = np.exp2(np.random.default_rng(4).uniform(-4, 4, (300, 3)))
    telling = 0
    for scale_a, scale_b, scale_out in scales:
        combination = add_xnnpack(scale_a, 7, scale_b, -9, scale_out)
        ratios = [np.float32(v) / np.float32(scale_out) for v in (scale_a, scale_b)]
        shift = 20 - math.floor(math.log2(max(ratios)))
        factors = [int(np.rint(np.ldexp(ratio, shift))) for ratio in ratios]
        assert 2**20 <= max(factors) <= 2**21
        assert combination.mantissa == 2 ** (31 - shift)
        assert (combination.left, combination.right) == (0, 0)
        assert combination.first[7] == combination.second[-9] == 0
        assert [int(combination.first[8]), int(combination.second[-8])] == factors
        wide = single(scale_a) / single(scale_out)
        telling += factors[0] != round(wide * 2**shift)
    assert telling > 0


def test_the_two_differ_in_ties():
    quantisation = (0.05, 0, 0.05, 0, 0.1)
    a, b = np.array([1, -1, 2, -2], np.int8), np.zeros(4, np.int8)
    tflite = combine(a, b, add_tflite(*quantisation), 0)
    np.testing.assert_array_equal(tflite, [1, -1, 1, -1])
    xnnpack = combine(a, b, add_xnnpack(*quantisation), 0)
    np.testing.assert_array_equal(xnnpack, [1, 0, 1, -1])


def test_clip_bounds():
    combination = add_tflite(1.0, 0, 1.0, 0, 1.0)
    result = combine(A, B, combination, 3, -5, 40)
    np.testing.assert_array_equal(result, np.clip(A.astype(int) + B + 3, -5, 40))


def test_tables_are_indexed_by_the_byte():
    first = np.arange(256, dtype=np.int32)
    combination = Combination(first, 0 * first, 1 << 30, 1, 0)
    x = np.array([0, 5, 127], np.int8)
    np.testing.assert_array_equal(combine(x, x, combination, 0), [0, 5, 127])
    first = np.where(first < 128, 0, first - 200).astype(np.int32)
    combination = Combination(first, 0 * first, 1 << 30, 1, 0)
    x = np.array([127, -128, -1], np.int8)
    np.testing.assert_array_equal(combine(x, x, combination, 0), [0, 128 - 200, 255 - 200])


# Maximum


@pytest.mark.parametrize("seed", range(8))
def test_maximum(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    scales = np.exp2(rng.uniform(-4, 4, 3)).astype(np.float32)
    zero_a, zero_b, zero_out = random_zeros(rng)
    tables = max_tables(scales[0], zero_a, scales[1], zero_b, scales[2])
    real_a = (A.astype(np.float32) - np.float32(zero_a)) * scales[0]
    real_b = (B.astype(np.float32) - np.float32(zero_b)) * scales[1]
    expected = np.rint(np.maximum(real_a, real_b) / scales[2]) + zero_out
    result = combine(A, B, tables, zero_out, maximum=True)
    np.testing.assert_array_equal(result, np.clip(expected, -128, 127))


def test_maximum_is_rounded_in_float32():
    scale_a, scale_out = np.float32(0.3), np.float32(0.2)
    tables = max_tables(scale_a, 0, scale_a, 0, scale_out)
    expected = np.rint(BYTES.astype(np.float32) * scale_a / scale_out)
    once = np.rint(BYTES * float(scale_a) / float(scale_out))
    assert np.count_nonzero(expected != once) > 10
    result = combine(BYTES, BYTES, tables, 0, maximum=True)
    np.testing.assert_array_equal(result, np.clip(expected, -128, 127))


def test_maximum_of_equal_scales_is_that_of_the_bytes():
    tables = max_tables(0.037, 5, 0.037, 5, 0.037)
    np.testing.assert_array_equal(combine(A, B, tables, 5, maximum=True), np.maximum(A, B))


def test_maximum_saturates():
    tables = max_tables(3e38, 0, 1e-6, 0, 1e-38)
    result = combine(A, B, tables, -128, maximum=True)
    np.testing.assert_array_equal(result, np.where((A > 0) | (B > 0), 127, -128))


# Product


@pytest.mark.parametrize("seed", range(6))
def test_multiply(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    zero_a, zero_b, zero_out = random_zeros(rng)
    multiplier = float(np.exp2(rng.uniform(-12, -4)))
    products = (A.astype(int) - zero_a) * (B.astype(int) - zero_b)
    mantissa, right = quantize_multiplier(multiplier)
    expected = {int(p): scale(int(p), mantissa, right) for p in np.unique(products)}
    expected = np.vectorize(expected.get)(products) + zero_out
    result = multiply(A, B, zero_a, zero_b, multiplier, zero_out)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, np.clip(expected, -128, 127))
    result = multiply(A, B, zero_a, zero_b, multiplier, zero_out, -9, 99, mode="float32")
    expected = np.rint(products.astype(np.float32) * np.float32(multiplier)) + zero_out
    np.testing.assert_array_equal(result, np.clip(expected, -9, 99))


# Errors

GOOD = {"scale_a": 1.0, "zero_a": 0, "scale_b": 1.0, "zero_b": 0, "scale_out": 1.0}


@pytest.mark.parametrize("build", [add_tflite, add_xnnpack, max_tables])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_a": 0.0}, "^scale_a must be positive and finite in float32, not 0.0$"),
        ({"scale_b": -1.0}, "^scale_b must be positive and finite in float32, not -1.0$"),
        ({"scale_out": math.inf}, "^scale_out must be positive and finite in float32, not inf$"),
        ({"zero_a": 128}, "^zero_a must be from -128 to 127, not 128$"),
        ({"zero_b": -129}, "^zero_b must be from -128 to 127, not -129$"),
    ],
)
def test_wrong_quantisation(build, change, message):
    build(**GOOD)
    with pytest.raises(ValueError, match=message):
        build(**{**GOOD, **change})


def test_ratios_that_frameworks_refuse():
    with pytest.raises(ValueError, match=r"^scale_out must be above 2\*\*-19 times the larger "):
        add_tflite(1.0, 0, 0.5, 0, 2.0**-19)
    for scale_b in (2.0**-10 - 2.0**-34, 256.0, 1e-6):
        with pytest.raises(ValueError, match=r"^scale_b / scale_out must be from 2\*\*-10 to "):
            add_xnnpack(1.0, 0, scale_b, 0, 1.0)
    with pytest.raises(ValueError, match=r"^scale_a / scale_out must be .*, not 300.0$"):
        add_xnnpack(300.0, 0, 1.0, 0, 1.0)


def test_wrong_combinations():
    table = np.zeros(256, np.int32)
    with pytest.raises(TypeError, match=r"^first must be int32 of shape \(256,\), not int64 "):
        Combination(table.astype(np.int64), table, 1, 0, 0)
    with pytest.raises(ValueError, match=r"^second must have 256 entries, not 255$"):
        Combination(table, table[1:], 1, 0, 0)
    half = table + 2**30
    with pytest.raises(ValueError, match=r"^first and second must have sums within int32, not "):
        Combination(half, half, 1, 0, 0)
    Combination(half, half - 1, 1, 0, 0)


def test_wrong_operands():
    combination = add_tflite(**GOOD)
    for operation in (
        lambda a, b: combine(a, b, combination, 0),
        lambda a, b: multiply(a, b, 0, 0, 0.5, 0),
    ):
        with pytest.raises(TypeError, match=r"^b must be int8, not uint8$"):
            operation(A, B.astype(np.uint8))
        with pytest.raises(ValueError, match=r"^a and b must have the same shape, not "):
            operation(A, B[:1])
    with pytest.raises(ValueError, match=r"^zero_point must be from -128 to 127, not 200$"):
        combine(A, B, combination, 200)
    with pytest.raises(ValueError, match=r"^zero_a must be from -128 to 127, not 200$"):
        multiply(A, B, 200, 0, 0.5, 0)
    with pytest.raises(ValueError, match=r"^mode must be 'float32' or 'fixed', not 'int'$"):
        multiply(A, B, 0, 0, 0.5, 0, mode="int")
    for mode in ("float32", "fixed"):
        with pytest.raises(ValueError, match=r"^multiplier of channel 0 must be at least 0 and "):
            multiply(A, B, 0, 0, -0.5, 0, mode=mode)
    with pytest.raises(ValueError, match=r"^multiplier of channel 0 must be .* not inf$"):
        multiply(A, B, 0, 0, 1e50, 0, mode="float32")

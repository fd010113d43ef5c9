import numpy as np
import pytest

from trirow_golden import conv_multiplier, encode_multiplier, requantise, requantise_integer

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
DENORMAL = 2.0**-149  # the smallest float32 above 0
FLOAT32_MAX = float(np.finfo(np.float32).max)


def both(acc, multiplier, zero_point=0, low=-128, high=127):
    """Requantise in float32 and in integers, require equality, and return the result."""
    acc = np.asarray(acc, np.int32)
    multiplier = np.asarray(multiplier, np.float32)
    result = requantise(acc, multiplier, zero_point, low, high)
    mantissa, exponent = encode_multiplier(multiplier)
    integer = requantise_integer(acc, mantissa, exponent, zero_point, low, high)
    assert result.dtype == integer.dtype == np.int8
    differ = np.flatnonzero(result != integer)
    if differ.size:
        first = differ[0]
        a, m = (np.broadcast_to(v, result.shape).flat[first] for v in (acc, multiplier))
        pytest.fail(
            f"{differ.size} of {result.size} differ; first: acc {a}, multiplier {float(m).hex()}, "
            f"zero point {zero_point}: {result.flat[first]} in float32, "
            f"{integer.flat[first]} in integers"
        )
    return result


# Cases derived by hand


@pytest.mark.parametrize(
    ("acc", "multiplier", "expected"),
    [
        ([0, 1, -1, 100, -100], 1.0, [0, 1, -1, 100, -100]),
        # ties go to the even neighbour, on both sides of 0
        ([1, 3, 5, 7, -1, -3, -5, -7], 0.5, [0, 2, 2, 4, 0, -2, -2, -4]),
        ([1, 2, 3, -1, -2, -3], 0.25, [0, 0, 1, 0, 0, -1]),
        ([253, 255, 257, -255, -257], 0.5, [126, 127, 127, -128, -128]),
        # just off a tie: 0.5 * (1 +- 2^-23), and three times that
        ([1, 3, -1, -3], 0.5 + 2.0**-24, [1, 2, -1, -2]),
        ([1, 3, -1, -3], 0.5 - 2.0**-25, [0, 1, 0, -1]),
        # saturation; the product of the last one overflows float32
        ([128, 127, -128, -129, INT32_MAX, INT32_MIN], 1.0, [127, 127, -128, -128, 127, -128]),
        ([1, -1, 0, INT32_MAX, INT32_MIN], 2.0**30, [127, -128, 0, 127, -128]),
        ([1, -1, 0, INT32_MAX, INT32_MIN], FLOAT32_MAX, [127, -128, 0, 127, -128]),
        # nothing passes a multiplier of 0 or one too small
        ([1, -1, 0, INT32_MAX, INT32_MIN], 0.0, [0] * 5),
        ([1, -1, 0, INT32_MAX, INT32_MIN], DENORMAL, [0] * 5),
        ([1, -1, 0, INT32_MAX, INT32_MIN], 2.0**-33, [0] * 5),
        # 2^31 * 2^-32 is a tie and goes to 0; so does 2^31 - 1, which becomes 2^31 in float32
        ([INT32_MAX, INT32_MIN], 2.0**-32, [0, 0]),
        ([INT32_MAX, INT32_MIN, 3 << 29], 2.0**-31, [1, -1, 1]),
        # 2^24 + 1 is not a float32 and goes to 2^24; 2^24 + 3 goes to 2^24 + 4
        ([2**24 - 1, 2**24, 2**24 + 1, 2**24 + 2], 2.0**-25, [0, 0, 0, 1]),
        ([2**24 + 1, -(2**24) - 1, 2**24 + 3, -(2**24) - 3], 2.0**-25, [0, 0, 1, -1]),
        # 5 * 2^23 and its neighbours: times 2^-24 near 2.5, on a grid of 4
        (np.arange(-3, 4) + 5 * 2**23, 2.0**-24, [2, 2, 2, 2, 2, 2, 3]),
    ],
)
def test_by_hand(acc, multiplier, expected):
    np.testing.assert_array_equal(both(acc, multiplier), expected)


@pytest.mark.parametrize(
    ("acc", "mantissa", "exponent", "above", "exact", "expected"),
    [
        # acc * mantissa * 2**-exponent is n + 1/2 + above * 2**-exponent; `exact` is that, rounded
        # once. Float32 has a grid of 2**-22 between 2 and 4, so what is within 2**-23 of a tie
        # becomes the tie and goes to the even neighbour.
        (10485761, 2**24 - 1, 46, 6291455, 3, 2),
        (3, 13981014, 24, 2, 3, 2),  # farther from 2.5 by 2**-23, exactly half of the grid
        (3, 9786709, 23, -1, 3, 4),  # the same below 3.5
        # between 4 and 8 it has 2**-21
        (13631489, 2**24 - 1, 45, 3145727, 7, 6),
        (7864319, 2**23 + 1, 43, -524289, 7, 8),
        (15728639, 2**23 + 1, 44, 7340031, 8, 8),  # 1.75 half grids away: no tie
        (13631488, 2**24 - 1, 45, -13631488, 6, 6),  # 3.25 half grids
        # between 1/2 and 1 it has 2**-24
        (16777215, 2**23 + 1, 48, 8388607, 1, 0),
        (8388609, 2**24 - 1, 48, 8388607, 1, 0),
        (8388610, 2**24 - 1, 48, 25165822, 1, 1),  # 3 half grids
        # at the largest result, where an exact product would have been 127
        (16580609, 2**24 - 1, 41, 196607, 127, 126),
    ],
)
def test_product_rounds_before_rint(acc, mantissa, exponent, above, exact, expected):
    n, fraction = divmod(acc * mantissa, 2**exponent)
    assert fraction - 2 ** (exponent - 1) == above
    assert n + (above > 0) == exact
    result = both([acc, -acc], mantissa * 2.0**-exponent)
    np.testing.assert_array_equal(result, [expected, -expected])


def test_zero_point_and_clip_bounds():
    acc = [-300, -100, -6, -5, 0, 5, 100, 300]
    np.testing.assert_array_equal(both(acc, 1.0, 5), [-128, -95, -1, 0, 5, 10, 105, 127])
    np.testing.assert_array_equal(both(acc, 1.0, 5, low=5), [5, 5, 5, 5, 5, 10, 105, 127])
    np.testing.assert_array_equal(both(acc, 1.0, -128, -128, 100), [-128] * 5 + [-123, -28, 100])
    np.testing.assert_array_equal(both(acc, 1.0, 7, 3, 3), [3] * 8)
    # the widest magnitudes that a zero point leaves inside int8, and the first ones outside
    np.testing.assert_array_equal(both([254, 255, 256], 1.0, -128), [126, 127, 127])
    np.testing.assert_array_equal(both([-254, -255, -256], 1.0, 127), [-127, -128, -128])


def test_ties_are_broken_before_the_zero_point_is_added():
    np.testing.assert_array_equal(both([1, 3, -1, -3], 0.5, 1), [1, 3, 1, -1])


def test_multiplier_per_channel_on_the_last_axis():
    acc = np.full((2, 1, 2, 3), 10, np.int32)
    result = both(acc, [0.1, 1.0, 10.0])
    assert result.shape == acc.shape
    np.testing.assert_array_equal(result, np.broadcast_to([1, 10, 100], acc.shape))


# The encoding


@pytest.mark.parametrize(
    ("multiplier", "mantissa", "exponent"),
    [
        (1.0, 2**23, 23),
        (0.5, 2**23, 24),
        (1.5, 3 << 22, 23),
        (1.0 - 2.0**-24, 2**24 - 1, 24),
        (2.0**-33, 2**23, 56),
        (2.0**-34, 2**23, 56),  # exponent 57, clamped
        (2.0**-126, 2**23, 56),
        (DENORMAL, 2**23, 56),
        (3 * DENORMAL, 3 << 22, 56),
        (0.0, 0, 0),
        (-0.0, 0, 0),
        (2.0**22, 2**23, 1),
        (2.0**23, 2**23, 0),
        (2.0**23 + 1, 2**23 + 1, 0),
        (2.0**24, 2**23, 0),  # exponent -1, clamped
        (FLOAT32_MAX, 2**24 - 1, 0),
    ],
)
def test_encode(multiplier, mantissa, exponent):
    mantissas, exponents = encode_multiplier(np.array([multiplier], np.float32))
    assert mantissas.dtype == np.uint32
    assert exponents.dtype == np.uint8
    assert (mantissas[0], exponents[0]) == (mantissa, exponent)


def test_encoding_is_exact_without_clamping():
    rng = np.random.default_rng(0)
    multiplier = np.exp2(rng.uniform(-33, 24, 10000)).astype(np.float32)
    multiplier = multiplier[(multiplier >= 2.0**-33) & (multiplier < 2.0**24)]
    mantissa, exponent = encode_multiplier(multiplier)
    np.testing.assert_array_equal(
        np.ldexp(mantissa.astype(np.float64), -exponent.astype(int)), multiplier
    )
    assert mantissa.min() >= 2**23
    assert mantissa.max() < 2**24


# Integers against float32


def near_ties(rng, multiplier, spread):
    """Return accumulators for which the product lies near n + 1/2, up to a few units away."""
    n = rng.integers(-300, 300, multiplier.size)
    centre = np.clip((n + 0.5) / multiplier.astype(np.float64), -(2.0**31), 2.0**31 - 1)
    return np.rint(centre).astype(np.int64) + rng.integers(-spread, spread + 1, multiplier.size)


def adversarial(rng, size):
    """Return pairs of accumulators and multipliers of every kind that has a corner."""
    useful = np.exp2(rng.uniform(-33, 8, size)).astype(np.float32)
    yield near_ties(rng, useful, 2), useful
    # accumulators that float32 has to round, products near ties
    wide = np.exp2(rng.uniform(-33, -16, size)).astype(np.float32)
    yield near_ties(rng, wide, 130), wide
    # the multipliers nearest to those that make a given accumulator a tie
    acc = np.maximum(np.exp2(rng.uniform(0, 31, size)).astype(np.int64), 1)
    ties = ((rng.integers(0, 300, size) + 0.5) / acc).astype(np.float32)
    steps = rng.integers(-2, 3, size, dtype=np.int32)
    yield acc * rng.choice([-1, 1], size), (ties.view(np.int32) + steps).view(np.float32)
    # mantissas with long runs of ones or zeros, products near ties
    runs = (rng.choice([2**23, 2**24], size) + rng.integers(-4, 5, size)).astype(np.float64)
    runs = np.ldexp(runs, -rng.integers(20, 58, size)).astype(np.float32)
    yield near_ties(rng, runs, 2), runs
    # both ends of int32, powers of two, and multiples of 2^24, each a few units off
    corners = np.concatenate([[INT32_MIN, INT32_MAX, 0], 1 << np.arange(31), -(1 << np.arange(31))])
    around = rng.choice(corners, size) + rng.integers(-5, 6, size)
    yield around, np.exp2(rng.uniform(-40, 10, size)).astype(np.float32)
    around = rng.integers(-128, 128, size) * 2**24 + rng.integers(-130, 131, size)
    yield around, np.exp2(rng.uniform(-33, -15, size)).astype(np.float32)
    # exact ties at every exponent
    exponents = rng.integers(1, 25, size)
    odd = 2 * rng.integers(-300, 300, size) + 1
    yield odd << rng.integers(0, 22, size), np.ldexp(np.float32(1), -exponents).astype(np.float32)
    # anything: all accumulators, multipliers from denormal to 2^30 by their bits
    acc = rng.integers(INT32_MIN, INT32_MAX + 1, size)
    bits = rng.integers(0, int(np.float32(2.0**30).view(np.int32)) + 1, size, dtype=np.int32)
    yield acc, bits.view(np.float32)
    small = rng.integers(-1000, 1001, size)
    yield small, np.exp2(rng.uniform(-12, 30, size)).astype(np.float32)


@pytest.mark.parametrize("seed", range(10))
def test_integers_equal_float32(seed):
    rng = np.random.default_rng(seed)
    for acc, multiplier in adversarial(rng, 20000):
        acc = np.clip(acc, INT32_MIN, INT32_MAX)
        zero_point = int(rng.choice([-128, -1, 0, 5, 127]))
        low, high = sorted(int(v) for v in rng.integers(-128, 128, 2))
        both(acc, multiplier)
        both(acc, multiplier, zero_point)
        both(acc, multiplier, zero_point, low, high)


def test_near_ties_do_reach_the_rounding_of_the_product():
    rng = np.random.default_rng(0)
    moved = 0
    for acc, multiplier in adversarial(rng, 20000):
        acc = np.clip(acc, INT32_MIN, INT32_MAX).astype(np.int32)
        product = acc.astype(np.float32).astype(np.float64) * multiplier  # exact: 48 bits
        once = np.clip(np.rint(product), -128, 127)
        moved += np.count_nonzero(once != both(acc, multiplier))
    assert moved > 1000


# Multipliers of convolutions


def test_conv_multiplier_is_evaluated_from_left_to_right():
    weights = np.array([0.3, 0.0, 1.0], np.float32)
    expected = (np.float32(0.1) * weights) / np.float32(0.7)
    result = conv_multiplier(0.1, weights, 0.7)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        ((0.0, 1.0, 1.0), r"^scale_in must be positive and finite in float32, not 0.0$"),
        ((1e-50, 1.0, 1.0), r"^scale_in must be positive and finite in float32, not 0.0$"),
        ((1e50, 1.0, 1.0), r"^scale_in must be positive and finite in float32, not inf$"),
        ((1.0, 1.0, -1.0), r"^scale_out must be positive and finite in float32, not -1.0$"),
        ((1.0, 1.0, np.nan), r"^scale_out must be positive and finite in float32, not nan$"),
        ((1.0, -2.0, 1.0), r"^scale_weights of channel 1 must be at least 0 and finite, not -2.0$"),
        ((1e30, 1e20, 1.0), r"^multiplier of channel 1 must be at least 0 and finite, not inf$"),
    ],
)
def test_conv_multiplier_wrong(scales, message):
    scale_in, scale_weight, scale_out = scales
    with pytest.raises(ValueError, match=message):
        conv_multiplier(scale_in, np.array([0.0, scale_weight], np.float32), scale_out)


# Errors


@pytest.mark.parametrize("value", [-1.0, -DENORMAL, np.inf, np.nan])
def test_wrong_multiplier(value):
    multiplier = np.array([1.0, 1.0, value], np.float32)
    message = rf"^multiplier of channel 2 must be at least 0 and finite, not {multiplier[2]}$"
    with pytest.raises(ValueError, match=message):
        encode_multiplier(multiplier)
    with pytest.raises(ValueError, match=message):
        requantise(np.zeros((2, 3), np.int32), multiplier, 0)


ONE_ACC = np.zeros(1, np.int32)
ONE = np.ones(1, np.float32)
ENCODED = (np.full(1, 2**23, np.uint32), np.full(1, 23, np.uint8))


def test_wrong_types():
    with pytest.raises(TypeError, match=r"^acc must be int32, not int64$"):
        requantise(ONE_ACC.astype(np.int64), ONE, 0)
    with pytest.raises(TypeError, match=r"^multiplier must be float32, not float64$"):
        requantise(ONE_ACC, ONE.astype(np.float64), 0)
    with pytest.raises(TypeError, match=r"^multiplier must be float32, not float64$"):
        encode_multiplier(ONE.astype(np.float64))
    with pytest.raises(TypeError, match=r"^scale_weights must be float32, not float64$"):
        conv_multiplier(1.0, ONE.astype(np.float64), 1.0)
    with pytest.raises(TypeError, match=r"^acc must be int32, not float32$"):
        requantise_integer(ONE, *ENCODED, 0)
    with pytest.raises(TypeError, match=r"^mantissa must be uint32, not uint8$"):
        requantise_integer(ONE_ACC, ENCODED[1], ENCODED[1], 0)
    with pytest.raises(TypeError, match=r"^exponent must be uint8, not uint32$"):
        requantise_integer(ONE_ACC, ENCODED[0], ENCODED[0], 0)


def test_wrong_encoding():
    with pytest.raises(ValueError, match=r"^mantissa must be below 2\*\*24, not 16777216$"):
        requantise_integer(ONE_ACC, 2 * ENCODED[0], ENCODED[1], 0)
    with pytest.raises(ValueError, match=r"^exponent must be from 0 to 56, not 57$"):
        requantise_integer(ONE_ACC, ENCODED[0], ENCODED[1] + np.uint8(34), 0)


@pytest.mark.parametrize(
    ("zero_point", "low", "high", "message"),
    [
        (128, -128, 127, r"^zero_point must be from -128 to 127, not 128$"),
        (0, -129, 127, r"^Clip bounds .*, not low=-129, high=127$"),
        (0, -128, 128, r"^Clip bounds .*, not low=-128, high=128$"),
        (0, 1, 0, r"^Clip bounds must satisfy -128 <= low <= high <= 127, not low=1, high=0$"),
    ],
)
def test_wrong_output_range(zero_point, low, high, message):
    with pytest.raises(ValueError, match=message):
        requantise(ONE_ACC, ONE, zero_point, low, high)
    with pytest.raises(ValueError, match=message):
        requantise_integer(ONE_ACC, *ENCODED, zero_point, low, high)

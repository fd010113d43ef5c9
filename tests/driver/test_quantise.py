import dataclasses
import re

import numpy as np
import pytest

from trirow_driver.quantise import (
    Quantisation,
    dequantise,
    from_range,
    quantise,
    quantise_bias,
    quantise_weights,
)

FLOAT32 = np.finfo(np.float32)


# Quantisation


def test_fields():
    q = Quantisation(np.float32(0.5), np.int8(-128))
    assert q == Quantisation(0.5, -128)
    assert type(q.scale) is float
    assert type(q.zero_point) is int
    with pytest.raises(dataclasses.FrozenInstanceError):
        q.scale = 1.0


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan"), 1e39, 1e-60])
def test_wrong_scale(scale):
    text = f"scale must be finite and above 0 as float32, not {scale!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Quantisation(scale, 0)


@pytest.mark.parametrize("zero_point", [-129, 128])
def test_wrong_zero_point(zero_point):
    with pytest.raises(ValueError, match=rf"^zero point must be in -128 .. 127, not {zero_point}$"):
        Quantisation(1.0, zero_point)


def test_zero_point_that_is_no_integer():
    with pytest.raises(ValueError, match=r"^zero point must be an integer, not 0\.5$"):
        Quantisation(1.0, 0.5)


# Ranges


@pytest.mark.parametrize(
    ("low", "high", "scale", "zero_point"),
    [
        (-128, 127, 1.0, 0),
        (0, 255, 1.0, -128),
        (-255, 0, 1.0, 127),
        (10, 255, 1.0, -128),  # all positive: extended down to 0
        (-255, -10, 1.0, 127),  # all negative: extended up to 0
        (-64, 63.5, 0.5, 0),
        (-1, 254, 1.0, -127),
        (0, 0, 1.0, 0),
        (-0.0, 0.0, 1.0, 0),
    ],
)
def test_from_range(low, high, scale, zero_point):
    assert from_range(low, high) == Quantisation(scale, zero_point)


def test_from_range_meets_zero_exactly_and_the_ends_within_half_a_step():
    rng = np.random.default_rng(1)
    for a, b in rng.normal(size=(500, 2)) * 10.0 ** rng.integers(-30, 30, size=(500, 1)):
        low, high = min(a, b), max(a, b)
        q = from_range(low, high)
        assert q.scale == np.float32(q.scale)
        ends = dequantise(np.array([-128, q.zero_point, 127], dtype=np.int8), q)
        assert ends[1] == 0
        assert ends[0] <= min(low, 0) + 0.501 * q.scale
        assert ends[2] >= max(high, 0) - 0.501 * q.scale


def test_from_range_at_the_limits_of_float32():
    widest = from_range(-float(FLOAT32.max), float(FLOAT32.max))
    assert widest.scale == pytest.approx(2 * float(FLOAT32.max) / 255)
    assert from_range(0, 1e-60) == Quantisation(float(FLOAT32.tiny), -128)
    with pytest.raises(ValueError, match=r"^range 0\.0 \.\. 1e\+300 is too wide: its step exceeds"):
        from_range(0, 1e300)
    with pytest.raises(ValueError, match="is too wide"):
        from_range(-1.7e308, 1.7e308)


@pytest.mark.parametrize(
    ("low", "high"), [(float("nan"), 1), (0, float("nan")), (float("-inf"), 0), (0, float("inf"))]
)
def test_from_range_not_finite(low, high):
    with pytest.raises(ValueError, match=rf"^range must be finite, not {low} \.\. {high}$"):
        from_range(low, high)


def test_from_range_reversed():
    with pytest.raises(ValueError, match=r"^range must not be reversed: 2 \.\. 1$"):
        from_range(2, 1)


# Values


def test_quantise_rounds_half_to_even_before_the_zero_point():
    x = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    assert quantise(x, Quantisation(1.0, 0)).tolist() == [-2, -2, 0, 0, 2, 2]
    assert quantise(x, Quantisation(1.0, 1)).tolist() == [-1, -1, 1, 1, 3, 3]


@pytest.mark.parametrize("zero_point", [-128, -3, 0, 127])
def test_quantise_saturates(zero_point):
    x = np.array([-np.inf, -1e30, 1e30, np.inf, 1e300])
    values = quantise(x, Quantisation(1e-20, zero_point))
    assert values.dtype == np.int8
    assert values.tolist() == [-128, -128, 127, 127, 127]


def test_quantise_keeps_the_shape():
    assert quantise(np.zeros((2, 3, 4)), Quantisation(1.0, 5)).shape == (2, 3, 4)
    assert quantise(3.0, Quantisation(1.0, 5)) == 8


def test_quantise_against_the_definition():
    x = np.random.default_rng(2).normal(size=10000).astype(np.float32)
    for scale, zero_point in [(0.01, 7), (0.0301, -128), (1 / 3, 127)]:
        steps = [round(float(value)) for value in x / np.float32(scale)]
        expected = [max(-128, min(127, step + zero_point)) for step in steps]
        assert quantise(x, Quantisation(scale, zero_point)).tolist() == expected


def test_quantise_nan():
    with pytest.raises(ValueError, match=r"^values to quantise must not contain NaN$"):
        quantise([0.0, float("nan")], Quantisation(1.0, 0))


def test_dequantise():
    values = np.array([[-128, 0, 3], [4, 5, 127]], dtype=np.int8)
    real = dequantise(values, Quantisation(0.5, 3))
    assert real.dtype == np.float32
    assert real.tolist() == [[-65.5, -1.5, 0], [0.5, 1, 62]]


@pytest.mark.parametrize("zero_point", [-128, 0, 127])
def test_every_value_survives_the_way_there_and_back(zero_point):
    q = Quantisation(0.0123, zero_point)
    values = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(quantise(dequantise(values, q), q), values)


# Weights


def test_weights_have_a_scale_per_output_channel():
    w = np.array([[1.27, -0.64, 0.0], [-254.0, 1.0, 3.0]]).reshape(2, 1, 1, 3)
    values, scales = quantise_weights(w)
    assert values.dtype == np.int8
    assert scales.dtype == np.float32
    assert values.reshape(2, 3).tolist() == [[127, -64, 0], [-127, 0, 2]]  # 0.5 and 1.5 to even
    np.testing.assert_allclose(scales, [0.01, 2.0], rtol=1e-6)


def test_weights_are_met_within_half_a_step():
    rng = np.random.default_rng(3)
    w = rng.normal(size=(16, 3, 3, 8)) * 10.0 ** rng.integers(-20, 20, size=(16, 1, 1, 1))
    values, scales = quantise_weights(w)
    assert values.shape == w.shape
    assert np.abs(values.astype(int)).reshape(16, -1).max(axis=1).tolist() == [127] * 16
    error = np.abs(values * scales[:, None, None, None].astype(np.float64) - w)
    assert (error <= 0.5001 * scales[:, None, None, None]).all()


def test_channel_of_zeros_takes_the_largest_scale():
    w = np.zeros((3, 1, 1, 2))
    w[0, 0, 0, 0], w[2, 0, 0, 1] = 127.0, 254.0
    values, scales = quantise_weights(w)
    assert scales.tolist() == [1.0, 2.0, 2.0]
    assert not values[1].any()
    assert quantise_weights(np.zeros((2, 1, 1, 2)))[1].tolist() == [1.0, 1.0]


def test_denormal_weights_have_a_scale_above_zero():
    values, scales = quantise_weights(np.full((1, 1, 1, 1), 1e-44))
    assert scales[0] == FLOAT32.tiny
    assert values.item() == 0


def test_least_scales():
    values, scales = quantise_weights(np.full((2, 1, 1, 1), 127.0), least_scales=[0.5, 4.0])
    assert scales.tolist() == [1.0, 4.0]
    assert values.ravel().tolist() == [127, 32]  # 127 / 4 = 31.75


@pytest.mark.parametrize("least", [[1.0], [1.0, float("nan")], [1.0, 1e300]])
def test_wrong_least_scales(least):
    with pytest.raises(ValueError, match=r"^least scales must be 2 finite numbers, not \["):
        quantise_weights(np.ones((2, 1, 1, 1)), least_scales=least)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e39])
def test_weights_not_finite(bad):
    w = np.zeros((3, 1, 1, 2))
    w[1, 0, 0, 1] = bad
    with pytest.raises(ValueError, match=r"^weights of output channel 1 must be finite$"):
        quantise_weights(w)


@pytest.mark.parametrize("shape", [(3, 2), (0, 1, 1, 2), (2, 1, 1, 0)])
def test_wrong_shape_of_weights(shape):
    text = f"weights must have shape (K, R, S, C) without an empty axis, not {shape}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        quantise_weights(np.zeros(shape))


# Bias


def test_bias_is_in_units_of_the_accumulator():
    bias = quantise_bias([1.0, -3.0, 0.25, 0.75], 0.5, [1.0, 0.5, 1.0, 1.0])
    assert bias.dtype == np.int32
    assert bias.tolist() == [2, -12, 0, 2]  # 0.5 and 1.5 to even


def test_bias_at_the_ends_of_int32():
    assert quantise_bias([2.0**31 - 1, -(2.0**31)], 1.0, [1.0, 1.0]).tolist() == [
        2147483647,
        -2147483648,
    ]


@pytest.mark.parametrize("bad", [2.0**31, -(2.0**31) - 1, float("nan"), float("inf")])
def test_bias_beyond_int32(bad):
    text = f"bias of output channel 1 does not fit int32: {bad} in units of 1.0"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        quantise_bias([0.0, bad], 1.0, [1.0, 1.0])


@pytest.mark.parametrize(("bias", "scales"), [([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]])])
def test_wrong_shape_of_bias(bias, scales):
    text = f"must both have shape (K,), not {np.shape(bias)} and {np.shape(scales)}"
    with pytest.raises(ValueError, match=f"{re.escape(text)}$"):
        quantise_bias(bias, 1.0, scales)

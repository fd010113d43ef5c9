"""Ranges from histograms, against the values themselves."""

import math

import numpy as np
import pytest

from trirow_driver.calibrate import METHODS, Calibrator, signal_to_noise
from trirow_driver.quantise import dequantise, from_range, quantise


def calibrated(values, parts=1):
    calibrator = Calibrator()
    for part in np.array_split(values, parts):
        calibrator.add(part)
    return calibrator


def error(values, limits):
    q = from_range(*limits)
    return float(((dequantise(quantise(values, q), q) - values) ** 2).mean())


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_minmax_is_exact(rng):
    values = rng.normal(size=1000).astype(np.float32)
    limits = (float(values.min()), float(values.max()))
    assert calibrated(values, 7).range("minmax") == limits
    assert calibrated(values).quantisation("minmax") == from_range(*limits)


@pytest.mark.parametrize("method", METHODS)
def test_parts_and_their_order_do_not_matter(rng, method):
    """The bins grow with the values, whenever the large ones come."""
    values = np.sort(rng.standard_t(2, size=4000) * np.geomspace(1e-3, 10, 4000))
    expected = calibrated(values).range(method, percentile=99.0)
    for order in (values[::-1], rng.permutation(values), values[np.argsort(np.abs(values))]):
        assert calibrated(order, 9).range(method, percentile=99.0) == expected


@pytest.mark.parametrize("percentile", [90.0, 99.0, 99.9])
@pytest.mark.parametrize("relu", [False, True])
def test_percentile_is_that_of_the_values(rng, percentile, relu):
    values = rng.normal(size=20_000)
    if relu:
        values = np.maximum(values, 0)
    low, high = calibrated(values, 3).range("percentile", percentile=percentile)
    width = np.abs(values).max() / 2048  # bins are at most twice as wide as they need to be
    for found, wanted in ((high, percentile), (low, 100 - percentile)):
        # Between two values it is either of them.
        lower, upper = np.percentile(values, [wanted - 0.01, wanted + 0.01])
        assert lower - width <= found <= upper + width


def test_all_percent_are_all_values(rng):
    values = rng.normal(size=500)
    calibrator = calibrated(values)
    assert calibrator.range("percentile", percentile=100) == calibrator.range("minmax")


@pytest.mark.parametrize("shape", ["normal", "relu", "outlier", "uniform", "negative"])
def test_least_error_is_as_small_as_by_trying(rng, shape):
    """No worse than 2 percent above the best of a fine grid of ranges, on the values themselves."""
    values = {
        "normal": rng.normal(size=5000),
        "relu": np.maximum(rng.normal(size=5000), 0),
        "outlier": np.append(rng.normal(size=5000), 60.0),
        "uniform": rng.uniform(-2, 3, size=5000),
        "negative": -np.abs(rng.normal(size=5000)) - 1,
    }[shape].astype(np.float32)
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    best = min(
        error(values, (low * a, high * b))
        for a in (np.geomspace(0.02, 1, 60) if low else [1])
        for b in (np.geomspace(0.02, 1, 60) if high else [1])
    )
    found = error(values, calibrated(values, 2).range("mse"))
    assert found <= 1.02 * best
    assert found <= 1.001 * error(values, (low, high))


@pytest.mark.parametrize("method", METHODS)
def test_only_zeros(method):
    assert calibrated(np.zeros(5)).range(method) == (0, 0)


@pytest.mark.parametrize("method", METHODS)
def test_one_value(method):
    low, high = calibrated(np.array([-3.0])).range(method)
    assert low == pytest.approx(-3, rel=0.2)
    assert high <= 0


def test_wrong_values():
    with pytest.raises(ValueError, match="must not be empty"):
        Calibrator().add(np.zeros(0))
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="must be finite"):
            Calibrator().add(np.array([1.0, value]))


def test_wrong_arguments():
    calibrator = calibrated(np.ones(3))
    with pytest.raises(ValueError, match="method must be one of mse, percentile, minmax, not 'kl'"):
        calibrator.range("kl")
    for percentile in (50, 101):
        with pytest.raises(ValueError, match=f"above 50 and at most 100, not {percentile}"):
            calibrator.range("percentile", percentile=percentile)
    with pytest.raises(ValueError, match="no values to calibrate with"):
        Calibrator().range()


def test_signal_to_noise():
    reference = np.array([[3.0, 4.0]])
    assert signal_to_noise(reference, reference + [[0.3, 0.4]]) == pytest.approx(20)
    assert signal_to_noise(reference, reference) == math.inf
    assert signal_to_noise(0 * reference, reference) == -math.inf
    with pytest.raises(ValueError, match=r"must have the shape of the reference, \(1, 2\), not"):
        signal_to_noise(reference, reference[0])

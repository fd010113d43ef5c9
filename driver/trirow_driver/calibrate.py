"""Ranges of tensors from their values over calibration data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.graph import Graph
from trirow_driver.quantise import Quantisation, dequantise, from_range, quantise

__all__ = ["METHODS", "Calibrator", "calibrate", "signal_to_noise"]

#: How a range can be chosen, the default first.
METHODS = ("mse", "percentile", "minmax")
#: Bins on either side of 0.
_BINS = 4096
#: Ends that are tried by `mse` in a round, and rounds for each end.
_STEPS, _ROUNDS = 48, 2
_Floats = npt.NDArray[np.floating[Any]]


class Calibrator:
    """Collect the values that a tensor takes, and choose the range that int8 shall cover.

    Values are counted in a histogram about 0, whose bins grow by powers of two as values do, so
    that memory does not grow with the data and the result does not depend on how they are split.
    Smallest and largest value are exact; zeros, which int8 has exactly, are left out of it.

    Attributes
    ----------
    count : int
        Values so far, with zeros.
    low, high : float
        Smallest and largest of them; infinities if there are none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = math.inf, -math.inf
        self._exponent: int | None = None  # of the bins' width; None before the first value
        self._bins = np.zeros(2 * _BINS, np.int64)

    def add(self, values: _Floats) -> None:
        """Count values.

        Parameters
        ----------
        values : float array of any shape
            Not empty.

        Raises
        ------
        ValueError
            If there is none, or one is not finite.
        """
        values = np.asarray(values).ravel()
        if not values.size:
            raise ValueError("values to calibrate with must not be empty")
        if not np.isfinite(values).all():
            raise ValueError("values to calibrate with must be finite")
        self.count += values.size
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        values = values[values != 0].astype(np.float64)
        if values.size:
            self._grow(float(np.abs(values).max()))
            places = np.floor(np.ldexp(values, -self._width)).astype(np.int64) + _BINS
            self._bins += np.bincount(places, minlength=2 * _BINS)

    def range(self, method: str = METHODS[0], *, percentile: float = 99.99) -> tuple[float, float]:
        """Return the range to cover.

        Parameters
        ----------
        method : str
            ``minmax``: all values. ``percentile``: the part of the values from its complement to
            ``percentile``; the rest saturates. ``mse``: the range with the least mean squared error
            of int8 against the values, saturation included, where the ends are moved towards 0 in
            steps.
        percentile : float
            In percent, above 50 and at most 100.

        Raises
        ------
        ValueError
            If no value has been added, or an argument is not as above.
        """
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
        if not 50 < percentile <= 100:
            raise ValueError(f"percentile must be above 50 and at most 100, not {percentile!r}")
        if not self.count:
            raise ValueError("no values to calibrate with")
        if method == "minmax" or self._exponent is None:
            return self.low, self.high
        if method == "percentile":
            return self._percentiles(percentile)
        return self._least_error()

    def quantisation(self, method: str = METHODS[0], *, percentile: float = 99.99) -> Quantisation:
        """Return the quantisation that covers the range; see `range`."""
        return from_range(*self.range(method, percentile=percentile))

    @property
    def _width(self) -> int:
        assert self._exponent is not None
        return self._exponent

    def _grow(self, largest: float) -> None:
        """Let the bins reach beyond a value: pairs of them become one as often as it takes."""
        wanted = math.frexp(largest)[1] - (
            _BINS.bit_length() - 1
        )  # largest < 2 ** frexp's exponent
        if self._exponent is None:
            self._exponent = wanted
        for _ in range(max(0, min(wanted - self._exponent, 2 * _BINS.bit_length()))):
            pairs = self._bins.reshape(-1, 2).sum(axis=1)
            self._bins = np.zeros(2 * _BINS, np.int64)
            self._bins[_BINS // 2 : _BINS // 2 + _BINS] = pairs
        self._exponent = max(self._exponent, wanted)

    def _middles(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the middle and the count of each bin that has any."""
        (places,) = np.nonzero(self._bins)
        middles = np.ldexp(places - _BINS + 0.5, self._width)
        return np.clip(middles, self.low, self.high), self._bins[places]

    def _percentiles(self, percentile: float) -> tuple[float, float]:
        middles, counts = self._middles()
        zeros = self.count - int(counts.sum())
        at = int(np.searchsorted(middles, 0))
        middles, counts = np.insert(middles, at, 0.0), np.insert(counts, at, zeros)
        below = np.cumsum(counts)
        rest = self.count * (1 - percentile / 100)
        low = middles[np.searchsorted(below, rest, side="right").clip(max=len(middles) - 1)]
        high = middles[np.searchsorted(below, self.count - rest)]
        return (self.low if rest < 1 else float(low)), (self.high if rest < 1 else float(high))

    def _least_error(self) -> tuple[float, float]:
        middles, counts = self._middles()
        ends = [min(self.low, 0.0), max(self.high, 0.0)]
        full = tuple(ends)

        def error(low: float, high: float) -> float:
            q = from_range(low, high)
            return float(counts @ (dequantise(quantise(middles, q), q) - middles) ** 2)

        for end in (1, 0) * _ROUNDS:
            # Down to a thousandth: heavy tails are far out.
            tried = [full[end] * 0.001 ** (k / _STEPS) for k in range(_STEPS)] if full[end] else []
            errors = [error(*(ends[:end] + [one] + ends[end + 1 :])) for one in tried]
            if tried:
                ends[end] = tried[int(np.argmin(errors))]
        return ends[0], ends[1]


def calibrate(
    graph: Graph, batches: Iterable[Mapping[str, npt.NDArray[np.float32]]]
) -> dict[str, Calibrator]:
    """Return the values that each tensor takes.

    Parameters
    ----------
    graph : Graph
    batches : iterable of mapping of str to float array
        Inputs of the graph, one after the other.

    Raises
    ------
    ValueError
        If there is none, or a value is not finite.
    """
    found = {name: Calibrator() for name in graph.shapes}
    any_batch = False
    for feeds in batches:
        any_batch = True
        for name, values in graph.compute(feeds, graph.shapes).items():
            if values.size:
                found[name].add(values)
    if not any_batch:
        raise ValueError("calibration needs one image or more")
    return found


def signal_to_noise(reference: _Floats, values: _Floats) -> float:
    """Return how far values are from a reference, in dB.

    Parameters
    ----------
    reference, values : float arrays of one shape

    Returns
    -------
    float
        Ten times the decimal logarithm of the sum of the squares of the reference over that of the
        differences; infinite without a difference, minus infinite if only the reference is all 0.

    Raises
    ------
    ValueError
        If the shapes differ.
    """
    if np.shape(reference) != np.shape(values):
        raise ValueError(
            f"values must have the shape of the reference, {np.shape(reference)}, not "
            f"{np.shape(values)}"
        )
    exact = np.asarray(reference, np.float64)
    noise = float(((exact - values) ** 2).sum())
    signal = float((exact**2).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf

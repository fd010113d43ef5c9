"""Activations: zero points at the ends of int8, every mask, sums and maxima of rows."""

import random

import numpy as np
import pytest
from amaranth.hdl import Cat

from trirow_hw.activation import Activation, Mask
from trirow_hw.config import PRESETS
from trirow_sim.unit_kit import feed, pack, unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f", "up5k")},
    "64 lanes": PRESETS["edgeboard"],
}
SMALL = [name for name in CONFIGS if name != "64 lanes"]
FEATURES = [-128, -127, -1, 0, 1, 126, 127]


def expected(runs, rows, low, high, zero, maximum):
    """Return what the unit must give, as nested lists (row, place)."""
    runs = np.array(runs)
    counts = np.zeros(runs.shape, bool)
    counts[[p for p in range(len(runs)) if rows >> p & 1], low:high] = True
    values = np.where(counts, runs - zero, -256 if maximum else 0)
    if maximum:
        values = np.concatenate([values.max(0, keepdims=True), np.zeros_like(values[1:])])
    return values.tolist()


def check(config, cases):
    """Feed (runs, rows, low, high, zero, maximum) a cycle each; compare all results."""
    unit = Activation(config=config)
    mask_layout, run_layout = Mask(config), unit.run.shape()
    words = []
    for runs, rows, low, high, zero, maximum in cases:
        raw = [int.from_bytes(np.array(run, np.int8).tobytes(), "little") for run in runs]
        mask = pack(
            mask_layout,
            {"rows": rows, "low": low, "high": high, "zero": zero, "maximum": maximum},
        )
        words.append(pack(run_layout, raw) | mask << run_layout.size)
    inputs = Cat(unit.run.as_value(), unit.mask.as_value())
    outputs = feed(unit, inputs, words, unit.o.as_value(), after=unit.latency)
    for k, case in enumerate(cases):
        result = unpack(unit.o.shape(), outputs[k + unit.latency])
        assert result == expected(*case), f"case {k}: {case}"


def random_runs(generator, config):
    def feature():
        return generator.choice([-128, 127, generator.randint(-128, 127)])

    return [[feature() for _ in range(config.in_lanes)] for _ in range(config.tap_rows)]


def all_rows(config):
    return range(1 << config.tap_rows)


@pytest.mark.parametrize("maximum", [0, 1])
@pytest.mark.parametrize("name", SMALL)
def test_every_mask(name, maximum):
    config = CONFIGS[name]
    generator = random.Random(f"{name} {maximum}")
    check(
        config,
        [
            (random_runs(generator, config), rows, low, high, zero, maximum)
            for low in range(config.in_lanes + 1)
            for high in range(config.in_lanes + 1)
            for rows in all_rows(config)
            for zero in generator.sample([-128, 127, 0, generator.randint(-127, 126)], 2)
        ],
    )


@pytest.mark.parametrize("maximum", [0, 1])
@pytest.mark.parametrize("zero", FEATURES)
@pytest.mark.parametrize("name", SMALL)
def test_ends_of_int8(name, zero, maximum):
    """Results reach from -255 to 255: nine bits."""
    config = CONFIGS[name]
    rows, lanes = (1 << config.tap_rows) - 1, config.in_lanes
    runs = [[[feature] * lanes] * config.tap_rows for feature in range(-128, 128)]
    check(config, [(run, rows, 0, lanes, zero, maximum) for run in runs])


@pytest.mark.parametrize("name", ["tiny", "up5k"])
def test_largest_of_every_order(name):
    """Each row is the largest, ties or not, with every set of rows that count."""
    config = CONFIGS[name]
    generator = random.Random(name)
    columns = np.stack(np.meshgrid(*[FEATURES] * config.tap_rows), -1).reshape(-1, config.tap_rows)
    check(
        config,
        [
            ([[feature] * config.in_lanes for feature in column], rows, 0, config.in_lanes, zero, 1)
            for column in columns.tolist()
            for rows in all_rows(config)
            for zero in [generator.choice(FEATURES)]
        ],
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGS)
def test_random(name, seed):
    """Everything changes from cycle to cycle, sums and maxima in turn."""
    config = CONFIGS[name]
    generator = random.Random(f"{name} {seed}")
    check(
        config,
        [
            (
                random_runs(generator, config),
                generator.choice(all_rows(config)),
                generator.randint(0, config.in_lanes),
                generator.randint(0, config.in_lanes),
                generator.randint(-128, 127),
                generator.randint(0, 1),
            )
            for _ in range(50 if name == "64 lanes" else 300)
        ],
    )

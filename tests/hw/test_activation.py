"""Activations: zero points at the ends of int8, and every mask."""

import random

import pytest
from amaranth.hdl import Cat

from trirow_hw.activation import Activation, Mask
from trirow_hw.config import PRESETS
from trirow_sim.unit_kit import feed, pack, unpack

LATENCY = getattr(Activation, "latency", 1)
CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f", "up5k")},
    "64 lanes": PRESETS["edgeboard"],
}


def check(config, cases):
    """Feed (run, low, high, zero) a cycle each; compare all lanes of every result."""
    unit = Activation(config=config)
    layout = Mask(config)
    bits = 8 * config.in_lanes
    words = []
    for run, low, high, zero in cases:
        raw = b"".join(feature.to_bytes(1, "little", signed=True) for feature in run)
        mask = pack(layout, {"low": low, "high": high, "zero": zero})
        words.append(int.from_bytes(raw, "little") | mask << bits)
    outputs = feed(unit, Cat(unit.run, unit.mask.as_value()), words, unit.o, after=LATENCY)
    for k, (run, low, high, zero) in enumerate(cases):
        expected = [feature - zero if low <= lane < high else 0 for lane, feature in enumerate(run)]
        assert unpack(unit.o.shape(), outputs[k + LATENCY]) == expected, cases[k]


def random_run(generator, lanes):
    return [generator.choice([-128, 127, generator.randint(-128, 127)]) for _ in range(lanes)]


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "64 lanes"])
def test_every_mask(name):
    lanes = CONFIGS[name].in_lanes
    generator = random.Random(name)
    check(
        CONFIGS[name],
        [
            (random_run(generator, lanes), low, high, zero)
            for low in range(lanes + 1)
            for high in range(lanes + 1)
            for zero in (-128, 127, 0, generator.randint(-128, 127))
        ],
    )


@pytest.mark.parametrize("zero", [-128, -127, -1, 0, 1, 126, 127])
@pytest.mark.parametrize("name", CONFIGS)
def test_ends_of_int8(name, zero):
    """Results reach from -255 to 255: nine bits."""
    lanes = CONFIGS[name].in_lanes
    check(CONFIGS[name], [([feature] * lanes, 0, lanes, zero) for feature in range(-128, 128)])


@pytest.mark.parametrize("seed", range(3))
def test_random_masks_of_many_lanes(seed):
    lanes = CONFIGS["64 lanes"].in_lanes
    generator = random.Random(seed)
    check(
        CONFIGS["64 lanes"],
        [
            (
                random_run(generator, lanes),
                generator.randint(0, lanes),
                generator.randint(0, lanes),
                generator.randint(-128, 127),
            )
            for _ in range(200)
        ],
    )

"""Random layers of all operations against the golden model, all of memory compared.

A test is one machine on which several random layers run one after the other, at places that are
not aligned, some of them packed for a smaller weight buffer. Its id is all that a repetition needs,
and a failure prints the command.
"""

import random

import pytest

from trirow_driver.lowering import UnsupportedError
from trirow_hw.config import PRESETS
from trirow_sim.random_case import random_case

from .kit import Bench, compiled, lay_out

#: Configuration, fields that replace its own, memory model, first seed, layers.
QUICK = [
    ("tiny", {}, "random", 100, 12),
    ("tiny", {}, "nngen", 200, 12),
    ("tiny", {}, "ideal", 300, 12),
    ("odd", {}, "random", 600, 12),
    ("odd", {}, "sdram16", 700, 12),
    ("tiny", {"bus_bytes": 32, "line_buffer_bytes": 300, "post_lanes": 4}, "ddr", 500, 2),
]

#: Others, and many more seeds.
SLOW = [
    *QUICK,
    ("odd", {"in_lanes": 13, "out_lanes": 7, "bus_bytes": 8}, "random", 800, 2),
    ("tiny", {"out_lanes": 1}, "random", 900, 2),
    ("tiny", {"line_buffer_bytes": 600, "weight_buffer_bytes": 1000}, "random", 310, 4),
    ("tiny", {"line_buffer_bytes": 100, "weight_buffer_bytes": 256}, "ideal", 400, 4),
    ("odd", {"bus_bytes": 2, "post_lanes": 1}, "sdram16", 710, 2),
    ("ecp5-85f", {}, "random", 1000, 3),
    ("up5k", {}, "random", 1100, 2),
    ("m256", {}, "ddr", 1200, 2),
]
LONG = [
    (name, fields, memory, 10_000 + 1_000 * block + seed, 12)
    for block in range(4)
    for name, fields, memory, seed, _ in SLOW
]


def identify(value):
    """Return what a parameter looks like in the id of a test."""
    if isinstance(value, dict):
        return ",".join(f"{field}={value[field]}" for field in value) or "preset"
    return f"seed{value}" if isinstance(value, int) and value >= 100 else None


def setups(config, seed, layers):
    """Yield random layers in memory; those that the configuration refuses are drawn again."""
    generator = random.Random(seed)
    taps = 2000 if compiled(config) else 400
    while layers:
        case = random_case(generator, taps=taps, weight_bits=config.weight_bits)
        nodes, features, slices = case.build()
        cut = generator.choice([None, 16 * config.multipliers])
        options = {"slices": slices, "cut": cut, "text": case.command()}
        try:
            setup = lay_out(nodes, features, config, case.seed, **options)
        except UnsupportedError:
            continue
        layers -= 1
        yield setup


def check(request, name, fields, memory, seed, layers):
    config = PRESETS[name].override(**fields)
    print(f'repeat with: pytest "{request.node.nodeid}"')
    Bench(config, memory, seed).run(setups(config, seed, layers))


@pytest.mark.parametrize(("name", "fields", "memory", "seed", "layers"), QUICK, ids=identify)
def test_random_layers(request, name, fields, memory, seed, layers):
    check(request, name, fields, memory, seed, layers)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fields", "memory", "seed", "layers"), LONG, ids=identify)
def test_many_random_layers(request, name, fields, memory, seed, layers):
    check(request, name, fields, memory, seed, layers)

"""Random layers against the golden model, all of memory compared.

A test is one machine on which several random layers run one after the other. Its id is all that a
repetition needs, and a failure prints the command.
"""

import pytest

from trirow_hw.config import PRESETS

from .kit import Bench, random_case

#: Configuration, fields that replace its own, memory model, first seed, layers.
QUICK = [
    ("tiny", {}, "random", 100, 5),
    ("tiny", {}, "nngen", 200, 4),
    ("tiny", {"line_buffer_bytes": 600, "weight_buffer_bytes": 1000}, "random", 300, 4),
    ("tiny", {"line_buffer_bytes": 100, "weight_buffer_bytes": 256}, "ideal", 400, 4),
    ("tiny", {"bus_bytes": 32, "line_buffer_bytes": 300, "post_lanes": 4}, "ddr", 500, 3),
    ("odd", {}, "random", 600, 4),
    ("odd", {"bus_bytes": 2, "post_lanes": 1}, "sdram16", 700, 2),
    ("odd", {"in_lanes": 13, "out_lanes": 7, "bus_bytes": 8}, "random", 800, 2),
    ("tiny", {"out_lanes": 1}, "random", 900, 2),
    ("ecp5-85f", {}, "random", 1000, 3),
    ("up5k", {}, "random", 1100, 2),
    ("m256", {}, "ddr", 1200, 2),
]

#: The same, for many more seeds.
LONG = [
    (name, fields, memory, 10_000 + 1_000 * block + seed, 12)
    for block in range(4)
    for name, fields, memory, seed, _ in QUICK
]


def identify(value):
    """Return what a parameter looks like in the id of a test."""
    if isinstance(value, dict):
        return ",".join(f"{field}={value[field]}" for field in value) or "preset"
    return f"seed{value}" if isinstance(value, int) and value >= 100 else None


def check(request, name, fields, memory, seed, layers):
    config = PRESETS[name].override(**fields)
    print(f'repeat with: pytest "{request.node.nodeid}"')
    bench = Bench(config, memory, seed)
    bench.run([random_case(config, seed + k, cycles=1500) for k in range(layers)])


@pytest.mark.parametrize(("name", "fields", "memory", "seed", "layers"), QUICK, ids=identify)
def test_random_layers(request, name, fields, memory, seed, layers):
    check(request, name, fields, memory, seed, layers)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fields", "memory", "seed", "layers"), LONG, ids=identify)
def test_many_random_layers(request, name, fields, memory, seed, layers):
    check(request, name, fields, memory, seed, layers)

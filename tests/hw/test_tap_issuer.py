"""Window and issuer against the plain loop nest: does every tap find its bytes and its weights?

The test stands for the readers and what is behind the array.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from trirow_hw.config import PRESETS
from trirow_sim.tap_bench import SIDES, Bench, Checker, run_passes
from trirow_sim.tap_kit import Geometry, fits, random_geometry
from trirow_sim.tap_model import plain_taps

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-25f", "m256")},
    # Banks and weight memories that wrap around all the time.
    "tiny, short": PRESETS["tiny"].override(
        line_buffer_bytes=3 * 20 * 4, weight_buffer_bytes=21 * 16
    ),
    "odd, short": PRESETS["odd"].override(
        line_buffer_bytes=3 * 26 * 3, weight_buffer_bytes=25 * 15
    ),
}


def check(config, geometries, *, seed=1, slow=()):
    driver = Checker(config, geometries, seed, slow)
    run_passes(driver, Bench(config))
    return driver


def random_passes(generator, config, *, taps=250):
    """Return passes of all kinds, some of them in chains that keep their weights."""
    passes, count = [], 0
    while count < taps:
        geometry = random_geometry(generator, config, pixels=60, largest=7)
        chain = [geometry]
        for _ in range(generator.choice([0, 0, 1, 2])):
            other = random_geometry(generator, config, pixels=60, largest=7)
            names = ("stride", "pad", "height", "width", "spacing", "second")
            other = replace(geometry, **{name: getattr(other, name) for name in names})
            if min(other.out_shape) > 0 and fits(other, config):
                chain.append(other)
        sizes = [len(list(plain_taps(0, each, config))) for each in chain]
        if sum(sizes) > taps // 2:
            continue
        count += sum(sizes)
        passes += [replace(each, chained=True) for each in chain[:-1]] + chain[-1:]
    return passes


@pytest.mark.parametrize("slow", [(), SIDES], ids=["", "slow"])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_passes(name, slow):
    """Dense, depthwise and pools in turn; places are loaded again as soon as they are released."""
    seed = f"passes {name} {slow}"
    check(CONFIGS[name], random_passes(random.Random(seed), CONFIGS[name]), seed=seed, slow=slow)


@pytest.mark.parametrize("side", SIDES)
def test_stalls(side):
    """Each side in turn holds back."""
    config = CONFIGS["tiny, short"]
    passes = random_passes(random.Random(f"{side} holds back"), config, taps=300)
    driver = check(config, passes, seed=side, slow=(side,))
    if side != "passes":
        assert driver.idle[side]


@pytest.mark.parametrize("op", ["dense", "depthwise"])
@pytest.mark.parametrize("name", ["tiny, short", "odd, short"])
def test_rows_longer_than_a_bank(name, op):
    """A single row streams through its bank."""
    passes = [
        Geometry((1, 3), (1, 1), (0, 1, 0, 1), 2, 33, 3, op=op),
        Geometry((1, 1), (1, 4), (0, 0, 0, 3), 2, 19, 5, op=op),
        Geometry((1, 1), (1, 1), (0, 0, 0, 0), 2, 40, 4, op=op, filters=3),
        Geometry((1, 1), (4, 1), (3, 0, 0, 0), 1, 100, 4, op=op),  # all of it padding
    ]
    check(CONFIGS[name], passes)


@pytest.mark.parametrize(("kernel", "steps"), [((3, 3), 1), ((5, 5), 2), ((7, 1), 3), ((1, 2), 1)])
def test_throughput_of_depthwise_passes(kernel, steps):
    """A tap is a kernel column of a step in a lane group; nothing is lost between them."""
    config = PRESETS["m256"]
    (rows, columns), pad = kernel, (kernel[0] // 2, kernel[1] // 2) * 2
    geometry = Geometry(kernel, (1, 1), pad, rows + 1, columns + 1, 128, op="depthwise")
    driver = check(config, [geometry, geometry])
    inner = rows // 2 * geometry.out_shape[1] + columns // 2
    cycles = [at for at, tap in driver.issued_at if tap.index == 1 and tap.pixel == inner]
    assert cycles == list(range(cycles[0], cycles[0] + 8 * steps * columns))

    # The second pass has been loaded while the first one was computed, so only the columns of the
    # array hold it back.
    counts, ends = [0], []
    for at, tap in driver.issued_at:
        counts[-1] += 1
        if tap.last:
            counts.append(0)
            ends.append((at, tap.index))
    first = next(k for k, (_, index) in enumerate(ends) if index == 1)
    least = [max(count, driver.fields[1]["spacing"]) for count in counts[first + 1 : -1]]
    assert ends[-1][0] - ends[first][0] == sum(least)


@pytest.mark.parametrize("spacing", [1, 2, 7])
def test_spacing(spacing):
    """Ends are exactly so far apart, also behind a pass that asks for more."""
    config = PRESETS["tiny"].override(post_lanes=4)
    one = Geometry((1, 1), (1, 1), (0, 0, 0, 0), 3, 20, 4, filters=8, spacing=spacing)
    driver = check(config, [one, replace(one, spacing=1), one])
    ends = [(cycle, tap.index) for cycle, tap in driver.issued_at if tap.last]
    for index in (0, 1, 2):
        last = [cycle for cycle, where in ends if where == index][-20:]
        assert set(np.diff(last)) == {1 if index == 1 else spacing}


@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_output_is_not_waited_for(name):
    """Where every group has as many taps as columns, no tap waits for the array."""
    geometry = Geometry((3, 3), (1, 1), (1, 1, 1, 1), 5, 4, 3, filters=7)
    driver = check(CONFIGS[name], [geometry, geometry])
    assert driver.idle["output"] == 0

"""The requantiser against the golden function, value by value."""

import numpy as np
import pytest
from amaranth import Module, Signal, signed
from amaranth.lib import data
from amaranth.sim import Simulator

from trirow_golden.requantise import encode_multiplier, requantise
from trirow_hw.requantise import Requantiser

INT32 = np.iinfo(np.int32)
FIELDS = {
    "acc": signed(32),
    "bias": signed(32),
    "mantissa": 24,
    "exponent": 6,
    "zero_point": signed(8),
    "low": signed(8),
    "high": signed(8),
}
INPUTS = data.StructLayout(FIELDS)
OUTPUTS = [  # zero point and clip bounds
    (0, -128, 127),
    (-128, -128, 127),
    (127, -128, 127),
    (-128, -127, 126),
    (127, -127, 126),
    (3, 3, 127),
    (-7, -7, 50),
    (5, 0, 0),
    (5, -128, -128),
    (-5, 127, 127),
]


@pytest.fixture
def rng():
    return np.random.default_rng(2024)


def stream(words):
    """Feed one packed word per cycle; returns the output of every cycle, latency included."""
    m = Module()
    m.submodules.dut = dut = Requantiser()
    inputs = Signal(INPUTS)
    m.d.comb += [getattr(dut, name).eq(inputs[name]) for name in FIELDS]
    outputs = []

    async def testbench(ctx):
        for word in [*words, *[0] * Requantiser.latency]:
            ctx.set(inputs.as_value(), word)
            await ctx.tick()
            outputs.append(ctx.get(dut.o))

    sim = Simulator(m)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()
    return outputs


def pack(**columns):
    """Pack columns of integers into one input word per row."""
    words = np.zeros(len(columns["acc"]), dtype=object)
    for name, field in INPUTS:
        mask = (1 << field.width) - 1
        words |= (np.asarray(columns[name]).astype(object) & mask) << field.offset
    return words.tolist()


def golden(total, multiplier, choice):
    """Evaluate the golden function for rows that differ in zero point and bounds."""
    expected = np.zeros(len(total), np.int8)
    for index, (zero_point, low, high) in enumerate(OUTPUTS):
        rows = choice == index
        expected[rows] = requantise(total[rows], multiplier[rows], zero_point, low, high)
    return expected


def check(rng, total, multiplier, encoded=None):
    """Compare all sums and multipliers, with any bias, zero point and bounds."""
    total = np.asarray(total).astype(np.int32)
    multiplier = np.asarray(multiplier, np.float32)
    mantissa, exponent = encode_multiplier(multiplier) if encoded is None else encoded
    wide = total.astype(np.int64)
    least = np.maximum(INT32.min, wide - INT32.max)
    bias = rng.integers(least, np.minimum(INT32.max, wide - INT32.min), endpoint=True)
    bias[rng.random(len(bias)) < 0.25] = 0
    choice = rng.choice(len(OUTPUTS), len(total), p=[0.3, 0.2, 0.2] + [0.3 / 7] * 7)
    zero_point, low, high = np.array(OUTPUTS)[choice].T
    words = pack(
        acc=wide - bias,
        bias=bias,
        mantissa=mantissa,
        exponent=exponent,
        zero_point=zero_point,
        low=low,
        high=high,
    )
    outputs = np.array(stream(words)[Requantiser.latency - 1 : -1])
    expected = golden(total, multiplier, choice)
    wrong = np.flatnonzero(outputs != expected)
    shown = [
        (int(total[i]), multiplier[i].hex(), OUTPUTS[choice[i]], int(outputs[i]), int(expected[i]))
        for i in wrong[:5]
    ]
    assert not shown, f"{len(wrong)} of {len(total)} differ, the first are {shown}"


def random_sums(rng, count):
    """Return sums of every magnitude, evenly over the number of bits."""
    return rng.integers(INT32.min, INT32.max, count, endpoint=True) >> rng.integers(0, 32, count)


def step(multiplier, ulps):
    """Move positive float32 by units in the last place."""
    bits = np.asarray(multiplier, np.float32).view(np.int32)
    return (bits + ulps).astype(np.int32).view(np.float32)


def test_random(rng):
    total = random_sums(rng, 8000)
    multiplier = rng.uniform(0, 300, len(total)) / np.maximum(np.abs(total), 1)
    check(rng, total, multiplier)


def test_multipliers_of_every_magnitude(rng):
    ends = [0, 1, -1, 2, 255, -256, 1 << 24, INT32.max, INT32.max - 1, INT32.min, INT32.min + 1]
    total = np.where(rng.random(8000) < 0.5, rng.choice(ends, 8000), random_sums(rng, 8000))
    multiplier = np.ldexp(rng.uniform(1, 2, 8000), rng.integers(-150, 31, 8000)).astype(np.float32)
    narrow = rng.random(8000) < 0.5  # where one end of int32 or the other is near the bounds
    multiplier[narrow] = np.ldexp(rng.uniform(1, 2, 8000), rng.integers(-34, -7, 8000))[narrow]
    multiplier[rng.random(8000) < 0.03] = 0
    multiplier[:3] = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max, 2.0**30
    check(rng, total, multiplier)


def test_ties(rng):
    # Every product is an odd number of halves, exactly.
    factor = rng.choice([1, 3, 5, 7, 9, 15, 17, 51, 85, 255], 6000)
    odd = factor * (2 * rng.integers(0, 300 // factor + 1) + 1)
    zeros = rng.integers(0, 22, 6000)
    multiplier = np.ldexp(factor.astype(np.float32), -1 - zeros)
    check(rng, rng.choice([-1, 1], 6000) * ((odd // factor) << zeros), multiplier)


def test_near_ties(rng):
    # The nearest multiplier and its neighbours: fractions within about 2**(L - 22) of 1/2.
    total = random_sums(rng, 10000)
    total[total == 0] = 1
    target = rng.integers(0, 258, len(total)) + 0.5
    multiplier = step(target / np.abs(total), rng.integers(-3, 4, len(total)))
    check(rng, total, multiplier)


def half_ulp(n):
    """Return how far from n + 1/2 a product becomes a tie."""
    return np.ldexp(1.0, int(np.floor(np.log2(max(n, 0.5)))) - 24)


def test_edge_of_ties(rng):
    # sum * mantissa = ((n + 1/2) + k * half_ulp(n)) * 2**j exactly: in some of the ways to factor
    # it. The powers of two set or clear a single bit of the fraction.
    powers = [1 << i for i in range(2, 23)]
    far = [k for power in powers for k in (power, -power, -power - 1)]
    rows = []
    for n in [*range(16), *range(16, 256, 11), 31, 32, 63, 64, 127, 128, 254, 255]:
        for k in [-3, -2, -1, 0, 1, 2, 3, *far]:
            scaled = round((n + 0.5) / half_ulp(n)) + k
            divisors = [d for d in range(2, 1000) if scaled % d == 0 and scaled // d < 1 << 24]
            rows += [(d, scaled // d * half_ulp(n)) for d in divisors[: 6 if abs(k) < 4 else 1]]
    total, multiplier = np.array(rows).T
    shift = rng.integers(0, 20, len(rows))
    sign = rng.choice([-1, 1], len(rows))
    check(rng, sign * (total.astype(np.int64) << shift), np.ldexp(multiplier, -shift))


def test_just_beyond_the_edge_of_ties(rng):
    # The same with k = 1 and a few of the lowest bits set, after up to 22 zeros.
    rows = []
    for n in (0, 1, 2, 3, 4, 6, 7, 10, 21, 44, 91, 127, 128, 170, 254, 255):
        for zeros in range(1, 23):
            away = 1 if n % 2 == 0 else -1
            edge = (round((n + 0.5) / half_ulp(n)) + away) << zeros
            factor = rng.integers(2 << zeros, 4 << zeros, 4000)
            mantissa = edge // factor + (away > 0)
            excess = np.abs(factor * mantissa - edge)
            usable = np.flatnonzero((mantissa < 1 << 24) & (excess > 0))
            best = usable[np.argsort(excess[usable])[:10]]
            rows += [
                (f, np.ldexp(half_ulp(n) * m, -zeros))
                for f, m in zip(factor[best], mantissa[best], strict=True)
            ]
    total, multiplier = np.array(rows).T
    shift = rng.integers(0, 31 - np.floor(np.log2(total)).astype(int))
    sign = rng.choice([-1, 1], len(rows))
    check(rng, sign * (total.astype(np.int64) << shift), np.ldexp(multiplier, -shift))


def test_sums_beyond_24_bits(rng):
    # On and beside the middle between two float32, at both ends of each power of two.
    dropped = rng.integers(1, 8, 8000)
    kept = rng.integers(1 << 23, 1 << 24, 8000)
    ends = rng.random(8000) < 0.3
    kept[ends] = rng.choice([0, 1, 2, (1 << 23) - 2, (1 << 23) - 1], ends.sum()) + (1 << 23)
    total = (kept << dropped) + (1 << dropped >> 1) + rng.integers(-1, 2, 8000)
    total = np.clip(total * rng.choice([-1, 1], 8000), INT32.min, INT32.max)
    target = rng.integers(0, 258, 8000) + 0.5
    multiplier = step(target / np.abs(total), rng.integers(-1, 2, 8000))
    check(rng, total, multiplier)


def test_mantissas_that_are_not_normalised(rng):
    total = random_sums(rng, 2000)
    mantissa = rng.integers(0, 1 << 24, 2000) >> rng.integers(0, 24, 2000)
    exponent = rng.integers(8, 57, 2000)
    multiplier = np.ldexp(mantissa.astype(np.float32), -exponent)
    check(rng, total, multiplier, encoded=(mantissa, exponent))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acc", 2000),
        ("bias", -500),
        ("mantissa", 9 << 20),
        ("exponent", 28),
        ("zero_point", 60),
        ("low", 90),
        ("high", -90),
    ],
)
def test_latency(name, value):
    before = {
        "acc": 700,
        "bias": 100,
        "mantissa": 1 << 23,
        "exponent": 27,
        "zero_point": -20,
        "low": -100,
        "high": 100,
    }
    changed = {**before, name: value}
    words = pack(
        **{key: [before[key]] * 20 + [changed[key]] + [before[key]] * 20 for key in before}
    )

    def result(row):
        total = np.array([row["acc"] + row["bias"]], np.int32)
        multiplier = np.array([np.ldexp(row["mantissa"], -row["exponent"])], np.float32)
        return requantise(total, multiplier, row["zero_point"], row["low"], row["high"]).item()

    outputs = stream(words)[Requantiser.latency - 1 : -1]
    assert result(changed) != result(before)
    assert outputs == [result(before)] * 20 + [result(changed)] + [result(before)] * 20

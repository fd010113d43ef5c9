# amaranth: UnusedElaboratable=no
"""The requantiser against numpy's float32 and gemmlowp's fixed point, value by value."""

import numpy as np
import pytest
from amaranth import Cat, Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.memory import Memory

from trirow_golden.requantise import encode_multiplier, requantise
from trirow_hw.requantise import Requantiser
from trirow_sim.stream_kit import run

INT32 = np.iinfo(np.int32)
FIELDS = {
    "acc": signed(32),
    "bias": signed(32),
    "scale": 32,
    "second": 32,
    "fixed": 1,
    "prelu": 1,
    "zero_point": signed(8),
    "low": signed(8),
    "high": signed(8),
}
INPUTS = data.StructLayout(FIELDS)
BOTH = ("float32", "fixed")
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
FLOAT32, FIXED = {}, {}  # generators of values for each mode, by name


@pytest.fixture
def rng():
    return np.random.default_rng(2024)


def values_of(mode):
    """Enter a generator of values for a mode into the tests."""
    return lambda generator: mode.setdefault(generator.__name__, generator)


# ---- Simulation


def simulate(modes, words):
    """Feed one packed word per cycle, from a memory; returns result and sum of each."""
    m = Module()
    m.submodules.dut = dut = Requantiser(modes=modes)
    cycles = 2 + len(words) + dut.latency
    m.submodules.source = source = Memory(shape=INPUTS.size, depth=cycles, init=words)
    port, address = source.read_port(), Signal(range(cycles))
    inputs = INPUTS(port.data)
    m.d.sync += address.eq(address + 1)
    m.d.comb += [port.addr.eq(address), *(getattr(dut, name).eq(inputs[name]) for name in FIELDS)]
    seen = []

    async def testbench(ctx):
        async for _, _, word in ctx.tick().sample(Cat(dut.o, dut.total)):
            seen.append(word)
            if len(seen) == cycles:
                break

    run(m, testbench, max_cycles=cycles + 2)
    # The memory takes a cycle, and a sample is what was there before the clock edge.
    results = np.array([word & 0xFF for word in seen[1 + dut.latency : -1]], np.uint8)
    totals = np.array([word >> 8 for word in seen[2 : 2 + len(words)]], np.uint32)
    return results.view(np.int8), totals.view(np.int32)


def pack(columns):
    """Pack columns of integers into one input word per row."""
    words = np.zeros(len(columns["acc"]), dtype=object)
    for name, field in INPUTS:
        mask = (1 << field.width) - 1
        words |= (np.asarray(columns[name]).astype(object) & mask) << field.offset
    return words.tolist()


def compare(modes, columns, expected):
    """Simulate and compare results and sums."""
    results, totals = simulate(modes, pack(columns))
    np.testing.assert_array_equal(totals, columns["acc"] + columns["bias"])
    wrong = np.flatnonzero(results != expected)
    shown = [
        {name: int(columns[name][i]) for name in columns}
        | {"result": int(results[i]), "expected": int(expected[i])}
        for i in wrong[:5]
    ]
    assert not shown, f"{len(wrong)} of {len(results)} differ, the first are {shown}"


def columns_for(rng, total):
    """Split sums into accumulators and any bias, choose outputs; the rest are random bits."""
    wide = np.asarray(total).astype(np.int64)
    least = np.maximum(INT32.min, wide - INT32.max)
    bias = rng.integers(least, np.minimum(INT32.max, wide - INT32.min), endpoint=True)
    bias[rng.random(len(bias)) < 0.25] = 0
    choice = rng.choice(len(OUTPUTS), len(wide), p=[0.3, 0.2, 0.2] + [0.3 / 7] * 7)
    columns = {"acc": wide - bias, "bias": bias}
    columns |= {name: rng.integers(0, 1 << 32, len(wide)) for name in ("scale", "second")}
    columns |= {name: rng.integers(0, 2, len(wide)) for name in ("fixed", "prelu")}
    columns |= zip(("zero_point", "low", "high"), np.array(OUTPUTS)[choice].T, strict=True)
    return columns


# ---- Mode float32


def float32_columns(rng, total, multiplier, encoded=None):
    """Return inputs and expected results for sums and multipliers that are not negative.

    Some multipliers are negated, some are in the second word and are used because of PReLU.
    """
    total = np.asarray(total).astype(np.int32)
    multiplier = np.asarray(multiplier, np.float32)
    mantissa, exponent = encode_multiplier(multiplier) if encoded is None else encoded
    negative = rng.random(len(total)) < 0.3
    word = mantissa.astype(np.int64) | exponent.astype(np.int64) << 24
    word |= negative.astype(np.int64) << 31 | rng.integers(0, 2, len(total)) << 30
    columns = columns_for(rng, total)
    second = (columns["prelu"] == 1) & (total < 0)
    columns["scale"] = np.where(second, columns["scale"], word)
    columns["second"] = np.where(second, word, columns["second"])

    with np.errstate(over="ignore", under="ignore"):
        scaled = np.rint(total.astype(np.float32) * np.where(negative, -multiplier, multiplier))
    shifted = scaled.astype(np.float64) + columns["zero_point"]
    expected = np.clip(shifted, columns["low"], columns["high"]).astype(np.int8)
    for zero_point, low, high in OUTPUTS:
        same = columns["zero_point"] == zero_point
        rows = same & (columns["low"] == low) & (columns["high"] == high) & ~negative
        golden = requantise(total[rows], multiplier[rows], zero_point, low, high)
        np.testing.assert_array_equal(expected[rows], golden)
    return columns, expected


def random_sums(rng, count):
    """Return sums of every magnitude, evenly over the number of bits."""
    return rng.integers(INT32.min, INT32.max, count, endpoint=True) >> rng.integers(0, 32, count)


def step(multiplier, ulps):
    """Move positive float32 by units in the last place."""
    bits = np.asarray(multiplier, np.float32).view(np.int32)
    return (bits + ulps).astype(np.int32).view(np.float32)


@values_of(FLOAT32)
def random_multipliers(rng):
    total = random_sums(rng, 8000)
    return total, rng.uniform(0, 300, len(total)) / np.maximum(np.abs(total), 1)


@values_of(FLOAT32)
def multipliers_of_every_magnitude(rng):
    ends = [0, 1, -1, 2, 255, -256, 1 << 24, INT32.max, INT32.max - 1, INT32.min, INT32.min + 1]
    total = np.where(rng.random(8000) < 0.5, rng.choice(ends, 8000), random_sums(rng, 8000))
    multiplier = np.ldexp(rng.uniform(1, 2, 8000), rng.integers(-150, 31, 8000)).astype(np.float32)
    narrow = rng.random(8000) < 0.5  # where one end of int32 or the other is near the bounds
    multiplier[narrow] = np.ldexp(rng.uniform(1, 2, 8000), rng.integers(-34, -7, 8000))[narrow]
    multiplier[rng.random(8000) < 0.03] = 0
    multiplier[:3] = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max, 2.0**30
    return total, multiplier


@values_of(FLOAT32)
def ties(rng):
    # Every product is an odd number of halves, exactly.
    factor = rng.choice([1, 3, 5, 7, 9, 15, 17, 51, 85, 255], 6000)
    odd = factor * (2 * rng.integers(0, 300 // factor + 1) + 1)
    zeros = rng.integers(0, 22, 6000)
    multiplier = np.ldexp(factor.astype(np.float32), -1 - zeros)
    return rng.choice([-1, 1], 6000) * ((odd // factor) << zeros), multiplier


@values_of(FLOAT32)
def near_ties(rng):
    # The nearest multiplier and its neighbours: fractions within about 2**(L - 22) of 1/2.
    total = random_sums(rng, 10000)
    total[total == 0] = 1
    target = rng.integers(0, 258, len(total)) + 0.5
    return total, step(target / np.abs(total), rng.integers(-3, 4, len(total)))


def half_ulp(n):
    """Return how far from n + 1/2 a product becomes a tie."""
    return np.ldexp(1.0, int(np.floor(np.log2(max(n, 0.5)))) - 24)


@values_of(FLOAT32)
def edge_of_ties(rng):
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
    return sign * (total.astype(np.int64) << shift), np.ldexp(multiplier, -shift)


@values_of(FLOAT32)
def just_beyond_the_edge_of_ties(rng):
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
    return sign * (total.astype(np.int64) << shift), np.ldexp(multiplier, -shift)


@values_of(FLOAT32)
def sums_beyond_24_bits(rng):
    # On and beside the middle between two float32, at both ends of each power of two.
    dropped = rng.integers(1, 8, 8000)
    kept = rng.integers(1 << 23, 1 << 24, 8000)
    ends = rng.random(8000) < 0.3
    kept[ends] = rng.choice([0, 1, 2, (1 << 23) - 2, (1 << 23) - 1], ends.sum()) + (1 << 23)
    total = (kept << dropped) + (1 << dropped >> 1) + rng.integers(-1, 2, 8000)
    total = np.clip(total * rng.choice([-1, 1], 8000), INT32.min, INT32.max)
    target = rng.integers(0, 258, 8000) + 0.5
    return total, step(target / np.abs(total), rng.integers(-1, 2, 8000))


@values_of(FLOAT32)
def mantissas_that_are_not_normalised(rng):
    mantissa = rng.integers(0, 1 << 24, 2000) >> rng.integers(0, 24, 2000)
    exponent = rng.integers(8, 57, 2000)
    multiplier = np.ldexp(mantissa.astype(np.float32), -exponent)
    return random_sums(rng, 2000), multiplier, (mantissa, exponent)


@pytest.mark.parametrize("name", FLOAT32)
def test_float32(rng, name):
    compare(("float32",), *float32_columns(rng, *FLOAT32[name](rng)))


# ---- Mode fixed


def high_mul(a, b):
    """Return what gemmlowp's SaturatingRoundingDoublingHighMul does, with unbounded integers.

    See google/gemmlowp, ``fixedpoint/fixedpoint.h``: a nudge of half the divisor, less one if the
    product is negative, and C++'s division by 2**31, which rounds towards zero. The case that
    saturates there, both factors -2**31, does not exist: the multiplier is not negative.
    """
    nudged = a * b + ((1 << 30) if a * b >= 0 else 1 - (1 << 30))
    return nudged // (1 << 31) if nudged >= 0 else -(-nudged // (1 << 31))


def rounding_divide(x, exponent):
    """Return what RoundingDivideByPOT of the same file does."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


def reference(row, fixed):
    """Compute one result from the constants as they are encoded, in plain Python and numpy."""
    s, second = row["acc"] + row["bias"], row["second"]
    if fixed:
        x = high_mul(s << (second & 15), row["scale"] & 0x7FFFFFFF)
        result = rounding_divide(x, second >> 8 & 31)
    else:
        word = second if row["prelu"] and s < 0 else row["scale"]
        multiplier = np.float32(np.ldexp(word & 0xFFFFFF, -(word >> 24 & 63)))
        result = int(np.rint(np.float32(s) * (-multiplier if word >> 31 else multiplier)))
    return min(max(result + row["zero_point"], row["low"]), row["high"])


def expect(columns, fixed):
    """Compute the results of rows; ``fixed`` is one mode for all, or a column."""
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    modes = np.broadcast_to(fixed, len(columns["acc"])).tolist()
    rows = (dict(zip(columns, row, strict=True)) for row in rows)
    return np.array([reference(row, mode) for row, mode in zip(rows, modes, strict=True)], np.int8)


def fixed_columns(rng, total, mantissa, left, right):
    """Return inputs and expected results; bits that have no meaning are random."""
    columns = columns_for(rng, total)
    columns["scale"] = mantissa | columns["scale"] >> 31 << 31
    columns["second"] = left | right << 8 | columns["second"] & ~0x1F0F
    return columns, expect(columns, fixed=1)


def shifts(rng, count):
    return rng.integers(0, 10, count), rng.integers(0, 32, count)


def rows_of(rows):
    """Return rows of sum, mantissa, left, right as columns; all must be in range."""
    total, mantissa, left, right = np.array(rows, np.int64).T
    assert (total >= INT32.min).all()
    assert (total <= INT32.max).all()
    assert (mantissa >= 0).all()
    assert (mantissa < 1 << 31).all()
    return total, mantissa, left, right


def factors(rng, x, left, offset=0):
    """Return a sum and a power of two with the product ``x * 2**(31 - left) + offset``, or None.

    ``offset`` is in units of ``2**(30 - left)``: with 1 and -1 gemmlowp's first step has a tie.
    """
    units, zeros = (2 * x + offset), 30 - left
    least = max(0, zeros - 30)
    most = min(zeros, 31 - abs(units).bit_length())
    if most < least:
        return None
    power = int(rng.integers(least, most, endpoint=True))
    return units << power, 1 << zeros - power


@values_of(FIXED)
def random_products(rng):
    """Normalised multipliers, results a little beyond the bounds."""
    total = random_sums(rng, 8000)
    ratio = rng.uniform(0, 300, 8000) / np.maximum(np.abs(total), 1)
    fraction, power = np.frexp(ratio)
    mantissa = np.minimum(np.rint(np.ldexp(fraction, 31)).astype(np.int64), (1 << 31) - 1)
    return total, mantissa, np.clip(power, 0, 9), np.clip(-power, 0, 31)


@values_of(FIXED)
def any_shift(rng):
    """Every left with every right, mantissas of every magnitude, mostly not normalised."""
    left, right = np.divmod(np.arange(9600) % 320, 32)
    mantissa = rng.integers(0, 1 << 31, 9600) >> rng.integers(0, 31, 9600)
    wanted = rng.uniform(-300, 300, 9600)
    total = wanted * 2.0 ** (31 - left + right) / np.maximum(mantissa, 1)
    return np.clip(np.rint(total), INT32.min, INT32.max).astype(np.int64), mantissa, left, right


@values_of(FIXED)
def ends(rng):
    """Ends of int32 and of the mantissas, single bits of both, with any shifts."""
    powers = 1 << np.arange(31)
    edges = [0, 1, 2, 3, 1 << 30, (1 << 30) - 1, (1 << 30) + 1, (1 << 31) - 1, (1 << 31) - 2]
    total = rng.choice([INT32.min, INT32.min + 1, INT32.max, INT32.max - 1, 0, 1, -1], 8000)
    single = rng.random(8000) < 0.4
    total[single] = (rng.choice([-1, 1], 8000) * rng.choice(powers, 8000))[single]
    mantissa = np.where(rng.random(8000) < 0.6, rng.choice(edges, 8000), rng.choice(powers, 8000))
    return total, mantissa, *shifts(rng, 8000)


@values_of(FIXED)
def ties_of_both_steps(rng):
    """Results of n + 1/2 after the first step, and one beside it; with and without a tie there."""
    rows = []
    for left in range(10):
        for right in range(32):
            for beside in (-1, 0, 1):
                for offset in (-1, 0, 1):
                    for sign in (-1, 1):
                        n = int(rng.integers(0, 257)) if rng.random() < 0.8 else 0
                        x = sign * ((n << right) + (1 << right >> 1)) + beside
                        found = factors(rng, x, left, offset) or factors(
                            rng, sign * (1 << right >> 1) + beside, left, offset
                        )
                        rows += [(*found, left, right)] if found else []
    return rows_of(rows)


@values_of(FIXED)
def single_bits_beside_a_tie(rng):
    """Negative values n + 1/2 with one more bit set, which decides.

    Some of all bits and shifts, all of those next to 1/2 and of the longest shifts.
    """
    rows = []
    for right in range(2, 32):
        for bit in range(right - 1):
            for left in range(10):
                if right - left < 24 and bit < right - 2 and rng.random() > 0.3:
                    continue
                n = int(rng.choice([0, 1, rng.integers(0, 257)])) if right < 22 else 0
                x = (-n << right) - (1 << right - 1) + (1 << bit)
                found = factors(rng, x, left)
                rows += [(*found, left, right)] if found else []
    return rows_of(rows)


@values_of(FIXED)
def bits_that_do_not_count(rng):
    """Ties, with bits of the product set that the first step rounds off."""
    left, right = shifts(rng, 6000)
    mantissa = rng.integers(1, 1 << (31 - left)) >> rng.integers(0, 12, 6000)
    mantissa = np.maximum(mantissa, 1)
    n = rng.integers(0, 257, 6000)
    x = rng.choice([-1, 1], 6000) * ((n << right) + (1 << right >> 1)) + rng.integers(-1, 2, 6000)
    total = np.rint(x * 2.0 ** (31 - left) / mantissa)
    kept = np.abs(total) <= INT32.max
    return total[kept].astype(np.int64), mantissa[kept], left[kept], right[kept]


@pytest.mark.parametrize("name", FIXED)
def test_fixed(rng, name):
    compare(("fixed",), *fixed_columns(rng, *FIXED[name](rng)))


# ---- Both


def sample(rng, columns_of, generators, mode, count):
    """Return values of all generators of a mode in random order, with their mode and result."""
    parts = [columns_of(rng, *generator(rng)) for generator in generators.values()]
    table = {name: np.concatenate([columns[name] for columns, _ in parts]) for name in FIELDS}
    table["fixed"][:] = mode
    table["expected"] = np.concatenate([expected for _, expected in parts])
    picked = rng.permutation(len(table["acc"]))[:count]
    return {name: column[picked] for name, column in table.items()}


def test_modes_in_turn(rng):
    """Values of all generators; the modes alternate, then change at random."""
    count = 6000
    float32 = sample(rng, float32_columns, FLOAT32, 0, count)
    fixed = sample(rng, fixed_columns, FIXED, 1, count)
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    order[count:] = rng.permutation(order[count:])
    columns = {name: np.concatenate([float32[name], fixed[name]])[order] for name in float32}
    expected = columns.pop("expected")
    compare(BOTH, columns, expected)


def test_prelu(rng):
    """Both scales are set; sums around zero and at the ends of int32; any slope."""
    total = np.concatenate([np.arange(-200, 200), [INT32.min, INT32.max, INT32.min + 1] * 5])
    total, slope = np.tile(total, 4), np.repeat([0.0, 0.25, 1.0, -0.125], len(total))
    columns = columns_for(rng, total)
    for name, multiplier in (("scale", np.full(len(total), 0.37)), ("second", 0.37 * slope)):
        mantissa, exponent = encode_multiplier(np.abs(multiplier).astype(np.float32))
        columns[name] = mantissa.astype(np.int64) | exponent.astype(np.int64) << 24
        columns[name] |= (multiplier < 0).astype(np.int64) << 31
    columns["fixed"][:] = 0
    compare(BOTH, columns, expect(columns, fixed=0))


def test_negative_multipliers_at_the_bounds(rng):
    """Products near and far beyond the bounds, with every zero point."""
    cases = [(1, 0), (-1, 0), (-129, 23), (129, 23), (-128, 23), (257, 23)]
    total, exponent = np.repeat(cases, 256, axis=0).T
    columns = columns_for(rng, total) | {"scale": 1 << 31 | exponent << 24 | 1 << 23}
    columns["zero_point"] = np.tile(np.arange(-128, 128), len(cases))
    columns["low"][:], columns["high"][:] = -128, 127
    columns["prelu"][:], columns["fixed"][:] = 0, 0
    compare(BOTH, columns, expect(columns, fixed=0))


def latency_case(modes):
    """Return a row, and changes of it that each change the result."""
    before = {"acc": -700, "bias": -100, "zero_point": -20, "low": -100, "high": 100}
    before |= {"scale": 1 << 23 | 28 << 24, "second": 3 << 22 | 29 << 24, "prelu": 0, "fixed": 0}
    changes = [{"acc": -300}, {"bias": 333}, {"zero_point": 20}, {"low": -30}, {"high": -80}]
    if "float32" in modes:
        changes += [{"scale": 1 << 23 | 29 << 24}, {"scale": 1 << 31 | 1 << 23}, {"prelu": 1}]
        return before, [*changes, *([{"fixed": 1}] if "fixed" in modes else [])]
    before |= {"scale": 3 << 28, "second": 3 << 8, "fixed": 1}
    return before, [*changes, {"scale": 5 << 28}, {"second": 4 << 8}, {"second": 2 | 3 << 8}]


@pytest.mark.parametrize("modes", [BOTH, ("float32",), ("fixed",)], ids="-".join)
def test_latency(modes):
    """Each input alone changes one result: that of its own cycle."""
    before, changes = latency_case(modes)
    rows = [row for change in changes for row in [*[before] * 20, before | change]]
    columns = {name: np.array([row[name] for row in rows]) for name in FIELDS}
    expected = expect(columns, columns["fixed"])
    assert (expected[20::21] != expected[0]).all()
    compare(modes, columns, expected)


def test_latency_is_a_class_attribute():
    assert Requantiser(modes=("fixed",)).latency == Requantiser.latency == Requantiser().latency


def test_unknown_modes():
    for modes in ((), ("float",), ("fixed", "fixed")):
        with pytest.raises(ValueError, match="modes must be some of float32, fixed, not"):
            Requantiser(modes=modes)

"""The array against sums of products: columns, first and last taps, distances, weight memories."""

import random

import numpy as np
import pytest
from amaranth.hdl import Cat

from trirow_hw.config import PRESETS
from trirow_hw.mac_array import MacArray
from trirow_sim.unit_kit import feed, pack, unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-25f", "ecp5-85f")},
    "one column": PRESETS["tiny"].override(post_lanes=4),
    "one lane": PRESETS["tiny"].override(out_lanes=1),
    "ragged column": PRESETS["tiny"].override(out_lanes=7, post_lanes=3),
    "more inputs than lanes": PRESETS["tiny"].override(in_lanes=7, out_lanes=4, post_lanes=3),
    "depth not a power of two": PRESETS["tiny"].override(weight_buffer_bytes=21 * 16),
    "9 bits": PRESETS["tiny"].override(weight_bits=9),
    "odd, 9 bits": PRESETS["odd"].override(weight_bits=9),
}
#: Slow to simulate.
LARGE = {"m256": PRESETS["m256"]}
#: What a sum may be: dense, depthwise, and pools of either kind: (depthwise, maximum).
DENSE, DEPTHWISE, DENSE_POOL, POOL = (0, 0), (1, 0), (0, 1), (1, 1)
KINDS = [DENSE, DEPTHWISE, DENSE_POOL, POOL]


class Bench:
    """Lists what enters the array in each cycle, and knows which sums must leave it when."""

    def __init__(self, config, seed):
        self.config = config
        self.unit = MacArray(config=config)
        self.generator = random.Random(repr(seed))
        words = config.weight_words
        self.places = sorted({0, 1, words // 2, words - 2, words - 1})
        self.pool_place = 3  # has the weights 1, 0, 0, ...
        self.memory = np.zeros((config.out_lanes, words, config.in_lanes), np.int64)
        self.writes, self.taps = [], []  # one entry each cycle
        self.sums = {}  # cycle of the last tap: sums of all lanes
        self.last = -config.stages

    def weight(self):
        least, most = {8: (-128, 127), 9: (-255, 255)}[self.config.weight_bits]
        return self.generator.choice([least, most, self.generator.randint(least, most)])

    def activation(self):
        return self.generator.choice([-255, 255, self.generator.randint(-255, 255)])

    def cycle(self, write=None, tap=None):
        """Add a cycle; ``write`` is (lane, word, weights), ``tap`` (fields, activations)."""
        self.writes.append(write)
        self.taps.append(tap)

    def write(self, lane, word, weights=None):
        weights = weights or [self.weight() for _ in range(self.config.in_lanes)]
        self.memory[lane, word] = weights
        return lane, word, weights

    def fill(self):
        for lane in range(self.config.out_lanes):
            for word in self.places:
                self.cycle(self.write(lane, word))
            self.cycle(self.write(lane, self.pool_place, [1] + [0] * (self.config.in_lanes - 1)))

    def dot(self, word, depthwise, activations):
        """Return the dot products of all lanes."""
        config = self.config
        factors = np.zeros((config.out_lanes, config.in_lanes), np.int64)
        if depthwise:
            lanes = min(config.in_lanes, config.out_lanes)
            factors[:lanes, : len(activations)] = activations[:, :lanes].T
        else:
            factors[:] = activations[0]
        return (factors * self.memory[:, word]).sum(axis=1)

    def add_sum(self, taps, gap=lambda: 0, kind=DENSE):
        """Add a sum of that many taps, ``gap()`` idle cycles before each."""
        depthwise, maximum = kind
        results = []
        for k in range(taps):
            first, last = k == 0, k == taps - 1
            for _ in range(gap()):
                self.cycle()
            while last and len(self.taps) < self.last + self.config.stages:
                self.cycle()
            word = self.pool_place if maximum else self.generator.choice(self.places)
            shape = self.config.tap_rows, self.config.in_lanes
            activations = np.array([self.activation() for _ in range(shape[0] * shape[1])])
            activations = activations.reshape(shape)
            if maximum:
                # As they come: nothing in the other rows, and padding is less than any feature.
                activations[1:] = 0
                for lane in range(shape[1]):
                    if self.generator.random() < 0.3:
                        activations[0, lane] = -256
            results.append(self.dot(word, depthwise, activations))
            if last:
                self.last = len(self.taps)
                totals = np.max(results, axis=0) if maximum else np.sum(results, axis=0)
                self.sums[self.last] = totals.tolist()
            fields = {"word": word, "first": int(first), "last": int(last)}
            fields |= {"valid": 1, "depthwise": depthwise, "maximum": maximum}
            self.cycle(tap=(fields, activations))

    def check(self):
        config, unit = self.config, self.unit
        latency, late = unit.latency, unit.activation_delay
        weight_shape, tap_shape = unit.weight.shape(), unit.tap.shape()
        vector_shape = unit.activations.shape()
        weight_size, tap_size = weight_shape.size, tap_shape.size
        words = []
        self.taps += [None] * late
        self.writes += [None] * late
        for k, (write, tap) in enumerate(zip(self.writes, self.taps, strict=True)):
            # Whatever is not valid is random.
            word = self.generator.getrandbits(weight_size + 1 + tap_size + vector_shape.size)
            word &= ~(1 << weight_size | 1 << weight_size + 1 + tap_shape["valid"].offset)
            if write:
                lane, place, weights = write
                bits = config.weight_bits
                data = sum((b & ((1 << bits) - 1)) << bits * n for n, b in enumerate(weights))
                word &= ~((1 << weight_size) - 1)
                word |= pack(weight_shape, {"lane": lane, "word": place, "data": data})
                word |= 1 << weight_size
            if tap:
                shift = weight_size + 1
                word &= ~(((1 << tap_size) - 1) << shift)
                word |= pack(tap_shape, tap[0]) << shift
            before = self.taps[k - late] if k >= late else None
            if before:
                shift = weight_size + 1 + tap_size
                word &= (1 << shift) - 1
                word |= pack(vector_shape, before[1].tolist()) << shift
            words.append(word)

        inputs = Cat(
            unit.weight.as_value(),
            unit.weight_valid,
            unit.tap.as_value(),
            unit.activations.as_value(),
        )
        result = Cat(unit.done, unit.sums.as_value())
        outputs = feed(unit, inputs, words, result, after=latency + config.stages)
        done = [k - latency for k, output in enumerate(outputs) if output & 1]
        assert done == list(self.sums)
        for k, totals in self.sums.items():
            for column in range(config.stages):
                sums = unpack(unit.sums.shape(), outputs[k + latency + column] >> 1)
                lanes = totals[column * config.post_lanes :][: config.post_lanes]
                assert sums[: len(lanes)] == lanes, f"sum of cycle {k}, column {column}"


@pytest.mark.parametrize("name", CONFIGS)
def test_back_to_back(name):
    """Sums end as close together as they may, with one tap or with several."""
    config = CONFIGS[name]
    bench = Bench(config, name)
    bench.fill()
    for taps in [1] * 6 + [config.stages] * 4 + [config.stages + 1] * 3 + [2, 1, 5, 1, 1]:
        bench.add_sum(taps)
    bench.check()


@pytest.mark.parametrize("kind", [DEPTHWISE, DENSE_POOL, POOL])
@pytest.mark.parametrize("name", [*CONFIGS, *LARGE])
def test_other_kinds_back_to_back(name, kind):
    """Depthwise sums and pools, as close together as they may be."""
    config = (CONFIGS | LARGE)[name]
    bench = Bench(config, (name, kind))
    bench.fill()
    for taps in [1] * 3 + [config.stages] * 3 + [config.stages + 1, 2, 1, 5, 1, 9]:
        bench.add_sum(taps, kind=kind)
    bench.check()


@pytest.mark.parametrize("name", [*CONFIGS, *LARGE])
def test_kinds_in_turn(name):
    """Every kind of sum follows every other without a gap."""
    config = (CONFIGS | LARGE)[name]
    bench = Bench(config, name)
    bench.fill()
    for taps in (1, config.stages + 1):
        for one in KINDS:
            for other in KINDS:
                bench.add_sum(taps, kind=one)
                bench.add_sum(taps, kind=other)
    bench.check()


@pytest.mark.parametrize("name", CONFIGS)
def test_random(name):
    """Sums of any kind and length with idle cycles anywhere, in which the inputs are random."""
    bench = Bench(CONFIGS[name], name)
    generator = bench.generator
    bench.fill()
    for _ in range(60):
        bench.add_sum(
            generator.randint(1, 9),
            lambda: generator.choice([0, 0, 0, 1, 3]),
            generator.choice(KINDS),
        )
    bench.check()


@pytest.mark.parametrize("name", ["odd", "one lane", "odd, 9 bits"])
def test_large_sums(name):
    """Long sums of the extreme products: the accumulator has all of its bits."""
    config = CONFIGS[name]
    least, most = (-128, 127) if config.weight_bits == 8 else (-255, 255)
    for activation, weight in ((-255, least), (255, least), (255, most)):
        bench = Bench(config, name)
        bench.activation = lambda activation=activation: activation
        bench.weight = lambda weight=weight: weight
        bench.fill()
        bench.add_sum(600)
        bench.add_sum(1)
        # A pool forgets the sum before it, and the sum behind it the pool.
        bench.add_sum(2, kind=POOL)
        bench.add_sum(100, kind=DEPTHWISE)
        bench.check()


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_read_in_the_next_cycle(name):
    """Each lane's word is written, the last lane's in the cycle before the tap."""
    config = CONFIGS[name]
    bench = Bench(config, name)
    bench.fill()
    for _ in range(6):
        # Nothing in the array may still need the word that is overwritten.
        for _ in range(bench.unit.latency + config.stages):
            bench.cycle()
        word = bench.generator.choice(bench.places)
        lanes = list(range(config.out_lanes))
        bench.generator.shuffle(lanes)
        for lane in lanes:
            bench.cycle(bench.write(lane, word))
        places, bench.places = bench.places, [word]
        bench.add_sum(1)
        bench.places = places
    bench.check()


def test_words_of_a_lane_are_independent():
    """All places of all lanes are written before any is read."""
    config = CONFIGS["depth not a power of two"]
    bench = Bench(config, 0)
    bench.places = list(range(config.weight_words))
    bench.fill()
    for word in range(config.weight_words):
        bench.places = [word]
        bench.add_sum(1)
    bench.check()

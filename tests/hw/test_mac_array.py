"""The array against sums of products: columns, first and last taps, distances, weight memories."""

import random

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
    "depth not a power of two": PRESETS["tiny"].override(weight_buffer_bytes=21 * 16),
}


class Bench:
    """Lists what enters the array in each cycle, and knows which sums must leave it when."""

    def __init__(self, config, seed):
        self.config = config
        self.unit = MacArray(config=config)
        self.generator = random.Random(repr(seed))
        words = config.weight_words
        self.places = sorted({0, 1, words // 2, words - 2, words - 1})
        self.memory = {}
        self.writes, self.taps = [], []  # one entry each cycle
        self.sums = {}  # cycle of the last tap: sums of all lanes
        self.last = -config.stages

    def weight(self):
        return self.generator.choice([-128, 127, self.generator.randint(-128, 127)])

    def activation(self):
        return self.generator.choice([-255, 255, self.generator.randint(-255, 255)])

    def cycle(self, write=None, tap=None):
        """Add a cycle; ``write`` is (lane, word, weights), ``tap`` (word, first, last, vector)."""
        self.writes.append(write)
        self.taps.append(tap)

    def write(self, lane, word):
        weights = [self.weight() for _ in range(self.config.in_lanes)]
        self.memory[lane, word] = weights
        return lane, word, weights

    def fill(self):
        for word in self.places:
            for lane in range(self.config.out_lanes):
                self.cycle(self.write(lane, word))

    def add_sum(self, taps, gap=lambda: 0):
        """Add a sum of that many taps, ``gap()`` idle cycles before each."""
        totals = [0] * self.config.out_lanes
        for k in range(taps):
            first, last = k == 0, k == taps - 1
            for _ in range(gap()):
                self.cycle()
            while last and len(self.taps) < self.last + self.config.stages:
                self.cycle()
            word = self.generator.choice(self.places)
            vector = [self.activation() for _ in range(self.config.in_lanes)]
            for lane in range(self.config.out_lanes):
                weights = self.memory[lane, word]
                totals[lane] += sum(a * b for a, b in zip(vector, weights, strict=True))
            if last:
                self.last = len(self.taps)
                self.sums[self.last] = totals
            self.cycle(tap=(word, int(first), int(last), vector))

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
                data = int.from_bytes(bytes(b & 0xFF for b in weights), "little")
                word &= ~((1 << weight_size) - 1)
                word |= pack(weight_shape, {"lane": lane, "word": place, "data": data})
                word |= 1 << weight_size
            if tap:
                place, first, last, _ = tap
                values = {"valid": 1, "word": place, "first": first, "last": last}
                shift = weight_size + 1
                word &= ~(((1 << tap_size) - 1) << shift)
                word |= pack(tap_shape, values) << shift
            before = self.taps[k - late] if k >= late else None
            if before:
                shift = weight_size + 1 + tap_size
                word &= (1 << shift) - 1
                word |= pack(vector_shape, before[3]) << shift
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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CONFIGS)
def test_random(name, seed):
    """Sums of any length with idle cycles anywhere, in which the inputs are random."""
    bench = Bench(CONFIGS[name], (name, seed))
    generator = bench.generator
    bench.fill()
    for _ in range(40):
        bench.add_sum(generator.randint(1, 9), lambda: generator.choice([0, 0, 0, 1, 3]))
    bench.check()


@pytest.mark.parametrize("name", ["tiny", "odd", "one lane", "one column"])
def test_large_sums(name):
    """Long sums of the extreme products: the accumulator has all of its bits."""
    config = CONFIGS[name]
    for activation, weight in ((-255, -128), (255, -128), (255, 127)):
        bench = Bench(config, name)
        bench.activation = lambda activation=activation: activation
        bench.weight = lambda weight=weight: weight
        bench.fill()
        bench.add_sum(600)
        bench.add_sum(1)
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

"""The line buffer against three plain byte arrays."""

import random

import numpy as np
import pytest
from amaranth.hdl import Cat

from trirow_hw.config import PRESETS
from trirow_hw.line_buffer import LineBuffer, LineRead, LineWrite
from trirow_sim.unit_kit import feed, pack, unpack

CONFIGS = {
    "tiny": PRESETS["tiny"],
    "odd": PRESETS["odd"],
    "ecp5-85f": PRESETS["ecp5-85f"],
    # Banks of a few words, so that most reads and writes are near the end of the ring.
    "tiny, short": PRESETS["tiny"].override(line_buffer_bytes=3 * 8 * 4),
    "odd, short": PRESETS["odd"].override(line_buffer_bytes=3 * 10 * 3),
    "up5k, short": PRESETS["up5k"].override(line_buffer_bytes=3 * 8 * 2),
    "7 lanes": PRESETS["tiny"].override(in_lanes=7, line_buffer_bytes=3 * 10 * 7),
}
#: Too slow for what is done with all of the others.
LARGE = {"64 lanes": PRESETS["edgeboard"].override(line_buffer_bytes=3 * 8 * 64)}


class Bench:
    """Lists what is written and read in each cycle, and knows what each read must give."""

    def __init__(self, config):
        self.config = config
        self.write_layout, self.read_layout = LineWrite(config), LineRead(config)
        self.memory = np.zeros((3, config.line_bank_words * config.in_lanes), np.uint8)
        self.cycles = []  # (write, read, expected runs) of each cycle

    def cycle(self, write=None, read=None):
        """Add a cycle; ``write`` is (bank, word, data), ``read`` is (bank, words, byte)."""
        # What is written in a cycle can be read in the next, so a read sees what came before.
        self.cycles.append((write, read, None if read is None else self._runs(*read)))
        if write is not None:
            bank, word, written = write
            lanes = self.config.in_lanes
            self.memory[bank, word * lanes : (word + 1) * lanes] = list(written)

    def _runs(self, bank, words, byte):
        lanes = self.config.in_lanes
        places = np.arange(lanes) + byte
        order = [(bank + p) % 3 for p in range(min(3, lanes))]
        return [self.memory[b].take(places + words[b] * lanes, mode="wrap") for b in order]

    def _word(self, write, read):
        bank, word, written = write or (0, 0, b"")
        written = pack(
            self.write_layout,
            {"bank": bank, "word": word, "data": int.from_bytes(written, "little")},
        )
        bank, words, byte = read or (0, (0, 0, 0), 0)
        address = pack(self.read_layout, {"bank": bank, "words": words, "byte": byte})
        size = self.write_layout.size
        return written | (write is not None) << size | address << size + 1

    def check(self, words=None):
        """Compare all runs; ``words`` may be given in place of the listed inputs."""
        unit = LineBuffer(config=self.config)
        inputs = Cat(unit.write.as_value(), unit.write_valid, unit.read.as_value())
        latency, lanes = unit.latency, self.config.in_lanes
        words = words or self.words()
        outputs = feed(unit, inputs, words, unit.run.as_value(), after=latency)
        for k, (_, read, expected) in enumerate(self.cycles):
            if expected is not None:
                runs = unpack(unit.run.shape(), outputs[k + latency])
                runs = [list(run.to_bytes(lanes, "little")) for run in runs]
                assert runs == [list(run) for run in expected], f"cycle {k}: {read}"

    def words(self):
        """Return the inputs of all cycles as integers."""
        return [self._word(write, read) for write, read, _ in self.cycles]

    def fill(self, generator, words=None):
        """Write the words, or all that there are, in all banks."""
        for word in words or range(self.config.line_bank_words):
            for bank in range(3):
                self.cycle((bank, word, generator.randbytes(self.config.in_lanes)))


def forget_overtaken(bench):
    """Expect nothing of reads whose words are written just then: it is undefined.

    The memory is read in the cycle after ``read``; what is written later must not be seen.
    """
    writes = [write and write[:2] for write, _, _ in bench.cycles]
    depth = bench.config.line_bank_words
    for k, (write, read, _) in enumerate(bench.cycles):
        if read is not None:
            touched = {(b, (word + n) % depth) for b, word in enumerate(read[1]) for n in (0, 1)}
            if touched & set(writes[k : k + 2]):
                bench.cycles[k] = write, read, None


@pytest.mark.parametrize("name", CONFIGS)
def test_every_offset_bank_and_parity(name):
    """Also across the end of the bank; every bank at a word of its own."""
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(name)
    ends = sorted({0, 1, 2, 3, depth - 4, depth - 3, depth - 2, depth - 1})
    bench.fill(generator, ends)
    starts = [word for word in ends if (word + 1) % depth in ends]
    reads = [
        (bank, tuple(starts[(n + shift * b) % len(starts)] for b in range(3)), byte)
        for n in range(len(starts))
        for shift in (0, 1, 3)
        for byte in range(config.in_lanes)
        for bank in range(3)
    ]
    for read in reads:
        bench.cycle(read=read)
    generator.shuffle(reads)
    for read in reads:
        bench.cycle(read=read)
    bench.check()


def test_every_offset_of_many_lanes():
    config = LARGE["64 lanes"]
    bench = Bench(config)
    generator = random.Random(0)
    bench.fill(generator)
    for byte in range(config.in_lanes):
        words = tuple(generator.randrange(config.line_bank_words) for _ in range(3))
        bench.cycle(read=(byte % 3, words, byte))
    bench.check()


@pytest.mark.parametrize("name", CONFIGS)
def test_write_then_read_in_the_next_cycle(name):
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(name)
    places = [0, 1, depth - 2, depth - 1]
    bench.fill(generator, [0, 1, 2, depth - 3, depth - 2, depth - 1])
    for k in range(60):
        bank, word = generator.randrange(3), generator.choice(places)
        bench.cycle((bank, word, generator.randbytes(config.in_lanes)))
        # The word is the first or the second of the run.
        words = [generator.choice(places) for _ in range(3)]
        words[bank] = word if k % 2 else (word - 1) % depth
        bench.cycle(read=(generator.randrange(3), words, generator.randrange(config.in_lanes)))
        # The memory is read in this cycle.
        bench.cycle()
    bench.check()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGS)
def test_random(name, seed):
    """Reads and writes in the same cycles, of the same few places: also back to back."""
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(f"{name} {seed}")
    places = sorted({place % depth for place in range(-5, 5)})
    bench.fill(generator, places)
    for _ in range(400):
        write = read = None
        if generator.random() < 0.4:
            write = (
                generator.randrange(3),
                generator.choice(places),
                generator.randbytes(config.in_lanes),
            )
        if generator.random() < 0.7:
            words = [generator.randrange(-5, 4) % depth for _ in range(3)]
            read = (generator.randrange(3), words, generator.randrange(config.in_lanes))
        bench.cycle(write, read)
    forget_overtaken(bench)
    assert sum(expected is not None for _, _, expected in bench.cycles) > 100
    bench.check()


@pytest.mark.parametrize("name", ["tiny, short", "odd, short", "up5k, short"])
def test_banks_are_independent(name):
    """Every place of every bank is read back after all were written."""
    config = CONFIGS[name]
    bench = Bench(config)
    bench.fill(random.Random(name))

    def read_all(byte):
        for first in range(3):
            for word in range(config.line_bank_words):
                bench.cycle(read=(first, (word, word, word), byte))

    read_all(0)
    # Overwrite one bank; the others keep what they have.
    for word in range(config.line_bank_words):
        bench.cycle((1, word, bytes(config.in_lanes)))
    read_all(config.in_lanes - 1)
    bench.check()


def test_nothing_is_written_unless_it_is_valid():
    bench = Bench(CONFIGS["tiny, short"])
    bench.fill(random.Random(0))
    bench.cycle()
    idle = len(bench.cycles) - 1
    for word in range(bench.config.line_bank_words):
        bench.cycle(read=(2, (word, word, word), 0))
    words = bench.words()
    # Data and place without valid.
    words[idle] |= pack(bench.write_layout, {"bank": 2, "word": 3, "data": 0xFFFF_FFFF})
    bench.check(words)

"""The line buffer against three plain byte arrays."""

import random

import pytest
from amaranth.hdl import Cat

from trirow_hw.config import PRESETS
from trirow_hw.line_buffer import LineBuffer, LineRead, LineWrite
from trirow_sim.unit_kit import feed, pack

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


class Bench:
    """Lists what is written and read in each cycle, and knows what each read must give."""

    def __init__(self, config):
        self.config = config
        self.write_layout, self.read_layout = LineWrite(config), LineRead(config)
        self.memory = [bytearray(config.line_bank_words * config.in_lanes) for _ in range(3)]
        self.words, self.expected = [], []

    def cycle(self, write=None, read=None):
        """Add a cycle; ``write`` is (bank, word, data), ``read`` is (bank, word, byte)."""
        config = self.config
        # What is written in a cycle can be read in the next, so a read sees what came before.
        self.expected.append(None if read is None else self._run(*read))
        bank, word, data = write or (0, 0, b"")
        written = pack(
            self.write_layout, {"bank": bank, "word": word, "data": int.from_bytes(data, "little")}
        )
        bank_read, word_read, byte = read or (0, 0, 0)
        address = pack(self.read_layout, {"bank": bank_read, "word": word_read, "byte": byte})
        size = self.write_layout.size
        self.words.append(written | (write is not None) << size | address << size + 1)
        if write is not None:
            lanes = config.in_lanes
            self.memory[bank][word * lanes : (word + 1) * lanes] = data

    def _run(self, bank, word, byte):
        memory, lanes = self.memory[bank], self.config.in_lanes
        first = word * lanes + byte
        return bytes(memory[(first + k) % len(memory)] for k in range(lanes))

    def check(self):
        unit = LineBuffer(config=self.config)
        inputs = Cat(unit.write.as_value(), unit.write_valid, unit.read.as_value())
        latency = unit.latency
        outputs = feed(unit, inputs, self.words, unit.run, after=latency)
        lanes = self.config.in_lanes
        for k, expected in enumerate(self.expected):
            if expected is not None:
                assert outputs[k + latency].to_bytes(lanes, "little") == expected, f"read {k}"

    def fill(self, generator):
        for word in range(self.config.line_bank_words):
            for bank in range(3):
                self.cycle((bank, word, generator.randbytes(self.config.in_lanes)))


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "ecp5-85f"])
def test_every_offset_bank_and_parity(name):
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(name)
    ends = {0, 1, 2, 3, depth - 4, depth - 3, depth - 2, depth - 1}
    for word in sorted(ends):
        for bank in range(3):
            bench.cycle((bank, word, generator.randbytes(config.in_lanes)))
    reads = [
        (bank, word, byte)
        for word in sorted(ends)
        for byte in range(config.in_lanes)
        for bank in range(3)
        if (word + 1) % depth in ends
    ]
    for read in reads:
        bench.cycle(read=read)
    generator.shuffle(reads)
    for read in reads:
        bench.cycle(read=read)
    bench.check()


def test_every_offset_bank_and_parity_of_a_large_one():
    config = CONFIGS["ecp5-85f"]
    bench = Bench(config)
    words = [0, 1, 2, config.line_bank_words - 1]
    generator = random.Random(0)
    for word in words:
        for bank in range(3):
            bench.cycle((bank, word, generator.randbytes(config.in_lanes)))
    for word in (config.line_bank_words - 1, 0, 1):
        for byte in range(config.in_lanes):
            for bank in range(3):
                bench.cycle(read=(bank, word, byte))
    bench.check()


@pytest.mark.parametrize("name", CONFIGS)
def test_write_then_read_in_the_next_cycle(name):
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(name)
    for k in range(60):
        bank, word = generator.randrange(3), generator.choice([0, 1, depth - 2, depth - 1])
        bench.cycle((bank, word, generator.randbytes(config.in_lanes)))
        # The word is the first or the second of the run.
        if k % 2:
            bench.cycle(read=(bank, word, generator.randrange(config.in_lanes)))
        else:
            before = (word - 1) % depth
            bench.cycle(read=(bank, before, generator.randrange(config.in_lanes)))
    bench.check()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CONFIGS)
def test_random(name, seed):
    """Reads and writes in the same cycles, of the same few places: also back to back."""
    config = CONFIGS[name]
    bench = Bench(config)
    depth = config.line_bank_words
    generator = random.Random(f"{name} {seed}")
    for _ in range(400):
        write = read = None
        if generator.random() < 0.7:
            bank, word = generator.randrange(3), generator.randrange(-4, 4) % depth
            write = (bank, word, generator.randbytes(config.in_lanes))
        if generator.random() < 0.7:
            bank, word = generator.randrange(3), generator.randrange(-4, 4) % depth
            read = (bank, word, generator.randrange(config.in_lanes))
        bench.cycle(write, read)
    forget_overtaken(bench)
    bench.check()


def forget_overtaken(bench):
    """Expect nothing of reads whose words are written within the latency: it is undefined."""
    config, layout = bench.config, bench.write_layout
    writes = []
    for word in bench.words:
        valid = word >> layout.size & 1
        bank = word >> layout["bank"].offset & 3
        place = word >> layout["word"].offset & ((1 << layout["word"].width) - 1)
        writes.append((bank, place) if valid else None)
    read_at = layout.size + 1
    fields = bench.read_layout
    for k, word in enumerate(bench.words):
        bank = word >> read_at + fields["bank"].offset & 3
        place = word >> read_at + fields["word"].offset & ((1 << fields["word"].width) - 1)
        touched = {(bank, place), (bank, (place + 1) % config.line_bank_words)}
        if touched & set(writes[k : k + LineBuffer.latency]):
            bench.expected[k] = None


@pytest.mark.parametrize("name", ["tiny, short", "odd, short", "up5k, short"])
def test_banks_are_independent(name):
    """Every place of every bank is read back after all were written."""
    config = CONFIGS[name]
    bench = Bench(config)
    bench.fill(random.Random(name))
    for bank in range(3):
        for word in range(config.line_bank_words):
            bench.cycle(read=(bank, word, 0))
    # Overwrite one bank; the others keep what they have.
    for word in range(config.line_bank_words):
        bench.cycle((1, word, bytes(config.in_lanes)))
    for bank in range(3):
        for word in range(config.line_bank_words):
            bench.cycle(read=(bank, word, config.in_lanes - 1))
    bench.check()


def test_nothing_is_written_unless_it_is_valid():
    bench = Bench(CONFIGS["tiny, short"])
    bench.fill(random.Random(0))
    bench.cycle()
    # Data and place without valid.
    layout = bench.write_layout
    bench.words[-1] |= pack(layout, {"bank": 2, "word": 3, "data": 0xFFFF_FFFF})
    for word in range(bench.config.line_bank_words):
        bench.cycle(read=(2, word, 0))
    bench.check()

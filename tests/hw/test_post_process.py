# amaranth: UnusedElaboratable=no
"""All that happens behind the array, against a plain computation value by value."""

import itertools
import random
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from amaranth.hdl import Cat, Value

from trirow_hw.config import CONSTANT_GROUPS, PRESETS
from trirow_hw.mac_array import MacArray
from trirow_hw.post_process import PostPass, PostProcess
from trirow_hw.requantise import Requantiser
from trirow_sim.stream_kit import StreamRule, run, send, stalls
from trirow_sim.unit_kit import pack, unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-25f", "m256")},
    "one column": PRESETS["tiny"].override(post_lanes=4),
    "one lane": PRESETS["tiny"].override(out_lanes=1),
    "ragged column": PRESETS["tiny"].override(out_lanes=7, post_lanes=3),
    "float32 only": replace(PRESETS["odd"], requantise_modes=("float32",)),
    "fixed only": replace(PRESETS["odd"], requantise_modes=("fixed",)),
}


# What must come out, from the arithmetic as the frameworks state it.


def scale_float32(total, word):
    factor = np.float32((word & 0xFF_FFFF) * 2.0 ** -(word >> 24 & 63))
    return int(np.rint(np.float32(total) * (-factor if word >> 31 else factor)))


def scale_fixed(total, mantissa, left, right):
    """SaturatingRoundingDoublingHighMul, which truncates towards 0, RoundingDivideByPOT."""
    product = (total << left) * mantissa
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    x = abs(nudged) >> 31
    x = x if nudged >= 0 else -x
    mask = (1 << right) - 1
    return (x >> right) + ((x & mask) > (mask >> 1) + (x < 0))


def post_process(spec, constants, chunk, total, second):
    """Return the bytes of one value: constants are bias and two words."""
    bias, scale, other = constants
    places = [(0, 0), (1, second & 255)]
    total += second if spec["partial_in"] else bias
    if spec["kept_out"]:
        return b""
    if spec["partial_out"]:
        return total.to_bytes(4, "little", signed=True)
    if spec["fixed"]:
        y = scale_fixed(total, scale, other & 15, other >> 8 & 31)
    else:
        y = scale_float32(total, other if spec["prelu"] and total < 0 else scale)
    y = min(max(y + spec["zero_out"], spec["low"]), spec["high"])
    places[0] = 0, y & 255
    if spec["combine"]:
        chunk.used.update(places)
        a, b = (chunk.tables[which][entry] for which, entry in places)
        both = a + b if spec["combine"] == 1 else max(a, b)
        y = scale_fixed(both, spec["sum_mantissa"], spec["sum_left"], spec["sum_right"])
        y = min(max(y + spec["sum_zero"], spec["sum_low"]), spec["sum_high"])
    elif spec["table"]:
        chunk.used.add(places[0])
        y = chunk.tables[0][y & 255]
    return bytes([y & 255])


# Random passes.


@dataclass
class Chunk:
    """Constants of each lane of some groups (the first has the number ``first``), and tables."""

    first: int
    constants: list
    tables: list
    number: int  # of the chunks that have tables
    used: set = field(default_factory=set)  # table and entry; only those are written


@dataclass
class Group:
    """A lane group of a pixel: sums, columns of the second operand, and what must come out."""

    chunk: Chunk
    index: int
    lanes: int
    columns: int
    spacing: int
    second: int
    kept_out: int
    release: bool
    pass_end: bool
    tables_end: bool
    sums: list
    outputs: list = field(default_factory=list)
    seconds: list = field(default_factory=list)


def random_int8(generator):
    return generator.choice([-128, 127, generator.randint(-128, 127)])


def random_bounds(generator, prefix, zero):
    low, high = sorted(random_int8(generator) for _ in "ab")
    if generator.random() < 0.6:
        low, high = -128, 127
    return {zero: random_int8(generator), f"{prefix}low": low, f"{prefix}high": high}


def random_scale(generator, fixed):
    """Return both words of a scale; most sums of 22 bits then become 7 or 8 bits."""
    if fixed:
        left = generator.randint(0, 9)
        right = min(31, generator.randint(14, 18) + left)
        return generator.randint(1 << 30, (1 << 31) - 1), left | right << 8
    words = []
    for _ in "ab":
        exponent, negative = 23 + generator.randint(14, 18), generator.random() < 0.2
        words.append(generator.randint(1 << 23, (1 << 24) - 1) | exponent << 24 | negative << 31)
    return words


def random_chunk(generator, config, kind, chunks, groups=None):
    lanes, groups = config.out_lanes, groups or generator.randint(1, 3)
    constants = [
        [
            (generator.randint(-(1 << 20), 1 << 20), *random_scale(generator, kind["fixed"]))
            for _ in range(lanes)
        ]
        for _ in range(groups)
    ]
    bits = generator.choice([7, 20, 30])
    count = 2 if kind["combine"] else 1 if kind["table"] else generator.choice([0, 0, 0, 1, 2])
    tables = [[generator.randint(-(1 << bits), 1 << bits) for _ in range(256)] for _ in "ab"]
    first = sum(len(chunk.constants) for chunk in chunks)
    number = sum(bool(chunk.tables) for chunk in chunks)
    return Chunk(first, constants, tables[:count], number)


def kinds(config):
    """Return every combination of flags that a pass may have in a configuration."""
    modes = config.requantise_modes
    scalings = [(0, 0), (0, 1)] * ("float32" in modes) + [(1, 0)] * ("fixed" in modes)
    combines = (0, 1, 2) if "fixed" in modes else (0,)
    names = ("partial_in", "partial_out", "table", "combine", "fixed", "prelu")
    for partial_in, partial_out, table, combine in itertools.product(
        (0, 1), (0, 1), (0, 1), combines
    ):
        if not combine or not (partial_in or partial_out):
            for fixed, prelu in scalings:
                flags = (partial_in, partial_out, table, combine, fixed, prelu)
                yield dict(zip(names, flags, strict=True), kept_in=0, kept_out=0)


def random_shape(generator, config):
    """Return the channels of the last lane group and of the others, and the pixels."""
    last_lanes = generator.randint(1, config.out_lanes)
    group_lanes = generator.choice([config.out_lanes, generator.randint(1, config.out_lanes)])
    return last_lanes, group_lanes, generator.randint(1, 4)


def random_pass(generator, config, kind, chunk, keep, tight, *, shape=None, kept=(), loops=0):
    """Return the fields of a pass and its groups.

    ``shape``: see `random_shape`. ``kept``: sums that earlier passes keep, which this one takes
    from and adds to. ``loops``: passes before it which take such sums and keep none.
    """
    spec = {
        **kind,
        **random_bounds(generator, "", "zero_out"),
        **random_bounds(generator, "sum_", "sum_zero"),
        "sum_mantissa": generator.randint(1 << 30, (1 << 31) - 1),
        "sum_left": generator.randint(0, 9),
        "sum_right": generator.choice([0, 12, 22, 31]),
        "table_bytes": 1024 * len(chunk.tables),
        "keep_weights": keep,
    }
    width, groups = config.post_lanes, []
    second = int(spec["partial_in"] or spec["combine"] != 0)
    last_lanes, group_lanes, pixels = shape or random_shape(generator, config)
    factor = 1 if tight else 4 if spec["partial_out"] else 2 if spec["combine"] else 1
    for pixel, k in itertools.product(range(pixels), range(len(chunk.constants))):
        last, ends = k == len(chunk.constants) - 1, pixel == pixels - 1
        lanes = last_lanes if last else group_lanes
        bits = generator.choice([12, 22, 22, 22, 30])
        sums = [generator.randint(-(1 << bits), 1 << bits) for _ in range(lanes)]
        columns = -(-lanes // width)
        tables_end = bool(ends and last and chunk.tables and not keep)
        group = Group(
            *(chunk, k, lanes, columns, factor * columns, second, spec["kept_out"]),
            *(bool(ends and not keep), ends and last, tables_end, sums),
        )
        for start in range(0, lanes, width):
            # Whatever is not defined is random.
            operands = [generator.randint(-(1 << 30), 1 << 30) for _ in range(width)]
            if spec["kept_in"]:
                operands = kept.popleft()
            else:
                word = sum((v & 0xFFFF_FFFF) << 32 * n for n, v in enumerate(operands))
                group.seconds.append(word | loops % 8 << 32 * width)
            values = [*zip(chunk.constants[k][start:], sums[start:], operands, strict=False)]
            if spec["kept_out"]:
                both = [s + (r if spec["kept_in"] else c[0]) for c, s, r in values]
                kept.append(both[:width])
            data = b"".join(post_process(spec, c, chunk, s, r) for c, s, r in values)
            group.outputs += [data[n : n + width] for n in range(0, len(data), width)]
        groups.append(group)
    return spec, groups


def random_passes(generator, config, wanted, *, tight=False):
    """Return passes of the kinds, in random order; some use the chunk of the pass before.

    Passes without sums in memory stand at the end of a loop of some that keep theirs on chip.
    """
    chunks, passes, groups = [], [], []
    loops = 0
    wanted = list(wanted)
    generator.shuffle(wanted)

    def add(kind, keeps, size=None, **options):
        chunk = random_chunk(generator, config, kind, chunks, size)
        chunks.append(chunk)
        for keep in keeps:
            spec, more = random_pass(
                generator, config, kind, chunk, keep, tight, loops=loops, **options
            )
            passes.append(spec)
            groups.extend(more)

    for kind in wanted:
        if kind["partial_in"] or kind["partial_out"] or kind["combine"] or generator.random() < 0.3:
            add(kind, generator.choice([[0], [0], [1, 0]]))
            continue
        kept, length, count = deque(), generator.randint(2, 4), generator.randint(1, 2)
        shapes, size = (
            [random_shape(generator, config) for _ in range(count)],
            generator.randint(1, 3),
        )
        for k in range(length):
            first, last = k == 0, k == length - 1
            flags = {
                "partial_in": int(not first),
                "kept_in": int(not first),
                "kept_out": int(not last),
            }
            for shape in shapes:
                add(kind | flags, [0], size, shape=shape, kept=kept)
                loops += last
        assert not kept
    return passes, groups, chunks


# The bench.


class Loader:
    """Plays the weight reader: writes constants and tables as soon as their places are free."""

    def __init__(self, unit, config, chunks, generator):
        self.unit, self.generator = unit, generator
        self.loaded = self.freed = self.tables_freed = 0  # chunks; groups; chunks with tables
        self.writes = deque()
        for number, chunk in enumerate(chunks):
            self.writes += [("table", number, chunk, *entry) for entry in sorted(chunk.used)]
            lanes = list(itertools.product(range(len(chunk.constants)), range(config.out_lanes)))
            self.writes += [("constant", number, chunk, *lane) for lane in lanes]
        self.chunks = chunks

    def step(self):
        """Return what both ports and their valids carry: at most one write, else garbage."""
        unit, values = self.unit, {}
        if self.writes:
            what, _, chunk, a, b = self.writes[0]
            if what == "table" and chunk.number < self.tables_freed + 2:
                data = chunk.tables[a][b] & 0xFFFF_FFFF
                values[what] = {"place": chunk.number % 2, "second": a, "entry": b, "data": data}
            if what == "constant" and chunk.first + a < self.freed + CONSTANT_GROUPS:
                slot = (chunk.first + a) % CONSTANT_GROUPS
                words = enumerate(chunk.constants[a][b])
                data = sum((word & 0xFFFF_FFFF) << 32 * n for n, word in words)
                values[what] = {"group": slot, "lane": b, "data": data}
            if values:
                self.writes.popleft()
        word, place = 0, 0
        for name, layout in (("constant", unit.constant.shape()), ("table", unit.table.shape())):
            bits = self.generator.getrandbits(layout.size)
            if name in values:
                bits = pack(layout, values[name]) | 1 << layout.size
            word |= bits << place
            place += layout.size + 1
        return word, place

    def end_cycle(self):
        """Count the chunks that are there."""
        self.loaded = self.writes[0][1] if self.writes else len(self.chunks)


class Bench:
    """Plays issuer and array for a list of groups; checks outputs and releases."""

    def __init__(self, config, seed, wanted, *, tight=False, array_stall=None, o_stall=None):
        self.generator = random.Random(repr(seed))
        self.passes, self.groups, self.chunks = random_passes(
            self.generator, config, wanted, tight=tight
        )
        self.config, self.unit = config, PostProcess(config=config)
        self.latency = MacArray(config=config).latency
        self.array_stall, self.o_stall = array_stall, o_stall
        self.outputs = [output for group in self.groups for output in group.outputs]
        self.seconds = [s for group in self.groups if group.second for s in group.seconds]
        self.taken = self.cycle = 0
        self.releases, self.table_releases = deque(), deque()  # earliest cycles
        self.loader = Loader(self.unit, config, self.chunks, self.generator)

    async def sender(self, ctx):
        await send(ctx, self.unit.i, [pack(PostPass, spec) for spec in self.passes])

    def second_sender(self, *, stall=None, late=0):
        async def sender(ctx):
            for _ in range(late):
                await ctx.tick()
            await send(ctx, self.unit.second, self.seconds, stall)

        return sender

    def _tag(self, group):
        values = {
            "group": (group.chunk.first + group.index) % CONSTANT_GROUPS,
            "lanes": group.lanes,
            "columns": group.columns,
            "second": group.second,
            "kept_out": group.kept_out,
            "release": group.release,
            "pass_end": group.pass_end,
        }
        return pack(self.unit.tag.shape(), values)

    def _sums(self, group, column):
        """Return the sums of a column and ``done``; sums that do not count are random."""
        width = self.config.post_lanes
        word = self.generator.getrandbits(32 * width)
        if group:
            for k, total in enumerate(group.sums[column * width : (column + 1) * width]):
                word &= ~(0xFFFF_FFFF << 32 * k)
                word |= (total & 0xFFFF_FFFF) << 32 * k
        return word | (group is not None and column == 0) << 32 * width

    def _check(self, valid, ready, bits, release, table_release):
        unit, width = self.unit, self.config.post_lanes
        if valid and ready:
            assert self.taken < len(self.outputs), "more outputs than there are"
            output = unpack(unit.o.payload.shape(), bits)
            raw = output["data"].to_bytes(width, "little")[: output["count"]]
            assert raw == self.outputs[self.taken], f"output {self.taken}"
            self.taken += 1
        if release:
            assert self.cycle > self.releases.popleft(), "released before its last constant"
            self.loader.freed += 1
        if table_release:
            assert self.cycle > self.table_releases.popleft(), "released before its last lookup"
            self.loader.tables_freed += 1

    async def testbench(self, ctx):
        unit, rule = self.unit, StreamRule("o")
        lookup = Requantiser(modes=self.config.requantise_modes).latency
        order = {id(chunk): number for number, chunk in enumerate(self.chunks)}
        tags, held, blocked = deque(self.groups), stalls(self.array_stall), stalls(self.o_stall)
        arriving, now, column, next_tag, there = deque(), None, 0, 0, 0
        # All at once, which is much faster.
        inputs = Cat(
            *(unit.constant.as_value(), unit.constant_valid, unit.table.as_value()),
            *(unit.table_valid, unit.tag.as_value(), unit.tag_there, unit.o.ready),
            *(unit.sums.as_value(), unit.done),
        )
        tag_size = unit.tag.shape().size
        sampler = ctx.tick().sample(
            unit.o.valid, Value.cast(unit.o.payload), unit.release, unit.table_release
        )
        rest = 2 * lookup + 60
        while rest:
            rest -= self.taken == len(self.outputs)
            if arriving and arriving[0][0] == self.cycle:
                now, column = arriving.popleft()[1], 0
                end = self.cycle + now.columns - 1
                if now.release:
                    self.releases.append(end)
                if now.tables_end:
                    self.table_releases.append(end + lookup)
            tag_there = bool(tags) and self.cycle >= there
            # Before the next group is there, the tag is any.
            tag = tags[0] if tag_there else self.generator.choice(self.groups)
            ready = not next(blocked)
            word, place = self.loader.step()
            word |= (self._tag(tag) | (tag_there | ready << 1) << tag_size) << place
            word |= self._sums(now, column) << place + tag_size + 2
            ctx.set(inputs, word)
            due = tag_there and order[id(tag.chunk)] < self.loader.loaded and self.cycle >= next_tag
            valid = bool(due and not next(held) and ctx.get(unit.room))
            ctx.set(unit.tag_valid, valid)
            if valid:
                tags.popleft()
                next_tag = self.cycle + tag.spacing
                there = self.cycle + 1
                if self.array_stall:
                    there += self.generator.randrange(3)
                arriving.append((self.cycle + self.latency, tag))
            column += 1
            if now and column == now.columns:
                now = None
            _, _, valid, *values = await sampler
            rule.check(valid, ready, values[0])
            self._check(valid, ready, *values)
            self.loader.end_cycle()
            self.cycle += 1
        assert not tags
        assert not self.releases
        assert not self.table_releases

    def run(self, *, second_stall=None, late=0):
        senders = [self.sender, self.testbench]
        if self.seconds:
            senders.append(self.second_sender(stall=second_stall, late=late))
        cycles = 2000 + late + 60 * len(self.outputs) + 2 * len(self.loader.writes)
        cycles += 100 * len(self.passes)
        run(self.unit, *senders, max_cycles=cycles)
        assert self.loader.freed == sum(len(chunk.constants) for chunk in self.chunks)
        return self.cycle


def some_kinds(seed, config, count):
    return random.Random(seed).choices(list(kinds(config)), k=count)


def test_every_kind_of_pass():
    """Each combination of flags, in random order without a gap between the passes."""
    config = CONFIGS["tiny"]
    Bench(config, "all", kinds(config)).run()


@pytest.mark.parametrize("name", list(CONFIGS)[1:])
def test_configurations(name):
    """Some kinds of passes on arrays of other shapes, and with one mode only."""
    config = CONFIGS[name]
    Bench(config, name, some_kinds(name, config, 10)).run()


@pytest.mark.parametrize(
    ("name", "tight", "stall"),
    [
        ("tiny", True, None),
        ("tiny", False, 10),
        ("odd", True, 20),
        ("m256", True, 30),
        ("one column", True, 40),
    ],
)
def test_stalls(name, tight, stall):
    """Nothing is lost, even if groups are no further apart than the array needs (``tight``)."""
    config = CONFIGS[name]
    array_stall, second_stall = (None, None) if stall is None else (stall, stall + 1)
    bench = Bench(
        *(config, f"{name} {stall}", some_kinds(stall, config, 10)),
        **{"tight": tight, "array_stall": array_stall, "o_stall": 5},
    )
    bench.run(second_stall=second_stall)


def test_second_operand_late():
    """What needs no second operand does not wait; the rest goes on when it comes."""
    config = CONFIGS["tiny"]
    wanted = [kind for kind in kinds(config) if kind["partial_in"] or kind["combine"]]
    bench = Bench(config, "late", random.Random(4).choices(wanted, k=4))
    cycles = bench.run(late=700, second_stall=6)
    assert cycles > 700

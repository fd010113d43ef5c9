"""The sequencer: chains of descriptors, refused ones, and units that do not take their parts."""

import itertools
import random
from collections import deque

import pytest
from amaranth import Module, Signal
from amaranth.hdl import Cat, Elaboratable, ResetInserter

from trirow_hw.config import PRESETS
from trirow_hw.descriptor import DESCRIPTOR_BYTES, FIELDS, pack_descriptor
from trirow_hw.sequencer import PASS_QUEUE, Sequencer
from trirow_sim.stream_kit import StreamRule, run, stalls
from trirow_sim.unit_kit import unpack

NINE_BITS = "two beats, 9 bits"
CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-85f")},
    NINE_BITS: PRESETS["odd"].override(bus_bytes=128, weight_bits=9),
    "float32 only": PRESETS["tiny"].override(requantise_modes=("float32",)),
    "fixed only": PRESETS["odd"].override(requantise_modes=("fixed",)),
}
PARTS = ("features", "weights", "window", "issue", "post", "second", "output")
SHAPES = {name: shape for name, shape, _ in FIELDS}
SPAN_FIELDS = ("span", "gap", "line", "turn")
#: Fields of the parts that are called otherwise in the descriptor.
NAMES = {
    "weights": {"address": "weight_address", "bytes": "weight_bytes"},
    "second": {"wait": "second_wait"},
    "features": {"spans.first": "in_first"},
    "output": {},
}
for _part, _prefix in (("features", "in"), ("second", "second"), ("output", "out")):
    NAMES[_part] = {
        "spans.address": f"{_prefix}_address",
        "spans.total": f"{_prefix}_bytes",
        "spans.first": f"{_prefix}_span",
        **{f"spans.{name}": f"{_prefix}_{name}" for name in SPAN_FIELDS},
        **NAMES[_part],
    }
#: Fields of the parts that follow from those of the descriptor.
DERIVED = {
    "window.depthwise": lambda fields: int(fields["op"] in (2, 3, 4)),
    "issue.depthwise": lambda fields: int(fields["op"] in (2, 3, 4)),
    "issue.maximum": lambda fields: int(fields["op"] == 4),
    "issue.second": lambda fields: int(fields["second_bytes"] > 0 or fields["partial_in"] == 2),
    "issue.kept_out": lambda fields: int(fields["partial_out"] == 2),
    "post.partial_in": lambda fields: int(fields["partial_in"] > 0),
    "post.partial_out": lambda fields: int(fields["partial_out"] == 1),
    "post.kept_in": lambda fields: int(fields["partial_in"] == 2),
    "post.kept_out": lambda fields: int(fields["partial_out"] == 2),
    "second.four_bytes": lambda fields: fields["partial_in"],
}


def most(name):
    """Return the largest value of a field's bits."""
    return (1 << SHAPES[name].width - SHAPES[name].signed) - 1


def ranges(config):
    """Return the range of each field that is bounded by more than its width."""
    depth = config.line_bank_words
    fixed = "fixed" in config.requantise_modes
    flags = (*("last", "wait", "keep_weights", "wide", "prelu", "table", "second_wait"),)
    not_zero = (
        *("in_bytes", "in_first", "in_span", "in_line", "rows", "row_words", "in_columns"),
        *("out_rows", "out_columns", "kernel_rows", "kernel_columns", "stride_rows"),
        *("stride_columns", "run_words", "chunk_steps", "chunk_run", "weight_bytes"),
        *("group_bytes", "out_bytes", "out_span", "out_line"),
    )
    return {
        "op": (1, 4),
        "version": (2, 2),
        # The first pass of a chain has nothing to share.
        "load_weights": (1, 1),
        **dict.fromkeys(flags, (0, 1)),
        **dict.fromkeys(("partial_in", "partial_out"), (0, 2)),
        **{name: (1, most(name)) for name in not_zero},
        "row_bytes": (1, 0xFFFF * config.in_lanes),
        "row_pitch": (0, depth - 1),
        "row_tail": (1, config.in_lanes),
        "top_bank": (0, 2),
        "first_wrapped": (0, depth - 1),
        "first_byte": (0, config.in_lanes - 1),
        "step_byte": (0, config.in_lanes - 1),
        "step_wrapped": (0, depth - 1),
        "run_tail": (1, config.in_lanes),
        "tap_words": (0, depth - 1),
        "tap_byte": (0, config.in_lanes - 1),
        "columns": (1, config.stages),
        "last_columns": (1, config.stages),
        "spacing": (1, 255),
        "groups": (1, 64),
        "group_lanes": (1, config.out_lanes),
        "last_lanes": (1, config.out_lanes),
        "group_words": (1, config.weight_words),
        "chunk_tail": (1, config.in_lanes),
        "zero_weight": (0, 0) if config.weight_bits == 8 else (-128, 127),
        "fixed": (int("float32" not in config.requantise_modes), int(fixed)),
        "combine": (0, 2 if fixed else 0),
        "sum_left": (0, 9),
        "sum_right": (0, 31),
        "sum_mantissa": (0, (1 << 31) - 1),
    }


def random_fields(generator, config, **values):
    """Return fields that are all in range and in line with each other; a few may be given."""
    bounds, fields = ranges(config), {}
    for name, shape in SHAPES.items():
        if name in ("version", "check"):
            continue
        low = -(1 << shape.width - 1) if shape.signed else 0
        low, high = bounds.get(name, (low, most(name)))
        fields[name] = generator.choice([low, high, generator.randint(low, high)])
    fields |= {"last": 1, **values}
    fields["row_bytes"] = (fields["row_words"] - 1) * config.in_lanes + fields["row_tail"]
    for total, first in (("in_bytes", "in_first"), ("out_bytes", "out_span")):
        fields[first] = min(fields[first], fields[total])
    fields["columns"] = -(-fields["group_lanes"] // config.post_lanes)
    fields["last_columns"] = -(-fields["last_lanes"] // config.post_lanes)
    least = max(fields["columns"], fields["last_columns"])
    fields["spacing"] = generator.choice([least, generator.randint(least, 255)])

    # A second operand exactly if one is used, and the tables that are.
    if values.get("partial_in") or fields["partial_out"] == 2:
        fields["combine"] = 0
    elif fields["combine"]:
        fields |= {"partial_in": 0, "partial_out": 0}
    if fields["last"] and fields["partial_out"] == 2:
        fields["partial_out"] = 1
    sizes = [2048] if fields["combine"] else [1024, 2048] if fields["table"] else [0, 1024, 2048]
    fields["table_bytes"] = generator.choice(sizes)
    fields["second_bytes"] = max(1, fields["second_bytes"])
    fields["second_line"] = max(1, fields["second_line"])
    fields["second_span"] = min(max(1, fields["second_span"]), fields["second_bytes"])
    if not fields["combine"] and fields["partial_in"] != 1:
        fields |= {"second_bytes": 0, "second_span": generator.choice([0, most("second_span")])}
    return fields


def plain_fields(config, **values):
    """Return fields at the lower ends of their ranges, or 0, but for those that are given."""
    bounds = ranges(config)
    names = [name for name in SHAPES if name not in ("version", "check")]
    lowest = {name: max(0, bounds.get(name, (0, 0))[0]) for name in names}
    return {**lowest, "last": 1, **values}


def mates(config, field, value):
    """Return other fields that are tied to a value of one."""
    lanes, width = config.in_lanes, config.post_lanes
    tied = {
        "row_words": {"row_bytes": (value - 1) * lanes + 1},
        "row_tail": {"row_bytes": value},
        "row_bytes": {"row_words": -(-value // lanes), "row_tail": (value - 1) % lanes + 1},
        "in_first": {"in_bytes": value},
        "out_span": {"out_bytes": value},
        "columns": {"group_lanes": (value - 1) * width + 1, "spacing": value},
        "last_columns": {"last_lanes": (value - 1) * width + 1, "spacing": value},
        "group_lanes": dict.fromkeys(("columns", "spacing"), -(-value // width)),
        "last_lanes": dict.fromkeys(("last_columns", "spacing"), -(-value // width)),
    }
    second = {"second_bytes": 1, "second_span": 1, "second_line": 1}
    if value:
        tied["combine"] = {**second, "table_bytes": 2048}
        tied["partial_in"] = second if value == 1 else {}
        tied["partial_out"] = {"last": 0, "next": 0x1_0100}
        tied["table"] = {"table_bytes": 1024}
    return tied.get(field, {})


def random_chain(generator, config, length, *, kept_sums=False, **values):
    """Return a chain: addresses, fields and bytes of each descriptor.

    Some passes keep their sums on chip with ``kept_sums``.
    """
    addresses = sorted(k * DESCRIPTOR_BYTES for k in generator.sample(range(1, 1 << 24), length))
    chain, kept = [], 0
    for k, address in enumerate(addresses):
        last = k == length - 1
        following = 0 if last else addresses[k + 1]
        keep = values.get("keep_weights", generator.randint(0, 1))
        given = {"last": int(last), "next": following, "keep_weights": keep}
        if not kept_sums:
            given["partial_out"] = generator.randint(0, 1)
        fields = random_fields(generator, config, **given | values)
        fields["load_weights"] = 1 - kept
        kept = keep
        chain.append((address, fields, pack_descriptor(fields)))
    return chain


def flatten(values, path=""):
    """Return the fields of a part with the names of nested ones joined by dots."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{path}{name}.")
        else:
            flat[path + name] = value
    return flat


class Bench(Elaboratable):
    """The sequencer with a reset of its own, as the supervisor gives it."""

    def __init__(self, config):
        self.config = config
        self.unit = Sequencer(config=config)
        self.reset = Signal()

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = ResetInserter(self.reset)(self.unit)
        return m

    async def begin(self, ctx, address):
        """Reset, then start at an address."""
        ctx.set(self.reset, 1)
        await ctx.tick()
        ctx.set(self.reset, 0)
        ctx.set(self.unit.first, address)
        ctx.set(self.unit.start, 1)
        await ctx.tick()
        ctx.set(self.unit.start, 0)
        ctx.set(self.unit.first, 0)

    async def serve(self, ctx, chain, cycles, *, seed=None, blocked=(), until=None):
        """Answer requests and take parts; return requests and parts by unit.

        Ends after some cycles, or when ``until(requests, parts)`` holds.
        """
        unit, size = self.unit, self.config.bus_bytes
        memory = {
            address + k: raw[k : k + size]
            for address, _, raw in chain
            for k in range(0, len(raw), size)
        }
        generator = random.Random(seed)
        held = {
            name: stalls(None if seed is None else generator.getrandbits(32))
            for name in ("request", "answer", *PARTS)
        }
        rules = {name: StreamRule(name) for name in ("request", *PARTS)}
        ports = [unit.request, *(getattr(unit, name) for name in PARTS)]
        sampler = ctx.tick().sample(
            unit.answer.ready, *(Cat(port.valid, port.payload.as_value()) for port in ports)
        )
        requests, parts = [], {name: [] for name in PARTS}
        beats, offered = deque(), False
        for _ in range(cycles):
            ready = {name: not next(held[name]) and name not in blocked for name in rules}
            for name, port in zip(rules, ports, strict=True):
                ctx.set(port.ready, ready[name])
            if not offered and beats and not next(held["answer"]):
                offered = True
                ctx.set(unit.answer.payload, int.from_bytes(beats[0], "little"))
            ctx.set(unit.answer.valid, offered)
            _, _, taken, *sampled = await sampler
            if offered and taken:
                beats.popleft()
                offered = False
            for name, port, bits in zip(rules, ports, sampled, strict=True):
                valid, payload = bits & 1, bits >> 1
                rules[name].check(valid, ready[name], payload)
                if not (valid and ready[name]):
                    continue
                values = unpack(port.payload.shape(), payload)
                if name == "request":
                    assert not beats
                    requests.append(values)
                    assert values["beats"] * size == max(DESCRIPTOR_BYTES, size)
                    first = values["address"]
                    beats.extend(memory[first + k * size] for k in range(values["beats"]))
                else:
                    parts[name].append(flatten(values))
            if until and until(requests, parts):
                break
        ctx.set(unit.answer.valid, 0)
        return requests, parts


def wanted(name, fields):
    """Tell whether a unit has a part in a pass."""
    if name == "weights":
        return fields["load_weights"] == 1
    if name == "output":
        return fields["partial_out"] != 2
    return name != "second" or fields["second_bytes"] > 0


def check_parts(chain, parts):
    """Check that each unit was told of each pass that it has a part in, in order."""
    listed, index, loops = [], 0, 0
    for _, fields, _ in chain:
        listed.append((index, loops % 8, fields))
        index += fields["partial_out"] != 2
        loops += fields["partial_out"] != 2 and fields["partial_in"] == 2
    for name, told in parts.items():
        passes = [entry for entry in listed if wanted(name, entry[2])]
        assert len(told) == len(passes), name
        for values, (index, loops, fields) in zip(told, passes, strict=True):
            expected = {}
            for key in values:
                # A part may have fewer bits than the descriptor; the range takes care.
                if key == "index":
                    expected[key] = index
                elif key == "loops":
                    expected[key] = loops
                elif f"{name}.{key}" in DERIVED:
                    expected[key] = DERIVED[f"{name}.{key}"](fields)
                else:
                    expected[key] = fields[NAMES.get(name, {}).get(key, key)]
            assert values == expected, f"{name} of pass {index}"


@pytest.mark.parametrize(
    ("name", "seed"), [("tiny", None), ("odd", 2), *((name, 1) for name in CONFIGS)]
)
def test_chain(name, seed):
    config = CONFIGS[name]
    chain = random_chain(random.Random(f"{name} {seed}"), config, 7, kept_sums=True)
    bench = Bench(config)
    due = {part: sum(wanted(part, fields) for _, fields, _ in chain) for part in PARTS}

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])

        def all_told(requests, parts):
            return all(len(told) == due[part] for part, told in parts.items())

        requests, parts = await bench.serve(ctx, chain, 5000, seed=seed, until=all_told)
        assert [request["address"] for request in requests] == [entry[0] for entry in chain]
        indices = [0, *itertools.accumulate(f["partial_out"] != 2 for _, f, _ in chain[:-1])]
        assert [request["index"] for request in requests] == indices
        check_parts(chain, parts)
        assert ctx.get(bench.unit.passes) == sum(f["partial_out"] != 2 for _, f, _ in chain)
        assert ctx.get(bench.unit.finished)
        assert not ctx.get(bench.unit.bad)

    run(bench, testbench, max_cycles=6000)


def test_nothing_happens_before_the_start():
    bench = Bench(CONFIGS["tiny"])

    async def testbench(ctx):
        ctx.set(bench.unit.first, 0x1000)
        requests, parts = await bench.serve(ctx, [], 50)
        assert not requests
        assert not any(parts.values())

    run(bench, testbench)


@pytest.mark.parametrize("blocked", PARTS)
def test_a_unit_that_takes_nothing(blocked):
    """The others get no more than that unit's queue holds; then all goes on."""
    config = CONFIGS["tiny"].override(bus_bytes=128)
    # Each pass has a part for every unit.
    given = {"keep_weights": 0, "partial_in": 1}
    chain = random_chain(random.Random(blocked), config, PASS_QUEUE + 3, **given)
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        requests, parts = await bench.serve(ctx, chain, 100, blocked=(blocked,))
        assert len(requests) == PASS_QUEUE + 1
        assert not parts[blocked]
        assert all(len(parts[name]) == PASS_QUEUE for name in PARTS if name != blocked)
        assert ctx.get(bench.unit.passes) == PASS_QUEUE
        assert not ctx.get(bench.unit.finished)
        assert not ctx.get(bench.unit.bad)
        _, more = await bench.serve(ctx, chain, 100)
        check_parts(chain, {name: parts[name] + more[name] for name in PARTS})
        assert ctx.get(bench.unit.finished)

    run(bench, testbench)


def repaired(raw, **values):
    """Return a descriptor with some fields replaced and the check made right again."""
    word, offset = int.from_bytes(raw, "little"), 0
    for name, shape, _ in FIELDS:
        mask = (1 << shape.width) - 1
        if name in values:
            word &= ~(mask << offset)
            word |= (values[name] & mask) << offset
        offset += shape.width
    raw = bytearray(word.to_bytes(DESCRIPTOR_BYTES, "little"))
    raw[2:4] = bytes(2)
    check = 0x5452
    for k in range(0, len(raw), 2):
        check ^= int.from_bytes(raw[k : k + 2], "little")
    raw[2:4] = check.to_bytes(2, "little")
    return bytes(raw)


async def verdict(ctx, bench, raw, address=0x1_0000):
    """Return whether a descriptor is refused; check that it is then not handed out."""
    unit, size = bench.unit, bench.config.bus_bytes
    await bench.begin(ctx, address)
    ports = [getattr(unit, name) for name in PARTS]
    for port in (unit.request, *ports):
        ctx.set(port.ready, 1)
    beats = [int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size)]
    ctx.set(unit.answer.valid, 1)
    ctx.set(unit.answer.payload, beats[0])
    sampler = ctx.tick().sample(unit.answer.ready, unit.bad, unit.post.valid)
    bad = told = 0
    while not bad and not told:
        _, _, taken, bad, told = await sampler
        if taken and beats:
            del beats[0]
            ctx.set(unit.answer.payload, beats[0] if beats else 0)
    assert not beats
    offered = Cat(unit.request.valid, *(port.valid for port in ports))
    if bad:
        for _ in range(3):
            assert not ctx.get(offered)
            assert (ctx.get(unit.passes), ctx.get(unit.bad), ctx.get(unit.finished)) == (0, 1, 0)
            await ctx.tick()
    ctx.set(unit.answer.valid, 0)
    return bool(bad)


@pytest.mark.parametrize("name", ["ecp5-85f", NINE_BITS, "float32 only", "fixed only"])
def test_out_of_range(name):
    """Each field at the ends of its range is taken, just outside it is refused."""
    config = CONFIGS[name].override(bus_bytes=128)
    bench = Bench(config)

    def unbounded(config, field, value):
        """Return what else is tied to a value, as far as it fits, so that only the range counts."""
        tied = mates(config, field, value) if value else {}
        names = ("row_tail", "columns", "last_columns", "group_lanes", "last_lanes")
        return tied if field in names and max(tied.values(), default=0) < 256 else {}

    async def testbench(ctx):
        for field, (low, high) in ranges(config).items():
            shape = SHAPES[field]
            least, top = (-128, 127) if shape.signed else (0, (1 << shape.width) - 1)
            for value in sorted({low, high} - ({0} if field == "last" else set())):
                tied = mates(config, field, value)
                raw = pack_descriptor(plain_fields(config, **{field: value}, **tied))
                assert not await verdict(ctx, bench, raw), (field, value)
            # The groups of more than one pixel have to be there together.
            raw = repaired(raw, out_rows=2)
            for value in sorted({low - 1, high + 1, top, top // 2 + 1}):
                if least <= value <= top and not low <= value <= high:
                    bad = repaired(raw, **{field: value}, **unbounded(config, field, value))
                    assert await verdict(ctx, bench, bad), (field, value)

    run(bench, testbench, max_cycles=80_000)


TILES = {"columns": 2, "last_columns": 1, "group_lanes": 4, "last_lanes": 1, "spacing": 2}
MAP = {
    **{"combine": 1, "partial_in": 0, "partial_out": 0, "table": 0, "table_bytes": 2048},
    **{"second_bytes": 12, "second_span": 4, "second_line": 12},
}
SUMS = {**MAP, "combine": 0, "partial_in": 1, "table_bytes": 0}
NONE = {**SUMS, "partial_in": 0, "second_bytes": 0}
ON = {"last": 0, "next": 0x1_0100}
TWO_ROWS = {"out_rows": 2, "out_columns": 1, "groups": 64, "keep_weights": 0}
ONE_PIXEL = {**TWO_ROWS, "out_rows": 1, "groups": 65}
#: Fields of a descriptor that is taken, then single fields with which it is not.
RULES = [
    (TILES, {"columns": 1}, {"columns": 3}, {"group_lanes": 3 - 1}, {"spacing": 1}),
    (TILES, {"last_columns": 2}, {"last_lanes": 3}),
    ({**TILES, "columns": 1, "group_lanes": 2}, {"columns": 2}, {"group_lanes": 3}),
    ({**TILES, "last_columns": 2, "last_lanes": 3}, {"spacing": 1}, {"last_lanes": 2}),
    (MAP, {"combine": 0}, {"second_bytes": 0}, {"partial_in": 1}, {"partial_out": 1}),
    (MAP, {"partial_in": 2}, {"partial_out": 2}),
    (MAP, {"table_bytes": 1024}, {"table_bytes": 0}, {"table_bytes": 2047}),
    (MAP, {"second_span": 0}, {"second_line": 0}, {"second_span": 13}),
    ({**MAP, "combine": 2, "second_span": 12}, {"second_bytes": 11}),
    ({**MAP, "combine": 2, "table": 1}, {"combine": 3}, {"table_bytes": 1024}),
    (SUMS, {"partial_in": 0}, {"second_bytes": 0}, {"combine": 2}, {"table": 1}),
    ({**SUMS, "partial_out": 1}, {"second_span": 0}, {"table_bytes": 512}, {"partial_out": 2}),
    ({**SUMS, **ON, "partial_out": 2}, {"partial_in": 2}, {"last": 1, "next": 0}),
    ({**NONE, **ON, "partial_in": 2, "partial_out": 2}, {"partial_in": 1}, {"combine": 1}),
    (NONE, {"second_bytes": 1}, {"partial_in": 1}, {"combine": 1}, {"table": 1}),
    ({**NONE, "second_span": 0, "second_line": 0}, {"second_bytes": 1 << 31}),
    ({**NONE, "table": 1, "table_bytes": 1024}, {"table_bytes": 0}, {"table_bytes": 3072}),
    ({**NONE, "table_bytes": 2048}, {"table_bytes": 4096}, {"table_bytes": 2048 + 1}),
    ({"in_first": 7, "in_bytes": 7}, {"in_first": 8}, {"in_bytes": 6}),
    ({"out_span": 7, "out_bytes": 7}, {"out_span": 8}, {"out_bytes": 6}),
    (TWO_ROWS, {"groups": 65}),
    ({**TWO_ROWS, "out_rows": 1, "out_columns": 2}, {"groups": 65}, {"groups": 65535}),
    (ONE_PIXEL, {"out_rows": 2}, {"out_columns": 2}, {"keep_weights": 1}, {"load_weights": 0}),
    ({**ONE_PIXEL, "groups": 65535}, {"keep_weights": 1}, {"out_columns": 257}),
    ({"row_words": 5, "row_tail": 2}, {"row_words": 4}, {"row_tail": 3}, {"row_bytes": 13}),
    ({"row_words": 1, "row_tail": 1}, {"row_words": 2}, {"row_bytes": 2}, {"row_bytes": 0}),
    ({"row_words": 65535, "row_tail": 3}, {"row_words": 65534}, {"row_bytes": 1 << 31}),
    ({"last": 1, "next": 0}, {"next": 1}, {"next": 128}, {"next": 0x1FFFF}, {"last": 0}),
    ({"last": 0, "next": 0x1_0100}, {"next": 0x1_0000}, {"next": 0xFF00}, {"next": 0}),
    ({"last": 0, "next": 0xFFFF_FF00}, {"next": 0xFFFF_FF80}, {"next": 0x1_0101}),
]


def test_fields_out_of_line():
    """Fields that are all in their ranges, but not together."""
    config = CONFIGS["odd"].override(bus_bytes=128)
    bench = Bench(config)

    async def testbench(ctx):
        for given, *wrong in RULES:
            fields = plain_fields(config, **given)
            full = (fields["row_words"] - 1) * config.in_lanes
            raw = pack_descriptor({**fields, "row_bytes": full + fields["row_tail"]})
            assert not await verdict(ctx, bench, raw), given
            for values in wrong:
                assert await verdict(ctx, bench, repaired(raw, **values)), (given, values)

    run(bench, testbench, max_cycles=10_000)


@pytest.mark.parametrize("keeps", [0, 1])
def test_weights_that_are_not_there(keeps):
    """A pass has weights of its own exactly if the one before does not leave it its own."""
    config = CONFIGS["tiny"].override(bus_bytes=128)
    chain = random_chain(random.Random(keeps), config, 3, keep_weights=keeps, groups=1)
    assert [fields["load_weights"] for _, fields, _ in chain] == [1, 1 - keeps, 1 - keeps]
    address, fields, raw = chain[2]
    chain[2] = (address, fields, repaired(raw, load_weights=keeps))
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        _, parts = await bench.serve(ctx, chain, 100)
        check_parts(chain[:2], parts)
        assert ctx.get(bench.unit.passes) == 2
        assert ctx.get(bench.unit.bad)
        # Behind the reset it is the first pass again: none before it keeps anything.
        single = random_fields(random.Random(0), config, next=0, keep_weights=1)
        assert not await verdict(ctx, bench, pack_descriptor(single))
        assert not await verdict(ctx, bench, pack_descriptor(single))

    run(bench, testbench, max_cycles=2000)


@pytest.mark.parametrize("name", [NINE_BITS, "ecp5-85f"])
def test_wrong_check(name):
    """Flipped bits anywhere, also behind the fields, and memory that was never written."""
    config = CONFIGS[name]
    generator = random.Random(name)
    bench = Bench(config)

    async def testbench(ctx):
        raw = pack_descriptor(random_fields(generator, config, next=0))
        for bit in generator.sample(range(8 * DESCRIPTOR_BYTES), 40):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            assert await verdict(ctx, bench, bytes(flipped)), bit
        for byte in (0x00, 0xFF):
            assert await verdict(ctx, bench, bytes([byte]) * DESCRIPTOR_BYTES)
        assert not await verdict(ctx, bench, raw)

    run(bench, testbench, max_cycles=10_000)


def test_a_bad_descriptor_in_the_middle():
    """What comes before it is handed out; `passes` is its index."""
    config = CONFIGS["tiny"].override(bus_bytes=128)
    chain = random_chain(random.Random(0), config, 4)
    address, fields, raw = chain[2]
    chain[2] = (address, fields, repaired(raw, op=5))
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        requests, parts = await bench.serve(ctx, chain, 100)
        assert len(requests) == 3
        check_parts(chain[:2], parts)
        assert ctx.get(bench.unit.passes) == 2
        assert ctx.get(bench.unit.bad)
        assert not ctx.get(bench.unit.finished)

    run(bench, testbench)


@pytest.mark.parametrize("name", ["up5k", NINE_BITS])
def test_misaligned_next(name):
    config = CONFIGS[name]
    bench = Bench(config)

    async def testbench(ctx):
        raw = pack_descriptor(random_fields(random.Random(0), config, next=0))
        for address in (1, config.bus_bytes - 1, config.bus_bytes // 2):
            assert await verdict(ctx, bench, repaired(raw, next=address))

    run(bench, testbench)


def legal(request, config):
    """Tell whether a request keeps the bus's rules: aligned, and within 4 KB."""
    first, size = request["address"], request["beats"] * config.bus_bytes
    return first % config.bus_bytes == 0 and first // 4096 == (first + size - 1) // 4096


@pytest.mark.parametrize("name", ["tiny", "ecp5-85f"])
def test_next_across_4_kb(name):
    """A descriptor that lies across a multiple of 4 KB is refused, or read in two requests."""
    config = CONFIGS[name]
    following = 0x2000 - DESCRIPTOR_BYTES // 2
    generator = random.Random(0)
    second = random_fields(generator, config, next=0)
    first = random_fields(generator, config, last=0, next=following, keep_weights=0)
    chain = [
        (0x1000, first, pack_descriptor(first)),
        (following, second, pack_descriptor(second)),
    ]
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        requests, _ = await bench.serve(ctx, chain, 300)
        assert all(legal(request, config) for request in requests), requests

    run(bench, testbench)


@pytest.mark.parametrize("address", [0x1001, 0x1002, 0x1FC0])
def test_first_descriptor_at_a_bad_address(address):
    """The host's address is refused like any other, if the bus cannot read a descriptor there."""
    config = CONFIGS["ecp5-85f"]
    fields = random_fields(random.Random(0), config, next=0)
    chain = [(address, fields, pack_descriptor(fields))]
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, address)
        requests, _ = await bench.serve(ctx, chain, 200)
        assert all(legal(request, config) for request in requests), requests

    run(bench, testbench)

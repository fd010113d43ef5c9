"""The sequencer: chains of descriptors, refused ones, and units that do not take their parts."""

import random
from collections import deque

import pytest
from amaranth import Module, Signal
from amaranth.hdl import Cat, Elaboratable, ResetInserter

from trirow_hw.config import MAX_KERNEL, MAX_STRIDE, PRESETS
from trirow_hw.descriptor import DESCRIPTOR_BYTES, FIELDS, pack_descriptor
from trirow_hw.sequencer import PASS_QUEUE, Sequencer
from trirow_sim.stream_kit import StreamRule, run, stalls
from trirow_sim.unit_kit import unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "up5k", "ecp5-85f")},
    "a descriptor a beat": PRESETS["tiny"].override(bus_bytes=128),
}
PARTS = ("features", "weights", "window", "issue", "post", "output")
SHAPES = {name: shape for name, shape, _ in FIELDS}
#: Fields of the parts that are called otherwise in the descriptor.
NAMES = {
    "features": {
        "spans.address": "in_address",
        "spans.total": "in_bytes",
        "spans.first": "in_first",
        "spans.span": "in_span",
        "spans.gap": "in_gap",
    },
    "weights": {"address": "weight_address", "bytes": "weight_bytes"},
    "output": {
        "spans.address": "out_address",
        "spans.total": "out_bytes",
        "spans.first": "out_span",
        "spans.span": "out_span",
        "spans.gap": "out_gap",
    },
}


def ranges(config):
    """Return the range of each field that is bounded by more than its width."""
    depth = config.line_bank_words
    bounds = {
        "op": (1, 1),
        "version": (1, 1),
        "last": (0, 1),
        "wait": (0, 1),
        "kernel_rows": (1, MAX_KERNEL),
        "stride_rows": (1, MAX_STRIDE),
        "row_pitch": (0, depth - 1),
        "row_tail": (1, config.in_lanes),
        "first_wrapped": (0, depth - 1),
        "first_byte": (0, config.in_lanes - 1),
        "step_byte": (0, config.in_lanes - 1),
        "step_wrapped": (0, depth - 1),
        "run_tail": (1, config.in_lanes),
        "last_lanes": (1, config.out_lanes),
        "group_words": (1, config.weight_words),
        "groups": (1, 64),
    }
    for name in (
        *("in_bytes", "in_first", "in_span", "rows", "row_words", "row_bytes"),
        *("out_rows", "out_columns", "run_words", "weight_bytes", "group_bytes"),
        *("out_bytes", "out_span"),
    ):
        bounds[name] = (1, (1 << SHAPES[name].width) - 1)
    return bounds


def random_fields(generator, config, **values):
    """Return fields that are all in range."""
    bounds, fields = ranges(config), {}
    for name, shape in SHAPES.items():
        if name in ("version", "check", "reserved"):
            continue
        low = -(1 << shape.width - 1) if shape.signed else 0
        low, high = bounds.get(name, (low, low + (1 << shape.width) - 1))
        fields[name] = generator.choice([low, high, generator.randint(low, high)])
    return {**fields, "op": 1, "last": 0, **values}


def random_chain(generator, config, length):
    """Return a chain: addresses, fields and bytes of each descriptor."""
    addresses = [k * DESCRIPTOR_BYTES for k in generator.sample(range(1, 1 << 25), length)]
    chain = []
    for k, address in enumerate(addresses):
        last = k == length - 1
        following = 0 if last else addresses[k + 1]
        fields = random_fields(generator, config, last=int(last), next=following)
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
            *_, taken, bits0, bits1, bits2, bits3, bits4, bits5, bits6 = await sampler
            if offered and taken:
                beats.popleft()
                offered = False
            sampled = (bits0, bits1, bits2, bits3, bits4, bits5, bits6)
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


def check_parts(chain, parts):
    """Check that each unit was told of each pass, in order."""
    for name, told in parts.items():
        assert len(told) == len(chain), name
        for index, (values, (_, fields, _)) in enumerate(zip(told, chain, strict=True)):
            expected = {}
            for key, value in values.items():
                renamed = NAMES.get(name, {}).get(key, key)
                wanted = index if key == "index" else fields[renamed]
                if isinstance(value, int):
                    # A part may have fewer bits than the descriptor; the range takes care.
                    expected[key] = wanted
            assert values == expected, f"{name} of pass {index}"


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", CONFIGS)
def test_chain(name, seed):
    config = CONFIGS[name]
    chain = random_chain(random.Random(f"{name} {seed}"), config, 7)
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])

        def all_told(requests, parts):
            return all(len(told) == len(chain) for told in parts.values())

        requests, parts = await bench.serve(ctx, chain, 4000, seed=seed, until=all_told)
        assert [request["address"] for request in requests] == [entry[0] for entry in chain]
        assert [request["index"] for request in requests] == list(range(len(chain)))
        check_parts(chain, parts)
        assert ctx.get(bench.unit.passes) == len(chain)
        assert ctx.get(bench.unit.finished)
        assert not ctx.get(bench.unit.bad)

    run(bench, testbench, max_cycles=5000)


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
    config = CONFIGS["tiny"]
    chain = random_chain(random.Random(blocked), config, PASS_QUEUE + 3)
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        requests, parts = await bench.serve(ctx, chain, 500, blocked=(blocked,))
        assert len(requests) == PASS_QUEUE + 1
        assert not parts[blocked]
        assert all(len(parts[name]) == PASS_QUEUE for name in PARTS if name != blocked)
        assert ctx.get(bench.unit.passes) == PASS_QUEUE
        assert not ctx.get(bench.unit.finished)
        assert not ctx.get(bench.unit.bad)
        _, more = await bench.serve(ctx, chain, 500)
        check_parts(chain, {name: parts[name] + more[name] for name in PARTS})
        assert ctx.get(bench.unit.finished)

    run(bench, testbench)


def repaired(raw, name, value):
    """Return a descriptor with a field replaced and the check made right again."""
    offset = sum(shape.width for _, shape, _ in FIELDS[: [f[0] for f in FIELDS].index(name)])
    width = SHAPES[name].width
    word = int.from_bytes(raw, "little")
    before = word >> offset & ((1 << width) - 1)
    word ^= (before ^ value) << offset
    raw = bytearray(word.to_bytes(DESCRIPTOR_BYTES, "little"))
    raw[2:4] = bytes(2)
    check = 0x5452
    for k in range(0, len(raw), 2):
        check ^= int.from_bytes(raw[k : k + 2], "little")
    raw[2:4] = check.to_bytes(2, "little")
    return bytes(raw)


async def verdict(ctx, bench, raw, address=0x1_0000):
    """Return whether a descriptor is refused; check that it is then not handed out."""
    await bench.begin(ctx, address)
    chain = [(address, {}, raw), (0, {}, bytes(DESCRIPTOR_BYTES))]

    def judged(requests, parts):
        return ctx.get(bench.unit.bad) or parts["post"]

    requests, parts = await bench.serve(ctx, chain, 500, until=judged)
    bad = ctx.get(bench.unit.bad)
    if bad:
        more, _ = await bench.serve(ctx, chain, 20)
        assert len(requests) + len(more) == 1
        assert not any(parts.values())
        assert ctx.get(bench.unit.passes) == 0
        assert ctx.get(bench.unit.bad)
        assert not ctx.get(bench.unit.finished)
    return bad


@pytest.mark.parametrize("name", CONFIGS)
def test_out_of_range(name):
    """Each field just inside its range is taken, just outside it is refused."""
    config = CONFIGS[name]
    generator = random.Random(name)
    bench = Bench(config)

    async def testbench(ctx):
        raw = pack_descriptor(random_fields(generator, config, last=1, next=0))
        assert not await verdict(ctx, bench, raw)
        for field, (low, high) in ranges(config).items():
            inside = {low, high} - ({0} if field == "last" else set())
            most = (1 << SHAPES[field].width) - 1
            outside = {low - 1, high + 1, most, most // 2 + 1}
            for value in sorted(inside):
                assert not await verdict(ctx, bench, repaired(raw, field, value)), (field, value)
            for value in sorted(outside):
                if 0 <= value <= most and not low <= value <= high:
                    assert await verdict(ctx, bench, repaired(raw, field, value)), (field, value)

    run(bench, testbench, max_cycles=40_000)


@pytest.mark.parametrize("name", ["tiny", "ecp5-85f"])
def test_wrong_check(name):
    """Flipped bits anywhere, also behind the fields, and memory that was never written."""
    config = CONFIGS[name]
    generator = random.Random(name)
    bench = Bench(config)

    async def testbench(ctx):
        raw = pack_descriptor(random_fields(generator, config, last=1, next=0))
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
    config = CONFIGS["tiny"]
    chain = random_chain(random.Random(0), config, 4)
    address, fields, raw = chain[2]
    chain[2] = (address, fields, repaired(raw, "op", 2))
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, chain[0][0])
        requests, parts = await bench.serve(ctx, chain, 500)
        assert len(requests) == 3
        check_parts(chain[:2], parts)
        assert ctx.get(bench.unit.passes) == 2
        assert ctx.get(bench.unit.bad)
        assert not ctx.get(bench.unit.finished)

    run(bench, testbench)


@pytest.mark.parametrize("name", CONFIGS)
def test_misaligned_next(name):
    config = CONFIGS[name]
    bench = Bench(config)

    async def testbench(ctx):
        raw = pack_descriptor(random_fields(random.Random(0), config, last=1, next=0))
        for address in (1, config.bus_bytes - 1, config.bus_bytes // 2):
            assert await verdict(ctx, bench, repaired(raw, "next", address))

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
    second = random_fields(generator, config, last=1, next=0)
    first = random_fields(generator, config, last=0, next=following)
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
    fields = random_fields(random.Random(0), config, last=1, next=0)
    chain = [(address, fields, pack_descriptor(fields))]
    bench = Bench(config)

    async def testbench(ctx):
        await bench.begin(ctx, address)
        requests, _ = await bench.serve(ctx, chain, 200)
        assert all(legal(request, config) for request in requests), requests

    run(bench, testbench)

# amaranth: UnusedElaboratable=no
"""The write port: what is written, what is refused, and how it stops."""

import random

import pytest

from trirow_hw.write_port import WritePort
from trirow_sim.memory import FaultyMemory, Memory, make_memory
from trirow_sim.stream_kit import AxiMemory, run, send, stalls

SIZE = 1 << 14


def make_port(bus_bytes=4, *, model="ideal", seed=1, outstanding=8, **faults):
    """Return a port, its memory in the background, and the bytes behind that."""
    dut = WritePort(bus_bytes=bus_bytes, outstanding=outstanding)
    memory = Memory(SIZE)
    memory.data[:] = random.Random(0).randbytes(SIZE)
    inner = make_memory(model, memory, bus_bytes, seed)
    axi = AxiMemory(
        dut.axi, FaultyMemory(inner, **faults) if faults else inner, max_outstanding=outstanding
    )
    return dut, axi, memory


def random_bursts(rng, count, bus_bytes):
    """Return requests and their beats, which do not overlap."""
    bursts = []
    blocks = rng.sample(range(SIZE // 512), count)
    for index, block in enumerate(blocks):
        beats = rng.choice([1, 1, 2, 3, 512 // bus_bytes, rng.randint(1, 512 // bus_bytes)])
        offset = rng.randint(0, 512 // bus_bytes - beats) * bus_bytes
        request = {
            "address": block * 512 + offset,
            "beats": beats,
            "index": index // 2,
            "last": index % 2,
        }
        full = (1 << bus_bytes) - 1
        data = [
            (rng.getrandbits(8 * bus_bytes), rng.choice([full, full, rng.getrandbits(bus_bytes)]))
            for _ in range(beats)
        ]
        bursts.append((request, data))
    return bursts


def written(before, bursts, bus_bytes):
    """Return the memory after the bursts."""
    after = bytearray(before)
    for request, data in bursts:
        address = request["address"]
        for word, strobe in data:
            for k in range(bus_bytes):
                if strobe >> k & 1:
                    after[address + k] = word >> 8 * k & 0xFF
            address += bus_bytes
    return bytes(after)


class Notes:
    """Notes strobes of the port, in the background."""

    def __init__(self, dut):
        self.errors, self.landed = [], 0
        self._dut = dut

    async def __call__(self, ctx):
        dut = self._dut
        sampler = ctx.tick().sample(dut.error_valid, dut.error.window, dut.error.index, dut.landed)
        while True:
            _, _, valid, window, index, landed = await sampler
            if valid:
                self.errors.append((window, index))
            self.landed += landed


class Feeder:
    """Plays the output writer: a queue of beats, and a request when all of a burst are in it."""

    def __init__(self, dut, bursts, *, stall=None):
        self.dut, self.bursts = dut, bursts
        self.held = stalls(stall)
        self.reset = False

    async def __call__(self, ctx):
        dut = self.dut
        queue, requests = [], list(self.bursts)
        request_valid = False
        sampler = ctx.tick().sample(dut.request.ready, dut.beats.ready)
        while (queue or requests or request_valid) and not self.reset:
            if requests and not request_valid and not next(self.held):
                request, data = requests.pop(0)
                queue += data
                ctx.set(dut.request.payload, request)
                request_valid = True
            ctx.set(dut.request.valid, request_valid)
            ctx.set(dut.beats.valid, bool(queue))
            if queue:
                ctx.set(dut.beats.payload, {"data": queue[0][0], "strobe": queue[0][1]})
            _, _, request_ready, beats_ready = await sampler
            if request_ready:
                request_valid = False
            if beats_ready and queue:
                queue.pop(0)
        ctx.set(dut.request.valid, 0)
        ctx.set(dut.beats.valid, 0)


async def set_window(ctx, dut, base=0, limit=SIZE):
    ctx.set(dut.base, base)
    ctx.set(dut.limit, limit)


async def settle(ctx, dut, limit=2000):
    """Wait until no burst is on the way."""
    quiet = 0
    for _ in range(limit):
        await ctx.tick()
        quiet = quiet + 1 if ctx.get(dut.idle) and not ctx.get(dut.request.valid) else 0
        if quiet == 6:
            return
    raise AssertionError("the port does not become idle")


@pytest.mark.parametrize("bus_bytes", [2, 4, 8, 64])
@pytest.mark.parametrize(
    ("model", "stall"), [("ideal", None), ("ideal", 3), ("random", None), ("random", 4)]
)
def test_bursts_are_written(bus_bytes, model, stall):
    dut, axi, memory = make_port(bus_bytes, model=model, seed=bus_bytes)
    bursts = random_bursts(random.Random(bus_bytes), 16, bus_bytes)
    expected = written(memory.data, bursts, bus_bytes)
    notes = Notes(dut)

    async def testbench(ctx):
        await set_window(ctx, dut)
        await Feeder(dut, bursts, stall=stall)(ctx)
        await settle(ctx, dut)

    run(dut, testbench, background=[axi, notes], max_cycles=30_000)
    assert bytes(memory.data) == expected
    assert axi.writes == [(request["address"], request["beats"]) for request, _ in bursts]
    assert [beat[:2] for beat in axi.beats] == [beat for _, data in bursts for beat in data]
    assert notes.landed == 8
    assert not notes.errors


@pytest.mark.parametrize("bus_bytes", [4, 16])
def test_window(bus_bytes):
    base, limit = 0x1000, 0x1800
    good = [(base, 1), (base, 3), (limit - bus_bytes, 1), (limit - 512, 512 // bus_bytes)]
    bad = [
        (base - bus_bytes, 1),
        (base - bus_bytes, 2),
        (limit, 1),
        (limit - bus_bytes, 2),
        (0, 1),
        ((1 << 32) - bus_bytes, 1),
        ((1 << 32) - bus_bytes, 2),
    ]
    for (address, beats), allowed in [(c, True) for c in good] + [(c, False) for c in bad]:
        dut, axi, memory = make_port(bus_bytes)
        before = bytes(memory.data)
        notes = Notes(dut)
        request = {"address": address, "beats": beats, "index": 77, "last": 1}
        burst = (request, [(k, (1 << bus_bytes) - 1) for k in range(beats)])

        async def testbench(ctx, dut=dut, burst=burst, allowed=allowed):
            await set_window(ctx, dut, base, limit)
            feeder = Feeder(dut, [burst])
            if allowed:
                await feeder(ctx)
            else:
                await send(ctx, dut.request, [burst[0]])
            await settle(ctx, dut)

        run(dut, testbench, background=[axi, notes])
        assert axi.writes == ([(address, beats)] if allowed else [])
        assert notes.errors == ([] if allowed else [(1, 77)])
        assert notes.landed == allowed
        expected = written(before, [burst], bus_bytes) if allowed else before
        assert bytes(memory.data) == expected


def test_window_up_to_the_top_of_memory():
    dut, axi, _ = make_port()
    notes = Notes(dut)

    async def testbench(ctx):
        await set_window(ctx, dut, 0, 0xFFFF_FFFF)
        await send(ctx, dut.request, [{"address": 0xFFFF_FFFC, "beats": 1, "index": 7}])
        await settle(ctx, dut)

    run(dut, testbench, background=[axi, notes])
    assert notes.errors == [(1, 7)]


@pytest.mark.parametrize("model", ["ideal", "random"])
def test_error_response_names_the_pass(model):
    dut, axi, _ = make_port(model=model, write_errors=range(0x208, 0x20A))
    notes = Notes(dut)
    bursts = [
        ({"address": address, "beats": 4, "index": 40 + k, "last": 1}, [(k, 15)] * 4)
        for k, address in enumerate((0x100, 0x200, 0x300))
    ]

    async def testbench(ctx):
        await set_window(ctx, dut)
        await Feeder(dut, bursts)(ctx)
        await settle(ctx, dut)

    run(dut, testbench, background=[axi, notes])
    assert notes.errors == [(0, 41)]
    assert notes.landed == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_landed_and_oldest(seed):
    """A pass has landed with the response to its last burst; the oldest burst is in sight."""
    dut, axi, _ = make_port(model="random", seed=seed)
    bursts = random_bursts(random.Random(seed), 16, 4)

    async def testbench(ctx):
        await set_window(ctx, dut)
        await Feeder(dut, bursts, stall=seed)(ctx)
        await settle(ctx, dut)

    async def monitor(ctx):
        answered = sent = 0
        while True:
            _, _, aw, b, landed, oldest, idle = await ctx.tick().sample(
                dut.axi.awvalid & dut.axi.awready,
                dut.axi.bvalid & dut.axi.bready,
                dut.landed,
                dut.oldest,
                dut.idle,
            )
            if answered < sent:
                assert oldest == bursts[answered][0]["index"]
                assert not idle
            assert landed == (b and bursts[answered][0]["last"])
            answered += b
            sent += aw

    run(dut, testbench, background=[axi, monitor], max_cycles=30_000)


@pytest.mark.parametrize("outstanding", [1, 4, 8])
def test_outstanding(outstanding):
    dut, axi, _ = make_port(outstanding=outstanding, model="ddr")
    bursts = [
        ({"address": 64 * k, "beats": 1, "index": k, "last": 0}, [(k, 15)])
        for k in range(3 * outstanding)
    ]
    most = 0

    async def testbench(ctx):
        await set_window(ctx, dut)
        await Feeder(dut, bursts)(ctx)
        await settle(ctx, dut)

    async def monitor(ctx):
        nonlocal most
        count = 0
        while True:
            _, _, aw, b = await ctx.tick().sample(
                dut.axi.awvalid & dut.axi.awready, dut.axi.bvalid & dut.axi.bready
            )
            count += aw - b
            most = max(most, count)

    run(dut, testbench, background=[axi, monitor])
    assert 1 <= most <= outstanding
    # A burst every 4 cycles, whose response comes more than 10 cycles later.
    assert most >= min(outstanding, 3)


def test_beats_follow_each_other():
    """A beat a cycle while the next address is sent."""
    dut, axi, _ = make_port(bus_bytes=4)
    bursts = [
        ({"address": 512 * k, "beats": 128, "index": 0, "last": 0}, [(k, 15)] * 128)
        for k in range(4)
    ]

    async def testbench(ctx):
        await set_window(ctx, dut)
        await Feeder(dut, bursts)(ctx)
        await settle(ctx, dut)

    run(dut, testbench, background=[axi])
    first, last = axi.beats[0][2], axi.beats[-1][2]
    assert last - first == 4 * 128 - 1


def stopped_run(stop_at, *, model, seed):
    """Stop a busy port in some cycle, let it become idle, and use it again."""
    dut, axi, memory = make_port(model=model, seed=seed)
    rng = random.Random(seed)
    bursts = random_bursts(rng, 12, 4)
    bursts = [(request, [(word, 15) for word, _ in data]) for request, data in bursts]
    before = bytes(memory.data)
    everything = written(before, bursts, 4)
    feeder = Feeder(dut, bursts)
    again = ({"address": 0x400, "beats": 3, "index": 5, "last": 1}, [(7, 15), (8, 3), (9, 12)])
    log = []

    async def feed(ctx):
        await feeder(ctx)

    async def testbench(ctx):
        await set_window(ctx, dut)
        for _ in range(stop_at):
            await ctx.tick()
        ctx.set(dut.stop, 1)
        await ctx.tick()
        # The units in front are reset meanwhile.
        feeder.reset = True
        for _ in range(4000):
            await ctx.tick()
            if ctx.get(dut.idle):
                break
        assert ctx.get(dut.idle)
        for _ in range(3):
            await ctx.tick()
        assert axi.checker.idle
        after = bytes(memory.data)
        assert all(
            new in (old, wanted) for new, old, wanted in zip(after, before, everything, strict=True)
        )
        ctx.set(dut.stop, 0)
        count = len(axi.beats)
        await Feeder(dut, [again])(ctx)
        await settle(ctx, dut)
        assert bytes(memory.data) == written(after, [again], 4)
        assert [beat[:2] for beat in axi.beats[count:]] == again[1]

    async def monitor(ctx):
        axi_port = dut.axi
        sampler = ctx.tick().sample(
            dut.stop,
            axi_port.awvalid,
            axi_port.awready,
            axi_port.wvalid,
            axi_port.wready,
            axi_port.wstrb,
            dut.beats.ready | dut.request.ready,
            dut.landed | dut.error_valid,
        )
        stopped = aw_waited = w_waited = kept = 0
        while True:
            _, _, stop, awvalid, awready, wvalid, wready, strobe, ready, strobes = await sampler
            if stop:
                assert not ready
                assert not strobes
            if stopped:
                assert aw_waited or not awvalid
                if wvalid and not w_waited:
                    # One beat may have stood behind another one that waits.
                    kept += strobe != 0
                    assert kept <= 1
                    assert not (strobe and log)
                    if not strobe:
                        log.append(strobe)
            stopped = stop
            aw_waited, w_waited = awvalid and not awready, wvalid and not wready

    run(dut, testbench, feed, background=[axi, monitor], max_cycles=20_000)
    return len(log)


@pytest.mark.parametrize("stop_at", range(28))
def test_stop_in_any_cycle(stop_at):
    stopped_run(stop_at, model="ideal", seed=3)


@pytest.mark.parametrize("seed", range(1, 13))
def test_stop_with_a_slow_memory(seed):
    stopped_run(random.Random(seed).randint(5, 300), model="random", seed=seed)


def test_the_rest_of_a_stopped_burst_has_no_strobes():
    """At least some of the cases above must have had a rest."""
    assert sum(stopped_run(stop_at, model="ideal", seed=3) > 0 for stop_at in (20, 40, 60)) > 0


@pytest.mark.parametrize("value", [0, -4, 3, 12, 1024])
def test_wrong_bus_bytes(value):
    text = rf"^bus_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        WritePort(bus_bytes=value)


def test_wrong_outstanding():
    with pytest.raises(ValueError, match=r"^outstanding must be at least 1, not 0$"):
        WritePort(bus_bytes=4, outstanding=0)

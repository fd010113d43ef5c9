# amaranth: UnusedElaboratable=no
"""The read port: who is served, what is refused, and how it stops."""

import random

import pytest
from amaranth.hdl import Cat

from trirow_hw.read_port import PLACES, ReadPort
from trirow_sim.memory import FaultyMemory, Memory, make_memory
from trirow_sim.stream_kit import AxiMemory, collect, run, send, stalls

SIZE = 1 << 14


def make_port(bus_bytes=4, clients=3, *, model="ideal", seed=1, outstanding=8, **faults):
    """Return a port, its memory in the background, and the bytes behind that."""
    dut = ReadPort(bus_bytes=bus_bytes, clients=clients, outstanding=outstanding)
    memory = Memory(SIZE)
    memory.data[:] = random.Random(0).randbytes(SIZE)
    inner = make_memory(model, memory, bus_bytes, seed)
    axi = AxiMemory(
        dut.axi, FaultyMemory(inner, **faults) if faults else inner, max_outstanding=outstanding
    )
    return dut, axi, memory


def random_requests(rng, count, bus_bytes):
    requests = []
    for index in range(count):
        beats = rng.choice([1, 1, 2, 3, 512 // bus_bytes, rng.randint(1, 512 // bus_bytes)])
        block = rng.randrange(SIZE // 512) * 512
        offset = rng.randint(0, 512 // bus_bytes - beats) * bus_bytes
        requests.append(
            {
                "address": block + offset,
                "beats": beats,
                "index": index,
                "urgent": rng.random() < 0.3,
            }
        )
    return requests


class Errors:
    """Notes what the port reports, in the background."""

    def __init__(self, dut):
        self.seen = []
        self._dut = dut

    async def __call__(self, ctx):
        error = self._dut.error
        while True:
            _, _, valid, *values = await ctx.tick().sample(
                self._dut.error_valid, error.window, error.client, error.index
            )
            if valid:
                self.seen.append(tuple(values))


def client(dut, k, requests, memory, bus_bytes, *, stall=None):
    """Return testbenches that send a client's requests and check its answers."""

    async def asks(ctx):
        await send(ctx, dut.requests[k], requests, stall)

    async def takes(ctx):
        expected = b"".join(memory.read(r["address"], r["beats"] * bus_bytes) for r in requests)
        count = len(expected) // bus_bytes
        beats = await collect(ctx, dut.answers[k], count, stall and stall + 1)
        assert b"".join(beat.to_bytes(bus_bytes, "little") for beat in beats) == expected

    return asks, takes


async def settle(ctx, dut, limit=2000):
    """Wait until no burst is on the way."""
    for _ in range(limit):
        await ctx.tick()
        if ctx.get(dut.idle):
            return
    raise AssertionError("the port does not become idle")


async def set_window(ctx, dut, base=0, limit=SIZE):
    ctx.set(dut.base, base)
    ctx.set(dut.limit, limit)


@pytest.mark.parametrize(("bus_bytes", "clients"), [(2, 1), (4, 2), (4, 3), (8, 3), (64, 4)])
@pytest.mark.parametrize(
    ("model", "stall"), [("ideal", None), ("ideal", 10), ("random", None), ("random", 20)]
)
def test_every_client_gets_its_data(bus_bytes, clients, model, stall):
    dut, axi, memory = make_port(bus_bytes, clients, model=model, seed=bus_bytes)
    rng = random.Random(bus_bytes)
    benches, asked = [], []
    for k in range(clients):
        requests = random_requests(rng, 6, bus_bytes)
        asked += [(r["address"], r["beats"]) for r in requests]
        benches += client(dut, k, requests, memory, bus_bytes, stall=stall and stall * (k + 1))
    errors = Errors(dut)

    async def window(ctx):
        await set_window(ctx, dut)

    # The window is set before any request is checked.
    run(dut, window, *benches, background=[axi, errors], max_cycles=30_000)
    assert sorted(axi.reads) == sorted(asked)
    assert not errors.seen


@pytest.mark.parametrize("bus_bytes", [4, 16])
def test_window(bus_bytes):
    base, limit = 0x1000, 0x1800
    dut, axi, _ = make_port(bus_bytes)
    errors = Errors(dut)
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
    cases = [(case, True) for case in good] + [(case, False) for case in bad]
    random.Random(1).shuffle(cases)

    async def testbench(ctx):
        await set_window(ctx, dut, base, limit)
        for index, ((address, beats), allowed) in enumerate(cases):
            k = index % 3
            errors.seen.clear()
            sent = len(axi.reads)
            await send(ctx, dut.requests[k], [{"address": address, "beats": beats, "index": index}])
            if allowed:
                assert len(await collect(ctx, dut.answers[k], beats)) == beats
            await settle(ctx, dut)
            await ctx.tick()
            assert errors.seen == ([] if allowed else [(1, k, index)])
            assert axi.reads[sent:] == ([(address, beats)] if allowed else [])

    run(dut, testbench, background=[axi, errors])


def test_window_up_to_the_top_of_memory():
    """The end of a burst is worked out in more than 32 bits."""
    dut, axi, _ = make_port()
    errors = Errors(dut)

    async def testbench(ctx):
        await set_window(ctx, dut, 0, 0xFFFF_FFFF)
        await send(ctx, dut.requests[0], [{"address": 0xFFFF_FFFC, "beats": 1, "index": 7}])
        await settle(ctx, dut)
        await ctx.tick()
        assert errors.seen == [(1, 0, 7)]

    run(dut, testbench, background=[axi, errors])


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("model", ["ideal", "random"])
def test_error_response_names_client_and_pass(k, model):
    dut, axi, _ = make_port(model=model, read_errors=range(0x208, 0x20A))
    errors = Errors(dut)

    async def testbench(ctx):
        await set_window(ctx, dut)
        for index, address in enumerate((0x100, 0x200, 0x300)):
            request = {"address": address, "beats": 4, "index": 40 + index}
            await send(ctx, dut.requests[k], [request])
            await send(ctx, dut.requests[(k + 1) % 3], [{"address": 0, "beats": 1, "index": 9}])
            await collect(ctx, dut.answers[k], 4)
            await collect(ctx, dut.answers[(k + 1) % 3], 1)
        await ctx.tick()

    run(dut, testbench, background=[axi, errors])
    assert errors.seen == [(0, k, 41)]


async def queue_up(ctx, dut, urgent):
    """Let every client ask for one beat at its own address; some are urgent."""
    for k, request in enumerate(dut.requests):
        ctx.set(request.payload, {"address": 64 * k, "beats": 1, "index": k, "urgent": urgent[k]})
        ctx.set(request.valid, 1)
        ctx.set(dut.answers[k].ready, 1)


@pytest.mark.parametrize("clients", [1, 2, 3, 4])
def test_fair(clients):
    """Clients that always ask are served in turn."""
    dut, axi, _ = make_port(clients=clients)

    async def testbench(ctx):
        await set_window(ctx, dut)
        await queue_up(ctx, dut, [0] * clients)
        while len(axi.reads) < 24:
            await ctx.tick()

    run(dut, testbench, background=[axi])
    order = [address // 64 for address, _ in axi.reads[:24]]
    for start in range(len(order) - clients):
        assert len(set(order[start : start + clients])) == clients


@pytest.mark.parametrize(
    ("urgent", "served"),
    [((0, 0, 1), {2}), ((0, 1, 0), {1}), ((0, 1, 1), {1}), ((1, 0, 1), {0}), ((1, 1, 1), {0})],
)
def test_urgent_first(urgent, served):
    """The lowest of the urgent clients, as long as it asks."""
    dut, axi, _ = make_port()

    async def testbench(ctx):
        await set_window(ctx, dut)
        await queue_up(ctx, dut, urgent)
        while len(axi.reads) < 6:
            await ctx.tick()

    run(dut, testbench, background=[axi])
    assert {address // 64 for address, _ in axi.reads[:6]} == served


def test_a_waiting_request_may_become_urgent():
    dut, axi, _ = make_port()

    async def testbench(ctx):
        await set_window(ctx, dut)
        ctx.set(dut.stop, 1)
        await queue_up(ctx, dut, (0, 0, 0))
        await ctx.tick()
        ctx.set(dut.requests[2].payload.urgent, 1)
        await ctx.tick()
        ctx.set(dut.stop, 0)
        while not axi.reads:
            await ctx.tick()

    run(dut, testbench, background=[axi])
    assert axi.reads[0] == (128, 1)


@pytest.mark.parametrize("outstanding", [4, 8, 16])
def test_outstanding(outstanding):
    """As many bursts as promised are on the way while the memory is slow, and not more."""
    dut, axi, _ = make_port(outstanding=outstanding, stop_at=0, resume_at=1)

    async def testbench(ctx):
        await set_window(ctx, dut)
        # Nothing is taken, so that nothing ends.
        for k, request in enumerate(dut.requests):
            ctx.set(request.payload, {"address": 64 * k, "beats": 16, "index": k})
            ctx.set(request.valid, 1)
        for _ in range(8 * outstanding):
            await ctx.tick()

    run(dut, testbench, background=[axi])
    assert len(axi.reads) == outstanding


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_on_the_way(seed):
    """``on_the_way``, ``waits``, ``head`` and ``head_index`` against a list of bursts."""
    dut, axi, memory = make_port(model="random", seed=seed)
    rng = random.Random(seed)
    benches = []
    for k in range(3):
        requests = random_requests(rng, 8, 4)
        benches += client(dut, k, requests, memory, 4, stall=seed * 10 + k)

    async def window(ctx):
        await set_window(ctx, dut)

    async def monitor(ctx):
        # Of each client the requests taken but not sent; client and index of the bursts sent.
        accepted, due = [[] for _ in range(3)], []
        left = []  # beats of the bursts that the clients have not taken
        requests = [
            signal
            for r in dut.requests
            for signal in (r.valid & r.ready, r.payload.address, r.payload.index)
        ]
        while True:
            _, _, *values = await ctx.tick().sample(
                dut.axi.arvalid & dut.axi.arready,
                dut.axi.araddr,
                Cat(answer.valid & answer.ready for answer in dut.answers).any(),
                dut.axi.arlen,
                Cat(dut.on_the_way),
                dut.waits,
                dut.head,
                dut.head_index,
                *requests,
            )
            sent, address, taken_beat, length, *values = values
            on_the_way, waits, head, index, *taken = values
            # Bursts with an address on the bus are due; others may be about to be.
            clients = {which for which, _ in due}
            for k in range(3):
                bit = on_the_way >> k & 1
                assert bit or k not in clients
                assert not bit or k in clients or accepted[k]
            # Up to two beats are on offer, behind the queue that the head is of.
            heads = [due[n] for n in range(len(due)) if sum(left[:n]) <= PLACES]
            assert waits or sum(left) <= PLACES
            if heads and waits and sum(left) > PLACES:
                assert (head, index) in heads
            elif waits and (head, index) not in heads:
                assert index == accepted[head][0][1]
            if taken_beat:
                left[0] -= 1
                if not left[0]:
                    due.pop(0)
                    left.pop(0)
            if sent:
                # Each client's requests are sent in order.
                (k,) = (k for k in range(3) if accepted[k] and accepted[k][0][0] == address)
                due.append((k, accepted[k].pop(0)[1]))
                left.append(length + 1)
            for k in range(3):
                if taken[3 * k]:
                    accepted[k].append((taken[3 * k + 1], taken[3 * k + 2]))

    run(dut, window, *benches, background=[axi, monitor], max_cycles=30_000)


def stopped_run(stop_at, *, model, seed, beats=6):
    """Stop a busy port in some cycle, let it become idle, and use it again."""
    dut, axi, memory = make_port(model=model, seed=seed)

    async def testbench(ctx):
        await set_window(ctx, dut)
        for k, request in enumerate(dut.requests):
            ctx.set(request.payload, {"address": 64 * k, "beats": beats, "index": k})
            ctx.set(request.valid, 1)
            ctx.set(dut.answers[k].ready, k != 1)
        for _ in range(stop_at):
            await ctx.tick()
        ctx.set(dut.stop, 1)
        await ctx.tick()
        # The clients are reset meanwhile.
        for k, request in enumerate(dut.requests):
            ctx.set(request.valid, 0)
            ctx.set(dut.answers[k].ready, 0)
        for _ in range(1500):
            if ctx.get(dut.idle):
                break
            await ctx.tick()
        assert ctx.get(dut.idle)
        assert ctx.get(Cat(dut.on_the_way)) == 0
        await ctx.tick()
        await ctx.tick()
        assert axi.checker.idle
        ctx.set(dut.stop, 0)
        request = {"address": 0x400, "beats": 3, "index": 5}
        await send(ctx, dut.requests[1], [request])
        beats_read = await collect(ctx, dut.answers[1], 3, 1)
        assert b"".join(b.to_bytes(4, "little") for b in beats_read) == memory.read(0x400, 12)
        await settle(ctx, dut)

    async def monitor(ctx):
        answers, requests = (
            Cat(stream.valid for stream in dut.answers),
            Cat(stream.ready for stream in dut.requests),
        )
        stopped = waited = 0
        while True:
            _, _, stop, offered, taken, error, arvalid, arready = await ctx.tick().sample(
                dut.stop, answers, requests, dut.error_valid, dut.axi.arvalid, dut.axi.arready
            )
            if stop:
                assert not offered
                assert not taken
                assert not error
            # An address that is on the bus already must be sent all the same.
            assert waited or not arvalid or not stopped
            stopped, waited = stop, arvalid and not arready

    run(dut, testbench, background=[axi, monitor])


@pytest.mark.parametrize("stop_at", range(32))
def test_stop_in_any_cycle(stop_at):
    stopped_run(stop_at, model="ideal", seed=1)


@pytest.mark.parametrize("seed", range(1, 13))
def test_stop_with_a_slow_memory(seed):
    stopped_run(random.Random(seed).randint(5, 120), model="random", seed=seed, beats=20)


def test_errors_of_dropped_answers_are_not_reported():
    dut, axi, _ = make_port(read_errors=range(0, 64))
    errors = Errors(dut)

    async def testbench(ctx):
        await set_window(ctx, dut)
        await send(ctx, dut.requests[0], [{"address": 0, "beats": 8}])
        while not axi.reads:
            await ctx.tick()
        ctx.set(dut.stop, 1)
        await settle(ctx, dut)
        await ctx.tick()
        assert axi.checker.read_beats == 8

    run(dut, testbench, background=[axi, errors])
    assert not errors.seen


def test_one_request_every_three_cycles():
    dut, axi, _ = make_port(bus_bytes=64)
    held = stalls(None)

    async def testbench(ctx):
        await set_window(ctx, dut)
        await queue_up(ctx, dut, (0, 0, 0))
        for _ in range(4 * 20):
            assert not next(held)
            await ctx.tick()

    run(dut, testbench, background=[axi])
    assert len(axi.reads) >= 19


@pytest.mark.parametrize("value", [0, -4, 3, 12, 1024])
def test_wrong_bus_bytes(value):
    text = rf"^bus_bytes must be a power of two from 1 to 512, not {value}$"
    with pytest.raises(ValueError, match=text):
        ReadPort(bus_bytes=value, clients=3)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"clients": 0}, "clients must be at least 1, not 0"),
        ({"clients": 2, "outstanding": 3}, "outstanding must be at least 4, not 3"),
    ],
)
def test_wrong_parameters(parameters, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        ReadPort(bus_bytes=4, **parameters)

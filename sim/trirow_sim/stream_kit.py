"""Kit for tests of units with stream ports: clock and cycle limit, stalls, rules, memories."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from amaranth.hdl import Cat, ShapeCastable, Value
from amaranth.sim import Simulator

from trirow_sim.axi import AxiChecker, AxiMaster
from trirow_sim.memory import MemoryModel
from trirow_sim.memory.storage import Memory

__all__ = [
    "AxiMemory",
    "ReadServer",
    "StreamRule",
    "StreamViolation",
    "collect",
    "run",
    "send",
    "span_beats",
    "span_pieces",
    "stalls",
]

Testbench = Callable[[Any], Coroutine[Any, Any, None]]

#: Lengths of the runs in which a side of a stream flows or stalls.
_RUNS = (1, 1, 1, 2, 3, 8, 20)
#: Bursts must not cross a multiple of it; see `trirow_hw.config.BURST_BYTES`.
_BURST_BYTES = 512


class StreamViolation(AssertionError):
    """A stream dropped valid, or changed its payload, before it was ready."""


def stalls(seed: int | None) -> Iterator[bool]:
    """Yield for every cycle whether one side of a stream holds back.

    Parameters
    ----------
    seed : int or None
        Runs of random length, flowing first or stalled first; None: never a stall.
    """
    if seed is None:
        while True:
            yield False
    rng = random.Random(seed)
    held = rng.random() < 0.5
    while True:
        for _ in range(rng.choice(_RUNS)):
            yield held
        held = not held


def span_pieces(spans: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return address and length of each span of a sequence; see `trirow_hw.spans.Spans`."""
    address, left, length = spans["address"], spans["total"], spans["first"]
    pieces = []
    while left:
        length = min(length, left)
        pieces.append((address, length))
        address += length + spans["gap"]
        left -= length
        length = spans["span"]
    return pieces


def span_beats(spans: Mapping[str, int], bus_bytes: int) -> list[tuple[int, int, int]]:
    """Return the beats that cover a sequence of spans.

    Returns
    -------
    list of tuple
        Address of the beat, and the first and the number of its bytes that belong to the span.
    """
    beats = []
    for address, length in span_pieces(spans):
        end = address + length
        while address < end:
            offset = address % bus_bytes
            count = min(end - address, bus_bytes - offset)
            beats.append((address - offset, offset, count))
            address += count
    return beats


def run(
    dut: Any,
    *testbenches: Testbench,
    background: Iterable[Testbench] = (),
    max_cycles: int = 10_000,
) -> int:
    """Simulate until all testbenches have ended.

    Parameters
    ----------
    dut : Elaboratable
        Has a domain ``sync``.
    testbenches : callable
        Each takes the context of the simulator and returns a coroutine.
    background : iterable of callable
        Models and checkers, which the simulation does not wait for.
    max_cycles : int
        Limit.

    Returns
    -------
    int
        Cycles simulated.

    Raises
    ------
    TimeoutError
        If a testbench has not ended after ``max_cycles`` cycles; the text names those.
    """
    unfinished = [_name(testbench) for testbench in testbenches]
    failures: list[Exception] = []
    cycles = 0

    # A failure is kept until the simulator has ended in an orderly way: else Python warns of the
    # coroutines that never come to their end.
    def guard(testbench: Testbench, *, counts: bool) -> Testbench:
        async def guarded(ctx: Any) -> None:
            try:
                await testbench(ctx)
            except Exception as failure:
                failures.append(failure)
            if counts:
                unfinished.remove(_name(testbench))

        return guarded

    async def wait(ctx: Any) -> None:
        nonlocal cycles
        while unfinished and not failures:
            if cycles == max_cycles:
                names = ", ".join(unfinished)
                raise TimeoutError(f"not finished after {max_cycles} cycles: {names}")
            await ctx.tick()
            cycles += 1

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for testbench in testbenches:
        simulator.add_testbench(guard(testbench, counts=True), background=True)
    for testbench in background:
        simulator.add_testbench(guard(testbench, counts=False), background=True)
    simulator.add_testbench(guard(wait, counts=False))
    simulator.run()
    if failures:
        raise failures[0]
    return cycles


def _name(testbench: Testbench) -> str:
    return getattr(testbench, "__name__", type(testbench).__name__)


async def send(
    ctx: Any, stream: Any, payloads: Iterable[Any], stall: int | None = None, poison: bool = True
) -> None:
    """Send payloads over a stream.

    Parameters
    ----------
    ctx : SimulatorContext
    stream : stream interface
        An input of the unit under test.
    payloads : iterable
        Integers (the bits of the payload), or whatever the payload's shape takes as a constant.
    stall : int or None
        Seed of the cycles in which nothing is offered; None: there are none.
    poison : bool
        Drive random bits while nothing is offered, so that nobody can use them unnoticed.
    """
    held = stalls(stall)
    rng = random.Random(stall)
    bits = Value.cast(stream.payload)
    accepted = ctx.tick().sample(stream.ready)
    for payload in payloads:
        idle = False
        while next(held):
            if not idle:
                ctx.set(stream.valid, 0)
                if poison:
                    ctx.set(bits, rng.getrandbits(len(bits)))
            idle = True
            await ctx.tick()
        if isinstance(payload, int):
            ctx.set(bits, payload & ((1 << len(bits)) - 1))
        else:
            ctx.set(stream.payload, payload)
        ctx.set(stream.valid, 1)
        while not (await accepted)[2]:
            pass
    ctx.set(stream.valid, 0)
    if poison:
        ctx.set(bits, rng.getrandbits(len(bits)))


class StreamRule:
    """Rule of a stream: while valid waits for ready, it stays up, and the payload stays the same.

    Parameters
    ----------
    name : str
        What messages call the stream.
    mask : int
        Bits of the payload that must stay; all by default.

    Raises
    ------
    StreamViolation
        By `check`.
    """

    def __init__(self, name: str = "stream", *, mask: int = -1) -> None:
        self._name = name
        self._mask = mask
        self._waits: int | None = None

    def check(self, valid: int, ready: int, payload: int) -> None:
        """Check one cycle: what is on the stream in it, the payload as bits."""
        payload &= self._mask
        if self._waits is not None:
            if not valid:
                raise StreamViolation(f"{self._name}: valid dropped before ready")
            if payload != self._waits:
                raise StreamViolation(
                    f"{self._name}: payload changed from {self._waits:#x} to {payload:#x} "
                    "before ready"
                )
        self._waits = payload if valid and not ready else None


async def collect(
    ctx: Any,
    stream: Any,
    count: int,
    stall: int | None = None,
    *,
    mask: int = -1,
    taken: list[Any] | None = None,
) -> list[Any]:
    """Take payloads from a stream, and check its rule.

    Parameters
    ----------
    ctx : SimulatorContext
    stream : stream interface
        An output of the unit under test.
    count : int
        How many to take.
    stall : int or None
        Seed of the cycles in which nothing is taken; None: there are none.
    mask : int
        Bits of the payload that must not change while it waits.
    taken : list, optional
        The payloads are appended to it one by one.

    Returns
    -------
    list
        The payloads: integers, or constants of the payload's layout.
    """
    held = stalls(stall)
    rule = StreamRule(mask=mask)
    shape = stream.signature.members["payload"].shape
    sampler = ctx.tick().sample(stream.valid, Value.cast(stream.payload))
    taken = [] if taken is None else taken
    left = count
    while left:
        ready = not next(held)
        ctx.set(stream.ready, ready)
        _, _, valid, bits = await sampler
        rule.check(valid, ready, bits)
        if valid and ready:
            taken.append(shape.from_bits(bits) if isinstance(shape, ShapeCastable) else bits)
            left -= 1
    ctx.set(stream.ready, 0)
    return taken


class AxiMemory:
    """A memory model on the AXI4 port of a unit, to be run in the background.

    Every cycle passes an `AxiChecker`.

    Parameters
    ----------
    axi : AXI4 interface
        The port, as its manager drives it.
    model : MemoryModel
    max_outstanding : int
        Most bursts on the way in each direction.

    Attributes
    ----------
    model : MemoryModel
    checker : AxiChecker
    reads, writes : list of tuple
        Bursts whose address was taken: address and beats.
    beats : list of tuple
        Write beats that were taken: data, strobes and the number of the cycle.
    cycle : int
        Number of the present cycle.
    """

    def __init__(self, axi: Any, model: MemoryModel, *, max_outstanding: int = 16) -> None:
        self.model = model
        self.checker = AxiChecker(model.bus_bytes, max_outstanding=max_outstanding)
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.beats: list[tuple[int, int, int]] = []
        self.cycle = 0
        self._axi = axi

    async def __call__(self, ctx: Any) -> None:
        """Run for ever."""
        axi, model, master = self._axi, self.model, AxiMaster()
        outputs = ["arvalid", "araddr", "arlen", "arsize", "arburst", "rready", "awvalid", "awaddr"]
        outputs += ["awlen", "awsize", "awburst", "wvalid", "wdata", "wstrb", "wlast", "bready"]
        inputs = ["arready", "rvalid", "rdata", "rresp", "rlast", "awready", "wready"]
        inputs += ["bvalid", "bresp"]
        driven = Cat(getattr(axi, name) for name in inputs)
        widths = [len(getattr(axi, name)) for name in inputs]
        sampler = ctx.tick().sample(*(getattr(axi, name) for name in outputs))
        before = 0
        while True:
            bits, place = 0, 0
            for name, width in zip(inputs, widths, strict=True):
                bits |= getattr(model.slave, name) << place
                place += width
            if bits != before:
                ctx.set(driven, bits)
                before = bits
            _, _, *values = await sampler
            for name, value in zip(outputs, values, strict=True):
                setattr(master, name, value)
            slave = model.slave
            self.checker.check(master, slave)
            if master.arvalid and slave.arready:
                self.reads.append((master.araddr, master.arlen + 1))
            if master.awvalid and slave.awready:
                self.writes.append((master.awaddr, master.awlen + 1))
            if master.wvalid and slave.wready:
                self.beats.append((master.wdata, master.wstrb, self.cycle))
            model.step(master)
            self.cycle += 1


class ReadServer:
    """A read port with one client and its memory, to be run in the background.

    Takes requests, checks them, and answers in order from a memory.

    Parameters
    ----------
    request : stream interface of ReadRequest
        Of the client.
    answer : stream interface of beats
        Of the client.
    memory : Memory
    stall : int or None
        Seed of the stalls of both streams; None: none, and the least latency.
    latency : int
        Cycles from a request to its first beat.

    Attributes
    ----------
    requests : list of tuple
        Requests taken: address, beats, index, urgent and the number of the cycle.
    beats : int
        Beats that are still to be answered.
    blocked : int
        Cycles for which a beat has been waiting for the client.
    cycle : int
        Number of the present cycle.

    Raises
    ------
    AssertionError
        If a request is not aligned, is empty or crosses a burst's boundary.
    """

    def __init__(
        self,
        request: Any,
        answer: Any,
        memory: Memory,
        *,
        stall: int | None = None,
        latency: int = 2,
    ) -> None:
        self.requests: list[tuple[int, int, int, int, int]] = []
        self.beats = 0
        self.blocked = 0
        self.cycle = 0
        self._request = request
        self._answer = answer
        self._memory = memory
        self._latency = latency
        self._held = stalls(stall), stalls(None if stall is None else stall + 1)

    async def __call__(self, ctx: Any) -> None:
        """Run for ever."""
        request, answer = self._request, self._answer
        layout = request.payload.shape()
        urgent = ((1 << layout["urgent"].width) - 1) << layout["urgent"].offset
        rule = StreamRule("request", mask=~urgent)
        sampler = ctx.tick().sample(request.valid, Value.cast(request.payload), answer.ready)
        size = len(answer.payload) // 8
        queue: deque[tuple[int, int]] = deque()  # cycle from which it may be offered, data
        offered = False
        while True:
            ready = not next(self._held[0])
            ctx.set(request.ready, ready)
            stalled = next(self._held[1])
            if not offered and queue and queue[0][0] <= self.cycle and not stalled:
                ctx.set(answer.valid, 1)
                ctx.set(answer.payload, queue[0][1])
                offered = True
            _, _, valid, bits, taken = await sampler
            rule.check(valid, ready, bits)
            if offered and taken:
                queue.popleft()
                ctx.set(answer.valid, 0)
                offered = False
            self.blocked = self.blocked + 1 if offered else 0
            if valid and ready:
                wanted = layout.from_bits(bits)
                self._check(wanted, size)
                data = self._memory.read(wanted.address, wanted.beats * size)
                for start in range(0, len(data), size):
                    beat = int.from_bytes(data[start : start + size], "little")
                    queue.append((self.cycle + self._latency, beat))
                self.requests.append(
                    (wanted.address, wanted.beats, wanted.index, wanted.urgent, self.cycle)
                )
            self.beats = len(queue)
            self.cycle += 1

    def _check(self, wanted: Any, size: int) -> None:
        address, count = wanted.address, wanted.beats * size
        assert address % size == 0, f"request at {address:#x} is not aligned to {size} bytes"
        assert count > 0, f"request at {address:#x} is empty"
        limit = max(_BURST_BYTES, size)
        assert address // limit == (address + count - 1) // limit, (
            f"request of {count} bytes at {address:#x} crosses a multiple of {limit}"
        )

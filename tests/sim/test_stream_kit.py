"""The test kit: it must let good units pass and catch bad ones."""

import itertools
from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.axi import AXI4
from trirow_hw.queue import Queue
from trirow_hw.read_port import ReadRequest
from trirow_sim.axi import AxiViolation
from trirow_sim.memory import Memory, make_memory
from trirow_sim.stream_kit import (
    AxiMemory,
    ReadServer,
    StreamRule,
    StreamViolation,
    collect,
    run,
    send,
    span_beats,
    span_pieces,
    stalls,
)

PAIR = data.StructLayout({"a": 5, "b": 3})


class Bad(wiring.Component):
    """Counts; breaks a rule of the stream now and then."""

    def __init__(self, fault):
        self._fault = fault
        super().__init__({"o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        cycle, value = Signal(8), Signal(8)
        m.d.sync += cycle.eq(cycle + 1)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += value.eq(value + 1)
        glitch = cycle % 16 > 12
        m.d.comb += [
            self.o.valid.eq(~glitch if self._fault == "drops" else 1),
            self.o.payload.eq(Mux(glitch, 99, value) if self._fault == "changes" else value),
        ]
        return m


class Reader(wiring.Component):
    """Reads bursts of one beat over AXI4, or drops a request."""

    def __init__(self, *, drops=False):
        self._drops = drops
        super().__init__({"axi": Out(AXI4(data_bytes=4)), "o": Out(stream.Signature(32))})

    def elaborate(self, platform):
        m = Module()
        axi, waits = self.axi, Signal()
        m.d.comb += [
            axi.arvalid.eq(~waits),
            axi.arsize.eq(2),
            axi.arburst.eq(1),
            axi.rready.eq(self.o.ready),
            self.o.valid.eq(axi.rvalid),
            self.o.payload.eq(axi.rdata),
        ]
        with m.If(axi.arvalid & axi.arready):
            m.d.sync += [waits.eq(1), axi.araddr.eq(axi.araddr + 4)]
        with m.Elif(self._drops & axi.arvalid):
            m.d.sync += waits.eq(1)
        with m.If(axi.rvalid & axi.rready):
            m.d.sync += waits.eq(0)
        return m


class Client(wiring.Component):
    """A client of a read port that does nothing by itself."""

    def __init__(self):
        super().__init__(
            {
                "request_i": In(stream.Signature(ReadRequest)),
                "request": Out(stream.Signature(ReadRequest)),
                "answer": In(stream.Signature(32)),
                "answer_o": Out(stream.Signature(32)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += Signal().eq(0)
        wiring.connect(m, wiring.flipped(self.request_i), wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.answer), wiring.flipped(self.answer_o))
        return m


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_stalls_repeat(seed):
    first, second = (list(itertools.islice(stalls(seed), 500)) for _ in range(2))
    assert first == second
    assert any(first) == (seed is not None)
    assert not all(first)


def test_spans():
    spans = {"address": 5, "total": 17, "first": 4, "span": 6, "gap": 1}
    assert span_pieces(spans) == [(5, 4), (10, 6), (17, 6), (24, 1)]
    assert span_beats(spans, 4) == [
        (4, 1, 3),
        (8, 0, 1),
        (8, 2, 2),
        (12, 0, 4),
        (16, 1, 3),
        (20, 0, 3),
        (24, 0, 1),
    ]


@pytest.mark.parametrize("i_stall", [None, 3])
@pytest.mark.parametrize("o_stall", [None, 4])
def test_what_is_sent_is_collected(i_stall, o_stall):
    dut = Queue(8, depth=3)
    taken = []

    async def sender(ctx):
        await send(ctx, dut.i, range(200), i_stall)

    async def collector(ctx):
        await collect(ctx, dut.o, 200, o_stall, taken=taken)

    cycles = run(dut, sender, collector)
    assert taken == list(range(200))
    if i_stall is None and o_stall is None:
        assert cycles < 205


def test_structured_payloads():
    dut = Queue(PAIR, depth=2)
    taken = []

    async def sender(ctx):
        await send(ctx, dut.i, [{"a": 3, "b": 1}, 0xFF, -1 << 5])

    async def collector(ctx):
        taken.extend(await collect(ctx, dut.o, 3))

    run(dut, sender, collector)
    assert [(value.a, value.b) for value in taken] == [(3, 1), (31, 7), (0, 7)]


def test_poison_while_nothing_is_offered():
    dut = Queue(32, depth=2)
    seen = set()

    async def sender(ctx):
        await send(ctx, dut.i, [5] * 100, 1)

    async def spy(ctx):
        while True:
            _, _, valid, payload = await ctx.tick().sample(dut.i.valid, dut.i.payload)
            if not valid:
                seen.add(payload)

    async def collector(ctx):
        assert await collect(ctx, dut.o, 100) == [5] * 100

    run(dut, sender, collector, background=[spy])
    assert len(seen - {0, 5}) > 2


def test_a_hang_ends_and_is_named():
    dut = Queue(8, depth=2)

    async def sender(ctx):
        await send(ctx, dut.i, range(9))

    async def short(ctx):
        await ctx.tick()

    with pytest.raises(TimeoutError, match=r"^not finished after 50 cycles: sender$"):
        run(dut, sender, short, max_cycles=50)


def test_a_failure_in_any_testbench_ends_the_run():
    async def fails(ctx):
        await ctx.tick()
        raise ZeroDivisionError

    async def waits(ctx):
        while True:
            await ctx.tick()

    with pytest.raises(ZeroDivisionError):
        run(Queue(8, depth=2), fails, waits)
    with pytest.raises(ZeroDivisionError):
        run(Queue(8, depth=2), waits, background=[fails])


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (None, None),
        ("drops", "stream: valid dropped before ready"),
        ("changes", "stream: payload changed from 0x[0-9a-f]+ to 0x[0-9a-f]+ before ready"),
    ],
)
def test_collect_checks_the_rule(fault, text):
    dut = Bad(fault)

    async def collector(ctx):
        assert await collect(ctx, dut.o, 200, 7) == list(range(200))

    if fault is None:
        run(dut, collector)
    else:
        with pytest.raises(StreamViolation, match=f"^{text}$"):
            run(dut, collector)


def test_rule_with_mask():
    rule = StreamRule("it", mask=0xF0)
    rule.check(1, 0, 0x12)
    rule.check(1, 0, 0x1F)
    with pytest.raises(
        StreamViolation, match=r"^it: payload changed from 0x10 to 0x20 before ready$"
    ):
        rule.check(1, 1, 0x2F)


@pytest.mark.parametrize("model", ["ideal", "random"])
def test_axi_memory(model):
    memory = Memory(256)
    memory.data[:] = bytes(range(256))
    dut = Reader()
    background = AxiMemory(dut.axi, make_memory(model, memory, 4))

    async def collector(ctx):
        words = await collect(ctx, dut.o, 8, 5)
        assert words == [int.from_bytes(memory.read(4 * k, 4), "little") for k in range(8)]

    run(dut, collector, background=[background])
    assert background.reads[:8] == [(4 * k, 1) for k in range(8)]
    assert background.checker.read_beats >= 8
    assert not background.writes
    assert not background.beats


def test_axi_memory_checks():
    dut = Reader(drops=True)
    model = make_memory("ideal", Memory(256), 4)
    model.slave.arready = 0

    async def waits(ctx):
        for _ in range(20):
            await ctx.tick()

    with pytest.raises(AxiViolation, match="AR: valid dropped before ready"):
        run(dut, waits, background=[AxiMemory(dut.axi, model)])


@pytest.mark.parametrize("stall", [None, 1, 2])
def test_read_server(stall):
    memory = Memory(4096)
    memory.data[:] = bytes(k * 7 & 0xFF for k in range(4096))
    bursts = [(0, 3), (508, 1), (512, 128), (4, 2)]
    dut = Client()
    server = ReadServer(dut.request, dut.answer, memory, stall=stall)

    async def sender(ctx):
        requests = [
            {"address": address, "beats": beats, "index": k, "urgent": k & 1}
            for k, (address, beats) in enumerate(bursts)
        ]
        await send(ctx, dut.request_i, requests, stall)

    async def collector(ctx):
        expected = b"".join(memory.read(address, 4 * beats) for address, beats in bursts)
        beats = await collect(ctx, dut.answer_o, len(expected) // 4, stall)
        assert b"".join(beat.to_bytes(4, "little") for beat in beats) == expected
        await ctx.tick()

    run(dut, sender, collector, background=[server])
    assert [request[:4] for request in server.requests] == [
        (address, beats, k, k & 1) for k, (address, beats) in enumerate(bursts)
    ]
    assert server.beats == 0


@pytest.mark.parametrize(
    ("address", "beats", "text"),
    [
        (2, 1, "request at 0x2 is not aligned to 4 bytes"),
        (4, 0, "request at 0x4 is empty"),
        (508, 2, "request of 8 bytes at 0x1fc crosses a multiple of 512"),
    ],
)
def test_read_server_checks(address, beats, text):
    dut = Client()
    server = ReadServer(dut.request, dut.answer, Memory(4096))

    async def sender(ctx):
        await send(ctx, dut.request_i, [{"address": address, "beats": beats}])
        await ctx.tick()

    with pytest.raises(AssertionError, match=f"^{text}$"):
        run(dut, sender, background=[server])


def test_read_server_counts_how_long_it_is_blocked():
    dut = Client()
    server = ReadServer(dut.request, dut.answer, Memory(64))
    seen = SimpleNamespace(blocked=0)

    async def sender(ctx):
        await send(ctx, dut.request_i, [{"address": 0, "beats": 2}])
        for _ in range(20):
            await ctx.tick()
        seen.blocked = server.blocked

    run(dut, sender, background=[server])
    assert seen.blocked > 10
    assert server.beats == 2

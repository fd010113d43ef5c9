"""Read the second operand, a feature map or int32 sums, in the order of the outputs."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .queue import Queue
from .read_port import ReadRequest
from .spans import BurstSplitter, Spans
from .unpacker import Unpacker

__all__ = ["SecondColumn", "SecondPass", "SecondReader", "beat_places"]

#: What the reader of the second operand needs to know of a pass. ``wait``: earlier outputs must
#: have landed; ``four_bytes``: the values are int32; ``loops``: passes before it that take
#: sums kept on chip and keep none, modulo 8; see `trirow_hw.post_process.PostProcess`.
SecondPass = data.StructLayout(
    {
        "spans": Spans,
        "wait": 1,
        "four_bytes": 1,
        "loops": 3,
        "groups": 16,
        "group_lanes": 8,
        "last_lanes": 8,
        "index": 16,
    }
)


def SecondColumn(config: Config):
    """Return the layout of a column: lane k in the bits of ``data`` from 32 k on.

    A value of one byte is in the low byte, the bits above it are undefined, and so are lanes that
    the group does not have. ``loops`` is that of the pass.
    """
    return data.StructLayout({"data": 32 * config.post_lanes, "loops": 3})


def beat_places(config: Config) -> int:
    """Return how many beats may be on the way or wait.

    Two of the longest bursts; on a wide bus more, in view of the latency of memories: a block RAM
    is deep enough.
    """
    return max(2 * config.burst_beats, 64)


class SecondReader(wiring.Component):
    """Fetch the second operand ahead of the array and deal it out in columns.

    A burst is requested when the queue of beats has room for all of it, so everything requested is
    accepted. The next pass is requested while this one arrives.

    Throughput a column a cycle, as far as the bus gives its bytes: no more than ``bus_bytes`` of
    them are taken in a cycle. Latency 5 cycles from a beat to its column.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(SecondPass))
        Passes that have a second operand, in order.
    landed : In(16)
        Passes of the run whose outputs have landed.
    starving : In(1)
        The array waits, maybe for the second operand.
    on_the_way : In(1)
        Some answer to this reader is due.
    request : Out(stream.Signature(ReadRequest)), answer : In(stream.Signature(8 * bus_bytes))
        To and from the read port.
    o : Out(stream.Signature(SecondColumn))
    waits : Out(1)
        A pass waits for earlier outputs to land.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(SecondPass)),
                "landed": In(16),
                "starving": In(1),
                "on_the_way": In(1),
                "request": Out(stream.Signature(ReadRequest)),
                "answer": In(stream.Signature(8 * config.bus_bytes)),
                "o": Out(stream.Signature(SecondColumn(config))),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.beats = beats = Queue(
            8 * config.bus_bytes, depth=beat_places(config), block_ram=True
        )
        # It shifts by any number of bytes, which is most of this unit.
        word_bytes = min(4 * config.post_lanes, config.bus_bytes)
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=config.bus_bytes, word_bytes=word_bytes
        )
        m.submodules.arriving = arriving = Queue(SecondPass, depth=4)
        wiring.connect(m, wiring.flipped(self.answer), beats.i)
        wiring.connect(m, beats.o, unpacker.i)
        self._elaborate_requests(m, arriving.i, beats.o.valid & beats.o.ready)
        self._elaborate_columns(m, arriving.o, unpacker, word_bytes)
        return m

    def _elaborate_requests(self, m, arriving, freed):
        """Start a pass; request its bursts as places of beats become free."""
        config = self._config
        m.submodules.splitter = splitter = BurstSplitter(bus_bytes=config.bus_bytes)
        current = Signal(SecondPass)
        places = beat_places(config)
        free = Signal(range(places + 1), init=places)
        starved = Signal()
        request = self.request.payload
        m.d.comb += [
            splitter.i.payload.eq(current.spans),
            splitter.take_beats.eq(splitter.beats),
            splitter.take_bytes.eq(splitter.bytes),
            splitter.take.eq(splitter.valid & (splitter.beats <= free) & ~self.request.valid),
            request.urgent.eq(starved & self.starving & ~self.on_the_way),
        ]
        # While a column is on offer, the array does not wait for this unit.
        m.d.sync += [
            starved.eq(~self.o.valid),
            free.eq(free + freed - Mux(splitter.take, splitter.beats, 0)),
        ]
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(splitter.take):
            m.d.sync += [
                self.request.valid.eq(1),
                request.address.eq(splitter.address & ~(config.bus_bytes - 1)),
                request.beats.eq(splitter.beats),
                request.index.eq(current.index),
            ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    arriving.payload.eq(self.i.payload),
                    arriving.valid.eq(self.i.valid),
                    self.i.ready.eq(arriving.ready),
                ]
                m.d.sync += current.eq(self.i.payload)
                with m.If(self.i.valid & self.i.ready):
                    m.next = "ORDER"

            with m.State("ORDER"):
                ordered = ~current.wait | (self.landed == current.index)
                m.d.comb += [splitter.i.valid.eq(ordered), self.waits.eq(~ordered)]
                with m.If(ordered & splitter.i.ready):
                    m.next = "REQUEST"

            with m.State("REQUEST"):
                with m.If(splitter.take & splitter.last):
                    m.next = "IDLE"

    def _elaborate_columns(self, m, arriving, unpacker, word_bytes):
        """Take the bytes of the columns, pixel by pixel, in words; a column may be several."""
        spec = arriving.payload
        busy, begins = Signal(), Signal()
        bytes_left = Signal(32)
        m.d.comb += [
            unpacker.spans.payload.eq(spec.spans),
            unpacker.spans.valid.eq(arriving.valid & ~busy),
            begins.eq(unpacker.spans.valid & unpacker.spans.ready),
            unpacker.take.eq(busy & unpacker.valid & (~self.o.valid | self.o.ready)),
            arriving.ready.eq(unpacker.take & (bytes_left == unpacker.want)),
        ]
        with m.If(begins):
            m.d.sync += [busy.eq(1), bytes_left.eq(spec.spans.total)]
        with m.If(unpacker.take):
            m.d.sync += [bytes_left.eq(bytes_left - unpacker.want), busy.eq(~arriving.ready)]

        column_ends, column_left = Signal(), Signal(range(4 * self._config.post_lanes + 1))
        want, left_next = Signal.like(unpacker.want), Signal.like(column_left)
        column_bytes = self._elaborate_lanes(m, spec, begins, unpacker.take & column_ends)
        m.d.comb += [
            left_next.eq(Mux(begins | column_ends, column_bytes, column_left - word_bytes)),
            unpacker.want.eq(want),
        ]
        with m.If(begins | unpacker.take):
            m.d.sync += [
                column_left.eq(left_next),
                column_ends.eq(left_next <= word_bytes),
                want.eq(Mux(left_next <= word_bytes, left_next, word_bytes)),
            ]
        self._elaborate_output(m, unpacker, spec, column_ends, word_bytes)

    def _elaborate_lanes(self, m, spec, begins, advances):
        """Walk the columns of the groups; return the bytes of the column that comes next."""
        width = self._config.post_lanes
        groups_left, lanes_left = Signal(16), Signal(8)  # from the present column on
        groups_next, lanes_next = Signal(16), Signal(8)
        group_ends, ends_next = Signal(), Signal()
        values = Signal(range(width + 1))
        m.d.comb += [
            groups_next.eq(Mux(begins | (groups_left == 1), spec.groups, groups_left - 1)),
            lanes_next.eq(lanes_left - width),
            ends_next.eq(lanes_next <= width),
            values.eq(Mux(ends_next, lanes_next, width)),
        ]
        with m.If(begins | group_ends):
            m.d.comb += lanes_next.eq(Mux(groups_next == 1, spec.last_lanes, spec.group_lanes))
        with m.If(begins | advances):
            m.d.sync += [lanes_left.eq(lanes_next), group_ends.eq(ends_next)]
            with m.If(begins | group_ends):
                m.d.sync += groups_left.eq(groups_next)
        return Mux(spec.four_bytes, values << 2, values)

    def _elaborate_output(self, m, unpacker, spec, column_ends, word_bytes):
        """Put the words of a column together; values of one byte are spread over the lanes."""
        width = self._config.post_lanes
        words = -(-4 * width // word_bytes)
        number = Signal(range(words))
        column = self.o.payload.data
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(unpacker.take):
            m.d.sync += [
                self.o.valid.eq(column_ends),
                self.o.payload.loops.eq(spec.loops),
                number.eq(Mux(column_ends, 0, number + 1)),
            ]
            with m.If(spec.four_bytes):
                for k in range(words):
                    part = column[8 * word_bytes * k : 8 * word_bytes * (k + 1)]
                    with m.If(number == k):
                        m.d.sync += part.eq(unpacker.data)
            with m.Else():
                for k in range(width):
                    m.d.sync += column[32 * k : 32 * k + 8].eq(unpacker.data[8 * k : 8 * k + 8])

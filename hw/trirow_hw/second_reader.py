"""Read the second operand, a feature map or int32 sums, in the order of the outputs."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockQueue
from .config import Config
from .queue import Queue
from .read_port import ReadRequest
from .spans import BurstSplitter, Spans
from .unpacker import BeatMarker, MarkedBeat, Unpacker

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

#: What is needed of it where the columns arrive.
_Arriving = data.StructLayout(
    {
        "total": 32,
        "four_bytes": 1,
        "loops": 3,
        "groups": 16,
        "group_lanes": 8,
        "last_lanes": 8,
    }
)
#: Words that have been asked for, or wait to be put together to columns.
WORD_QUEUE = 16


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
    them are taken in a cycle. Latency 11 cycles from a beat to its column.

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
        bus_bytes = config.bus_bytes
        # It shifts by any number of bytes, which is most of this unit.
        word_bytes = min(4 * config.post_lanes, bus_bytes)
        part = data.StructLayout(
            {
                "number": range(-(-4 * config.post_lanes // word_bytes)),
                "ends": 1,
                "four_bytes": 1,
                "loops": 3,
            }
        )
        m.submodules.marker = marker = BeatMarker(bus_bytes=bus_bytes)
        m.submodules.beats = beats = BlockQueue(MarkedBeat(bus_bytes), depth=beat_places(config))
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=bus_bytes, word_bytes=word_bytes, tag=part
        )
        m.submodules.arriving = arriving = Queue(_Arriving, depth=4, registered=True)
        wiring.connect(m, wiring.flipped(self.answer), marker.i)
        wiring.connect(m, marker.o, beats.i)
        wiring.connect(m, beats.o, unpacker.i)
        self._elaborate_requests(m, arriving.i, marker.bursts, beats.o.valid & beats.o.ready)
        word = data.StructLayout({"data": 8 * word_bytes, "part": part})
        m.submodules.words = words = Queue(word, depth=WORD_QUEUE)
        freed = Signal()
        m.d.comb += [
            words.i.payload.data.eq(unpacker.data),
            words.i.payload.part.eq(unpacker.tag),
            words.i.valid.eq(unpacker.valid),
        ]
        m.d.sync += freed.eq(words.o.valid & words.o.ready)
        self._elaborate_columns(m, arriving.o, unpacker.want, freed, word_bytes)
        self._elaborate_output(m, words.o, word_bytes)
        return m

    def _elaborate_requests(self, m, arriving, bursts, freed):
        """Start a pass; request its bursts as places of beats become free."""
        config = self._config
        bus_bytes = config.bus_bytes
        m.submodules.splitter = splitter = BurstSplitter(bus_bytes=bus_bytes)
        current = Signal(SecondPass)
        places = beat_places(config)
        free = Signal(range(places + 1), init=places)
        starved, looked, fits, was_freed, ordered = (Signal() for _ in range(5))
        idle = ~self.request.valid & ~bursts.valid
        request, offset = self.request.payload, splitter.address % bus_bytes
        m.d.comb += [
            splitter.i.payload.eq(current.spans),
            splitter.take_beats.eq(splitter.beats),
            splitter.take_bytes.eq(splitter.bytes),
            splitter.take.eq(looked & fits),
            request.urgent.eq(starved & self.starving & ~self.on_the_way),
        ]
        m.d.sync += [
            # While a column is on offer, the array does not wait for this unit.
            starved.eq(~self.o.valid),
            was_freed.eq(freed),
            free.eq(free + was_freed - Mux(splitter.take, splitter.beats, 0)),
            # A burst is compared with the room in its first cycle, and may be taken from the next.
            looked.eq(splitter.valid & ~splitter.take & idle),
            fits.eq(splitter.beats <= free),
            ordered.eq(~current.wait | (self.landed == current.index)),
        ]
        with m.If(self.request.ready):
            m.d.sync += self.request.valid.eq(0)
        with m.If(bursts.ready):
            m.d.sync += bursts.valid.eq(0)
        with m.If(splitter.take):
            m.d.sync += [self.request.valid.eq(1), bursts.valid.eq(1)]
        with m.If(idle):
            m.d.sync += [
                request.address.eq(splitter.address & ~(bus_bytes - 1)),
                request.beats.eq(splitter.beats),
                request.index.eq(current.index),
                bursts.payload.first.eq(offset),
                bursts.payload.last.eq(offset + splitter.bytes - 1),
                bursts.payload.beats.eq(splitter.beats),
            ]

        # The state too, but with nothing else behind it: so wide a register is slow to enable.
        loads = Signal(init=1)
        with m.If(loads):
            m.d.sync += current.eq(self.i.payload)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += loads.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    arriving.payload.total.eq(self.i.payload.spans.total),
                    arriving.valid.eq(self.i.valid),
                    self.i.ready.eq(arriving.ready),
                ]
                for name in list(_Arriving.members)[1:]:
                    m.d.comb += arriving.payload[name].eq(self.i.payload[name])
                with m.If(self.i.valid & self.i.ready):
                    m.next = "BEGIN"

            with m.State("BEGIN"):
                m.next = "ORDER"

            with m.State("ORDER"):
                m.d.comb += [splitter.i.valid.eq(ordered), self.waits.eq(~ordered)]
                with m.If(ordered & splitter.i.ready):
                    m.next = "REQUEST"

            with m.State("REQUEST"):
                with m.If(splitter.take & splitter.last):
                    m.d.sync += loads.eq(1)
                    m.next = "IDLE"

    def _elaborate_columns(self, m, arriving, want, freed, word_bytes):
        """Ask for the bytes of the columns, pixel by pixel, in words; a column may be several.

        Only for words that have a place in their queue.
        """
        spec, part = arriving.payload, want.payload.tag
        bytes_left, number = Signal(32), Signal.like(part.number)
        free = Signal(range(WORD_QUEUE + 1), init=WORD_QUEUE)
        asked, begins, advances = Signal(), Signal(), Signal()
        values = self._elaborate_lanes(m, spec, begins, advances)
        column_left, left_next = (Signal(range(4 * self._config.post_lanes + 1)) for _ in range(2))
        column_ends = Signal()
        m.d.comb += [
            asked.eq(want.valid & want.ready),
            left_next.eq(column_left - word_bytes),
        ]
        m.d.sync += free.eq(free + freed - asked)
        with m.If(advances):
            m.d.comb += left_next.eq(Mux(spec.four_bytes, values << 2, values))
        bytes_wanted = Signal.like(want.payload.bytes)
        m.d.comb += [
            want.payload.bytes.eq(bytes_wanted),
            part.number.eq(number),
            part.ends.eq(column_ends),
            part.four_bytes.eq(spec.four_bytes),
            part.loops.eq(spec.loops),
        ]
        with m.If(asked | advances):
            m.d.sync += [
                number.eq(Mux(advances, 0, number + 1)),
                column_left.eq(left_next),
                column_ends.eq(left_next <= word_bytes),
                bytes_wanted.eq(Mux(left_next <= word_bytes, left_next, word_bytes)),
            ]
        with m.If(asked):
            m.d.sync += bytes_left.eq(bytes_left - bytes_wanted)

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += bytes_left.eq(spec.total)
                with m.If(arriving.valid):
                    m.next = "BEGIN"

            with m.State("BEGIN"):
                m.d.comb += begins.eq(1)
                m.next = "FIRST"

            with m.State("FIRST"):
                m.d.comb += advances.eq(1)
                m.next = "COLUMNS"

            with m.State("COLUMNS"):
                m.d.comb += [want.valid.eq(free != 0), advances.eq(asked & column_ends)]
                with m.If(asked & (bytes_left == bytes_wanted)):
                    m.next = "END"

            with m.State("END"):
                m.d.comb += arriving.ready.eq(1)
                m.next = "IDLE"

    def _elaborate_lanes(self, m, spec, begins, advances):
        """Walk the columns of the groups; return the values of the column that comes next."""
        width = self._config.post_lanes
        groups_left, lanes_left = Signal(16), Signal(8)  # from that column on
        last_group, group_ends = Signal(), Signal()
        one_group, group_short, last_short = Signal(), Signal(), Signal()
        next_last = Signal()
        # The pass is there for a cycle before it begins.
        m.d.sync += [
            one_group.eq(spec.groups == 1),
            group_short.eq(spec.group_lanes <= width),
            last_short.eq(spec.last_lanes <= width),
        ]
        m.d.comb += next_last.eq(Mux(begins | last_group, one_group, groups_left == 2))
        with m.If(begins | (advances & group_ends)):
            m.d.sync += [
                groups_left.eq(Mux(begins | last_group, spec.groups, groups_left - 1)),
                last_group.eq(next_last),
                lanes_left.eq(Mux(next_last, spec.last_lanes, spec.group_lanes)),
                group_ends.eq(Mux(next_last, last_short, group_short)),
            ]
        with m.Elif(advances):
            m.d.sync += [
                lanes_left.eq(lanes_left - width),
                group_ends.eq(lanes_left <= 2 * width),
            ]
        return Mux(group_ends, lanes_left, width)[: width.bit_length()]

    def _elaborate_output(self, m, words, word_bytes):
        """Put the words of a column together; values of one byte are spread over the lanes."""
        width = self._config.post_lanes
        part, value = words.payload.part, words.payload.data
        column = self.o.payload.data
        m.d.comb += words.ready.eq(~self.o.valid | self.o.ready)
        with m.If(words.ready):
            m.d.sync += self.o.valid.eq(words.valid & part.ends)
        with m.If(words.ready & words.valid):
            m.d.sync += self.o.payload.loops.eq(part.loops)
            with m.If(part.four_bytes):
                for k in range(-(-4 * width // word_bytes)):
                    place = column[8 * word_bytes * k : 8 * word_bytes * (k + 1)]
                    with m.If(part.number == k):
                        m.d.sync += place.eq(value)
            with m.Else():
                for k in range(width):
                    m.d.sync += column[32 * k : 32 * k + 8].eq(value[8 * k : 8 * k + 8])

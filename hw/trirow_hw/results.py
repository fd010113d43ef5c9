"""Room for results, their queue, and the way out of it, where int32 sums are cut into bytes."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import MAX_STAGES, SECOND_QUEUE, Config
from .queue import Queue
from .tap_issuer import GroupTag

__all__ = [
    "PASS_QUEUE",
    "RESULT_QUEUE",
    "SUM_BYTES",
    "Column",
    "Outputs",
    "Reservation",
    "Result",
    "Results",
    "Totals",
]

#: Columns of results on the way or waiting for the output writer.
RESULT_QUEUE = MAX_STAGES
#: Passes of which some group is on the way, or the next one.
PASS_QUEUE = 4
#: Bytes of a sum that leaves as it is.
SUM_BYTES = 4


def Outputs(config: Config):
    """Return the layout of the outputs of a cycle: bytes, and how many of them there are."""
    return data.StructLayout({"data": 8 * config.post_lanes, "count": range(config.post_lanes + 1)})


def Column(config: Config):
    """Return the layout of a column on its way: what becomes of it, and which tables it uses.

    ``tables_end``: no column behind it needs those tables.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "count": range(config.post_lanes + 1),
            "partial_out": 1,
            "kept_out": 1,
            "table": 1,
            "combine": 2,
            "place": 1,
            "tables_end": 1,
        }
    )


def Result(config: Config):
    """Return the layout of the result of a column: its channels, and a byte of each.

    ``wide``: the result is int32 and comes from the queue of totals.
    """
    return data.StructLayout({"wide": 1, **Outputs(config).members})


def Totals(config: Config):
    """Return the layout of int32 values of a column, lane after lane.

    ``again``: they are to be requantised.
    """
    return data.StructLayout(
        {
            "data": 8 * SUM_BYTES * config.post_lanes,
            "count": range(config.post_lanes + 1),
            "again": 1,
        }
    )


class Results(wiring.Component):
    """Keep results in order until the output writer takes them, and int32 values until they go on.

    Latency 2 cycles, 3 for int32. Throughput a column a cycle; a column of int32 takes a cycle for
    each ``post_lanes`` bytes. There is no back-pressure on the inputs: who writes has reserved
    places.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(Result), i_valid : In(1)
        A column.
    freed : Out(1)
        A column leaves its place.
    total : In(Totals), total_valid : In(1)
        A column of int32. Those that are not to be requantised leave when a result is ``wide``.
    again : Out(stream.Signature(Totals))
        Those that are.
    o : Out(stream.Signature(Outputs))
        ``count`` is 1 to ``post_lanes``; bytes beyond it are undefined. The int32 of a column are
        little-endian, lane after lane, cut into pieces of ``post_lanes`` bytes.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(Result(config)),
                "i_valid": In(1),
                "freed": Out(1),
                "total": In(Totals(config)),
                "total_valid": In(1),
                "again": Out(stream.Signature(Totals(config))),
                "o": Out(stream.Signature(Outputs(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, width = self._config, self._config.post_lanes
        m.submodules.queue = queue = Queue(Result(config), depth=RESULT_QUEUE)
        m.submodules.totals = totals = Queue(Totals(config), depth=RESULT_QUEUE, block_ram=True)
        head, total = queue.o.payload, totals.o.payload

        # The piece that comes next of a wide column.
        piece = Signal(range(SUM_BYTES))
        starts = [width * k for k in range(SUM_BYTES)]
        size = Signal(range(SUM_BYTES * width + 1))
        ends = Array(size <= start + width for start in starts)[piece]
        rest = Array((size - start)[: len(head.count)] for start in starts)[piece]
        cut = Array(total.data[8 * start : 8 * (start + width)] for start in starts)[piece]
        m.d.comb += size.eq(head.count * SUM_BYTES)

        valid, moves = Signal(), Signal()
        m.d.comb += [
            queue.i.payload.eq(self.i),
            queue.i.valid.eq(self.i_valid),
            totals.i.payload.eq(self.total),
            totals.i.valid.eq(self.total_valid),
            valid.eq(queue.o.valid & (~head.wide | (totals.o.valid & ~total.again))),
            moves.eq(~self.o.valid | self.o.ready),
            self.freed.eq(valid & moves & (~head.wide | ends)),
            queue.o.ready.eq(self.freed),
            self.again.payload.eq(total),
            self.again.valid.eq(totals.o.valid & total.again),
            totals.o.ready.eq(Mux(total.again, self.again.ready, self.freed & head.wide)),
        ]
        # A register: the output writer shifts what comes in the same cycle.
        with m.If(moves):
            m.d.sync += [
                self.o.valid.eq(valid),
                self.o.payload.data.eq(Mux(head.wide, cut, head.data)),
                self.o.payload.count.eq(Mux(head.wide, Mux(ends, rest, width), head.count)),
            ]
            with m.If(valid & head.wide):
                m.d.sync += piece.eq(Mux(ends, 0, piece + 1))
        return m


class Reservation(wiring.Component):
    """Say whether a group may be let into the array, and keep account of what it will take.

    A group needs a place for the result of each of its columns, unless its sums are kept on chip,
    and the columns of its second operand must be there. The first group of a pass also waits until no column of the pass before
    has to go to the requantisers again.

    Parameters
    ----------
    config : Config

    Members
    -------
    tag : In(GroupTag), tag_valid : In(1)
        The group that comes next, and the strobe that lets it in.
    room : Out(1)
        It may come; combinational in ``tag``.
    combine : In(1), combine_valid : In(1)
        Passes in order, at most ``PASS_QUEUE`` of them ahead of ``tag``: whether their columns go
        to the requantisers twice. Without mode ``fixed`` none does.
    again : In(1)
        A column goes there again.
    second_comes : In(1)
        A column of the second operand enters its queue.
    freed : In(1)
        A column leaves the queue of results.
    """

    def __init__(self, *, config: Config):
        self._combines = "fixed" in config.requantise_modes
        super().__init__(
            {
                "tag": In(GroupTag),
                "tag_valid": In(1),
                "room": Out(1),
                "combine": In(1),
                "combine_valid": In(1),
                "again": In(1),
                "second_comes": In(1),
                "freed": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tag, columns = self.tag, self.tag.columns
        free = Signal(range(RESULT_QUEUE + 1), init=RESULT_QUEUE)
        second_free = Signal(range(SECOND_QUEUE + 1))
        taken = Mux(self.tag_valid & ~tag.kept_out, columns, 0)
        second_taken = Mux(self.tag_valid & tag.second, columns, 0)
        m.d.sync += [
            free.eq(free + self.freed - taken),
            second_free.eq(second_free + self.second_comes - second_taken),
        ]
        apart = self._elaborate_trips(m, taken) if self._combines else 1
        m.d.comb += self.room.eq(
            (free >= columns) & (~tag.second | (second_free >= columns)) & apart
        )
        return m

    def _elaborate_trips(self, m, taken):
        """Return whether the pass is known, and its groups are apart from those before it."""
        m.submodules.ahead = ahead = Queue(1, depth=PASS_QUEUE)
        begins = Signal(init=1)
        trips = Signal(range(RESULT_QUEUE + 1))  # columns that have to go again
        m.d.comb += [
            ahead.i.payload.eq(self.combine),
            ahead.i.valid.eq(self.combine_valid),
            ahead.o.ready.eq(self.tag_valid & self.tag.pass_end),
        ]
        m.d.sync += trips.eq(trips + Mux(ahead.o.payload, taken, 0) - self.again)
        with m.If(self.tag_valid):
            m.d.sync += begins.eq(self.tag.pass_end)
        return ahead.o.valid & (~begins | (trips == 0))

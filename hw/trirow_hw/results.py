"""Room for results, their queue, and the way out of it, where int32 sums are cut into bytes."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockQueue
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

    Latency 4 cycles. Throughput a column a cycle; a column of int32 takes a cycle for
    each ``post_lanes`` bytes. There is no back-pressure on the inputs: who writes has reserved
    places. ``freed`` and ``again.valid`` do not depend on ``o.ready`` of the same cycle.

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
        width = self._config.post_lanes
        m.submodules.totals = totals = BlockQueue(Totals(self._config), depth=RESULT_QUEUE)
        head, head_valid, head_ready = self._elaborate_queue(m)
        total = totals.o.payload

        # The piece that comes next of a wide column.
        piece, begins = Signal(range(SUM_BYTES)), Signal(init=1)
        ends, ends_next = Signal(), Signal()
        pieces = [total.data[8 * width * k : 8 * width * (k + 1)] for k in range(SUM_BYTES)]
        out = Signal(Outputs(self._config))
        valid, ready = Signal(), Signal()
        total_there, wide_ready = Signal(), Signal()
        m.d.comb += [
            totals.i.payload.eq(self.total),
            totals.i.valid.eq(self.total_valid),
            ends.eq(Mux(begins, ~head.several, ends_next)),
            out.data.eq(Mux(head.wide, Array(pieces)[piece], head.data)),
            out.count.eq(Mux(ends, head.count, width)),
            total_there.eq(~head.waits | (totals.o.valid & ~total.again)),
            valid.eq(head_valid & total_there),
            self.freed.eq(valid & ready & ends),
            # What is ready does not look at its own valid, so that the way is short.
            head_ready.eq(total_there & ready & ends),
            wide_ready.eq(head_valid & head.waits & ready & ends),
            self.again.payload.eq(total),
            self.again.valid.eq(totals.o.valid & total.again),
            totals.o.ready.eq(Mux(total.again, self.again.ready, wide_ready)),
        ]
        with m.If(valid & ready):
            m.d.sync += [
                piece.eq(Mux(ends, 0, piece + 1)),
                begins.eq(ends),
                ends_next.eq(piece + 1 == head.last_piece),
            ]
        self._elaborate_output(m, out, valid, ready)
        return m

    def _elaborate_queue(self, m):
        """Queue the columns. Return the first one, and its valid and ready.

        ``last_piece`` and ``several`` are those of a wide one, otherwise 0; ``count`` is of the
        last piece. ``waits`` is ``wide`` once more: that one selects data, and has many readers.
        """
        counts, width = range(self._config.post_lanes + 1), self._config.post_lanes
        last_pieces = [max(0, SUM_BYTES * count - 1) // width for count in counts]
        rests = [SUM_BYTES * count - width * last_pieces[count] for count in counts]
        bits = len(self.i.count)
        layout = {**self.i.shape().members, "waits": 1, "last_piece": 2, "several": 1}
        m.submodules.queue = queue = BlockQueue(data.StructLayout(layout), depth=RESULT_QUEUE)
        place = queue.i.payload
        m.d.comb += [
            queue.i.valid.eq(self.i_valid),
            place.wide.eq(self.i.wide),
            place.waits.eq(self.i.wide),
            place.data.eq(self.i.data),
            place.count.eq(self.i.count),
        ]
        with m.If(self.i.wide):
            m.d.comb += [
                place.count.eq(Array(C(rest, bits) for rest in rests)[self.i.count]),
                place.last_piece.eq(Array(C(last, 2) for last in last_pieces)[self.i.count]),
                place.several.eq(place.last_piece != 0),
            ]
        return queue.o.payload, queue.o.valid, queue.o.ready

    def _elaborate_output(self, m, out, valid, ready):
        """Give outputs from a register; a second one takes what comes while the first is full."""
        spare, spare_valid = Signal.like(out, reset_less=True), Signal()
        m.d.comb += ready.eq(~spare_valid)
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += [
                self.o.valid.eq(valid | spare_valid),
                self.o.payload.eq(Mux(spare_valid, spare, out)),
                spare_valid.eq(0),
            ]
        with m.Elif(valid & ready):
            m.d.sync += [spare.eq(out), spare_valid.eq(1)]


class Reservation(wiring.Component):
    """Say whether a group may be let into the array, and keep account of what it will take.

    A group needs a place for the result of each of its columns, unless its sums are kept on chip,
    and the columns of its second operand must be there. With mode ``fixed`` the first group of a
    pass also waits until no column of the pass before has to go to the requantisers again, and
    comes three cycles behind that pass's last group or later.

    ``room`` is known a cycle late, so a group must be known for a cycle before it may come, except
    in the cycle after ``tag_valid`` behind one of a single column of the same pass. Whatever
    becomes free counts from the third cycle on.

    Parameters
    ----------
    config : Config

    Members
    -------
    tag : In(GroupTag), tag_there : In(1), tag_valid : In(1)
        The group that comes next, whether it is known, and the strobe that lets it in. The next
        strobe is at least ``tag.columns`` cycles later.
    room : Out(1)
        It may come.
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
        self._config = config
        self._combines = "fixed" in config.requantise_modes
        super().__init__(
            {
                "tag": In(GroupTag),
                "tag_there": In(1),
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
        tag, strobe = self.tag, self.tag_valid
        results = Mux(strobe & ~tag.kept_out, tag.columns, 0)
        taken = Signal(self._config.stages.bit_length())  # columns of the group of the cycle before
        m.d.sync += taken.eq(results)
        fits, fits_again = self._elaborate_places(
            m, results, self.freed, init=RESULT_QUEUE, name="free"
        )
        second_fits, second_again = self._elaborate_places(
            m, Mux(strobe & tag.second, tag.columns, 0), self.second_comes, init=0, name="second"
        )
        here = fits & (~tag.second | second_fits)
        again = fits_again & (~tag.second | second_again)
        apart = self._elaborate_trips(m, taken) if self._combines else 1
        # Behind a strobe the tag is another one, and its room is not known yet. Only groups of one
        # column can follow each other in consecutive cycles; they are of the same pass.
        m.d.sync += self.room.eq(
            Mux(strobe, again & (tag.columns == 1) & ~tag.pass_end, here & apart & self.tag_there)
        )
        return m

    def _elaborate_places(self, m, columns, comes, *, init, name):
        """Count free places, of which a group takes ``columns`` in this cycle.

        Return whether there are enough for ``tag``, and, if this cycle's group is of one column,
        whether for one more like it.
        """
        most = self._config.stages
        # The count is two cycles old where it is used: the columns of the cycle before are not off.
        taken, came = Signal(range(most + 1), name=f"{name}_taken"), Signal(name=f"{name}_came")
        free = Signal(range(max(RESULT_QUEUE, SECOND_QUEUE) + 1), init=init, name=name)
        after = Signal.like(free, name=f"{name}_after")
        # Bit n: there were n. Who took three or more is followed three cycles later or still later.
        enough = Signal(most + 3, init=(2 << min(init, most + 2)) - 1, name=f"{name}_enough")
        m.d.comb += after.eq(free + came - taken)
        m.d.sync += [
            taken.eq(columns),
            came.eq(comes),
            free.eq(after),
            enough.eq(Cat(after >= n for n in range(most + 3))),
        ]
        one, two = taken == 1, taken == 2
        here = [
            Mux(two, enough[n + 2], Mux(one, enough[n + 1], enough[n])) for n in range(most + 1)
        ]
        return Array(here)[self.tag.columns[: most.bit_length()]], Mux(one, enough[3], enough[2])

    def _elaborate_trips(self, m, taken):
        """Return whether the pass is known, and its groups are apart from those before it."""
        m.submodules.ahead = ahead = Queue(1, depth=PASS_QUEUE)
        begins, ended = Signal(init=1), Signal()
        known = Signal(range(PASS_QUEUE + 1))  # passes, with the one that has `ended`
        known_after, any_known = Signal.like(known), Signal()
        again, goes, comes, combine = (
            Signal(name=n) for n in ("again", "goes", "comes", "combine")
        )
        trips = Signal(range(RESULT_QUEUE + 1))  # columns that have to go again
        none = Signal(init=1)
        m.d.comb += [
            ahead.i.payload.eq(combine),
            ahead.i.valid.eq(comes),
            ahead.o.ready.eq(ended),
            goes.eq((taken != 0) & ahead.o.payload),
            known_after.eq(known + comes - ended),
        ]
        m.d.sync += [
            comes.eq(self.combine_valid),
            combine.eq(self.combine),
            ended.eq(self.tag_valid & self.tag.pass_end),
            known.eq(known_after),
            any_known.eq(known_after != 0),
            again.eq(self.again),
            trips.eq(trips + Mux(ahead.o.payload, taken, 0) - again),
            none.eq(~goes & (none | (again & (trips == 1)))),
        ]
        with m.If(self.tag_valid):
            m.d.sync += begins.eq(self.tag.pass_end)
        # Behind the end of a pass it takes a cycle until `any_known` and `none` count that.
        return any_known & (~begins | (none & ~ended))

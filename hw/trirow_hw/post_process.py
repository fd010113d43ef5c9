"""What happens to the sums that leave the array, column by column, until they are outputs."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockQueue
from .config import SECOND_QUEUE, Config
from .delay import delay
from .queue import Queue
from .requantise import Requantiser
from .results import PASS_QUEUE, Column, Outputs, Reservation, Results, Totals
from .second_reader import SecondColumn
from .tables import Constants, Tables
from .tap_issuer import GroupTag
from .weight_reader import ConstantWrite, TableWrite

__all__ = ["Outputs", "PostPass", "PostProcess"]

#: What the units behind the array need to know of a pass; see the fields of the descriptor.
PostPass = data.StructLayout(
    {
        "partial_in": 1,
        "partial_out": 1,
        "kept_in": 1,
        "kept_out": 1,
        "fixed": 1,
        "prelu": 1,
        "zero_out": signed(8),
        "low": signed(8),
        "high": signed(8),
        "table": 1,
        "combine": 2,
        "sum_left": 4,
        "sum_right": 5,
        "sum_mantissa": 31,
        "sum_zero": signed(8),
        "sum_low": signed(8),
        "sum_high": signed(8),
        "table_bytes": 16,
        "keep_weights": 1,
    }
)

#: Places for groups on the way through the array: one a cycle, for as long as its latency.
TAG_QUEUE = 32
#: Code of ``combine``; other codes but 0 add.
COMBINE_MAXIMUM = 2


class PostProcess(wiring.Component):
    """Bias or partial sums, requantisation, tables, and the combination with a second feature map.

    There are ``post_lanes`` requantisers. What is combined goes through them twice: the sums of
    table entries wait in a queue and take the cycles in which no column leaves the array. They have
    left that queue before a column of another pass is let into the array, so that results stay in
    order; this costs about two latencies for a pass that combines.

    Sums that are kept on chip (``kept_out``) go back into the queue of the second operand, where
    a later pass finds them (``kept_in``, with ``partial_in``). At most ``SECOND_QUEUE`` columns
    fit; more are lost, and a pass waits for them for ever. A column of the reader enters the queue
    only when as many passes that took kept sums and kept none have ended as are before its own
    pass, so it cannot come between kept sums. Of passes that are here or in the sequencer's queue,
    6 together, a number of 3 bits tells them apart.

    Throughput a column a cycle; every other cycle with ``combine``; a column each 4 cycles with
    ``partial_out`` (fewer where 4 bytes of its lanes fill fewer outputs). Latency from ``done`` to
    ``o`` 9 cycles and that of the requantiser; with ``combine`` 16 cycles and twice that.
    Back-pressure is by reservation: ``room`` says that the results of the group that ends next fit
    the queue, and that its second operand is there; ``tag_valid`` takes both.

    Mode ``fixed`` is what combines: without it there is neither second table nor second trip.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(PostPass))
        Passes. One with partial sums, read, written or kept, does not combine.
    constant : In(ConstantWrite), constant_valid : In(1)
    table : In(TableWrite), table_valid : In(1)
    tag : In(GroupTag), tag_there : In(1), tag_valid : In(1)
        A group whose sums will come, ``columns`` columns from the same number of cycles on, at
        least 4 and at most ``TAG_QUEUE - 4``. Groups are at least ``columns`` cycles apart.
        ``columns``, ``second``, ``kept_out`` and ``pass_end`` are those of the next group as soon
        as it is ``tag_there``.
    room : Out(1)
        The group of ``tag`` may come; from a register.
    second : In(stream.Signature(SecondColumn))
        Columns of the second operand.
    sums : In(ArrayLayout(signed(32), post_lanes)), done : In(1)
        From the array: first column of a group, the others in the cycles that follow.
    o : Out(stream.Signature(Outputs))
    release : Out(1)
        Strobe: the weights and constants of the oldest group are not needed any more.
    table_release : Out(1)
        Strobe: nor are the tables of the oldest chunk that has any.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._combines = "fixed" in config.requantise_modes
        super().__init__(
            {
                "i": In(stream.Signature(PostPass)),
                "constant": In(ConstantWrite(config)),
                "constant_valid": In(1),
                "table": In(TableWrite),
                "table_valid": In(1),
                "tag": In(GroupTag),
                "tag_there": In(1),
                "tag_valid": In(1),
                "room": Out(1),
                "second": In(stream.Signature(SecondColumn(config))),
                "sums": In(data.ArrayLayout(signed(32), config.post_lanes)),
                "done": In(1),
                "o": Out(stream.Signature(Outputs(config))),
                "release": Out(1),
                "table_release": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        # One more place is the register at its output.
        m.submodules.passes = passes = Queue(PostPass, depth=PASS_QUEUE - 1, registered=True)
        m.submodules.tags = tags = BlockQueue(GroupTag, depth=TAG_QUEUE)
        m.submodules.second = second = BlockQueue(32 * config.post_lanes, depth=SECOND_QUEUE)
        m.submodules.results = results = Results(config=config)
        wiring.connect(m, wiring.flipped(self.i), passes.i)
        wiring.connect(m, results.o, wiring.flipped(self.o))

        again = Signal()  # a column goes to the requantisers again
        self._elaborate_room(m, tags.i, second.i, results.freed, again)
        here, constants = self._elaborate_sums(m, tags.o)
        column = self._elaborate_column(m, here, passes.o, results.again.payload.count)
        loop_ends = passes.o.ready & passes.o.payload.kept_in & ~passes.o.payload.kept_out
        requantisers = self._elaborate_requantisers(
            m, here.valid, passes.o.payload, constants, second.o.payload, results.again.payload.data
        )
        # Accumulator plus bias is there long before the result.
        t_column = delay(m, column, 2, name="total", reset_less=False)
        to_result = requantisers[0].latency - 1
        r_column = delay(m, t_column, to_result, name="result", reset_less=False)
        self._elaborate_results(m, t_column, r_column, requantisers, second.o.payload, results)
        self._elaborate_second(m, second.i, t_column, requantisers, loop_ends)

        if self._combines:
            m.d.comb += [
                again.eq(results.again.valid & ~here.valid),
                results.again.ready.eq(~here.valid),
            ]
        m.d.comb += [
            column.valid.eq(here.valid | again),
            second.o.ready.eq(
                (here.second & (passes.o.payload.combine == 0))
                | (r_column.valid & (r_column.combine != 0))
            ),
        ]
        return m

    def _elaborate_room(self, m, tags, second, freed, again):
        """Let the next group come, or not."""
        m.submodules.reservation = reservation = Reservation(config=self._config)
        m.d.sync += [tags.payload.eq(self.tag), tags.valid.eq(self.tag_valid)]
        m.d.comb += [
            reservation.tag.eq(self.tag),
            reservation.tag_there.eq(self.tag_there),
            reservation.tag_valid.eq(self.tag_valid),
            reservation.combine.eq(self.i.payload.combine != 0),
            reservation.combine_valid.eq(self.i.valid & self.i.ready),
            reservation.second_comes.eq(second.valid & second.ready),
            reservation.freed.eq(freed),
            reservation.again.eq(again),
            self.room.eq(reservation.room),
        ]

    def _elaborate_sums(self, m, tags):
        """Count the columns of the group whose sums come; look up their constants.

        Returns whether there is a column, whether it has a second operand, whether its pass ends,
        its channels, and the constants, all together with the delayed sums.
        """
        config = self._config
        width = config.post_lanes
        m.submodules.constants = constants = Constants(config=config)
        tag = tags.payload
        tag_columns = tag.columns[: config.stages.bit_length()]
        tag_lanes = tag.lanes[: config.out_lanes.bit_length()]
        active = Signal()
        column, column_here = Signal(range(config.stages)), Signal(range(config.stages))
        lanes, lanes_here = Signal.like(tag_lanes), Signal.like(tag_lanes)
        last, last_next = Signal(), Signal()
        flags = {"valid": 1, "second": 1, "pass_end": 1}
        here = Signal(data.StructLayout({**flags, "count": range(width + 1)}))
        m.d.comb += [
            column_here.eq(Mux(self.done, 0, column)),
            lanes_here.eq(Mux(self.done, tag_lanes, lanes)),
            last.eq(Mux(self.done, tag_columns == 1, last_next)),
            here.valid.eq(self.done | active),
            here.second.eq(here.valid & tag.second),
            here.pass_end.eq(last & tag.pass_end),
            here.count.eq(Mux(lanes_here < width, lanes_here, width)),
            tags.ready.eq(last),
            constants.constant.eq(self.constant),
            constants.constant_valid.eq(self.constant_valid),
            constants.group.eq(tag.group),
            constants.column.eq(column_here),
        ]
        m.d.sync += self.release.eq(last & tag.release)
        with m.If(here.valid):
            m.d.sync += [
                active.eq(~last),
                column.eq(column_here + 1),
                last_next.eq(column_here + 2 == tag_columns),  # not behind the last one
                lanes.eq(lanes_here - width),
            ]
        return delay(m, here, constants.latency, name="here", reset_less=False), constants.o

    def _elaborate_column(self, m, here, passes, count_again):
        """Say what becomes of the column; end the pass. ``valid`` is left to the caller."""
        spec = passes.payload
        column = Signal(Column(self._config))
        place = Signal()
        has_tables = (spec.table_bytes != 0) & ~spec.keep_weights
        m.d.comb += [
            passes.ready.eq(here.pass_end),
            column.count.eq(count_again),
            column.place.eq(place),
        ]
        with m.If(here.valid):
            m.d.comb += [
                column.count.eq(here.count),
                column.partial_out.eq(spec.partial_out),
                column.kept_out.eq(spec.kept_out),
                column.table.eq(spec.table),
                column.combine.eq(spec.combine if self._combines else 0),
                column.tables_end.eq(here.pass_end & has_tables),
            ]
        m.d.sync += place.eq(place ^ column.tables_end)
        return column

    def _elaborate_requantisers(self, m, first, spec, constants, second, totals):
        """Feed the requantisers, on the ``first`` trip or again with ``totals``; return them."""
        config = self._config
        sums = delay(m, self.sums, Constants.latency, name="sums")
        # The parameters of the second trip are needed after the pass has ended here.
        sum_spec = Signal(PostPass)
        with m.If(first):
            m.d.sync += sum_spec.eq(spec)
        again = ~first if self._combines else 0
        sum_second = Cat(sum_spec.sum_left, C(0, 4), sum_spec.sum_right)
        lanes = []
        for k in range(config.post_lanes):
            m.submodules[f"requantiser{k}"] = lane = Requantiser(modes=config.requantise_modes)
            place = slice(32 * k, 32 * (k + 1))
            bias = Mux(spec.partial_in, second[place], constants[k].bias)
            inputs = [
                (lane.acc, Mux(again, totals[place], sums[k])),
                (lane.bias, Mux(again, 0, bias)),
                (lane.scale, Mux(again, sum_spec.sum_mantissa, constants[k].scale)),
                (lane.second, Mux(again, sum_second, constants[k].second)),
                (lane.fixed, spec.fixed | again),
                (lane.prelu, spec.prelu & ~again),
                (lane.zero_point, Mux(again, sum_spec.sum_zero, spec.zero_out)),
                (lane.low, Mux(again, sum_spec.sum_low, spec.low)),
                (lane.high, Mux(again, sum_spec.sum_high, spec.high)),
            ]
            # A register: the requantiser begins with an adder, the memories end with a multiplexer.
            for target, value in inputs:
                register = Signal.like(target, name=f"feed{k}_{target.name}", reset_less=True)
                m.d.sync += register.eq(value)
                m.d.comb += target.eq(register)
            lanes.append(lane)
        return lanes

    def _elaborate_second(self, m, queue, t_column, requantisers, loop_ends):
        """Fill the queue of the second operand: with sums that are kept, or from the reader."""
        loops, own, kept = Signal(3), Signal(), Signal()
        m.d.sync += loops.eq(loops + loop_ends)
        m.d.comb += [
            own.eq(self.second.payload.loops == loops),
            kept.eq(t_column.valid & t_column.kept_out),
            queue.valid.eq(kept | (self.second.valid & own)),
            queue.payload.eq(
                Mux(kept, Cat(lane.total for lane in requantisers), self.second.payload.data)
            ),
            self.second.ready.eq(queue.ready & own & ~kept),
        ]

    def _elaborate_results(self, m, t_column, r_column, requantisers, second, results):
        """Look results up; keep them, sums of table entries, and the totals of ``t_column``."""
        lanes = range(self._config.post_lanes)
        m.submodules.tables = tables = Tables(config=self._config)
        values = Cat(lane.o for lane in requantisers)
        s_column = delay(m, r_column, Tables.latency, name="looked_up", reset_less=False)
        s_values = delay(m, values, Tables.latency, name="values")
        looked_up = Cat(tables.o_first[k][:8] for k in lanes)
        combined = self._elaborate_combined(m, s_column, tables) if self._combines else None
        m.d.comb += [
            tables.table.eq(self.table),
            tables.table_valid.eq(self.table_valid),
            tables.place.eq(r_column.place),
            tables.first.eq(values),
            tables.second.eq(Cat(second[32 * k : 32 * k + 8] for k in lanes)),
            results.i_valid.eq(s_column.valid & (s_column.combine == 0) & ~s_column.kept_out),
            results.i.wide.eq(s_column.partial_out),
            results.i.count.eq(s_column.count),
            results.i.data.eq(Mux(s_column.table, looked_up, s_values)),
            results.total_valid.eq(t_column.valid & t_column.partial_out),
            results.total.count.eq(t_column.count),
            results.total.data.eq(Cat(lane.total for lane in requantisers)),
        ]
        m.d.sync += self.table_release.eq(r_column.valid & r_column.tables_end)
        if combined is not None:
            with m.If(combined.again):
                m.d.comb += [results.total.eq(combined), results.total_valid.eq(1)]

    def _elaborate_combined(self, m, column, tables):
        """Return, a cycle later, what becomes of the entries of both tables."""
        combined = Signal(Totals(self._config))
        m.d.sync += [
            combined.again.eq(column.valid & (column.combine != 0)),
            combined.count.eq(column.count),
        ]
        for k, (a, b) in enumerate(zip(tables.o_first, tables.o_second, strict=True)):
            # Unsigned, whose carry is the answer: both signs are inverted.
            a_larger = Cat(a[:-1], ~a[-1]) > Cat(b[:-1], ~b[-1])
            total = Mux(column.combine == COMBINE_MAXIMUM, Mux(a_larger, a, b), a + b)
            m.d.sync += combined.data[32 * k : 32 * (k + 1)].eq(total)
        return combined

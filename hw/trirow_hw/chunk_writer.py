"""Write chunks of weights, as they arrive, into the memories of the lanes, constants and tables."""

from __future__ import annotations

from amaranth.hdl import C, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import (
    CONSTANT_BYTES,
    CONSTANT_GROUPS,
    TABLE_ENTRIES,
    TABLE_ENTRY_BYTES,
    WIDE_CONSTANT_BYTES,
    Config,
)
from .modular import wrap_add
from .unpacker import Unpacker

__all__ = [
    "TABLE_PLACES",
    "ChunkWriter",
    "ConstantWrite",
    "TableWrite",
    "WeightChunk",
    "WeightWrite",
    "chunk_writes",
    "describe_chunk",
]

#: What the weight reader needs to know of a pass.
WeightChunk = data.StructLayout(
    {
        "address": 32,
        "bytes": 32,
        "group_bytes": 32,
        "table_bytes": 16,
        "wide": 1,
        "groups": 16,
        "group_words": 16,
        "chunk_steps": 16,
        "chunk_run": 16,
        "chunk_tail": 8,
        "group_lanes": 8,
        "last_lanes": 8,
        "zero_weight": signed(8),
        "index": 16,
    }
)

#: Places of tables: those of a chunk in use, and those of the next.
TABLE_PLACES = 2

#: How far the writing of a chunk has come.
_Position = data.StructLayout(
    {
        "place": 1,
        "second": 1,
        "entry": 8,
        "group": range(CONSTANT_GROUPS),
        "lane": 8,
        "last_lane": 8,
        "part": range(WIDE_CONSTANT_BYTES),
        "steps_left": 16,
        "words_left": 16,
        "word": 16,
    }
)


def WeightWrite(config: Config):
    """Return the layout of a word of weights on its way into the memory of its lane."""
    return data.StructLayout(
        {
            "lane": range(config.out_lanes),
            "word": range(config.weight_words),
            "data": config.weight_bits * config.in_lanes,
        }
    )


#: An entry of a table on its way: which of the two places of tables, first or second table, entry.
TableWrite = data.StructLayout({"place": 1, "second": 1, "entry": 8, "data": 32})


def ConstantWrite(config: Config):
    """Return the layout of the constants of one channel: place of the group, lane, 12 bytes."""
    return data.StructLayout(
        {
            "group": range(CONSTANT_GROUPS),
            "lane": range(config.out_lanes),
            "data": 8 * WIDE_CONSTANT_BYTES,
        }
    )


def chunk_writes(config: Config):
    """Return the members through which chunks are written; see `WeightReader`."""
    return {
        "weight": Out(WeightWrite(config)),
        "weight_valid": Out(1),
        "constant": Out(ConstantWrite(config)),
        "constant_valid": Out(1),
        "table": Out(TableWrite),
        "table_valid": Out(1),
        "groups_loaded": Out(16),
    }


def describe_chunk(m, spans, chunk):
    """Drive the spans of a chunk, which is one of them."""
    m.d.comb += [
        spans.address.eq(chunk.address),
        spans.total.eq(chunk.bytes),
        spans.first.eq(chunk.bytes),
        spans.span.eq(chunk.bytes),
        spans.line.eq(chunk.bytes),
    ]


class ChunkWriter(wiring.Component):
    """Take chunks apart: tables, then group by group constants and weights.

    Tables and groups are written only once room for them has been granted. Throughput: a word of
    weights, 4 bytes of a table, or up to 8 bytes of constants a cycle; a cycle for each group, and
    a few for each chunk. Of the beats that arrive it keeps fewer than a beat's bytes without room.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WeightChunk))
        Chunks, in the order in which they arrive.
    answer : In(stream.Signature(8 * bus_bytes))
        Their beats.
    group_granted, tables_granted : In(1)
        Strobes: there is room for one more group, for the tables of one more chunk.
    weight, weight_valid, constant, constant_valid, table, table_valid, groups_loaded
        See `trirow_hw.weight_reader.WeightReader`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(WeightChunk)),
                "answer": In(stream.Signature(8 * config.bus_bytes)),
                "group_granted": In(1),
                "tables_granted": In(1),
                **chunk_writes(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=config.bus_bytes, word_bytes=config.in_lanes
        )
        wiring.connect(m, wiring.flipped(self.answer), unpacker.i)
        # What there is room for and has not begun to arrive.
        begun, tables_begun = Signal(), Signal()
        groups_due = Signal(range(CONSTANT_GROUPS + 1))
        tables_due = Signal(range(TABLE_PLACES + 1))
        m.d.sync += [
            groups_due.eq(groups_due + self.group_granted - begun),
            tables_due.eq(tables_due + self.tables_granted - tables_begun),
        ]
        self._elaborate_chunk(m, unpacker, groups_due, begun, tables_due, tables_begun)
        return m

    def _elaborate_chunk(self, m, unpacker, groups_due, begun, tables_due, tables_begun):
        """Walk through a chunk as it arrives."""
        chunk, at = self.i.payload, Signal(_Position)
        groups_left = Signal(16)
        lane_taken, lane_ends, tables_end, group_ends, group_loaded = (Signal() for _ in range(5))
        lanes = Mux(groups_left == 1, chunk.last_lanes, chunk.group_lanes)
        describe_chunk(m, unpacker.spans.payload, chunk)
        m.d.comb += lane_ends.eq(at.lane == at.last_lane)
        with m.If(lane_taken):
            m.d.sync += at.lane.eq(Mux(lane_ends, 0, at.lane + 1))
        m.d.sync += [
            self.table_valid.eq(0),
            self.constant_valid.eq(0),
            self.weight_valid.eq(0),
            group_loaded.eq(group_ends),
            # Two cycles behind the last word, when it can be read.
            self.groups_loaded.eq(self.groups_loaded + group_loaded),
        ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += unpacker.spans.valid.eq(self.i.valid)
                m.d.sync += groups_left.eq(chunk.groups)
                with m.If(self.i.valid & unpacker.spans.ready):
                    m.next = "CHUNK"

            with m.State("CHUNK"):
                with m.If(chunk.table_bytes == 0):
                    m.next = "GROUP"
                with m.Elif(tables_due != 0):
                    m.d.comb += tables_begun.eq(1)
                    m.next = "TABLES"

            with m.State("TABLES"):
                self._elaborate_tables(m, unpacker, chunk, at, tables_end)
                with m.If(tables_end):
                    m.next = "GROUP"

            with m.State("GROUP"):
                m.d.sync += [
                    at.last_lane.eq(lanes - 1),
                    at.steps_left.eq(chunk.chunk_steps),
                    at.words_left.eq(chunk.chunk_run),
                ]
                with m.If(groups_due != 0):
                    m.d.comb += begun.eq(1)
                    m.next = "CONSTANTS"

            with m.State("CONSTANTS"):
                self._elaborate_constants(m, unpacker, chunk, at, lane_taken)
                with m.If(lane_taken & lane_ends):
                    m.next = "WEIGHTS"

            with m.State("WEIGHTS"):
                self._elaborate_weights(m, unpacker, chunk, at, lane_taken, lane_ends, group_ends)
                with m.If(group_ends):
                    m.d.comb += self.i.ready.eq(groups_left == 1)
                    m.d.sync += [at.group.eq(at.group + 1), groups_left.eq(groups_left - 1)]
                    m.next = "GROUP"
                    with m.If(groups_left == 1):
                        m.next = "IDLE"

    def _assemble(self, m, unpacker, part, target, length):
        """Fill ``target`` with ``length`` bytes in pieces; return whether the last one is there."""
        piece = min(self._config.in_lanes, CONSTANT_BYTES)
        complete = Signal()
        m.d.comb += unpacker.take.eq(unpacker.valid)
        for k, start in enumerate(range(0, len(target) // 8, piece)):
            left = length - start
            ends = left <= piece
            with m.If(part == k):
                m.d.comb += [
                    unpacker.want.eq(Mux(ends, left, piece)),
                    complete.eq(unpacker.valid & ends),
                ]
                with m.If(unpacker.valid):
                    m.d.sync += [
                        target[8 * start : 8 * (start + piece)].eq(unpacker.data),
                        part.eq(Mux(ends, 0, k + 1)),
                    ]
        return complete

    def _elaborate_tables(self, m, unpacker, chunk, at, tables_end):
        """Write the tables of a chunk entry by entry, then turn to the other place."""
        complete = self._assemble(m, unpacker, at.part, self.table.data, C(TABLE_ENTRY_BYTES))
        two = chunk.table_bytes == 2 * TABLE_ENTRIES * TABLE_ENTRY_BYTES
        table_ends = complete & (at.entry == TABLE_ENTRIES - 1)
        m.d.comb += tables_end.eq(table_ends & (at.second == two))
        m.d.sync += [
            self.table.place.eq(at.place),
            self.table.second.eq(at.second),
            self.table.entry.eq(at.entry),
            self.table_valid.eq(complete),
            at.entry.eq(at.entry + complete),
            at.second.eq((at.second | table_ends) & ~tables_end),
            at.place.eq(at.place ^ tables_end),
        ]

    def _elaborate_constants(self, m, unpacker, chunk, at, taken):
        """Write the constants of a group channel by channel."""
        length = Mux(chunk.wide, C(WIDE_CONSTANT_BYTES), C(CONSTANT_BYTES))
        complete = self._assemble(m, unpacker, at.part, self.constant.data, length)
        m.d.comb += taken.eq(complete)
        m.d.sync += [
            self.constant.group.eq(at.group),
            self.constant.lane.eq(at.lane),
            self.constant_valid.eq(complete),
        ]
        with m.If(~chunk.wide):
            m.d.sync += self.constant.data[8 * CONSTANT_BYTES :].eq(0)

    def _elaborate_weights(self, m, unpacker, chunk, at, taken, lane_ends, group_ends):
        """Write the weights of a group word by word, each into all lanes."""
        config = self._config
        run_ends = Signal()
        m.d.comb += [
            run_ends.eq(at.words_left == 1),
            unpacker.want.eq(Mux(run_ends, chunk.chunk_tail, config.in_lanes)),
            unpacker.take.eq(unpacker.valid),
            taken.eq(unpacker.valid),
            group_ends.eq(taken & lane_ends & run_ends & (at.steps_left == 1)),
        ]
        m.d.sync += [
            self.weight.lane.eq(at.lane),
            self.weight.word.eq(at.word),
            self.weight_valid.eq(taken),
        ]
        for k in range(config.in_lanes):
            weight = unpacker.data.word_select(k, 8).as_signed()
            if config.weight_bits > 8:
                weight = weight - chunk.zero_weight
            # What follows the end of a run in memory belongs to the next lane.
            beyond = run_ends & (chunk.chunk_tail <= k)
            place = self.weight.data.word_select(k, config.weight_bits)
            m.d.sync += place.eq(Mux(beyond, 0, weight))
        with m.If(taken & lane_ends):
            m.d.sync += [
                at.word.eq(wrap_add(at.word, 1, config.weight_words)),
                at.words_left.eq(Mux(run_ends, chunk.chunk_run, at.words_left - 1)),
                at.steps_left.eq(at.steps_left - run_ends),
            ]

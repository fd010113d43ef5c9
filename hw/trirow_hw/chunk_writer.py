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
from .spans import BurstBytes
from .unpacker import BeatMarker, Unpacker

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

#: Bytes of a chunk that are asked for at once: of tables, constants or weights (none of them).
_KIND = {"table": 1, "constant": 1}


def _Piece(config: Config):
    """Return the layout of what is known of the bytes that are asked for.

    ``part``: of an entry or of the constants of a channel; ``ends``: the last one of those.
    ``tail``: bytes of a word of weights. ``group_ends``: with this word.
    """
    return data.StructLayout(
        {
            **_KIND,
            "wide": 1,
            "ends": 1,
            "group_ends": 1,
            "part": range(WIDE_CONSTANT_BYTES),
            "tail": range(config.in_lanes + 1),
            "zero_weight": signed(8),
            "place": 1,
            "second": 1,
            "entry": 8,
            "group": range(CONSTANT_GROUPS),
            "lane": range(config.out_lanes),
            "word": range(config.weight_words),
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
    weights, 4 bytes of a table, or up to 8 bytes of constants a cycle; 2 cycles for each group, and
    a few for each chunk. Of the beats that arrive it keeps fewer than a beat's bytes without room.
    What is asked of the unpacker is written 5 cycles later or more.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WeightChunk))
        Chunks, in the order in which they arrive.
    bursts : In(stream.Signature(BurstBytes(bus_bytes)))
        What has been requested of them.
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
                "bursts": In(stream.Signature(BurstBytes(config.bus_bytes))),
                "answer": In(stream.Signature(8 * config.bus_bytes)),
                "group_granted": In(1),
                "tables_granted": In(1),
                **chunk_writes(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.marker = marker = BeatMarker(bus_bytes=config.bus_bytes)
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=config.bus_bytes, word_bytes=config.in_lanes, tag=_Piece(config)
        )
        wiring.connect(m, wiring.flipped(self.bursts), marker.bursts)
        wiring.connect(m, wiring.flipped(self.answer), marker.i)
        wiring.connect(m, marker.o, unpacker.i)
        # What there is room for and has not begun to arrive.
        begun, tables_begun = Signal(), Signal()
        groups_due = Signal(range(CONSTANT_GROUPS + 1))
        tables_due = Signal(range(TABLE_PLACES + 1))
        m.d.sync += [
            groups_due.eq(groups_due + self.group_granted - begun),
            tables_due.eq(tables_due + self.tables_granted - tables_begun),
        ]
        self._elaborate_chunk(m, unpacker.want, groups_due, begun, tables_due, tables_begun)
        self._elaborate_writes(m, unpacker)
        return m

    def _elaborate_chunk(self, m, want, groups_due, begun, tables_due, tables_begun):
        """Walk through a chunk and ask for its bytes."""
        chunk, piece = self.i.payload, want.payload.tag
        groups_left, group = Signal(16), Signal.like(piece.group)
        last_group, has_tables, group_ready = Signal(), Signal(), Signal()
        asked, tables_end, lane_taken = Signal(), Signal(), Signal()
        begins, word_taken = Signal(), Signal()
        in_lanes = self._config.in_lanes
        run_ends, last_run = self._elaborate_runs(m, piece, chunk, begins, word_taken)
        part, two = Signal.like(piece.part), Signal()
        lane_ends = self._elaborate_lanes(m, piece, chunk, last_group, begins, lane_taken)
        m.d.comb += [
            asked.eq(want.valid & want.ready),
            piece.part.eq(part),
            piece.tail.eq(want.payload.bytes),
            piece.wide.eq(chunk.wide),
            piece.zero_weight.eq(chunk.zero_weight),
            piece.group.eq(group),
        ]
        m.d.sync += [
            group_ready.eq((groups_due != 0) & ~begun),
            two.eq(chunk.table_bytes == 2 * TABLE_ENTRIES * TABLE_ENTRY_BYTES),
        ]

        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    groups_left.eq(chunk.groups),
                    last_group.eq(chunk.groups == 1),
                    has_tables.eq(chunk.table_bytes != 0),
                ]
                with m.If(self.i.valid):
                    m.next = "CHUNK"

            with m.State("CHUNK"):
                with m.If(~has_tables):
                    m.next = "GROUP"
                with m.Elif(tables_due != 0):
                    m.d.comb += tables_begun.eq(1)
                    m.next = "TABLES"

            with m.State("TABLES"):
                self._elaborate_tables(m, want, part, asked, two, tables_end)
                with m.If(tables_end):
                    m.next = "GROUP"

            with m.State("GROUP"):
                with m.If(group_ready):
                    m.d.comb += begun.eq(1)
                    m.next = "BEGIN"

            with m.State("BEGIN"):
                m.d.comb += begins.eq(1)
                m.next = "CONSTANTS"

            with m.State("CONSTANTS"):
                lengths = chunk.wide, WIDE_CONSTANT_BYTES, CONSTANT_BYTES
                self._elaborate_pieces(m, want, part, asked, *lengths)
                m.d.comb += [piece.constant.eq(1), lane_taken.eq(want.ready & piece.ends)]
                with m.If(lane_taken & lane_ends):
                    m.next = "WEIGHTS"

            with m.State("WEIGHTS"):
                m.d.comb += lane_taken.eq(want.ready)
                m.d.comb += [
                    want.valid.eq(1),
                    want.payload.bytes.eq(Mux(run_ends, chunk.chunk_tail, in_lanes)),
                    piece.group_ends.eq(lane_ends & last_run),
                    word_taken.eq(want.ready & lane_ends),
                ]
                with m.If(want.ready & piece.group_ends):
                    m.d.sync += [
                        group.eq(group + 1),
                        groups_left.eq(groups_left - 1),
                        last_group.eq(groups_left == 2),
                    ]
                    m.next = "GROUP"
                    with m.If(last_group):
                        m.next = "END"

            with m.State("END"):
                m.d.comb += self.i.ready.eq(1)
                m.next = "IDLE"

    def _elaborate_lanes(self, m, piece, chunk, last_group, begins, taken):
        """Go round the lanes of a group; return whether the present one is the last."""
        lane, behind, last = Signal.like(piece.lane), Signal(8), Signal(8)
        one, ends = Signal(), Signal()
        m.d.comb += piece.lane.eq(lane)
        # Right from the cycle on in which the group begins.
        m.d.sync += [
            last.eq(Mux(last_group, chunk.last_lanes, chunk.group_lanes) - 1),
            one.eq(Mux(last_group, chunk.last_lanes, chunk.group_lanes) == 1),
        ]
        with m.If(begins | (taken & ends)):
            m.d.sync += [lane.eq(0), behind.eq(last), ends.eq(one)]
        with m.Elif(taken):
            m.d.sync += [lane.eq(lane + 1), behind.eq(behind - 1), ends.eq(behind == 1)]
        return ends

    def _elaborate_pieces(self, m, want, part, asked, long, long_bytes, short_bytes):
        """Ask for one of two lengths in pieces."""
        piece = want.payload.tag
        most = min(self._config.in_lanes, CONSTANT_BYTES)
        m.d.comb += want.valid.eq(1)
        with m.If(asked):
            m.d.sync += part.eq(Mux(piece.ends, 0, part + 1))
        for k, start in enumerate(range(0, long_bytes, most)):
            left = Mux(long, long_bytes - start, max(0, short_bytes - start))
            with m.If(part == k):
                m.d.comb += [
                    piece.ends.eq(left <= most),
                    want.payload.bytes.eq(Mux(left <= most, left, most)),
                ]

    def _elaborate_tables(self, m, want, part, asked, two, tables_end):
        """Ask for the tables of a chunk entry by entry, then turn to the other place."""
        piece = want.payload.tag
        place, second, entry = Signal(), Signal(), Signal(8)
        last_entry, table_ends = Signal(), Signal()
        self._elaborate_pieces(m, want, part, asked, C(1), TABLE_ENTRY_BYTES, TABLE_ENTRY_BYTES)
        m.d.comb += [
            piece.table.eq(1),
            piece.place.eq(place),
            piece.second.eq(second),
            piece.entry.eq(entry),
            table_ends.eq(asked & piece.ends & last_entry),
            tables_end.eq(table_ends & (second == two)),
        ]
        m.d.sync += [
            second.eq((second | table_ends) & ~tables_end),
            place.eq(place ^ tables_end),
        ]
        with m.If(asked & piece.ends):
            m.d.sync += [entry.eq(entry + 1), last_entry.eq(entry == TABLE_ENTRIES - 2)]

    def _elaborate_runs(self, m, piece, chunk, begins, advances):
        """Walk the words of the runs of a group; return whether a run ends, and the last one."""
        words_left, steps_left = Signal(16), Signal(16)
        run_ends, last_step = Signal(), Signal()
        one_word, one_step = Signal(), Signal()
        word = Signal.like(piece.word)
        m.d.comb += piece.word.eq(word)
        m.d.sync += [one_word.eq(chunk.chunk_run == 1), one_step.eq(chunk.chunk_steps == 1)]
        with m.If(begins):
            m.d.sync += [
                words_left.eq(chunk.chunk_run),
                run_ends.eq(one_word),
                steps_left.eq(chunk.chunk_steps),
                last_step.eq(one_step),
            ]
        with m.Elif(advances):
            m.d.sync += [
                word.eq(Mux(word == self._config.weight_words - 1, 0, word + 1)),
                words_left.eq(Mux(run_ends, chunk.chunk_run, words_left - 1)),
                run_ends.eq(Mux(run_ends, one_word, words_left == 2)),
                steps_left.eq(steps_left - run_ends),
                last_step.eq(Mux(run_ends, steps_left == 2, last_step)),
            ]
        return run_ends, run_ends & last_step

    def _elaborate_writes(self, m, unpacker):
        """Write what was asked for."""
        piece, value = unpacker.tag, unpacker.data
        is_weight = ~piece.table & ~piece.constant
        group_loaded = Signal()
        m.d.sync += [
            self.table.place.eq(piece.place),
            self.table.second.eq(piece.second),
            self.table.entry.eq(piece.entry),
            self.table_valid.eq(unpacker.valid & piece.table & piece.ends),
            self.constant.group.eq(piece.group),
            self.constant.lane.eq(piece.lane),
            self.constant_valid.eq(unpacker.valid & piece.constant & piece.ends),
            self.weight.lane.eq(piece.lane),
            self.weight.word.eq(piece.word),
            self.weight_valid.eq(unpacker.valid & is_weight),
            group_loaded.eq(unpacker.valid & piece.group_ends),
            # Two cycles behind the last word, when it can be read.
            self.groups_loaded.eq(self.groups_loaded + group_loaded),
        ]
        self._assemble(m, piece.part, self.table.data, unpacker.valid & piece.table, value)
        self._assemble(m, piece.part, self.constant.data, unpacker.valid & piece.constant, value)
        with m.If(unpacker.valid & piece.constant & ~piece.wide):
            m.d.sync += self.constant.data[8 * CONSTANT_BYTES :].eq(0)
        bits = self._config.weight_bits
        for k in range(self._config.in_lanes):
            weight = value.word_select(k, 8).as_signed()
            if bits > 8:
                weight = weight - piece.zero_weight
            # What follows the end of a run in memory belongs to the next lane.
            place = self.weight.data.word_select(k, bits)
            m.d.sync += place.eq(Mux(piece.tail <= k, 0, weight))

    def _assemble(self, m, part, target, valid, value):
        """Put a piece to its place in ``target``."""
        most = min(self._config.in_lanes, CONSTANT_BYTES)
        for k, start in enumerate(range(0, len(target) // 8, most)):
            with m.If(valid & (part == k)):
                m.d.sync += target[8 * start : 8 * (start + most)].eq(value)

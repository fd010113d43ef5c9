"""Read chunks of weights and constants into the ring of lane groups."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .chunk_writer import (
    TABLE_PLACES,
    ChunkWriter,
    ConstantWrite,
    TableWrite,
    WeightChunk,
    WeightWrite,
    chunk_writes,
    describe_chunk,
)
from .config import CONSTANT_GROUPS, Config
from .fetcher import Fetcher
from .queue import Queue
from .read_port import ReadRequest

__all__ = ["ConstantWrite", "TableWrite", "WeightChunk", "WeightReader", "WeightWrite"]

#: Groups of a chunk that is in the ring or on its way there, and the words of each.
_Resident = data.StructLayout({"groups": 16, "words": 16})


class WeightReader(wiring.Component):
    """Fetch lane groups into the ring of the weight buffer as its places become free.

    A chunk in memory is its tables, if it has any, then its lane groups, one behind the other. A
    table is 256 entries of 4 bytes. A group is the constants of its channels (8 bytes each, 12 in a
    chunk that is ``wide``), then its weights by step, word of the run, channel. Nothing is padded:
    the last group may have fewer channels, and the last word of a run fewer bytes. Weights that
    such a word lacks are written as 0.

    Tables and groups are requested as soon as there is room for all of them, in order, so that
    whatever has been requested is taken. A chunk may have more groups than the ring; they stream
    through it. Throughput: a word of weights, 4 bytes of a table, or up to 8 bytes of constants a
    cycle; 2 cycles for each group, and a few for each chunk.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WeightChunk))
        Chunks, in order. At least one group and one word in each.
    active : In(16)
        Index of the pass in the array: its chunk is requested with urgency.
    request : Out(stream.Signature(ReadRequest)), answer : In(stream.Signature(8 * bus_bytes))
        To and from the read port.
    release : In(1)
        The array does not need the oldest group any more.
    table_release : In(1)
        The tables of the oldest chunk that has tables are not needed any more.
    weight : Out(WeightWrite), weight_valid : Out(1)
        Into the memory of a lane: ``in_lanes`` signed weights of ``weight_bits`` bits; with 9 bits
        the chunk's ``zero_weight`` has been subtracted.
    constant : Out(ConstantWrite), constant_valid : Out(1)
        Into the constants; the upper 4 bytes are 0 unless the chunk is ``wide``.
    table : Out(TableWrite), table_valid : Out(1)
        Into the tables. Chunks that have tables use the two places in turn, 0 first.
    groups_loaded : Out(16)
        Complete groups since the start of the run, modulo 2^16. The tables of a chunk are complete
        before its first group is.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(WeightChunk)),
                "active": In(16),
                "request": Out(stream.Signature(ReadRequest)),
                "answer": In(stream.Signature(8 * config.bus_bytes)),
                "release": In(1),
                "table_release": In(1),
                **chunk_writes(config),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetcher = fetcher = Fetcher(bus_bytes=self._config.bus_bytes)
        m.submodules.arriving = arriving = Queue(WeightChunk, depth=4, registered=True)
        m.submodules.resident = resident = Queue(_Resident, depth=4, registered=True)
        m.submodules.writer = writer = ChunkWriter(config=self._config)
        wiring.connect(m, fetcher.request, wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.answer), writer.answer)
        wiring.connect(m, arriving.o, writer.i)
        wiring.connect(m, fetcher.bursts, writer.bursts)
        for name in chunk_writes(self._config):
            m.d.comb += getattr(self, name).eq(getattr(writer, name))

        # Strobes: room for a group or for the tables of a chunk is given out.
        granted, tables_granted = Signal(), Signal()
        m.d.comb += [
            writer.group_granted.eq(granted),
            writer.tables_granted.eq(tables_granted),
        ]
        self._elaborate_allocation(m, fetcher, arriving, resident, granted, tables_granted)
        return m

    def _elaborate_allocation(self, m, fetcher, arriving, resident, granted, tables_granted):
        """Start a chunk; give out room for its tables, then for one group after the other."""
        current = Signal(WeightChunk)
        groups_left, bytes_left = Signal(16), Signal(32)
        free_words, free_groups, free_tables = self._elaborate_room(
            m, resident, current.group_words, granted, tables_granted
        )
        describe_chunk(m, fetcher.i.payload, current)
        m.d.comb += [
            fetcher.index.eq(current.index),
            fetcher.urgent.eq(current.index == self.active),
            resident.i.payload.groups.eq(self.i.payload.groups),
            resident.i.payload.words.eq(self.i.payload.group_words),
            arriving.i.payload.eq(self.i.payload),
        ]
        last_group, has_tables, room, tables_room = Signal(), Signal(), Signal(), Signal()
        waits = Signal(4)
        m.d.sync += [
            last_group.eq(groups_left == 1),
            has_tables.eq(current.table_bytes != 0),
            fetcher.grant.eq(0),
            granted.eq(0),
            tables_granted.eq(0),
            room.eq((free_words >= current.group_words) & (free_groups != 0)),
            tables_room.eq(free_tables != 0),
            waits.eq(waits << 1),
        ]
        # The end of the last group must not wait for the rest of its burst. The fetcher knows of
        # the last grant by then.
        m.d.comb += fetcher.starving.eq(waits[-1])
        # The state too, but with nothing else behind it: so wide a register is slow to enable.
        loads = Signal(init=1)
        with m.If(loads):
            m.d.sync += [
                current.eq(self.i.payload),
                groups_left.eq(self.i.payload.groups),
                bytes_left.eq(self.i.payload.bytes),
            ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += loads.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    arriving.i.valid.eq(self.i.valid & resident.i.ready),
                    resident.i.valid.eq(self.i.valid & arriving.i.ready),
                    self.i.ready.eq(arriving.i.ready & resident.i.ready),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "START"

            with m.State("START"):
                m.d.comb += fetcher.i.valid.eq(1)
                with m.If(fetcher.i.ready):
                    m.next = "TABLES"

            with m.State("TABLES"):
                with m.If(~has_tables):
                    m.next = "GROUP"
                with m.Elif(tables_room):
                    m.d.sync += [
                        tables_granted.eq(1),
                        fetcher.grant.eq(current.table_bytes),
                        bytes_left.eq(bytes_left - current.table_bytes),
                    ]
                    m.next = "GROUP"

            # What is free is counted again in the first cycle, and compared in the second.
            with m.State("GROUP"):
                m.next = "COMPARE"

            with m.State("COMPARE"):
                m.next = "ROOM"

            with m.State("ROOM"):
                m.d.sync += waits.eq(Cat(1, waits))
                with m.If(room):
                    m.d.sync += [
                        granted.eq(1),
                        waits.eq(0),
                        fetcher.grant.eq(Mux(last_group, bytes_left, current.group_bytes)),
                        groups_left.eq(groups_left - 1),
                        bytes_left.eq(bytes_left - current.group_bytes),
                    ]
                    m.next = "GROUP"
                    with m.If(last_group):
                        m.next = "END"

            with m.State("END"):
                with m.If(fetcher.done):
                    m.d.sync += loads.eq(1)
                    m.next = "IDLE"

    def _elaborate_room(self, m, resident, group_words, granted, tables_granted):
        """Return the words, groups and tables for which there is room."""
        config = self._config
        free_words = Signal(range(config.weight_words + 1), init=config.weight_words)
        free_groups = Signal(range(CONSTANT_GROUPS + 1), init=CONSTANT_GROUPS)
        free_tables = Signal(range(TABLE_PLACES + 1), init=TABLE_PLACES)
        given = Mux(granted, group_words, 0)
        release, nth_release = Signal(), Signal(16, init=1)
        m.d.sync += [
            release.eq(self.release),
            free_words.eq(free_words + Mux(release, resident.o.payload.words, 0) - given),
            free_groups.eq(free_groups + release - granted),
            free_tables.eq(free_tables + self.table_release - tables_granted),
        ]
        with m.If(release):
            m.d.sync += nth_release.eq(nth_release + 1)
            with m.If(nth_release == resident.o.payload.groups):
                m.d.comb += resident.o.ready.eq(1)
                m.d.sync += nth_release.eq(1)
        return free_words, free_groups, free_tables

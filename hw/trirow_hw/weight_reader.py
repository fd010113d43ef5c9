"""Read chunks of weights and constants into the ring of lane groups."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import CONSTANT_BYTES, CONSTANT_GROUPS, Config
from .fetcher import Fetcher
from .modular import wrap_add
from .queue import Queue
from .read_port import ReadRequest
from .unpacker import Unpacker

__all__ = ["ConstantWrite", "WeightChunk", "WeightReader", "WeightWrite"]

#: What the weight reader needs to know of a pass.
WeightChunk = data.StructLayout(
    {
        "address": 32,
        "bytes": 32,
        "group_bytes": 32,
        "groups": 16,
        "group_words": 16,
        "kernel_rows": 8,
        "run_words": 16,
        "run_tail": 8,
        "last_lanes": 8,
        "index": 16,
    }
)

#: Groups of a chunk that is in the ring or on its way there, and the words of each.
_Resident = data.StructLayout({"groups": 16, "words": 16})


def WeightWrite(config: Config):
    """Return the layout of a word of weights on its way into the memory of its lane."""
    return data.StructLayout(
        {
            "lane": range(config.out_lanes),
            "word": range(config.weight_words),
            "data": 8 * config.in_lanes,
        }
    )


def ConstantWrite(config: Config):
    """Return the layout of the constants of one channel: place of the group, lane, 8 bytes."""
    return data.StructLayout(
        {
            "group": range(CONSTANT_GROUPS),
            "lane": range(config.out_lanes),
            "data": 8 * CONSTANT_BYTES,
        }
    )


class WeightReader(wiring.Component):
    """Fetch lane groups into the ring of the weight buffer as its places become free.

    A chunk in memory is its lane groups, one behind the other; a group is the constants of its
    channels, then its weights by kernel row, word of the run, channel. Nothing is padded: the last
    group may have fewer channels, and the last word of a run fewer bytes.

    A group is requested as soon as there is room for all of it. Throughput a word a cycle.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WeightChunk))
        Chunks, in order.
    active : In(16)
        Index of the pass in the array: its chunk is requested with urgency.
    request : Out(stream.Signature(ReadRequest)), answer : In(stream.Signature(8 * bus_bytes))
        To and from the read port.
    release : In(1)
        The array does not need the oldest group any more.
    weight : Out(WeightWrite), weight_valid : Out(1)
        Into the memory of a lane.
    constant : Out(ConstantWrite), constant_valid : Out(1)
        Into the constants.
    groups_loaded : Out(16)
        Complete groups since the start of the run, modulo 2^16.
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
                "weight": Out(WeightWrite(config)),
                "weight_valid": Out(1),
                "constant": Out(ConstantWrite(config)),
                "constant_valid": Out(1),
                "groups_loaded": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.fetcher = fetcher = Fetcher(bus_bytes=config.bus_bytes)
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=config.bus_bytes, word_bytes=config.in_lanes
        )
        m.submodules.arriving = arriving = Queue(WeightChunk, depth=4)
        m.submodules.resident = resident = Queue(_Resident, depth=4)
        wiring.connect(m, fetcher.request, wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.answer), unpacker.i)

        granted, begun = Signal(), Signal()
        groups_granted = Signal(range(CONSTANT_GROUPS + 1))
        m.d.sync += groups_granted.eq(groups_granted + granted - begun)
        self._elaborate_allocation(m, fetcher, arriving, resident, granted)
        self._elaborate_arrival(m, arriving, unpacker, groups_granted, begun)
        return m

    def _elaborate_allocation(self, m, fetcher, arriving, resident, granted):
        """Start a chunk; give out the ring's places group by group, and take them back."""
        config = self._config
        current = Signal(WeightChunk)
        groups_left, bytes_left = Signal(16), Signal(32)
        free_words = Signal(range(config.weight_words + 1), init=config.weight_words)
        free_groups = Signal(range(CONSTANT_GROUPS + 1), init=CONSTANT_GROUPS)
        m.d.comb += [
            fetcher.index.eq(current.index),
            fetcher.urgent.eq(current.index == self.active),
        ]
        spans = fetcher.i.payload
        m.d.comb += [
            spans.address.eq(current.address),
            spans.total.eq(current.bytes),
            spans.first.eq(current.bytes),
            spans.span.eq(current.bytes),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    arriving.i.payload.eq(self.i.payload),
                    arriving.i.valid.eq(self.i.valid & resident.i.ready),
                    resident.i.payload.groups.eq(self.i.payload.groups),
                    resident.i.payload.words.eq(self.i.payload.group_words),
                    resident.i.valid.eq(self.i.valid & arriving.i.ready),
                    self.i.ready.eq(arriving.i.ready & resident.i.ready),
                ]
                m.d.sync += [
                    current.eq(self.i.payload),
                    groups_left.eq(self.i.payload.groups),
                    bytes_left.eq(self.i.payload.bytes),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "START"

            with m.State("START"):
                m.d.comb += fetcher.i.valid.eq(1)
                with m.If(fetcher.i.ready):
                    m.next = "GROUPS"

            with m.State("GROUPS"):
                with m.If(groups_left == 0):
                    with m.If(fetcher.done):
                        m.next = "IDLE"
                with m.Elif((free_words >= current.group_words) & (free_groups != 0)):
                    m.d.comb += [
                        granted.eq(1),
                        fetcher.grant.eq(Mux(groups_left == 1, bytes_left, current.group_bytes)),
                    ]
                    m.d.sync += [
                        groups_left.eq(groups_left - 1),
                        bytes_left.eq(bytes_left - current.group_bytes),
                    ]
                with m.Else():
                    # The end of the last group must not wait for the rest of its burst.
                    m.d.comb += fetcher.starving.eq(1)
        released = Mux(self.release, resident.o.payload.words, 0)
        given = Mux(granted, current.group_words, 0)
        groups_released = Signal(16)
        m.d.sync += [
            free_words.eq(free_words + released - given),
            free_groups.eq(free_groups + self.release - granted),
        ]
        with m.If(self.release):
            m.d.sync += groups_released.eq(groups_released + 1)
            with m.If(groups_released == resident.o.payload.groups - 1):
                m.d.comb += resident.o.ready.eq(1)
                m.d.sync += groups_released.eq(0)

    def _elaborate_arrival(self, m, arriving, unpacker, groups_granted, begun):
        """Deal what arrives out to the lanes."""
        config = self._config
        chunk = arriving.o.payload
        groups_left = Signal(16)
        lanes, lane = Signal(8), Signal(8)
        row, run_word = Signal(8), Signal(16)
        word, group = Signal(range(config.weight_words)), Signal(range(CONSTANT_GROUPS))
        lane_ends, run_ends, group_ends = Signal(), Signal(), Signal()
        group_loaded = Signal()

        spans = unpacker.spans.payload
        m.d.comb += [
            spans.address.eq(chunk.address),
            spans.total.eq(chunk.bytes),
            spans.first.eq(chunk.bytes),
            lane_ends.eq(lane == lanes - 1),
            run_ends.eq(run_word == chunk.run_words - 1),
            group_ends.eq(lane_ends & run_ends & (row == chunk.kernel_rows - 1)),
        ]
        m.d.sync += [self.constant_valid.eq(0), self.weight_valid.eq(0), group_loaded.eq(0)]
        piece = min(config.in_lanes, CONSTANT_BYTES)
        pieces = -(-CONSTANT_BYTES // piece)
        part = Signal(range(pieces))
        part_ends = part == pieces - 1

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += unpacker.spans.valid.eq(arriving.o.valid)
                m.d.sync += groups_left.eq(chunk.groups)
                with m.If(arriving.o.valid & unpacker.spans.ready):
                    m.next = "GROUP"

            with m.State("GROUP"):
                m.d.sync += [
                    lane.eq(0),
                    row.eq(0),
                    run_word.eq(0),
                    lanes.eq(Mux(groups_left == 1, chunk.last_lanes, config.out_lanes)),
                ]
                with m.If(groups_granted != 0):
                    m.d.comb += begun.eq(1)
                    m.next = "CONSTANTS"

            with m.State("CONSTANTS"):
                last_piece = CONSTANT_BYTES - (pieces - 1) * piece
                m.d.comb += [
                    unpacker.want.eq(Mux(part_ends, last_piece, piece)),
                    unpacker.take.eq(unpacker.valid),
                ]
                with m.If(unpacker.valid):
                    m.d.sync += part.eq(Mux(part_ends, 0, part + 1))
                    for k in range(pieces):
                        with m.If(part == k):
                            place = self.constant.data[8 * piece * k : 8 * piece * (k + 1)]
                            m.d.sync += place.eq(unpacker.data)
                    with m.If(part_ends):
                        m.d.sync += [
                            self.constant.group.eq(group),
                            self.constant.lane.eq(lane),
                            self.constant_valid.eq(1),
                            lane.eq(Mux(lane_ends, 0, lane + 1)),
                        ]
                        with m.If(lane_ends):
                            m.next = "WEIGHTS"

            with m.State("WEIGHTS"):
                m.d.comb += [
                    unpacker.want.eq(Mux(run_ends, chunk.run_tail, config.in_lanes)),
                    unpacker.take.eq(unpacker.valid),
                ]
                with m.If(unpacker.valid):
                    m.d.sync += [
                        self.weight.lane.eq(lane),
                        self.weight.word.eq(word),
                        self.weight.data.eq(unpacker.data),
                        self.weight_valid.eq(1),
                        lane.eq(Mux(lane_ends, 0, lane + 1)),
                    ]
                    with m.If(lane_ends):
                        m.d.sync += [
                            word.eq(wrap_add(word, 1, config.weight_words)),
                            run_word.eq(Mux(run_ends, 0, run_word + 1)),
                            row.eq(row + run_ends),
                        ]
                    with m.If(group_ends):
                        m.d.sync += [
                            group_loaded.eq(1),
                            group.eq(group + 1),
                            groups_left.eq(groups_left - 1),
                        ]
                        m.next = "GROUP"
                        with m.If(groups_left == 1):
                            m.d.comb += arriving.o.ready.eq(1)
                            m.next = "IDLE"
        # Two cycles behind the last word, when it can be read.
        m.d.sync += self.groups_loaded.eq(self.groups_loaded + group_loaded)

"""Requantise the sums that leave the array, column by column."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockMemory
from .config import CONSTANT_BYTES, CONSTANT_GROUPS, MAX_STAGES, Config
from .delay import delay
from .queue import Queue
from .requantise import Requantiser
from .tap_issuer import GroupTag
from .weight_reader import ConstantWrite

__all__ = ["Outputs", "PostPass", "PostProcess"]

#: What requantisation needs to know of a pass.
PostPass = data.StructLayout({"zero_out": signed(8), "low": signed(8), "high": signed(8)})

#: Columns of results that wait for the output writer.
RESULT_QUEUE = MAX_STAGES
#: Groups on the way through the array.
TAG_QUEUE = 32


def Outputs(config: Config):
    """Return the layout of the outputs of one column: bytes, and how many of them there are."""
    return data.StructLayout({"data": 8 * config.post_lanes, "count": range(config.post_lanes + 1)})


class PostProcess(wiring.Component):
    """Constants of the channels, and ``post_lanes`` requantisers.

    A column a cycle. Back-pressure is by reservation: ``room`` says that the results of one more
    group fit the queue, and ``tag_valid`` takes that room.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(PostPass))
    constant : In(ConstantWrite), constant_valid : In(1)
    tag : In(GroupTag), tag_valid : In(1)
        A group whose sums will come.
    room : Out(1)
    sums : In(ArrayLayout(signed(32), post_lanes)), done : In(1)
        From the array.
    o : Out(stream.Signature(Outputs))
        A column of each group each, also where it has no channels.
    release : Out(1)
        Strobe: the weights and constants of the oldest group are not needed any more.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(PostPass)),
                "constant": In(ConstantWrite(config)),
                "constant_valid": In(1),
                "tag": In(GroupTag),
                "tag_valid": In(1),
                "room": Out(1),
                "sums": In(data.ArrayLayout(signed(32), config.post_lanes)),
                "done": In(1),
                "o": Out(stream.Signature(Outputs(config))),
                "release": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.tags = tags = Queue(GroupTag, depth=TAG_QUEUE)
        m.submodules.results = results = Queue(Outputs(config), depth=RESULT_QUEUE)
        wiring.connect(m, results.o, wiring.flipped(self.o))

        # Room in the queues, less what is reserved.
        reserved = Signal(range(RESULT_QUEUE + 1))
        taken = Mux(self.tag_valid, config.stages, 0)
        m.d.sync += reserved.eq(reserved + taken - (self.o.valid & self.o.ready))
        m.d.comb += [
            tags.i.payload.eq(self.tag),
            tags.i.valid.eq(self.tag_valid),
            self.room.eq((reserved <= RESULT_QUEUE - config.stages) & tags.i.ready),
        ]

        # Which column the sums are of.
        column, column_here = Signal(range(config.stages)), Signal(range(config.stages))
        active = Signal()
        last = Signal()
        m.d.comb += [
            column_here.eq(Mux(self.done, 0, column)),
            last.eq(column_here == config.stages - 1),
            tags.o.ready.eq((self.done | active) & last),
        ]
        with m.If(self.done | active):
            m.d.sync += [column.eq(column_here + 1), active.eq(~last)]
        tag = tags.o.payload
        m.d.sync += self.release.eq(tags.o.ready & tag.release)

        counts = Array(self._channels(column, tag.lanes) for column in range(config.stages))
        entry = Signal(
            data.StructLayout({"valid": 1, "pass_end": 1, "count": results.i.payload.count.shape()})
        )
        m.d.comb += [
            entry.valid.eq(self.done | active),
            entry.pass_end.eq(last & tag.pass_end),
            entry.count.eq(counts[column_here]),
        ]
        c_entry = delay(m, entry, BlockMemory.latency, name="entry", reset_less=False)
        c_sums = delay(m, self.sums, BlockMemory.latency, name="sums")
        m.d.comb += self.i.ready.eq(c_entry.valid & c_entry.pass_end)
        outputs = []
        for k in range(config.post_lanes):
            constants = self._elaborate_constants(m, k, Cat(column_here, tag.group))
            m.submodules[f"requantiser{k}"] = requantiser = Requantiser()
            m.d.comb += [
                requantiser.acc.eq(c_sums[k]),
                requantiser.bias.eq(constants[:32]),
                requantiser.mantissa.eq(constants[32:56]),
                requantiser.exponent.eq(constants[56:62]),
                requantiser.zero_point.eq(self.i.payload.zero_out),
                requantiser.low.eq(self.i.payload.low),
                requantiser.high.eq(self.i.payload.high),
            ]
            outputs.append(requantiser.o)
        o_entry = delay(m, c_entry, Requantiser.latency, name="result", reset_less=False)
        m.d.comb += [
            results.i.valid.eq(o_entry.valid),
            results.i.payload.count.eq(o_entry.count),
            results.i.payload.data.eq(Cat(outputs)),
        ]
        return m

    def _channels(self, column, lanes):
        """Return how many of the group's channels are in a column."""
        first, width = column * self._config.post_lanes, self._config.post_lanes
        return Mux(lanes >= first + width, width, Mux(lanes > first, lanes - first, 0))[
            : width.bit_length()
        ]

    def _elaborate_constants(self, m, k, place):
        """Build the constants of the k-th lane of each column; return those at ``place``."""
        config = self._config
        column_bits = (config.stages - 1).bit_length()
        m.submodules[f"constants{k}"] = store = BlockMemory(
            bits=8 * CONSTANT_BYTES, depth=CONSTANT_GROUPS << column_bits
        )
        lanes = range(config.out_lanes)
        column = Array(C(lane // config.post_lanes, column_bits) for lane in lanes)
        mine = Array(C(lane % config.post_lanes == k, 1) for lane in lanes)
        m.d.comb += [
            store.write_address.eq(Cat(column[self.constant.lane], self.constant.group)),
            store.write_data.eq(self.constant.data),
            store.write_enable.eq(self.constant_valid & mine[self.constant.lane]),
            store.read_address.eq(place),
        ]
        return store.read_data

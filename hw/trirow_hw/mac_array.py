"""The array of multiply-accumulators with the weight memory of each lane."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockMemory
from .config import Config
from .delay import delay
from .dot_product import DotProduct, dot_product_latency
from .weight_reader import WeightWrite

__all__ = ["MacArray", "Tap"]


def Tap(config: Config):
    """Return the layout of what enters the array in a cycle besides the activations.

    ``word``: place of the weights; ``first`` and ``last``: the tap begins or ends a sum.
    """
    return data.StructLayout(
        {"valid": 1, "word": range(config.weight_words), "first": 1, "last": 1}
    )


class MacArray(wiring.Component):
    """``out_lanes`` lanes, each a dot product of ``in_lanes`` pairs a cycle, accumulated in int32.

    The lanes stand in columns of ``post_lanes``. Activations and addresses move from column to
    column through registers, so a column works one cycle behind its neighbour, and the sums
    leave the array column by column, ``post_lanes`` a cycle: as many as there are requantisers.
    Sums must therefore end at least ``Config.stages`` cycles apart.

    Latency from the last tap of a sum to the sums of the first column: ``latency``; each further
    column comes a cycle later. Throughput a tap a cycle, no back-pressure.

    Parameters
    ----------
    config : Config

    Members
    -------
    weight : In(WeightWrite), weight_valid : In(1)
        Into the memory of a lane; can be read by a tap of the next cycle.
    tap : In(Tap)
    activations : In(ArrayLayout(signed(9), in_lanes))
        Feature minus zero point, ``activation_delay`` cycles behind their tap.
    sums : Out(ArrayLayout(signed(32), post_lanes))
        Of the column whose turn it is.
    done : Out(1)
        ``sums`` are those of the first column; the other columns follow cycle by cycle.
    """

    #: Cycles by which the activations come behind their tap: the weight memory and its register.
    activation_delay = BlockMemory.latency

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "weight": In(WeightWrite(config)),
                "weight_valid": In(1),
                "tap": In(Tap(config)),
                "activations": In(data.ArrayLayout(signed(9), config.in_lanes)),
                "sums": Out(data.ArrayLayout(signed(32), config.post_lanes)),
                "done": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from ``tap`` to the sums of the first column."""
        return 1 + self.activation_delay + dot_product_latency(self._config.in_lanes) + 1 + 1

    def elaborate(self, platform):
        m = Module()
        config = self._config
        tap, valid, activations = self.tap, self.tap.valid, self.activations
        sums = [0] * config.post_lanes
        for column in range(config.stages):
            tap = delay(m, tap, 1, name=f"tap{column}")
            valid = delay(m, valid, 1, name=f"valid{column}", reset_less=False)
            activations = delay(m, activations, 1, name=f"activations{column}")
            to_sum = self.activation_delay + dot_product_latency(config.in_lanes)
            s_valid = delay(m, valid, to_sum, name=f"s{column}_valid", reset_less=False)
            s_ends = delay(m, Cat(tap.first, tap.last), to_sum, name=f"s{column}_ends")
            done = Signal(name=f"done{column}")
            m.d.sync += done.eq(s_valid & s_ends[1])
            if column == 0:
                m.d.sync += self.done.eq(done)
            first_lane = column * config.post_lanes
            for k in range(min(config.post_lanes, config.out_lanes - first_lane)):
                total = self._elaborate_lane(
                    m, first_lane + k, tap, activations, s_valid, s_ends[0]
                )
                sums[k] |= Mux(done, total, 0)
        out = Signal.like(self.sums, name="out", reset_less=True)
        m.d.comb += self.sums.eq(out)
        for k, total in enumerate(sums):
            m.d.sync += out[k].eq(total)
        return m

    def _elaborate_lane(self, m, lane, tap, activations, valid, first):
        """Weight memory, dot product and accumulator of one lane; return the accumulator."""
        config = self._config
        m.submodules[f"weights{lane}"] = store = BlockMemory(
            bits=8 * config.in_lanes, depth=config.weight_words
        )
        m.d.comb += [
            store.write_address.eq(self.weight.word),
            store.write_data.eq(self.weight.data),
            store.write_enable.eq(self.weight_valid & (self.weight.lane == lane)),
            store.read_address.eq(tap.word),
        ]
        m.submodules[f"dot_product{lane}"] = dot_product = DotProduct(lanes=config.in_lanes)
        m.d.comb += [
            dot_product.a.eq(activations),
            dot_product.b.as_value().eq(store.read_data),
        ]
        total = Signal(signed(32), name=f"total{lane}", reset_less=True)
        with m.If(valid):
            m.d.sync += total.eq(Mux(first, 0, total) + dot_product.o)
        return total

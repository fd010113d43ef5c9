"""The array of multiply-accumulators with the weight memory of each lane."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
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
    activation_delay = 2

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
        tap, activations = self.tap, self.activations
        sums = [0] * config.post_lanes
        for column in range(config.stages):
            tap_here = Signal.like(self.tap, name=f"tap{column}")
            activations_here = Signal.like(
                self.activations, name=f"activations{column}", reset_less=True
            )
            m.d.sync += [tap_here.eq(tap), activations_here.eq(activations)]
            tap, activations = tap_here, activations_here

            s_tap = self._delay(m, tap, column)
            done = Signal(name=f"done{column}")
            m.d.sync += done.eq(s_tap.valid & s_tap.last)
            if column == 0:
                m.d.sync += self.done.eq(done)
            first_lane = column * config.post_lanes
            for k in range(min(config.post_lanes, config.out_lanes - first_lane)):
                total = self._elaborate_lane(m, first_lane + k, tap, activations, s_tap, platform)
                sums[k] |= Mux(done, total, 0)
        for k, total in enumerate(sums):
            m.d.sync += self.sums[k].eq(total)
        return m

    def _delay(self, m, tap, column):
        """Delay a column's tap to where its products are summed."""
        for k in range(self.activation_delay + dot_product_latency(self._config.in_lanes)):
            delayed = Signal(
                data.StructLayout({"valid": 1, "first": 1, "last": 1}), name=f"c{column}_tap{k}"
            )
            m.d.sync += [
                delayed.valid.eq(tap.valid),
                delayed.first.eq(tap.first),
                delayed.last.eq(tap.last),
            ]
            tap = delayed
        return tap

    def _elaborate_lane(self, m, lane, tap, activations, s_tap, platform):
        """Weight memory, dot product and accumulator of one lane; return the accumulator."""
        config = self._config
        bits = 8 * config.in_lanes
        store = memory.Memory(shape=bits, depth=config.weight_words, init=[])
        m.submodules[f"weights{lane}"] = store
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.addr.eq(self.weight.word),
            write.data.eq(self.weight.data),
            write.en.eq(self.weight_valid & (self.weight.lane == lane)),
            read.addr.eq(tap.word),
            read.en.eq(1),
        ]
        weights = Signal(bits, name=f"weights{lane}_out", reset_less=True)
        m.d.sync += weights.eq(read.data)

        m.submodules[f"dot_product{lane}"] = dot_product = DotProduct(lanes=config.in_lanes)
        m.d.comb += [
            dot_product.a.eq(activations),
            dot_product.b.as_value().eq(weights),
        ]
        total = Signal(signed(32), name=f"total{lane}", reset_less=True)
        with m.If(s_tap.valid):
            m.d.sync += total.eq(Mux(s_tap.first, 0, total) + dot_product.o)
        return total

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

#: Bits of an activation: a feature minus its zero point.
ACTIVATION_BITS = 9


def Tap(config: Config):
    """Return the layout of what enters the array in a cycle besides the activations.

    ``word``: place of the weights; ``first`` and ``last``: the tap begins or ends a sum;
    ``depthwise``: each lane takes a channel of its own, ``maximum``: the largest product counts,
    not the sum.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "word": range(config.weight_words),
            "first": 1,
            "last": 1,
            "depthwise": 1,
            "maximum": 1,
        }
    )


class MacArray(wiring.Component):
    """``out_lanes`` lanes, each a dot product of ``in_lanes`` pairs a cycle, accumulated in int32.

    The lanes stand in columns of ``post_lanes``. Activations and addresses move from column to
    column through registers, so a column works one cycle behind its neighbour, and the sums
    leave the array column by column, ``post_lanes`` a cycle: as many as there are requantisers.
    Sums must therefore end at least as many cycles apart as there are columns with results.

    A tap feeds its first row of activations to all lanes, or with ``depthwise`` to each lane its
    own column of activations: to lane ``j`` place ``j`` of every row, in this order, then zeros;
    to lanes from ``in_lanes`` on only zeros. What is accumulated is the sum of the dot products,
    or with ``maximum`` the largest of them; they must then be products of an activation with 1.
    A tap is of any kind, but the taps of one result must agree about ``maximum``.

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
    activations : In(ArrayLayout(ArrayLayout(signed(9), in_lanes), tap_rows))
        Feature minus zero point, ``activation_delay`` cycles behind their tap; -256 only with
        ``tap.maximum``.
    sums : Out(ArrayLayout(signed(32), post_lanes))
        Of the column whose turn it is.
    done : Out(1)
        ``sums`` are those of the first column; the other columns follow cycle by cycle.
    """

    #: Cycles by which the activations come behind their tap: the weight memory and its register.
    activation_delay = BlockMemory.latency

    def __init__(self, *, config: Config):
        self._config = config
        activations = data.ArrayLayout(signed(ACTIVATION_BITS), config.in_lanes)
        super().__init__(
            {
                "weight": In(WeightWrite(config)),
                "weight_valid": In(1),
                "tap": In(Tap(config)),
                "activations": In(data.ArrayLayout(activations, config.tap_rows)),
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
        config, tap = self._config, self.tap
        word, valid = tap.word, tap.valid
        # How the accumulators take the product: instead of what they hold, only if it is larger.
        modes = Cat(tap.first | tap.maximum, tap.maximum & ~tap.first, tap.last)
        to_sum = self.activation_delay + dot_product_latency(config.in_lanes)
        valid = delay(m, valid, to_sum, name="valid", reset_less=False)
        modes = delay(m, modes, to_sum, name="modes")
        depthwise = delay(m, tap.depthwise, self.activation_delay, name="depthwise")
        # What all lanes get, and what each of the first `in_lanes` lanes gets instead if depthwise.
        shared = [Mux(depthwise, 0, activation) for activation in self.activations[0]]
        own = [[row[lane] for row in self.activations] for lane in range(config.depthwise_lanes)]

        sums = [0] * config.post_lanes
        weight, weight_valid = self.weight, self.weight_valid
        for column in range(config.stages):
            # Weights come to a column as late as the taps that read them.
            weight = delay(m, weight, 1, name=f"weight{column}")
            weight_valid = delay(m, weight_valid, 1, name=f"weight_valid{column}", reset_less=False)
            word = delay(m, word, 1, name=f"word{column}")
            valid = delay(m, valid, 1, name=f"valid{column}", reset_less=False)
            modes = delay(m, modes, 1, name=f"modes{column}")
            depthwise = delay(m, depthwise, 1, name=f"depthwise{column}")
            shared = [delay(m, a, 1, name=f"shared{column}_{k}") for k, a in enumerate(shared)]
            own = [
                [delay(m, a, 1, name=f"own{column}_{j}_{p}") for p, a in enumerate(rows)]
                for j, rows in enumerate(own)
            ]
            # A group that uses few columns is followed by the next one before its sums have gone
            # through all of them: in each cycle the sums of the newest group count.
            if column == 0:
                newest = ends = valid & modes[2]
            else:
                ends = delay(m, ends, 1, name=f"ends{column}", reset_less=False) & ~newest
            done = Signal(name=f"done{column}")
            m.d.sync += done.eq(ends)
            if column == 0:
                m.d.sync += self.done.eq(done)
            first_lane = column * config.post_lanes
            for k in range(min(config.post_lanes, config.out_lanes - first_lane)):
                factors = list(shared)
                for row, activation in enumerate(own[k] if k < len(own) else []):
                    factors[row] = Mux(depthwise, activation, shared[row])
                product = self._elaborate_product(
                    m, first_lane + k, (weight, weight_valid), word, factors
                )
                total = self._elaborate_total(m, first_lane + k, valid, modes, product)
                sums[k] |= Mux(done, total, 0)
            # The next columns need only what is their lanes' own.
            own = own[config.post_lanes :]
        out = Signal.like(self.sums, name="out", reset_less=True)
        m.d.comb += self.sums.eq(out)
        for k, total in enumerate(sums):
            m.d.sync += out[k].eq(total)
        return m

    def _elaborate_product(self, m, lane, write, word, factors):
        """Weight memory and dot product of one lane; return the product."""
        config, (weight, weight_valid) = self._config, write
        m.submodules[f"weights{lane}"] = store = BlockMemory(
            bits=config.weight_bits * config.in_lanes, depth=config.weight_words
        )
        m.submodules[f"dot_product{lane}"] = dot_product = DotProduct(
            lanes=config.in_lanes, weight_bits=config.weight_bits
        )
        m.d.comb += [
            store.write_address.eq(weight.word),
            store.write_data.eq(weight.data),
            store.write_enable.eq(weight_valid & (weight.lane == lane)),
            store.read_address.eq(word),
            dot_product.b.as_value().eq(store.read_data),
        ]
        m.d.comb += [dot_product.a[k].eq(factor) for k, factor in enumerate(factors)]
        return dot_product.o

    def _elaborate_total(self, m, lane, valid, modes, product):
        """Accumulator of one lane; return it."""
        restart, only_larger, _ = modes
        total = Signal(signed(32), name=f"total{lane}", reset_less=True)
        # Where the largest counts, all are activations, so comparing their bits is enough.
        kept, offered = (v[:ACTIVATION_BITS].as_signed() for v in (total, product))
        with m.If(valid & (~only_larger | (kept < offered))):
            m.d.sync += total.eq(Mux(restart, 0, total) + product)
        return total

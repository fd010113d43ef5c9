"""Turn runs of the line buffer into activations."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .delay import delay
from .tap_addresses import Mask

__all__ = ["Activation"]

#: Less than any feature minus its zero point: padding where the largest counts.
LEAST = -256


class Activation(wiring.Component):
    """Subtract the zero point; padding and what is beyond the run become 0.

    With the zero point subtracted here, a tap in the padding adds nothing, so the array may leave
    it out. With ``mask.maximum`` only the largest of the runs is left, place by place, and padding
    is less than any feature.

    Latency ``latency`` cycles, throughput ``tap_rows`` runs a cycle, no back-pressure.

    Parameters
    ----------
    config : Config

    Members
    -------
    run : In(ArrayLayout(8 * in_lanes, tap_rows))
    mask : In(Mask)
    o : Out(ArrayLayout(ArrayLayout(signed(9), in_lanes), tap_rows))
        Features minus zero point, -255 to 255. With ``mask.maximum`` the largest is in ``o[0]``,
        -256 where all of them are padding, and the other rows are 0.
    """

    #: Cycles from ``run`` and ``mask`` to ``o``: difference and comparison, choice.
    latency = 2

    def __init__(self, *, config: Config):
        self._lanes, self._rows = config.in_lanes, config.tap_rows
        activations = data.ArrayLayout(signed(9), config.in_lanes)
        super().__init__(
            {
                "run": In(data.ArrayLayout(8 * config.in_lanes, config.tap_rows)),
                "mask": In(Mask(config)),
                "o": Out(data.ArrayLayout(activations, config.tap_rows)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        mask, rows = self.mask, range(self._rows)
        maximum = delay(m, mask.maximum, 1, name="maximum")
        for k in range(self._lanes):
            # Numbers of their own: as parts of a long vector they slow a simulator down.
            values = [Signal(signed(9), name=f"value{p}_{k}", reset_less=True) for p in rows]
            chosen = [Signal(signed(9), name=f"chosen{p}_{k}", reset_less=True) for p in rows]
            m.d.comb += [self.o[p][k].eq(chosen[p]) for p in rows]
            features = [self.run[p].word_select(k, 8) for p in rows]
            between = (mask.low <= k) & (mask.high > k)
            for p in rows:
                # A branch, as a simulator skips it: most often only the first row counts.
                m.d.sync += values[p].eq(Mux(mask.maximum, LEAST, 0))
                with m.If(mask.rows[p]), m.If(between):
                    m.d.sync += values[p].eq(features[p].as_signed() - mask.zero)
            largest = self._elaborate_largest(m, k, features)
            choice = Array(values)[Mux(maximum, largest, 0)]
            m.d.sync += chosen[0].eq(choice)
            for p in rows[1:]:
                m.d.sync += chosen[p].eq(Mux(maximum, 0, values[p]))
        return m

    def _elaborate_largest(self, m, k, features):
        """Return which of the runs has the largest value at a place, in the cycle of the values.

        The features are compared while the zero point is subtracted from them: that does not
        change which is the largest. Each is compared with each, so that nothing has to wait.
        """
        # As an unsigned number: padding below all features, these in the order of their values.
        keys = [
            Cat(feature[:7], ~feature[7], self.mask.rows[p]) for p, feature in enumerate(features)
        ]

        def less(p, q):
            result = Signal(name=f"less{k}_{p}{q}", reset_less=True)
            m.d.sync += result.eq(keys[p] < keys[q])
            return result

        if len(keys) == 2:
            return less(0, 1)
        one, two_of_rest = less(0, 1), less(1, 2)
        return Mux(one, Mux(two_of_rest, 2, 1), Mux(less(0, 2), 2, 0))

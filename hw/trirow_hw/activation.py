"""Turn runs of the line buffer into activations."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .tap_issuer import Mask

__all__ = ["Activation"]


class Activation(wiring.Component):
    """Subtract the zero point; padding and what is beyond the run become 0.

    With the zero point subtracted here, a tap in the padding adds nothing, so the array may leave
    it out. Latency 1 cycle, throughput a run a cycle, no back-pressure.

    Parameters
    ----------
    config : Config

    Members
    -------
    run : In(8 * in_lanes)
    mask : In(Mask)
    o : Out(ArrayLayout(signed(9), in_lanes))
    """

    def __init__(self, *, config: Config):
        self._lanes = config.in_lanes
        super().__init__(
            {
                "run": In(8 * config.in_lanes),
                "mask": In(Mask(config)),
                "o": Out(data.ArrayLayout(signed(9), config.in_lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        activations = Signal.like(self.o, reset_less=True)
        m.d.comb += self.o.eq(activations)
        for k in range(self._lanes):
            feature = self.run.word_select(k, 8).as_signed()
            inside = (self.mask.low <= k) & (self.mask.high > k)
            m.d.sync += activations[k].eq(Mux(inside, feature - self.mask.zero, 0))
        return m

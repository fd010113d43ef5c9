"""Dot product of two vectors of small integers, one pair of vectors a cycle."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from . import multiplier
from .delay import delay

__all__ = ["DotProduct", "dot_product_latency"]

#: Terms that are added between two registers.
ADD_TERMS = 2


def dot_product_latency(lanes: int) -> int:
    """Return the cycles from vectors of that length to their product."""
    levels, terms = 0, lanes
    while terms > 1:
        terms, levels = -(-terms // ADD_TERMS), levels + 1
    return multiplier.MAX_LATENCY + levels


class DotProduct(wiring.Component):
    """``sum(a[k] * b[k])``, exact.

    Latency: the multiplier's, and a cycle for each level of a tree of adders with two inputs,
    each with a register. Throughput one a cycle, no back-pressure.

    Parameters
    ----------
    lanes : int
        Length of the vectors.
    weight_bits : int
        Width of a weight, 1 to 18.

    Members
    -------
    a : In(ArrayLayout(signed(9), lanes))
        Activations less their zero point, -256 to 255.
    b : In(ArrayLayout(signed(weight_bits), lanes))
        Weights.
    o : Out(signed)
    """

    def __init__(self, *, lanes: int, weight_bits: int):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self._lanes = lanes
        super().__init__(
            {
                "a": In(data.ArrayLayout(signed(9), lanes)),
                "b": In(data.ArrayLayout(signed(weight_bits), lanes)),
                "o": Out(signed(9 + weight_bits + (lanes - 1).bit_length())),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the vectors to their product."""
        return dot_product_latency(self._lanes)

    def elaborate(self, platform):
        m = Module()
        terms = multiplier.multiply_pairs(m, self.a, self.b, platform)
        level = 0
        while len(terms) > 1:
            sums = []
            for k in range(0, len(terms), ADD_TERMS):
                total = sum(terms[k + 1 : k + ADD_TERMS], terms[k])
                register = Signal(total.shape(), name=f"sum{level}_{len(sums)}", reset_less=True)
                m.d.sync += register.eq(total)
                sums.append(register)
            terms, level = sums, level + 1
        # The latency is the same on every platform.
        spare = multiplier.MAX_LATENCY - multiplier.latency(platform)
        m.d.comb += self.o.eq(delay(m, terms[0], spare, name="spare"))
        return m

"""Clock gating of the compiled engine: an edge is left out only where it would change nothing."""

import random

import pytest
from amaranth.hdl import Fragment, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from trirow_hw.requantise import Requantiser
from trirow_sim.compiled.gating import gate_pipelines


class _Inner(wiring.Component):
    """Two requantisers behind registers."""

    def __init__(self):
        super().__init__({"a": In(signed(32)), "b": In(8), "o": Out(8), "p": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.one = one = Requantiser()
        m.submodules.two = two = Requantiser()
        for lane, value, out in ((one, self.a, self.o), (two, self.b, self.p)):
            m.d.comb += [lane.low.eq(-128), lane.high.eq(127), out.eq(lane.o)]
            m.d.comb += lane.scale.eq(1 << 23 | 26 << 24)
            m.d.sync += lane.acc.eq(value)
        return m


def test_no_edge_that_counts_is_left_out():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    inner = _Inner()
    m = Module()
    needed = Signal()
    m.d.comb += needed.eq(gate_pipelines(m, inner, None, Requantiser, domain="gated"))
    left_out = 0

    async def bench(ctx):
        nonlocal left_out
        held = None
        for _ in range(300):
            # Now and then a value, for a while the same one, as sums come from the array.
            for _ in range(rng.choice((1, 1, 2, 5, 30))):
                ctx.set(inner.a, rng.getrandbits(24) - (1 << 23) if rng.random() < 0.5 else 0)
                hold = rng.choice((1, 1, 3, Requantiser.latency, 2 * Requantiser.latency))
                for _ in range(hold):
                    outputs = ctx.get(inner.o), ctx.get(inner.p)
                    if held is not None:
                        assert outputs == held, "it changes at an edge that was left out"
                    held = None if ctx.get(needed) else outputs
                    left_out += held is not None
                    await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_clock(1e-6, domain="gated")
    simulator.add_testbench(bench)
    simulator.run()
    assert left_out > 100


def test_a_design_without_such_pipelines_is_refused():
    m = Module()
    with pytest.raises(ValueError, match="Requantiser"):
        gate_pipelines(m, Module(), None, Requantiser, domain="gated")
    Fragment.get(m, None)  # or Amaranth warns that it is not used

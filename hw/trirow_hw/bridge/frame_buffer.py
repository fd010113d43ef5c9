"""Where requests wait: a ring of bytes that shows a frame only when it is known to be right."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..block_memory import BlockMemory

__all__ = ["FrameBuffer"]


class FrameBuffer(wiring.Component):
    """Ring of bytes in a block RAM; what was pushed counts from ``commit`` on.

    A byte can be pushed every 2 cycles, and one comes out every 4 cycles. ``commit`` comes 3
    cycles after the last push or later.

    Parameters
    ----------
    depth : int
        Bytes, a power of two; one of them stays unused.

    Members
    -------
    data : In(8), push : In(1)
        A byte in the cycle of the strobe ``push``.
    commit, discard : In(1)
        Strobes: what was pushed since the last one goes on; is forgotten.
    full : Out(1)
        Nothing may be pushed. Right from the second cycle after a push on.
    o : Out(stream.Signature(8))
        The bytes that count.
    """

    def __init__(self, *, depth: int):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two, at least 2, not {depth!r}")
        self._depth = depth
        super().__init__(
            {
                "data": In(8),
                "push": In(1),
                "commit": In(1),
                "discard": In(1),
                "full": Out(1),
                "o": Out(stream.Signature(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = BlockMemory(bits=8, depth=self._depth)
        head = Signal(range(self._depth))
        committed = Signal.like(head)
        tail = Signal.like(head)
        m.d.comb += [
            memory.write_address.eq(head),
            memory.write_data.eq(self.data),
            memory.write_enable.eq(self.push),
            memory.read_address.eq(tail),
            self.o.payload.eq(memory.read_data),
        ]
        m.d.sync += self.full.eq((head + 1)[: len(head)] == tail)
        with m.If(self.discard):
            m.d.sync += head.eq(committed)
        with m.Elif(self.push):
            m.d.sync += head.eq(head + 1)
        with m.If(self.commit):
            m.d.sync += committed.eq(head)

        settled = Signal(memory.latency)  # cycles since the tail moved, as ones
        m.d.sync += [
            settled.eq(settled << 1 | 1),
            self.o.valid.eq(settled[-1] & (tail != committed)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [tail.eq(tail + 1), settled.eq(0), self.o.valid.eq(0)]
        return m

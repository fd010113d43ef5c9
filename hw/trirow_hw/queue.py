"""First-in first-out queue of any payload between two streams."""

from __future__ import annotations

from amaranth.hdl import Module, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Queue with stream ports.

    Latency 1 cycle (2 if ``block_ram`` and deeper than 1), full back-pressure. Throughput 1 a
    cycle; if ``depth`` is 1, or 2 with ``block_ram``, one every 2 cycles.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Places, at least 1.
    block_ram : bool
        Read through a register, so that the storage can be block RAM; otherwise it is LUT RAM.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape, *, depth: int, block_ram: bool = False):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self._shape = shape
        self._depth = depth
        self._block_ram = block_ram
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def depth(self) -> int:
        """Places of the queue."""
        return self._depth

    def elaborate(self, platform):
        m = Module()
        kind = fifo.SyncFIFOBuffered if self._block_ram else fifo.SyncFIFO
        m.submodules.fifo = store = kind(width=len(Value.cast(self.i.payload)), depth=self._depth)
        m.d.comb += [
            store.w_data.eq(Value.cast(self.i.payload)),
            store.w_en.eq(self.i.valid),
            self.i.ready.eq(store.w_rdy),
            Value.cast(self.o.payload).eq(store.r_data),
            self.o.valid.eq(store.r_rdy),
            store.r_en.eq(self.o.ready),
        ]
        return m

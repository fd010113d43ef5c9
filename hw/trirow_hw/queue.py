"""First-in first-out queue of any payload between two streams."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Queue"]


class Queue(wiring.Component):
    """Queue with stream ports.

    The storage is registers for one or two places, else LUT RAM; for many see
    `trirow_hw.block_memory.BlockQueue`. Latency 1 cycle, full back-pressure, throughput 1 a cycle;
    if ``depth`` is 1, one every 2 cycles. ``i.ready`` depends on nothing outside in the same cycle.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Places, at least 1.
    registered : bool
        Put one more place behind the others, a register from which the output comes without logic.
        The latency is one cycle longer; the throughput stays.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))

    Attributes
    ----------
    depth : int

    Raises
    ------
    ValueError
        If the depth is below 1.
    """

    def __init__(self, shape, *, depth: int, registered: bool = False):
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth!r}")
        self._shape = shape
        self._depth = depth
        self._registered = registered
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def depth(self) -> int:
        """Places of the queue, without the one of a registered output."""
        return self._depth

    def elaborate(self, platform):
        m = Module()
        builds = {1: self._elaborate_place, 2: self._elaborate_places}
        payload, valid, ready = builds.get(self._depth, self._elaborate_memory)(m)
        if self._registered:
            payload, valid, ready = self._elaborate_register(m, payload, valid, ready)
        m.d.comb += [
            Value.cast(self.o.payload).eq(payload),
            self.o.valid.eq(valid),
            ready.eq(self.o.ready),
        ]
        return m

    def _elaborate_memory(self, m):
        """Store in a memory. Return payload, valid and ready of its end."""
        width = len(Value.cast(self.i.payload))
        m.submodules.fifo = store = fifo.SyncFIFO(width=width, depth=self._depth)
        m.d.comb += [
            store.w_data.eq(Value.cast(self.i.payload)),
            store.w_en.eq(self.i.valid),
            self.i.ready.eq(store.w_rdy),
        ]
        return store.r_data, store.r_rdy, store.r_en

    def _elaborate_place(self, m):
        """Store in a register, which follows the input while it is free."""
        payload = Signal(len(Value.cast(self.i.payload)), reset_less=True)
        valid, ready = Signal(), Signal()
        m.d.comb += self.i.ready.eq(~valid)
        with m.If(~valid):
            m.d.sync += [payload.eq(Value.cast(self.i.payload)), valid.eq(self.i.valid)]
        with m.Elif(ready):
            m.d.sync += valid.eq(0)
        return payload, valid, ready

    def _elaborate_places(self, m):
        """Store in two registers, of which the second is used when the first is not free."""
        first, second = (
            Signal(len(Value.cast(self.i.payload)), name=name, reset_less=True)
            for name in ("first", "second")
        )
        valid, full, ready = Signal(), Signal(), Signal()
        m.d.comb += self.i.ready.eq(~full)
        with m.If(~full):
            m.d.sync += second.eq(Value.cast(self.i.payload))
        with m.If(~valid | ready):
            m.d.sync += [
                first.eq(Mux(full, second, Value.cast(self.i.payload))),
                valid.eq(self.i.valid | full),
                full.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += full.eq(1)
        return first, valid, ready

    def _elaborate_register(self, m, payload, valid, ready):
        """Put a register behind a payload. Return payload, valid and ready of its end."""
        held = Signal.like(payload, name="held", reset_less=True)
        held_valid, held_ready = Signal(), Signal()
        m.d.comb += ready.eq(~held_valid | held_ready)
        with m.If(ready):
            m.d.sync += [held.eq(payload), held_valid.eq(valid)]
        return held, held_valid, held_ready

"""What a host bridge is connected to in pysim: a memory and registers that sleep when idle.

Most cycles of a test pass while bytes crawl over the line; models that sleep meanwhile make it
several times faster than those that are asked in every cycle.
"""

from __future__ import annotations

import random
from typing import Any

from trirow_sim.memory.storage import Memory

__all__ = ["LiteRegisters", "SleepyMemory"]

_DECERR = 3


class SleepyMemory:
    """AXI4 memory for one burst at a time, with random delays; to be run in the background.

    Parameters
    ----------
    axi : AXI4 interface
        The port, as its manager drives it.
    memory : Memory
        Beats beyond it are answered with DECERR.
    seed : int or None
        Of the delays before every ready and valid; None: none.

    Attributes
    ----------
    reads, writes : list of tuple
        Bursts: address and beats.
    written : list of tuple
        Write beats: address, data and strobes.
    """

    def __init__(self, axi: Any, memory: Memory, seed: int | None = None) -> None:
        self.reads: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.written: list[tuple[int, bytes, int]] = []
        self._axi = axi
        self._memory = memory
        self._rng = None if seed is None else random.Random(seed)
        self._size = len(axi.wstrb)

    async def __call__(self, ctx: Any) -> None:
        """Run for ever."""
        axi = self._axi
        while True:
            if not ctx.get(axi.arvalid) and not ctx.get(axi.awvalid):
                await ctx.posedge(axi.arvalid).posedge(axi.awvalid)
            await (self._write(ctx) if ctx.get(axi.awvalid) else self._read(ctx))

    async def _wait(self, ctx: Any) -> None:
        if self._rng is not None:
            for _ in range(self._rng.choice((0, 0, 1, 2, 7))):
                await ctx.tick()

    async def _take(self, ctx: Any, valid: Any, ready: Any, *fields: Any) -> tuple[int, ...]:
        """Take one item and return its fields."""
        await self._wait(ctx)
        ctx.set(ready, 1)
        values = await ctx.tick().sample(*fields).until(valid)
        ctx.set(ready, 0)
        return tuple(values)

    async def _give(self, ctx: Any, valid: Any, ready: Any) -> None:
        await self._wait(ctx)
        ctx.set(valid, 1)
        await ctx.tick().until(ready)
        ctx.set(valid, 0)

    async def _write(self, ctx: Any) -> None:
        axi, size = self._axi, self._size
        address, length = await self._take(ctx, axi.awvalid, axi.awready, axi.awaddr, axi.awlen)
        self.writes.append((address, length + 1))
        status = 0
        for index in range(length + 1):
            data, strobes, last = await self._take(
                ctx, axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast
            )
            assert last == (index == length), f"wlast is {last} in beat {index} of {length + 1}"
            content = data.to_bytes(size, "little")
            self.written.append((address, content, strobes))
            if self._memory.contains(address, size):
                self._memory.write(address, content, strobes)
            else:
                status = _DECERR
            address += size
        ctx.set(axi.bresp, status)
        await self._give(ctx, axi.bvalid, axi.bready)

    async def _read(self, ctx: Any) -> None:
        axi, size = self._axi, self._size
        address, length = await self._take(ctx, axi.arvalid, axi.arready, axi.araddr, axi.arlen)
        self.reads.append((address, length + 1))
        for index in range(length + 1):
            there = self._memory.contains(address, size)
            data = self._memory.read(address, size) if there else bytes(size)
            ctx.set(axi.rdata, int.from_bytes(data, "little"))
            ctx.set(axi.rresp, 0 if there else _DECERR)
            ctx.set(axi.rlast, index == length)
            await self._give(ctx, axi.rvalid, axi.rready)
            address += size


class LiteRegisters:
    """AXI4-Lite registers by offset; to be run in the background.

    Parameters
    ----------
    bus : AXI4Lite interface
        As its manager drives it.
    values : dict
        Of the registers; others give SLVERR.

    Attributes
    ----------
    writes : list of tuple
        Offset and value of each write.
    """

    def __init__(self, bus: Any, values: dict[int, int]) -> None:
        self.writes: list[tuple[int, int]] = []
        self._bus = bus
        self._values = values

    async def __call__(self, ctx: Any) -> None:
        """Run for ever."""
        bus = self._bus
        while True:
            if not ctx.get(bus.arvalid) and not ctx.get(bus.awvalid):
                await ctx.posedge(bus.arvalid).posedge(bus.awvalid)
            await (self._write(ctx) if ctx.get(bus.awvalid) else self._read(ctx))

    async def _read(self, ctx: Any) -> None:
        bus = self._bus
        ctx.set(bus.arready, 1)
        (offset,) = await ctx.tick().sample(bus.araddr).until(bus.arvalid)
        ctx.set(bus.arready, 0)
        ctx.set(bus.rdata, self._values.get(offset, 0))
        ctx.set(bus.rresp, 0 if offset in self._values else 2)
        ctx.set(bus.rvalid, 1)
        await ctx.tick().until(bus.rready)
        ctx.set(bus.rvalid, 0)

    async def _write(self, ctx: Any) -> None:
        """Take address and data one after the other, which AXI allows."""
        bus = self._bus
        ctx.set(bus.awready, 1)
        (offset,) = await ctx.tick().sample(bus.awaddr).until(bus.awvalid)
        ctx.set(bus.awready, 0)
        ctx.set(bus.wready, 1)
        (value,) = await ctx.tick().sample(bus.wdata).until(bus.wvalid)
        ctx.set(bus.wready, 0)
        self.writes.append((offset, value))
        ctx.set(bus.bresp, 0 if offset in self._values else 2)
        self._values[offset] = value
        ctx.set(bus.bvalid, 1)
        await ctx.tick().until(bus.bready)
        ctx.set(bus.bvalid, 0)

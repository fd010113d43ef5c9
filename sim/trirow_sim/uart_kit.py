"""Bytes to and from the UART pins of a simulated board."""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["UartPins"]

#: Seconds of a clock cycle in `trirow_sim.stream_kit.run`.
_CYCLE = 1e-6


class UartPins:
    """The host's side of a UART in pysim; `drive` and `watch` are to be run in the background.

    The pins change at any time, not with the clock.

    Parameters
    ----------
    dut : Component
        Has members ``rx`` and ``tx``.
    cycles_per_bit : float
        Of the host's clock.

    Attributes
    ----------
    to_board : deque
        Integers are bytes that wait to be sent; a float is a pause, in cycles; None is a byte
        without its stop bit.
    received : bytearray
        Bytes that came from the board.
    failures : int
        Bytes from the board without a stop bit.
    """

    def __init__(self, dut: Any, cycles_per_bit: float) -> None:
        self.to_board: deque[int | float | None] = deque()
        self.received = bytearray()
        self.failures = 0
        self._dut = dut
        self._bit = cycles_per_bit * _CYCLE

    def send(self, data: bytes) -> None:
        """Queue bytes behind each other."""
        self.to_board.extend(data)

    async def drive(self, ctx: Any) -> None:
        """Send what waits, for ever."""
        rx = self._dut.rx
        ctx.set(rx, 1)
        while True:
            if not self.to_board:
                await ctx.delay(self._bit)
                continue
            item = self.to_board.popleft()
            if isinstance(item, float):
                await ctx.delay(item * _CYCLE)
                continue
            bits = 0x200 | item << 1 if item is not None else 0
            for place in range(10):
                ctx.set(rx, bits >> place & 1)
                await ctx.delay(self._bit)
            if item is None:
                ctx.set(rx, 1)
                await ctx.delay(self._bit)

    async def watch(self, ctx: Any) -> None:
        """Receive for ever."""
        tx = self._dut.tx
        while True:
            if ctx.get(tx):
                await ctx.negedge(tx)
            await ctx.delay(1.5 * self._bit)
            byte = 0
            for place in range(8):
                byte |= ctx.get(tx) << place
                await ctx.delay(self._bit)
            self.failures += not ctx.get(tx)
            self.received.append(byte)

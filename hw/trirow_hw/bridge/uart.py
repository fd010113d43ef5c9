"""Asynchronous serial line, 8 data bits, no parity, one stop bit."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["BitRate", "UartReceiver", "UartTransmitter"]


class BitRate:
    """Fractional divider: a phase that overflows once a bit.

    Bits differ by a cycle in length, but the error does not add up: the rate is right within
    0.2 %, whatever the ratio of the clock to it.

    Parameters
    ----------
    clock_hz : int
    baud : int
        Bits a second, at most an eighth of the clock.

    Attributes
    ----------
    bits : int
        Width of the phase.
    step : int
        What it grows by in a cycle.
    """

    def __init__(self, *, clock_hz: int, baud: int):
        if baud < 1:
            raise ValueError(f"baud must be at least 1, not {baud!r}")
        if clock_hz < 8 * baud:
            raise ValueError(f"clock_hz must be at least 8 * {baud} baud, not {clock_hz!r}")
        self.bits = ceil_log2(-(-clock_hz // baud)) + 8
        self.step = round((baud << self.bits) / clock_hz)


class UartReceiver(wiring.Component):
    """Take bytes from a line.

    Each bit is sampled once, in its middle, counted from the edge of the start bit; a start bit
    that is gone by its middle was none. A byte comes out in the middle of its stop bit, so the
    other side's clock may be 3 % faster or slower. There is no back-pressure.

    Parameters
    ----------
    clock_hz, baud : int
        See `BitRate`.

    Members
    -------
    rx : In(1)
        The line, not synchronised.
    data : Out(8)
        The byte, while ``valid`` is up.
    valid : Out(1)
        Strobe: a byte.
    error : Out(1)
        Strobe: the stop bit was missing. The next byte may begin when the line is up again.
    """

    def __init__(self, *, clock_hz: int, baud: int):
        self._rate = BitRate(clock_hz=clock_hz, baud=baud)
        super().__init__({"rx": In(1, init=1), "data": Out(8), "valid": Out(1), "error": Out(1)})

    def elaborate(self, platform):
        m = Module()
        line = Signal(init=1)
        m.submodules += cdc.FFSynchronizer(self.rx, line, init=1)

        phase = Signal(self._rate.bits)
        tick = Signal()  # the middle of a bit
        m.d.sync += Cat(phase, tick).eq(phase + self._rate.step)
        bits = Signal(8, reset_less=True)
        left = Signal(3)
        m.d.comb += self.data.eq(bits)
        # From registers: what a byte sets off is long enough.
        m.d.sync += [self.valid.eq(0), self.error.eq(0)]
        with m.FSM():
            with m.State("IDLE"):
                # The edge is seen half a cycle late on average, and a tick is used a cycle late.
                half = 1 << (self._rate.bits - 1)
                m.d.sync += Cat(phase, tick).eq(half + 3 * self._rate.step // 2)
                with m.If(~line):
                    m.next = "START"

            with m.State("START"):
                with m.If(tick):
                    m.d.sync += left.eq(7)
                    m.next = "DATA"
                    with m.If(line):
                        m.next = "IDLE"

            with m.State("DATA"):
                with m.If(tick):
                    m.d.sync += [bits.eq(Cat(bits[1:], line)), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "STOP"

            with m.State("STOP"):
                with m.If(tick):
                    m.d.sync += [self.valid.eq(line), self.error.eq(~line)]
                    m.next = "IDLE"
                    with m.If(~line):
                        m.next = "BREAK"

            with m.State("BREAK"):
                with m.If(line):
                    m.next = "IDLE"
        return m


class UartTransmitter(wiring.Component):
    """Send bytes on a line.

    A byte waits while the one before is sent, so that bytes follow each other without a gap.

    Parameters
    ----------
    clock_hz, baud : int
        See `BitRate`.

    Members
    -------
    i : In(stream.Signature(8))
    tx : Out(1)
        The line, straight from a register.
    """

    def __init__(self, *, clock_hz: int, baud: int):
        self._rate = BitRate(clock_hz=clock_hz, baud=baud)
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        phase = Signal(self._rate.bits)
        tick = Signal()  # a bit ends
        m.d.sync += Cat(phase, tick).eq(phase + self._rate.step)

        waiting = Signal(8, reset_less=True)
        waits = Signal()
        m.d.comb += self.i.ready.eq(~waits)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [waiting.eq(self.i.payload), waits.eq(1)]

        # The bits that follow, and a one behind the last of them that tells the end.
        bits = Signal(10)
        with m.If(tick):
            m.d.sync += [self.tx.eq(1), bits.eq(bits >> 1)]
            with m.If(bits > 1):
                m.d.sync += self.tx.eq(bits[0])
            with m.Elif(waits):
                m.d.sync += [self.tx.eq(0), bits.eq(Cat(waiting, 1, 1)), waits.eq(0)]
        return m

"""The design on an ECP5 board: clock, pins, and what is on every board behind them."""

from __future__ import annotations

from amaranth.build.res import ResourceError
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Instance, Module, Signal
from amaranth.lib import io

from ..config import Config
from ..sdram.chips import SdramChip
from .pll import Pll, PllDividers
from .top import BoardTop

__all__ = ["FALLING_MHZ", "Ecp5Top"]

#: Clock in MHz below which data are taken at the falling edge. From its clock's edge on a chip
#: needs up to 6 ns to show data, and keeps them for 2.5 ns after the next one; pads and wires,
#: there and back, are taken to add 2.5 to 5.5 ns. The rising edge needs 2.5 + 2.5 ns > T / 2, the
#: falling one 6 + 5.5 ns < T; at 87 to 100 MHz, where neither is certain, typical 4 ns suit the
#: rising edge.
FALLING_MHZ = 87

#: Signals of `SdramPins` by the names of the platform's resource; the second is true if a one of
#: ours is a zero of the resource, whose own pin is active low.
_SDRAM_OUTPUTS = {
    "clk_en": ("cke", False),
    "cs": ("cs_n", True),
    "ras": ("ras_n", True),
    "cas": ("cas_n", True),
    "we": ("we_n", True),
    "ba": ("ba", False),
    "a": ("a", False),
    "dqm": ("dqm", False),
}


class Ecp5Top(Elaboratable):
    """A `BoardTop` behind the pins of a platform.

    A PLL makes ``sync`` of the board's oscillator. There is no reset, which would have to reach
    every corner of the device in a cycle: registers have their initial values from the bitstream,
    and the clock stands still (DCCA) until the PLL is locked.

    The SDRAM's clock is the inverse of ``sync``, made by a register of both edges (ODDRX1F) in its
    pad, so that it leaves the device as late as what the registers in the other pads give; there
    the flow puts the controller's (`trirow_hw.synthesis.pad_registers`).

    The controller takes the chip's data one and a half cycles after the edge at which the chip
    begins to drive them. At a slow clock the chip has let go of them by then: below `FALLING_MHZ`
    a register of the falling edge in the pad takes them half a cycle earlier and keeps them.

    Parameters
    ----------
    config : Config
    chip : SdramChip
    dividers : PllDividers
        Of the clock.
    """

    def __init__(self, *, config: Config, chip: SdramChip, dividers: PllDividers):
        self._dividers = dividers
        self.board = BoardTop(config=config, chip=chip, clock_hz=round(dividers.output_mhz * 10**6))

    def elaborate(self, platform):
        m = Module()
        m.submodules.board = self.board
        self._elaborate_clock(m, platform)
        self._elaborate_uart(m, platform)
        self._elaborate_sdram(m, platform.request("sdram", 0, dir="-"))
        self._elaborate_leds(m, platform)
        return m

    def _elaborate_clock(self, m, platform):
        m.submodules.clock_pin = pin = io.Buffer(
            "i", platform.request(platform.default_clk, dir="-")
        )
        m.submodules.pll = pll = Pll(dividers=self._dividers)
        m.domains.sync = ClockDomain(reset_less=True)
        m.d.comb += pll.i.eq(pin.i)
        m.submodules.clock_gate = Instance(
            "DCCA", i_CLKI=pll.o, i_CE=pll.locked, o_CLKO=ClockSignal()
        )

    def _elaborate_uart(self, m, platform):
        uart = platform.request("uart", 0, dir="-")
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [self.board.rx.eq(rx.i), tx.o.eq(self.board.tx)]

    def _elaborate_sdram(self, m, port):
        pins = self.board.sdram
        m.submodules.sdram_clk = clock = io.DDRBuffer("o", port.clk)
        m.d.comb += [clock.o[0].eq(0), clock.o[1].eq(1)]
        for name, (source, inverted) in _SDRAM_OUTPUTS.items():
            if not hasattr(port, name):  # tied to a level on the board
                continue
            m.submodules[f"sdram_{name}"] = buffer = io.Buffer("o", getattr(port, name))
            value = getattr(pins, source)
            m.d.comb += buffer.o.eq(~value if inverted else value)
        m.submodules.sdram_dq = dq = io.Buffer("io", port.dq)
        m.d.comb += [dq.o.eq(pins.dq_o), dq.oe.eq(pins.dq_oe)]
        if self._dividers.output_mhz < FALLING_MHZ:
            m.domains.fall = fall = ClockDomain(clk_edge="neg", reset_less=True)
            taken = Signal.like(dq.i)
            m.d.comb += fall.clk.eq(ClockSignal())
            m.d.fall += taken.eq(dq.i)
            m.d.comb += pins.dq_i.eq(taken)
        else:
            m.d.comb += pins.dq_i.eq(dq.i)

    def _elaborate_leds(self, m, platform):
        for k, lamp in enumerate(_lamps(platform)):
            m.submodules[f"led{k}"] = buffer = io.Buffer("o", lamp)
            m.d.comb += buffer.o.eq(self.board.leds[k])
        if platform.resources.get(("esp32", 0)) is not None:
            # The ULX3S' radio module shares pins with the FPGA and restarts it if this is low.
            awake = platform.request("esp32", 0, dir="-").gpio0
            m.submodules.esp32_gpio0 = buffer = io.Buffer("o", awake)
            m.d.comb += buffer.o.eq(1)


def _lamps(platform) -> list:
    """Return the ports of the LEDs for ready, busy, error and activity, as many as there are."""
    if ("rgb_led", 0) in platform.resources:
        # iCESugar-Pro: green, blue and red, lit by a zero; the pinout has them in another order.
        lamp = platform.request("rgb_led", 0, dir="-")
        return [~lamp.r, ~lamp.g, ~lamp.b]
    lamps = []
    for k in range(4):
        try:
            lamps.append(platform.request("led", k, dir="-"))
        except ResourceError:
            break
    return lamps

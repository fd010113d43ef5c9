"""What is on every board: accelerator, SDRAM controller and host bridge, without a platform."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..accelerator import Accelerator
from ..axi_arbiter import AxiArbiter
from ..axi_slice import AxiSlice
from ..bridge.bridge import HostBridge
from ..config import Config
from ..sdram.axi_sdram import AxiSdram
from ..sdram.chips import SdramChip
from ..sdram.pins import SdramPins

__all__ = ["BAUD", "LEDS", "BoardTop"]

#: Speed of the UART.
BAUD = 3_000_000
#: What the bits of ``leds`` show.
LEDS = ("ready", "busy", "error", "activity")


class BoardTop(wiring.Component):
    """Accelerator and host bridge in front of an SDRAM, in the domain ``sync``.

    The bridge reads and writes the memory beside the accelerator, and its registers.

    Parameters
    ----------
    config : Config
        The accelerator.
    chip : SdramChip
    clock_hz : int
        Clock of ``sync``.
    baud : int
        Speed of the UART.
    startup_us : float, optional
        See `AxiSdram`: shorter for simulation.

    Members
    -------
    rx : In(1), tx : Out(1)
        UART, as the board sees it; ``rx`` is asynchronous.
    sdram : Out(SdramPins)
        The chip, but for its clock: the inverse of ``sync``.
    leds : Out(4)
        Bit 0: the memory is ready. Bit 1: a run goes on. Bit 2: the last run ended in an error.
        Bit 3: the host has sent something, see `HostBridge`.

    Raises
    ------
    ValueError
        If the clock does not suit the chip or the UART, or the bus the chip.
    """

    def __init__(
        self,
        *,
        config: Config,
        chip: SdramChip,
        clock_hz: int,
        baud: int = BAUD,
        startup_us: float | None = None,
    ):
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "sdram": Out(SdramPins(chip)),
                "leds": Out(len(LEDS)),
            }
        )
        bus_bytes = config.bus_bytes
        self.accelerator = Accelerator(config=config)
        self.bridge = HostBridge(bus_bytes=bus_bytes, clock_hz=clock_hz, baud=baud)
        self.arbiter = AxiArbiter(bus_bytes=bus_bytes, managers=2)
        # Memory and bridge are at the pins, and the accelerator is all over the device.
        self.bridge_slice, self.memory_slice = (AxiSlice(bus_bytes=bus_bytes) for _ in range(2))
        self.memory = AxiSdram(
            chip=chip, clock_hz=clock_hz, bus_bytes=bus_bytes, startup_us=startup_us
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.accelerator = accelerator = self.accelerator
        m.submodules.bridge = bridge = self.bridge
        m.submodules.arbiter = arbiter = self.arbiter
        m.submodules.memory = memory = self.memory
        m.submodules.bridge_slice = bridge_slice = self.bridge_slice
        m.submodules.memory_slice = memory_slice = self.memory_slice
        wiring.connect(m, accelerator.memory, arbiter.managers[0])
        wiring.connect(m, bridge.memory, bridge_slice.manager)
        wiring.connect(m, bridge_slice.bus, arbiter.managers[1])
        wiring.connect(m, arbiter.bus, memory_slice.manager)
        wiring.connect(m, memory_slice.bus, memory.bus)
        wiring.connect(m, bridge.control, accelerator.control)
        wiring.connect(m, memory.pins, wiring.flipped(self.sdram))
        m.d.comb += [bridge.rx.eq(self.rx), self.tx.eq(bridge.tx)]
        supervisor = accelerator.supervisor
        failed = supervisor.error.as_value().any()
        m.d.sync += self.leds.eq(Cat(memory.ready, supervisor.busy, failed, bridge.active))
        return m

"""The registers that the host sees over AXI4-Lite; `REGISTERS` defines the map."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4Lite, Response
from .config import Config
from .supervisor import COUNTERS, RunError

__all__ = ["ADDRESS_BITS", "ID", "REGISTERS", "Register", "Registers"]

#: "TRIW", little-endian: what the register ``id`` reads as.
ID = 0x57495254
#: Version of the register map: major in bits 31 to 16, minor below.
VERSION = 0x0000_0002
ADDRESS_BITS = 8
#: Cycles without progress after which a run ends, unless the host says otherwise.
DEFAULT_WATCHDOG = 1 << 20


@dataclass(frozen=True)
class Register:
    """One 32-bit register: byte offset, access (``ro`` or ``rw``), meaning, value after reset."""

    offset: int
    access: str
    meaning: str
    init: int = 0


#: The register map by name.
REGISTERS: dict[str, Register] = {
    "id": Register(0x00, "ro", 'identification: "TRIW", little-endian'),
    "version": Register(0x04, "ro", "version of the map: major in bits 31:16, minor in 15:0"),
    "control": Register(
        0x08, "rw", "write 1 to bit 0: start; to bit 1: stop and reset. Bit 8: interrupt enable"
    ),
    "status": Register(
        0x0C, "ro", "bit 0: busy; bit 1: done without error; bit 2: error; bit 3: interrupt"
    ),
    "error": Register(0x10, "ro", "bits 7:0: code; 15:8: unit; 31:16: index of the pass"),
    "descriptor": Register(0x14, "rw", "address of the first descriptor, a multiple of 256"),
    "base": Register(0x18, "rw", "first address that may be accessed"),
    "limit": Register(0x1C, "rw", "end of the addresses that may be accessed, exclusive"),
    "watchdog": Register(
        0x20, "rw", "cycles without progress that end a run; 0: never", DEFAULT_WATCHDOG
    ),
    "passes": Register(0x24, "ro", "passes of this run whose outputs have landed"),
    **{
        name: Register(0x40 + 4 * k, "ro", f"counter of the last run: {name.replace('_', ' ')}")
        for k, name in enumerate(COUNTERS)
    },
    "lanes": Register(0x80, "ro", "bits 7:0: in_lanes; 15:8: out_lanes; 23:16: post_lanes"),
    "line_buffer_bytes": Register(0x84, "ro", "size of the line buffer"),
    "weight_buffer_bytes": Register(0x88, "ro", "size of the weight buffer"),
    "bus_bytes": Register(0x8C, "ro", "bits 7:0: bytes of a beat; 15:8: bits of a weight"),
}


class Registers(wiring.Component):
    """AXI4-Lite target with the registers of `REGISTERS`.

    One access at a time; a read is answered in the second cycle behind its request, a write in the
    next. Reads of an undefined offset give 0,
    writes to one or to a read-only register do nothing; both answer OKAY. Byte strobes are
    honoured.

    Parameters
    ----------
    config : Config

    Members
    -------
    bus : In(AXI4Lite)
    start, reset : Out(1)
        Strobes.
    descriptor, base, limit, watchdog : Out(32)
        Values of the registers.
    busy, done, error, counters, passes_landed : In
        From the supervisor.
    interrupt : Out(1)
        Level: a run has ended, and the interrupt is enabled. Start and reset clear it.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "bus": In(AXI4Lite(address_bits=ADDRESS_BITS)),
                "start": Out(1),
                "reset": Out(1),
                "descriptor": Out(32),
                "base": Out(32),
                "limit": Out(32),
                "watchdog": Out(32, init=DEFAULT_WATCHDOG),
                "busy": In(1),
                "done": In(1),
                "error": In(RunError),
                "counters": In(32).array(len(COUNTERS)),
                "passes_landed": In(16),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        enable = Signal()
        ended = Signal()
        m.d.comb += [
            ended.eq(self.done | (self.error.code != 0)),
            self.interrupt.eq(ended & enable),
        ]
        self._elaborate_reads(m, self._values(enable))
        self._elaborate_writes(m, enable)
        return m

    def _values(self, enable):
        config = self._config
        failed = self.error.code != 0
        return {
            "id": ID,
            "version": VERSION,
            "control": enable << 8,
            "status": Cat(self.busy, self.done, failed, self.interrupt),
            "error": self.error.as_value(),
            "descriptor": self.descriptor,
            "base": self.base,
            "limit": self.limit,
            "watchdog": self.watchdog,
            "passes": self.passes_landed,
            **dict(zip(COUNTERS, self.counters, strict=True)),
            "lanes": config.in_lanes | config.out_lanes << 8 | config.post_lanes << 16,
            "line_buffer_bytes": config.line_buffer_bytes,
            "weight_buffer_bytes": config.weight_buffer_bytes,
            "bus_bytes": config.bus_bytes | config.weight_bits << 8,
        }

    def _elaborate_reads(self, m, values):
        bus = self.bus
        word = Signal(ADDRESS_BITS - 2)
        looks = Signal()
        m.d.comb += [bus.arready.eq(~bus.rvalid & ~looks), bus.rresp.eq(Response.OKAY.value)]
        m.d.sync += looks.eq(bus.arvalid & bus.arready)
        with m.If(bus.arready):
            m.d.sync += word.eq(bus.araddr[2:])
        with m.If(looks):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0)]
            with m.Switch(word):
                for name, register in REGISTERS.items():
                    with m.Case(register.offset >> 2):
                        m.d.sync += bus.rdata.eq(values[name])
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

    def _elaborate_writes(self, m, enable):
        bus = self.bus
        both = Signal()
        m.d.comb += [
            both.eq(bus.awvalid & bus.wvalid & ~bus.bvalid),
            bus.awready.eq(both),
            bus.wready.eq(both),
            bus.bresp.eq(Response.OKAY.value),
        ]
        strobes = Cat(strobe.replicate(8) for strobe in bus.wstrb)
        with m.If(both):
            m.d.sync += bus.bvalid.eq(1)
            with m.Switch(bus.awaddr[2:]):
                with m.Case(REGISTERS["control"].offset >> 2):
                    m.d.comb += [
                        self.start.eq(bus.wdata[0] & bus.wstrb[0]),
                        self.reset.eq(bus.wdata[1] & bus.wstrb[0]),
                    ]
                    with m.If(bus.wstrb[1]):
                        m.d.sync += enable.eq(bus.wdata[8])
                for name in ("descriptor", "base", "limit", "watchdog"):
                    with m.Case(REGISTERS[name].offset >> 2):
                        register = getattr(self, name)
                        m.d.sync += register.eq((register & ~strobes) | (bus.wdata & strobes))
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)

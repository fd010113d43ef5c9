"""The exported core as a LiteX module."""

from __future__ import annotations

import os
import re
from pathlib import Path

from litex.gen import ClockSignal, LiteXModule, ResetSignal, Signal
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import axi
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import Instance

from ..registers import ADDRESS_BITS

__all__ = ["Trirow", "add_trirow"]

_REQUEST = ("addr", "len", "size", "burst", "cache", "prot", "lock", "qos", "id")
#: Signals of each channel of the memory bus beside valid and ready: from the core, to the core.
_MEMORY = {
    "aw": (_REQUEST, ()),
    "w": (("data", "strb", "last"), ()),
    "b": ((), ("resp", "id")),
    "ar": (_REQUEST, ()),
    "r": ((), ("data", "resp", "last", "id")),
}
#: The same of the control bus.
_CONTROL = {
    "aw": ((), ("addr", "prot")),
    "w": ((), ("data", "strb")),
    "b": (("resp",), ()),
    "ar": ((), ("addr", "prot")),
    "r": (("data", "resp"), ()),
}


class Trirow(LiteXModule):
    """A core that ``trirow export`` has written, in the clock domain ``sys``.

    Parameters
    ----------
    platform : GenericPlatform
        Gets the core's source.
    folder : path
        What ``trirow export`` has written; the width of the bus is read from its C header.

    Attributes
    ----------
    bus : AXIInterface
        The core reads and writes memory here; bytes, 32-bit addresses.
    control : AXILiteInterface
        The registers.
    interrupt : Signal
        Level: a run has ended.
    ev : EventManager
        Its source ``ended`` is the interrupt's level; pending until it is acknowledged in the core.

    Raises
    ------
    ValueError
        If the folder is not one that ``trirow export`` has written.
    """

    def __init__(self, platform, folder: str | os.PathLike[str]):
        source = Path(folder) / "trirow.v"
        if not source.is_file():
            raise ValueError(f"{folder} has no trirow.v: `trirow export -o {folder}` writes it")
        self.bus = axi.AXIInterface(data_width=8 * _bus_bytes(Path(folder)), address_width=32)
        self.control = axi.AXILiteInterface(data_width=32, address_width=32)
        self.interrupt = Signal()
        self.ev = EventManager()
        self.ev.ended = EventSourceLevel(description="A run has ended.")
        self.ev.finalize()
        self.comb += self.ev.ended.trigger.eq(self.interrupt)
        platform.add_source(str(source))
        self.specials += Instance(
            "trirow",
            i_aclk=ClockSignal("sys"),
            i_aresetn=~ResetSignal("sys"),
            o_interrupt=self.interrupt,
            **_ports("m_axi", self.bus, _MEMORY, manager=True),
            **_ports("s_axi", self.control, _CONTROL, manager=False),
        )


def add_trirow(soc, folder: str | os.PathLike[str], *, name: str = "trirow", origin=None) -> Trirow:
    """Add a core to a SoC: to its bus as a manager, its registers as a region, its interrupt.

    Parameters
    ----------
    soc : SoC
        Its bus may have any standard and width; LiteX converts. Its CPU sees what the core writes
        only after it has flushed its data cache.
    folder : path
        See `Trirow`.
    name : str
        Of the module, the managers's port, the region and the interrupt.
    origin : int, optional
        Address of the registers; by default LiteX takes a free one in an uncached region.

    Returns
    -------
    Trirow
    """
    core = Trirow(soc.platform, folder)
    soc.add_module(name, core)
    soc.bus.add_master(name, master=core.bus)
    region = SoCRegion(origin=origin, size=1 << ADDRESS_BITS, cached=False)
    soc.bus.add_slave(name, slave=core.control, region=region)
    if soc.irq.enabled:
        soc.irq.add(name, use_loc_if_exists=True)
    return core


def _bus_bytes(folder: Path) -> int:
    """Return the width of the memory bus, from the value that its register has."""
    header = folder / "trirow_registers.h"
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{header}: {error.strerror}") from error
    value = re.search(r"TRIROW_RESET_BUS_BYTES \w+\(0x([0-9A-F]+)\)", text)
    if value is None:
        raise ValueError(f"{header} does not say how wide the bus is")
    return int(value[1], 16) & 0xFF


def _ports(prefix: str, bus, channels, *, manager: bool) -> dict[str, object]:
    """Return the connections of a bus to ports of the instance."""
    ports = {}
    for channel, (outputs, inputs) in channels.items():
        stream = getattr(bus, channel)
        requests = channel in ("aw", "w", "ar")
        valid, ready = ("o", "i") if requests == manager else ("i", "o")
        ports[f"{valid}_{prefix}_{channel}valid"] = stream.valid
        ports[f"{ready}_{prefix}_{channel}ready"] = stream.ready
        for direction, names in (("o", outputs), ("i", inputs)):
            for name in names:
                signal = getattr(stream, name)
                if not manager and name == "addr":
                    signal = signal[:ADDRESS_BITS]
                ports[f"{direction}_{prefix}_{channel}{name}"] = signal
    return ports

"""Registers across an AXI4 bus."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .axi import AXI4
from .queue import Queue

__all__ = ["AxiSlice"]

_REQUEST = ("addr", "len", "size", "burst", "cache", "prot")
#: Fields of the channels, and whether they go the way of the requests.
_CHANNELS = {
    "aw": (_REQUEST, True),
    "ar": (_REQUEST, True),
    "w": (("data", "strb", "last"), True),
    "r": (("data", "resp", "last"), False),
    "b": (("resp",), False),
}


class AxiSlice(wiring.Component):
    """Pass all channels of a bus through two places each, for wires that cross a device.

    Latency 1 cycle, throughput a beat a cycle in each channel, full back-pressure. No valid or
    ready signal depends on one of the other side in the same cycle.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.

    Members
    -------
    manager : In(AXI4(data_bytes=bus_bytes))
    bus : Out(AXI4(data_bytes=bus_bytes))
    """

    def __init__(self, *, bus_bytes: int):
        bus = AXI4(data_bytes=bus_bytes)
        super().__init__({"manager": In(bus), "bus": Out(bus)})

    def elaborate(self, platform):
        m = Module()
        for channel, (fields, forward) in _CHANNELS.items():
            source, sink = (self.manager, self.bus) if forward else (self.bus, self.manager)
            names = [channel + name for name in fields]
            payload = Cat(getattr(source, name) for name in names)
            m.submodules[channel] = queue = Queue(len(payload), depth=2)
            m.d.comb += [
                queue.i.payload.eq(payload),
                queue.i.valid.eq(getattr(source, f"{channel}valid")),
                getattr(source, f"{channel}ready").eq(queue.i.ready),
                Cat(getattr(sink, name) for name in names).eq(queue.o.payload),
                getattr(sink, f"{channel}valid").eq(queue.o.valid),
                queue.o.ready.eq(getattr(sink, f"{channel}ready")),
            ]
        return m

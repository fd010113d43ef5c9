"""The host bridge: memory and registers for a host at the other end of a serial line."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..axi import AXI4, AXI4Lite
from .executor import Executor
from .frame_buffer import FrameBuffer
from .frame_receiver import FrameReceiver
from .frame_sender import FrameSender
from .memory_access import MemoryAccess
from .protocol import BUFFER_BYTES, SILENCE, identity
from .register_access import RegisterAccess
from .uart import UartReceiver, UartTransmitter

__all__ = ["HostBridge"]

_ADDRESS_BITS = 8


class HostBridge(wiring.Component):
    """Execute what a host requests over a UART; ``docs/host-link.md`` defines the protocol.

    ::

        rx -> UartReceiver -> FrameReceiver -> FrameBuffer -> Executor --+-- MemoryAccess
                                                                         +-- RegisterAccess
        tx <- UartTransmitter <- FrameSender <- data and answers --------+

    One request is executed at a time, while the next ones arrive and wait in the buffer. A request
    of 512 bytes keeps the memory busy for about 500 cycles (read) or 1,600 (write), a hundredth of
    the time that its bytes take on the line. If the memory does not answer, neither does the
    bridge, until it does.

    Parameters
    ----------
    bus_bytes : int
        Width of the memory bus, a power of two from 2 to 128.
    clock_hz : int
        Clock, at least 8 times ``baud``.
    baud : int
        Bits a second.
    silence : float
        Seconds without a byte after which a frame that has begun is forgotten, at least 20 bytes.

    Members
    -------
    rx : In(1), tx : Out(1)
        The line, seen from the board.
    memory : Out(AXI4)
        INCR bursts of at most 512 bytes that cross no multiple of 512.
    control : Out(AXI4Lite)
    active : Out(1)
        A byte has come within the time ``silence``.
    """

    def __init__(
        self, *, bus_bytes: int, clock_hz: int, baud: int = 3_000_000, silence: float = SILENCE
    ):
        if silence * baud < 200:
            raise ValueError(f"silence must be at least {200 / baud:g} s, not {silence!r}")
        self._bus_bytes = bus_bytes
        self._line = {"clock_hz": clock_hz, "baud": baud}
        self._identity = identity(bus_bytes=bus_bytes, clock_hz=clock_hz)
        self._quiet_cycles = round(silence * clock_hz)
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "memory": Out(AXI4(data_bytes=bus_bytes)),
                "control": Out(AXI4Lite(address_bits=_ADDRESS_BITS)),
                "active": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.buffer = buffer = FrameBuffer(depth=BUFFER_BYTES)
        m.submodules.executor = executor = Executor(
            identity_bytes=len(self._identity), address_bits=_ADDRESS_BITS
        )
        m.submodules.sender = sender = FrameSender(identity=self._identity)
        self._elaborate_receiver(m, buffer)
        self._elaborate_units(m, buffer, executor, sender)
        m.submodules.uart_out = uart = UartTransmitter(**self._line)
        connect(m, sender.o, uart.i)
        m.d.comb += [
            self.tx.eq(uart.tx),
            sender.answer.eq(executor.answer),
            sender.identify.eq(executor.identify),
            sender.start.eq(executor.send),
            executor.sending.eq(sender.busy),
        ]
        return m

    def _elaborate_receiver(self, m, buffer):
        m.submodules.uart_in = uart = UartReceiver(**self._line)
        m.submodules.receiver = receiver = FrameReceiver()
        quiet = Signal(range(self._quiet_cycles + 1), init=self._quiet_cycles)
        over = quiet == self._quiet_cycles
        silent = Signal(init=1)
        m.d.sync += silent.eq(over)
        with m.If(uart.valid | uart.error):
            m.d.sync += [quiet.eq(0), silent.eq(0)]
        with m.Elif(~over):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += [
            uart.rx.eq(self.rx),
            receiver.byte.eq(uart.data),
            receiver.valid.eq(uart.valid),
            receiver.error.eq(uart.error),
            receiver.silent.eq(silent),
            receiver.full.eq(buffer.full),
            buffer.data.eq(receiver.data),
            buffer.push.eq(receiver.push),
            self.active.eq(~silent),
        ]
        # A cycle later, for a shorter path: the next byte is far away.
        m.d.sync += [
            buffer.commit.eq(receiver.commit),
            buffer.discard.eq(receiver.discard),
        ]

    def _elaborate_units(self, m, buffer, executor, sender):
        m.submodules.memory_access = memory = MemoryAccess(bus_bytes=self._bus_bytes)
        m.submodules.register_access = registers = RegisterAccess(address_bits=_ADDRESS_BITS)
        connect(m, memory.bus, flipped(self.memory))
        connect(m, registers.bus, flipped(self.control))
        request = executor.request
        write, chosen = request.kind[0], request.kind[1]  # see Kind
        for unit, here in ((memory, ~chosen), (registers, chosen)):
            m.d.comb += [
                unit.start.eq(executor.start & here),
                unit.write.eq(write),
                unit.address.eq(request.address),
                unit.i.payload.eq(buffer.o.payload),
                unit.i.valid.eq(buffer.o.valid & executor.passes & here),
                unit.o.ready.eq(sender.i.ready),
            ]
        m.d.comb += [
            memory.length.eq(request.length),
            executor.i.payload.eq(buffer.o.payload),
            executor.i.valid.eq(buffer.o.valid & ~executor.passes),
            buffer.o.ready.eq(
                Mux(executor.passes, memory.i.ready | registers.i.ready, executor.i.ready)
            ),
            executor.busy.eq(memory.busy | registers.busy),
            executor.response.eq(Mux(chosen, registers.response, memory.response)),
            sender.i.valid.eq(memory.o.valid | registers.o.valid),
            sender.i.payload.eq(Mux(chosen, registers.o.payload, memory.o.payload)),
        ]

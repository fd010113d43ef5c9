"""AXI4 in front of an SDR SDRAM."""

from __future__ import annotations

from dataclasses import replace

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..axi import AXI4, Burst, Response
from ..block_memory import BlockQueue
from ..queue import Queue
from .chips import SdramChip
from .controller import ReadBack, SdramController, WriteData, check_parameters
from .pins import SdramPins
from .segments import BurstRequest, Segmenter

__all__ = ["AxiSdram"]

#: Bytes of each of the two buffers.
BUFFER_BYTES = 1024
#: Read bursts, and write bursts, that wait.
QUEUED = 8


class AxiSdram(wiring.Component):
    """AXI4 subordinate that keeps its bytes in an SDR SDRAM.

    Bursts of type INCR and full width, of any length. They are cut at multiples of 512 bytes. A
    read is given to the controller when there is room for its data in a buffer of 1,024 bytes, a
    write when its data are there, in another: so the chip never waits for the bus. If both can be
    served, the direction that was not served last is. Reads and writes of the same bytes need the
    manager to wait for the response, as AXI4 demands.

    `QUEUED` bursts wait in each direction, beyond those that are served. Data may come before their
    address. A write is answered when its last word is sent.

    With a row that is open and nothing under way, the first beat of a read is offered
    ``12 + CAS latency + words of a beat - 1`` cycles after the address handshake; then a word of
    the chip a cycle. Throughput is that of the chip but for rows, direction and refresh, see
    `SdramController`.

    Bursts beyond the capacity are answered with DECERR, those of another type or width with
    SLVERR; reads carry undefined data then, and writes change nothing.

    Parameters
    ----------
    chip : SdramChip
    clock_hz : float
        Clock of the sync domain.
    bus_bytes : int
        Bytes of a beat: 2, 4, 8 or 16.
    startup_us : float or None
        Time from reset to the first command; None: what the chip asks for. Shorter for simulation.
    capture_delay : int
        See `SdramController`.

    Members
    -------
    bus : In(AXI4(data_bytes=bus_bytes))
    pins : Out(SdramPins(chip))
    ready : Out(1)
        The chip is initialised; bursts are taken before, and wait.

    Raises
    ------
    ValueError
        If the clock does not suit the chip, or a parameter is out of range.
    """

    def __init__(
        self,
        *,
        chip: SdramChip,
        clock_hz: float,
        bus_bytes: int,
        startup_us: float | None = None,
        capture_delay: int = 0,
    ):
        self._chip = chip
        self._bus_bytes = bus_bytes
        timing = chip.timing(clock_hz)
        if startup_us is not None:
            timing = replace(timing, startup=max(1, round(startup_us * clock_hz / 1e6)))
        check_parameters(timing, bus_bytes, capture_delay)
        self._timing = timing
        self._capture_delay = capture_delay
        super().__init__(
            {
                "bus": In(AXI4(data_bytes=bus_bytes)),
                "pins": Out(SdramPins(chip)),
                "ready": Out(1),
            }
        )

    @property
    def chip(self) -> SdramChip:
        """The chip."""
        return self._chip

    @property
    def capacity(self) -> int:
        """Bytes; higher addresses are answered with DECERR."""
        return self._chip.capacity

    def elaborate(self, platform):
        m = Module()
        m.submodules.controller = controller = SdramController(
            chip=self._chip,
            timing=self._timing,
            bus_bytes=self._bus_bytes,
            capture_delay=self._capture_delay,
        )
        connect(m, flipped(self.pins), controller.pins)
        m.d.comb += self.ready.eq(controller.ready)
        m.submodules.reads = reads = self._requests(m, "ar")
        m.submodules.writes = writes = self._requests(m, "aw")
        room = self._elaborate_read_data(m, controller)
        there = self._elaborate_write_data(m, controller)
        self._elaborate_choice(m, controller, reads, writes, room, there)
        self._elaborate_responses(m, controller)
        return m

    def _requests(self, m, channel):
        """Queue the bursts of a channel; return what cuts them into segments."""
        address_bits = (self._chip.capacity - 1).bit_length()
        bus_bits = self._bus_bytes.bit_length() - 1
        queue = Queue(BurstRequest(address_bits, self._bus_bytes), depth=QUEUED)
        m.submodules[f"{channel}_queue"] = queue
        address, length, burst, size, valid, ready = (
            getattr(self.bus, channel + name)
            for name in ("addr", "len", "burst", "size", "valid", "ready")
        )
        request = queue.i.payload
        m.d.comb += [
            request.address.eq(address[bus_bits:address_bits]),
            request.length.eq(length),
            queue.i.valid.eq(valid & ready),
        ]
        with m.If((burst != Burst.INCR.value) | (size != bus_bits)):
            m.d.comb += request.response.eq(Response.SLVERR.value)
        with m.Elif(address[address_bits:].any()):
            m.d.comb += request.response.eq(Response.DECERR.value)
        if channel == "ar":
            m.d.comb += ready.eq(queue.i.ready)
        else:
            self._aw_room = queue.i.ready
        segmenter = Segmenter(address_bits=address_bits, bus_bytes=self._bus_bytes)
        connect(m, queue.o, segmenter.i)
        return segmenter

    def _elaborate_read_data(self, m, controller):
        """Buffer what was read; return the beats that are not promised to a read."""
        depth = BUFFER_BYTES // self._bus_bytes
        m.submodules.read_buffer = buffer = BlockQueue(ReadBack(self._bus_bytes), depth=depth)
        bus, beat = self.bus, buffer.o.payload
        m.d.comb += [
            buffer.i.payload.eq(controller.r),
            buffer.i.valid.eq(controller.r_valid),
            bus.rvalid.eq(buffer.o.valid),
            buffer.o.ready.eq(bus.rready),
            bus.rdata.eq(beat.data),
            bus.rlast.eq(beat.last),
            bus.rresp.eq(beat.response),
        ]
        room = Signal(range(depth + 1), init=depth)
        self._read_taken = buffer.o.valid & buffer.o.ready
        return room

    def _elaborate_write_data(self, m, controller):
        """Buffer what is to be written; return the beats that are not promised to a write."""
        depth = BUFFER_BYTES // self._bus_bytes
        m.submodules.write_buffer = buffer = BlockQueue(WriteData(self._bus_bytes), depth=depth)
        # The controller's decision to take a beat is made late in a cycle.
        m.submodules.write_beats = beats = Queue(WriteData(self._bus_bytes), depth=2)
        bus = self.bus
        m.d.comb += [
            buffer.i.payload.data.eq(bus.wdata),
            buffer.i.payload.strobe.eq(bus.wstrb),
            bus.wready.eq(buffer.i.ready),
            buffer.i.valid.eq(bus.wvalid),
        ]
        connect(m, buffer.o, beats.i)
        connect(m, beats.o, controller.w)
        self._write_taken = bus.wvalid & bus.wready
        return Signal(range(depth + 1), name="there")

    def _elaborate_choice(self, m, controller, reads, writes, room, there):
        """Choose the direction that was not served last, if both can be served."""
        access = controller.access
        read, write = reads.o.payload, writes.o.payload
        take_read, take_write = Signal(), Signal()
        loads, loaded = Signal(), Signal()
        read_fits, write_fits = Signal(), Signal()
        m.d.comb += [
            read_fits.eq(reads.o.valid & (room > read.more)),
            write_fits.eq(writes.o.valid & (there > write.more)),
            loads.eq((take_read | take_write) & ~access.valid),
            reads.o.ready.eq(take_read & ~access.valid),
            writes.o.ready.eq(take_write & ~access.valid),
        ]
        m.d.sync += loaded.eq(loads)
        # A choice is made as soon as the one before counts, and waits for the controller.
        with m.If(loads):
            m.d.sync += [take_read.eq(0), take_write.eq(0)]
        with m.Elif(~take_read & ~take_write & ~loaded):
            m.d.sync += [
                take_read.eq(read_fits & ~(write_fits & ~access.payload.write)),
                take_write.eq(write_fits & ~(read_fits & access.payload.write)),
            ]
        with m.If(loads):
            m.d.sync += [
                access.valid.eq(1),
                access.payload.segment.eq(Mux(take_write, write, read)),
                access.payload.write.eq(take_write),
            ]
        with m.Elif(access.ready):
            m.d.sync += access.valid.eq(0)
        promised = Mux(loaded, access.payload.segment.more + 1, 0)
        m.d.sync += [
            room.eq(room + self._read_taken - Mux(access.payload.write, 0, promised)),
            there.eq(there + self._write_taken - Mux(access.payload.write, promised, 0)),
        ]

    def _elaborate_responses(self, m, controller):
        """Answer each write when its last word was sent."""
        bus = self.bus
        m.submodules.responses = responses = Queue(2, depth=QUEUED)
        open_writes = Signal(range(QUEUED + 1))
        m.d.comb += [
            responses.i.payload.eq(controller.written_response),
            responses.i.valid.eq(controller.written),
            bus.bvalid.eq(responses.o.valid),
            bus.bresp.eq(responses.o.payload),
            responses.o.ready.eq(bus.bready),
            bus.awready.eq(self._aw_room & (open_writes != QUEUED)),
        ]
        m.d.sync += open_writes.eq(
            open_writes + (bus.awvalid & bus.awready) - (bus.bvalid & bus.bready)
        )

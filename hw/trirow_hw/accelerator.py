"""The accelerator: all units, connected."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .activation import Activation
from .axi import AXI4, AXI4Lite
from .config import Config
from .errors import Unit
from .feature_reader import FeatureReader
from .line_buffer import LineBuffer
from .mac_array import MacArray
from .output_writer import OutputWriter
from .post_process import PostProcess
from .queue import Queue
from .read_port import ReadPort
from .registers import ADDRESS_BITS, Registers
from .second_reader import SecondReader
from .sequencer import Sequencer
from .supervisor import Supervisor
from .tap_issuer import TapIssuer
from .weight_reader import WeightReader
from .window import Pixel, Window
from .write_port import WritePort

__all__ = ["Accelerator"]

#: Pixels whose demands are worked out ahead of the array.
PIXEL_QUEUE = 4


class Accelerator(wiring.Component):
    """INT8 convolution from memory to memory.

    Parameters
    ----------
    config : Config

    Members
    -------
    memory : Out(AXI4)
        Features, weights, descriptors and outputs; 32-bit addresses.
    control : In(AXI4Lite)
        The registers.
    interrupt : Out(1)
        Level: a run has ended.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "memory": Out(AXI4(data_bytes=config.bus_bytes)),
                "control": In(AXI4Lite(address_bits=ADDRESS_BITS)),
                "interrupt": Out(1),
            }
        )
        self.registers = Registers(config=config)
        self.supervisor = Supervisor()
        self.sequencer = Sequencer(config=config)
        self.read_port = ReadPort(bus_bytes=config.bus_bytes, clients=4)
        self.features = FeatureReader(config=config)
        self.weights = WeightReader(config=config)
        self.second = SecondReader(config=config)
        self.window = Window(config=config)
        self.pixels = Queue(Pixel(config), depth=PIXEL_QUEUE, registered=True)
        self.issuer = TapIssuer(config=config)
        self.line_buffer = LineBuffer(config=config)
        self.activation = Activation(config=config)
        self.array = MacArray(config=config)
        self.post = PostProcess(config=config)
        self.writer = OutputWriter(config=config)
        self.write_port = WritePort(bus_bytes=config.bus_bytes)

    @property
    def config(self) -> Config:
        """Parameters of the accelerator."""
        return self._config

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers
        m.submodules.supervisor = supervisor = self.supervisor
        m.submodules.read_port = self.read_port
        m.submodules.write_port = self.write_port
        # The registers are for speed. Synthesis gives each unit a copy of `reset`, for one of them
        # would have to reach across the whole device.
        reset, stop = Signal(init=1), Signal()
        m.d.sync += [reset.eq(supervisor.units_reset), stop.eq(supervisor.stop)]
        m.d.comb += [self.read_port.stop.eq(stop), self.write_port.stop.eq(stop)]
        for name in (
            "sequencer",
            "features",
            "second",
            "weights",
            "window",
            "pixels",
            "issuer",
            "line_buffer",
            "activation",
            "array",
            "post",
            "writer",
        ):
            m.submodules[name] = ResetInserter(reset)(getattr(self, name))
        self._connect_control(m)
        self._connect_readers(m)
        self._connect_array(m)
        self._connect_writer(m)
        self._connect_supervisor(m)
        return m

    def _connect_control(self, m):
        registers, supervisor, sequencer = self.registers, self.supervisor, self.sequencer
        wiring.connect(m, wiring.flipped(self.control), registers.bus)
        m.d.comb += [
            self.interrupt.eq(registers.interrupt),
            supervisor.watchdog.eq(registers.watchdog),
            registers.busy.eq(supervisor.busy),
            registers.done.eq(supervisor.done),
            registers.error.eq(supervisor.error),
            registers.passes_landed.eq(supervisor.passes_landed),
            sequencer.start.eq(supervisor.begin),
            sequencer.first.eq(registers.descriptor),
        ]
        m.d.sync += [
            supervisor.start.eq(registers.start),
            supervisor.reset.eq(registers.reset),
        ]
        for register, counter in zip(registers.counters, supervisor.counters, strict=True):
            m.d.comb += register.eq(counter)
        wiring.connect(m, sequencer.features, self.features.i)
        wiring.connect(m, sequencer.weights, self.weights.i)
        wiring.connect(m, sequencer.window, self.window.i)
        wiring.connect(m, sequencer.issue, self.issuer.i)
        wiring.connect(m, sequencer.post, self.post.i)
        wiring.connect(m, sequencer.second, self.second.i)
        wiring.connect(m, sequencer.output, self.writer.i)

    def _connect_readers(self, m):
        port = self.read_port
        clients = {
            Unit.SEQUENCER: self.sequencer,
            Unit.FEATURES: self.features,
            Unit.SECOND: self.second,
            Unit.WEIGHTS: self.weights,
        }
        for unit, client in clients.items():
            wiring.connect(m, client.request, port.requests[unit])
            wiring.connect(m, port.answers[unit], client.answer)
        self._connect_memory(m, port.axi, ("ar", "r"))
        m.d.comb += [
            port.base.eq(self.registers.base),
            port.limit.eq(self.registers.limit),
            self.features.landed.eq(self.supervisor.passes_landed),
            self.features.starving.eq(self.issuer.stall.features),
            self.features.on_the_way.eq(port.on_the_way[Unit.FEATURES]),
            self.second.landed.eq(self.supervisor.passes_landed),
            self.second.starving.eq(self.issuer.stall.output),
            self.second.on_the_way.eq(port.on_the_way[Unit.SECOND]),
            self.weights.active.eq(self.issuer.active),
            self.weights.release.eq(self.post.release),
            self.weights.table_release.eq(self.post.table_release),
        ]
        # The readers are far from the array.
        m.d.sync += [
            self.features.release.eq(self.issuer.release),
            self.features.release_valid.eq(self.issuer.release_valid),
        ]

    def _connect_memory(self, m, axi, channels):
        """Connect some channels of the bus to the port that drives them."""
        for name, member in self.memory.signature.members.items():
            if name.startswith(channels):
                outer, inner = getattr(self.memory, name), getattr(axi, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)

    def _connect_array(self, m):
        wiring.connect(m, self.window.o, self.pixels.i)
        wiring.connect(m, self.pixels.o, self.issuer.pixels)
        wiring.connect(m, self.second.o, self.post.second)
        m.d.comb += [
            self.issuer.rows_loaded.eq(self.features.rows_loaded),
            self.issuer.words_loaded.eq(self.features.words_loaded),
            self.issuer.groups_loaded.eq(self.weights.groups_loaded),
            self.issuer.room.eq(self.post.room),
            self.line_buffer.write.eq(self.features.write),
            self.line_buffer.write_valid.eq(self.features.write_valid),
            self.line_buffer.read.eq(self.issuer.read),
            self.activation.run.eq(self.line_buffer.run),
            self.activation.mask.eq(self.issuer.mask),
            self.array.weight.eq(self.weights.weight),
            self.array.weight_valid.eq(self.weights.weight_valid),
            self.array.tap.eq(self.issuer.tap),
            self.array.activations.eq(self.activation.o),
            self.post.constant.eq(self.weights.constant),
            self.post.constant_valid.eq(self.weights.constant_valid),
            self.post.table.eq(self.weights.table),
            self.post.table_valid.eq(self.weights.table_valid),
            self.post.tag.eq(self.issuer.tag),
            self.post.tag_there.eq(self.issuer.tag_there),
            self.post.tag_valid.eq(self.issuer.tag_valid),
            self.post.sums.eq(self.array.sums),
            self.post.done.eq(self.array.done),
        ]

    def _connect_writer(self, m):
        port = self.write_port
        wiring.connect(m, self.post.o, self.writer.outputs)
        wiring.connect(m, self.writer.request, port.request)
        wiring.connect(m, self.writer.beats, port.beats)
        self._connect_memory(m, port.axi, ("aw", "w", "b"))
        m.d.comb += [
            port.base.eq(self.registers.base),
            port.limit.eq(self.registers.limit),
        ]

    def _connect_supervisor(self, m):
        supervisor, memory = self.supervisor, self.memory
        read_port, write_port = self.read_port, self.write_port
        read_beat = memory.rvalid & memory.rready
        write_beat = memory.wvalid & memory.wready
        m.d.comb += [
            supervisor.finished.eq(self.sequencer.finished),
            supervisor.passes.eq(self.sequencer.passes),
            supervisor.bad.eq(self.sequencer.bad),
            supervisor.read_error.eq(read_port.error),
            supervisor.read_error_valid.eq(read_port.error_valid),
            supervisor.write_error.eq(write_port.error),
            supervisor.write_error_valid.eq(write_port.error_valid),
            supervisor.landed.eq(write_port.landed),
            supervisor.read_beat.eq(read_beat),
            supervisor.write_beat.eq(write_beat),
            supervisor.issued.eq(self.issuer.issued),
            supervisor.stall.eq(self.issuer.stall),
            supervisor.dependency.eq(
                Mux(self.issuer.stall.output, self.second.waits, self.features.waits)
            ),
            supervisor.waits_read.eq(read_port.waits),
            supervisor.head.eq(read_port.head),
            supervisor.head_index.eq(read_port.head_index),
            supervisor.waits_write.eq(~write_port.idle),
            supervisor.oldest.eq(write_port.oldest),
            supervisor.active.eq(self.issuer.active),
        ]
        # Hints to the watchdog, and the end of a run, whose ports have been stopped for a cycle.
        m.d.sync += [
            supervisor.handshake.eq(
                read_beat
                | write_beat
                | (memory.arvalid & memory.arready)
                | (memory.awvalid & memory.awready)
                | (memory.bvalid & memory.bready)
            ),
            supervisor.ports_idle.eq(read_port.stop & read_port.idle & write_port.idle),
        ]

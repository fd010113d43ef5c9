"""Line buffer and array alone, behind few pins, to see how fast they can be clocked."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..activation import Activation
from ..config import Config
from ..line_buffer import LineBuffer
from ..mac_array import MacArray

__all__ = ["Datapath"]


class Datapath(wiring.Component):
    """Line buffer, activations and MAC array; all other ports hang on a shift register.

    Every input comes from a register that is loaded from a long shift register, and every output
    goes into one, so that paths begin and end at registers as they do in the whole core. If inputs
    came from the shift register itself, each bit would be its neighbour of the cycle before, and
    Yosys would merge it with registers of the array that delay that neighbour: one register would
    serve all columns.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(1), o : Out(1)
        Ends of the shift registers.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__({"i": In(1), "o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.line_buffer = line_buffer = LineBuffer(config=self._config)
        m.submodules.activation = activation = Activation(config=self._config)
        m.submodules.array = array = MacArray(config=self._config)
        m.d.comb += [
            activation.run.eq(line_buffer.run),
            array.activations.eq(activation.o),
        ]
        inputs = Cat(
            line_buffer.write,
            line_buffer.write_valid,
            line_buffer.read,
            activation.mask,
            array.weight,
            array.weight_valid,
            array.tap,
        )
        outputs = Cat(array.sums, array.done)
        load = Signal(range(max(len(inputs), len(outputs))))
        shift_in, held = (
            Signal(len(inputs), name=n, reset_less=True) for n in ("shift_in", "held")
        )
        sample = Signal(len(outputs), reset_less=True)
        m.d.sync += [load.eq(load + 1), shift_in.eq(Cat(self.i, shift_in))]
        m.d.comb += inputs.eq(held)
        with m.If(load == 0):
            m.d.sync += [held.eq(shift_in), sample.eq(outputs)]
        with m.Else():
            m.d.sync += sample.eq(sample >> 1)
        m.d.comb += self.o.eq(sample[0])
        return m

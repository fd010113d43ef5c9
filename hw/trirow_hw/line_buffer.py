"""The line buffer: three banks of rows, each read from any byte offset in one cycle."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .feature_reader import LineWrite
from .modular import wrap_add

__all__ = ["LineBuffer", "LineRead"]


def LineRead(config: Config):
    """Return the layout of a run to be read: bank, word and byte of its first byte."""
    return data.StructLayout(
        {"bank": 2, "word": range(config.line_bank_words), "byte": range(config.in_lanes)}
    )


class LineBuffer(wiring.Component):
    """Three banks; a bank holds its even words in one memory and its odd words in another.

    A run of ``in_lanes`` bytes lies in two adjacent words, so in both memories of a bank; a
    rotation brings its first byte to the front. Every bank has a read port of its own.

    A run a cycle, ``latency`` cycles, no back-pressure. What is written in one cycle can be read in
    the next.

    Parameters
    ----------
    config : Config

    Members
    -------
    write : In(LineWrite), write_valid : In(1)
    read : In(LineRead)
    run : Out(8 * in_lanes)
        The bytes from ``read.byte`` of ``read.word`` on.
    """

    #: Cycles from ``read`` to ``run``: address, memory, its output register, bank, rotation (2).
    latency = 6

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "write": In(LineWrite(config)),
                "write_valid": In(1),
                "read": In(LineRead(config)),
                "run": Out(8 * config.in_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        depth, bits = config.line_bank_words, 8 * config.in_lanes

        # Address: the run starts in the even or in the odd memory and goes on in the other one.
        odd = self.read.word[0]
        after = wrap_add(self.read.word, 1, depth)
        a_odd_word = Signal(range(depth // 2), reset_less=True)
        a_even_word = Signal(range(depth // 2), reset_less=True)
        m.d.sync += [
            a_odd_word.eq(self.read.word >> 1),
            a_even_word.eq(Mux(odd, after, self.read.word) >> 1),
        ]
        controls = [Cat(self.read.bank, odd, self.read.byte)]
        for stage in ("a", "m", "r", "b", "t"):
            delayed = Signal(len(controls[0]), name=f"{stage}_control", reset_less=True)
            m.d.sync += delayed.eq(controls[-1])
            controls.append(delayed)
        layout = data.StructLayout({"bank": 2, "odd": 1, "byte": range(config.in_lanes)})
        r_control, b_control, t_control = (data.View(layout, c) for c in controls[3:])

        # Memory, and the register behind it.
        r_pairs = []
        for bank in range(BANKS):
            for parity, address in (("even", a_even_word), ("odd", a_odd_word)):
                store = memory.Memory(shape=bits, depth=depth // 2, init=[])
                m.submodules[f"bank{bank}_{parity}"] = store
                write, read = store.write_port(), store.read_port()
                here = (self.write.bank == bank) & (self.write.word[0] == (parity == "odd"))
                r_word = Signal(bits, name=f"r_bank{bank}_{parity}", reset_less=True)
                m.d.comb += [
                    write.addr.eq(self.write.word >> 1),
                    write.data.eq(self.write.data),
                    write.en.eq(self.write_valid & here),
                    read.addr.eq(address),
                    read.en.eq(1),
                ]
                m.d.sync += r_word.eq(read.data)
                r_pairs.append(r_word)

        # Bank, and which of its two words comes first.
        even, odd_word = Signal(bits), Signal(bits)
        b_pair = Signal(2 * bits, reset_less=True)
        m.d.comb += [
            even.eq(Array(r_pairs[0::2])[r_control.bank]),
            odd_word.eq(Array(r_pairs[1::2])[r_control.bank]),
        ]
        m.d.sync += b_pair.eq(Mux(r_control.odd, Cat(odd_word, even), Cat(even, odd_word)))

        # Rotation: coarse, then fine.
        fine_bits = len(b_control.byte) // 2
        t_pair = Signal(2 * bits, reset_less=True)
        m.d.sync += [
            t_pair.eq(b_pair >> (b_control.byte >> fine_bits << (3 + fine_bits))),
            self.run.eq(t_pair >> (t_control.byte[:fine_bits] << 3)),
        ]
        return m

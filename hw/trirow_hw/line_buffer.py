"""The line buffer: three banks of rows, each read from any byte offset in one cycle."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockMemory
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
        # Each bank has registers of its own, near to it.
        odd = self.read.word[0]
        odd_word, even_word = self.read.word >> 1, Signal(range(depth // 2))
        m.d.comb += even_word.eq(Mux(odd, wrap_add(self.read.word, 1, depth), self.read.word) >> 1)
        controls = [Cat(self.read.bank, odd, self.read.byte)]
        for stage in ("a", "m", "r", "b", "t"):
            delayed = Signal(len(controls[0]), name=f"{stage}_control", reset_less=True)
            m.d.sync += delayed.eq(controls[-1])
            controls.append(delayed)
        layout = data.StructLayout({"bank": 2, "odd": 1, "byte": range(config.in_lanes)})
        r_control, b_control, t_control = (data.View(layout, c) for c in controls[3:])

        r_pairs = []
        for bank in range(BANKS):
            for parity, word in (("even", even_word), ("odd", odd_word)):
                address = Signal(range(depth // 2), name=f"a_{parity}{bank}", reset_less=True)
                with m.If(self.read.bank == bank):
                    m.d.sync += address.eq(word)
                store = BlockMemory(bits=bits, depth=depth // 2)
                m.submodules[f"bank{bank}_{parity}"] = store
                here = (self.write.bank == bank) & (self.write.word[0] == (parity == "odd"))
                m.d.comb += [
                    store.write_address.eq(self.write.word >> 1),
                    store.write_data.eq(self.write.data),
                    store.write_enable.eq(self.write_valid & here),
                    store.read_address.eq(address),
                ]
                r_pairs.append(store.read_data)

        # Bank, and which of its two words comes first.
        even, odd = Signal(bits), Signal(bits)
        b_pair = Signal(2 * bits, reset_less=True)
        m.d.comb += [
            even.eq(Array(r_pairs[0::2])[r_control.bank]),
            odd.eq(Array(r_pairs[1::2])[r_control.bank]),
        ]
        m.d.sync += b_pair.eq(Mux(r_control.odd, Cat(odd, even), Cat(even, odd)))

        # Rotation: coarse, then fine.
        fine_bits = len(b_control.byte) // 2
        t_pair, run = Signal(2 * bits, reset_less=True), Signal(bits, reset_less=True)
        m.d.comb += self.run.eq(run)
        m.d.sync += [
            t_pair.eq(b_pair >> (b_control.byte >> fine_bits << (3 + fine_bits))),
            run.eq(t_pair >> (t_control.byte[:fine_bits] << 3)),
        ]
        return m

"""The line buffer: three banks of rows, all read from any byte offset in one cycle."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockMemory
from .config import BANKS, Config
from .delay import delay
from .feature_reader import LineWrite
from .modular import wrap_add

__all__ = ["LineBuffer", "LineRead"]


def LineRead(config: Config):
    """Return the layout of runs to be read, one from each bank.

    ``words``: word of the first byte in each bank; ``byte``: byte in that word, the same in all;
    ``bank``: the bank whose run comes first.
    """
    words = data.ArrayLayout(range(config.line_bank_words), BANKS)
    return data.StructLayout({"bank": 2, "words": words, "byte": range(config.in_lanes)})


class LineBuffer(wiring.Component):
    """Three banks; a bank holds its even words in one memory and its odd words in another.

    All banks are read at once, each at its own word. A run of ``in_lanes`` bytes lies in two
    adjacent words, so in both memories of its bank: each place of a word comes from one of the two.
    The runs are then put in order, and a rotation brings their first bytes to the front.

    ``tap_rows`` runs a cycle, ``latency`` cycles, no back-pressure. What is written in one cycle
    can be read in the next.

    Parameters
    ----------
    config : Config

    Members
    -------
    write : In(LineWrite), write_valid : In(1)
    read : In(LineRead)
    run : Out(ArrayLayout(8 * in_lanes, tap_rows))
        ``run[p]``: the bytes from ``read.byte`` of ``read.words[b]`` on in bank
        ``b = (read.bank + p) mod 3``. Behind the last word of a bank comes its first.
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
                "run": Out(data.ArrayLayout(8 * config.in_lanes, config.tap_rows)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bits = 8 * config.in_lanes
        byte, bank = self.read.byte, self.read.bank
        for stage in ("a", "m"):
            byte = delay(m, byte, 1, name=f"{stage}_byte")
            bank = delay(m, bank, 1, name=f"{stage}_bank")

        merged = [self._elaborate_bank(m, b, byte) for b in range(BANKS)]
        r_byte = delay(m, byte, 1, name="r_byte")
        b_byte = delay(m, r_byte, 1, name="b_byte")
        t_byte = delay(m, b_byte, 1, name="t_byte")
        fine_bits = len(byte) // 2
        for p in range(config.tap_rows):
            # Each run has a register of its own that says where it comes from.
            r_source = Signal(range(BANKS), name=f"r_source{p}", reset_less=True)
            b_run = Signal(bits, name=f"b_run{p}", reset_less=True)
            t_run = Signal(bits, name=f"t_run{p}", reset_less=True)
            run = Signal(bits, name=f"run{p}", reset_less=True)
            m.d.sync += [
                r_source.eq(wrap_add(bank, p, BANKS)),
                b_run.eq(Array(merged)[r_source]),
                t_run.eq(_rotate(b_run, b_byte, range(fine_bits, len(byte)))),
                run.eq(_rotate(t_run, t_byte, range(fine_bits))),
            ]
            m.d.comb += self.run[p].eq(run)
        return m

    def _elaborate_bank(self, m, bank, m_byte):
        """Memories of one bank; return its run, still rotated, in the cycle of their outputs.

        Byte ``k`` of the run is at place ``(byte + k) mod in_lanes`` of what is returned.
        """
        config = self._config
        depth, bits = config.line_bank_words, 8 * config.in_lanes

        # The run starts in the even or in the odd memory and goes on in the other one. Each bank
        # has registers of its own, near to it.
        word = self.read.words[bank]
        odd, pair = word[0], word >> 1
        at_end = odd & (pair == depth // 2 - 1)
        places = {"even": Mux(at_end, 0, pair + odd), "odd": pair}
        outputs = []
        for parity, place in places.items():
            address = Signal(range(depth // 2), name=f"a_{parity}{bank}", reset_less=True)
            m.submodules[f"bank{bank}_{parity}"] = store = BlockMemory(bits=bits, depth=depth // 2)
            here = (self.write.bank == bank) & (self.write.word[0] == (parity == "odd"))
            m.d.sync += address.eq(place)
            m.d.comb += [
                store.write_address.eq(self.write.word >> 1),
                store.write_data.eq(self.write.data),
                store.write_enable.eq(self.write_valid & here),
                store.read_address.eq(address),
            ]
            outputs.append(store.read_data)

        # From `byte` on a place belongs to the first word of the run, before it to the second.
        m_odd = delay(m, odd, 2, name=f"odd{bank}")
        r_from_odd = Signal(config.in_lanes, name=f"r_from_odd{bank}", reset_less=True)
        m.d.sync += r_from_odd.eq(Cat((m_byte <= k) == m_odd for k in range(config.in_lanes)))
        merged = Signal(bits, name=f"merged{bank}")
        even_data, odd_data = outputs
        for k in range(config.in_lanes):
            choice = Mux(r_from_odd[k], odd_data.word_select(k, 8), even_data.word_select(k, 8))
            m.d.comb += merged.word_select(k, 8).eq(choice)
        return merged


def _rotate(value: Value, count: Value, places: range) -> Value:
    """Rotate bytes to the front, as many as the bits of ``count`` in ``places`` say."""
    for k in places:
        value = Mux(count[k], value.rotate_right(8 << k), value)
    return value

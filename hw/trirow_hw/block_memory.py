"""A memory in block RAM, and a queue, with the register that its slow output needs."""

from __future__ import annotations

from pathlib import Path

from amaranth.hdl import ClockSignal, Instance, Module, Signal, Value
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .multiplier import is_ecp5

__all__ = ["BLOCK_MEMORY_CELL", "BLOCK_MEMORY_SOURCE", "BlockMemory", "BlockQueue"]

#: Name of the memory as a module of Verilog, and its source.
BLOCK_MEMORY_CELL = "trirow_block_memory"
BLOCK_MEMORY_SOURCE = Path(__file__).with_suffix(".v")


class BlockMemory(wiring.Component):
    """One write port, one read port, contents undefined at first.

    Read latency ``latency`` cycles, throughput a read and a write a cycle. A read sees what was
    written in earlier cycles; one that meets a write to its word must not be used. Yosys is told
    so (``no_rw_check``), else it would put a multiplexer between the memory and its register.

    On ECP5 it is built of slices so narrow that a block RAM is as deep as the memory (Lattice
    FPGA-TN-02204, ECP5 Memory Usage Guide: 512 x 36 bits to 8192 x 2 bits): a memory of several
    blocks in depth would need a multiplexer between its output and the register, and that is the
    slowest place of the whole core. A platform with an attribute ``block_memory_cell`` gets an
    instance of a cell of that name instead; compiled simulation does so.

    Parameters
    ----------
    bits : int
        Width.
    depth : int
        Words.

    Members
    -------
    write_address : In, write_data : In(bits), write_enable : In(1)
    read_address : In
    read_data : Out(bits)
    """

    #: Cycles from ``read_address`` to ``read_data``: the memory and its register.
    latency = 2

    def __init__(self, *, bits: int, depth: int):
        self._bits = bits
        self._depth = depth
        super().__init__(
            {
                "write_address": In(range(depth)),
                "write_data": In(bits),
                "write_enable": In(1),
                "read_address": In(range(depth)),
                "read_data": Out(bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cell = getattr(platform, "block_memory_cell", None)
        if cell is not None:
            m.submodules += Instance(
                cell,
                p_BITS=self._bits,
                p_DEPTH=self._depth,
                p_ADDRESS_BITS=len(self.read_address),
                i_clk=ClockSignal(),
                i_write_address=self.write_address,
                i_write_data=self.write_data,
                i_write_enable=self.write_enable,
                i_read_address=self.read_address,
                o_read_data=self.read_data,
            )
            return m
        width = self._bits
        if is_ecp5(platform):
            depths = [(512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2)]
            width = next((bits for deepest, bits in depths if self._depth <= deepest), 1)
        register = Signal(self._bits, reset_less=True)
        for low in range(0, self._bits, width):
            part = slice(low, min(low + width, self._bits))
            store = memory.Memory(
                shape=part.stop - part.start,
                depth=self._depth,
                init=[],
                attrs={"no_rw_check": True},
            )
            m.submodules += store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(self.write_address),
                write.data.eq(self.write_data[part]),
                write.en.eq(self.write_enable),
                read.addr.eq(self.read_address),
            ]
            # Yosys makes this register the memory's own, and only then heeds the attribute.
            data = Signal(part.stop - part.start, reset_less=True)
            m.d.sync += [data.eq(read.data), register[part].eq(data)]
        m.d.comb += self.read_data.eq(register)
        return m


class BlockQueue(wiring.Component):
    """Queue in block RAM, whose output and ``i.ready`` come from registers.

    Latency 3 cycles, throughput 1 a cycle, full back-pressure. No word is read in the cycle in
    which it is written, so the memory needs no logic around it. Synthesis may take LUT RAM where
    it is small.

    Parameters
    ----------
    shape : ShapeLike
        Payload.
    depth : int
        Places, a power of two from 4 on. Two of them are the registers behind the memory.

    Raises
    ------
    ValueError
        If the depth is another.

    Members
    -------
    i : In(stream.Signature(shape))
    o : Out(stream.Signature(shape))
    """

    def __init__(self, shape, *, depth: int):
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two from 4 on, not {depth!r}")
        self._depth = depth
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        payload = Value.cast(self.i.payload)
        m.submodules.store = store = memory.Memory(
            shape=len(payload), depth=self._depth, init=[], attrs={"no_rw_check": True}
        )
        write, read = store.write_port(), store.read_port(domain="comb")
        fetched = Signal(len(payload), reset_less=True)
        fetched_valid, fetches, moves = Signal(), Signal(), Signal()
        m.d.comb += [
            write.data.eq(payload),
            write.en.eq(self.i.valid & self.i.ready),
            moves.eq(~self.o.valid | self.o.ready),
        ]
        self._elaborate_places(m, write, read, fetches, ~fetched_valid | moves)
        with m.If(fetches):
            m.d.sync += fetched.eq(read.data)
        m.d.sync += fetched_valid.eq(fetches | (fetched_valid & ~moves))
        with m.If(moves):
            m.d.sync += self.o.valid.eq(fetched_valid)
        with m.If(moves & fetched_valid):
            m.d.sync += Value.cast(self.o.payload).eq(fetched)
        return m

    def _elaborate_places(self, m, write, read, fetches, wanted):
        """Go through the places; fetch a word that is ``wanted`` if there is one."""
        write_place, read_place = Signal.like(write.addr), Signal.like(read.addr)
        # The place behind the one that is read, and that of the third word from here on.
        read_next, write_ahead = Signal.like(read.addr, init=1), Signal.like(write.addr, init=3)
        full, filled = Signal(), Signal()
        m.d.comb += [
            write.addr.eq(write_place),
            read.addr.eq(read_place),
            self.i.ready.eq(~full),
            fetches.eq(filled & wanted),
        ]
        m.d.sync += [
            filled.eq(write.en | (filled & ~(fetches & (read_next == write_place)))),
            full.eq(~fetches & (full | (write.en & (write_ahead == read_place)))),
        ]
        with m.If(write.en):
            m.d.sync += [write_place.eq(write_place + 1), write_ahead.eq(write_ahead + 1)]
        with m.If(fetches):
            m.d.sync += [read_place.eq(read_next), read_next.eq(read_next + 1)]

"""A memory in block RAM with the register that its slow output needs."""

from __future__ import annotations

from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from .multiplier import is_ecp5

__all__ = ["BlockMemory"]


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

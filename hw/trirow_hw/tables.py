"""Lookup memories behind the array: constants of the channels, tables of the int8 values."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .block_memory import BlockMemory
from .config import CONSTANT_GROUPS, TABLE_ENTRIES, TABLE_ENTRY_BYTES, WIDE_CONSTANT_BYTES, Config
from .weight_reader import ConstantWrite, TableWrite

__all__ = ["TABLE_PLACES", "Constants", "Tables"]

#: Places for tables on chip: a chunk's are in use while those of the next one arrive.
TABLE_PLACES = 2

#: Constants of a channel as they are in memory.
_Constant = data.StructLayout({"bias": signed(32), "scale": 32, "second": 32})


class Constants(wiring.Component):
    """Constants of the channels: a memory for each lane of a column.

    Latency ``latency`` cycles. Throughput a column and a write a cycle. What is written can be
    read from the next cycle on.

    Parameters
    ----------
    config : Config

    Members
    -------
    constant : In(ConstantWrite), constant_valid : In(1)
    group, column : In
        Place of a lane group, and the column of it to be read.
    o : Out(ArrayLayout(StructLayout({"bias": signed(32), "scale": 32, "second": 32}), post_lanes))
        Constants of its lanes.
    """

    latency = BlockMemory.latency

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "constant": In(ConstantWrite(config)),
                "constant_valid": In(1),
                "group": In(range(CONSTANT_GROUPS)),
                "column": In(range(config.stages)),
                "o": Out(data.ArrayLayout(_Constant, config.post_lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self._config.post_lanes
        column_bits = len(self.column)
        lanes = range(self._config.out_lanes)
        column = Array(C(lane // width, column_bits) for lane in lanes)[self.constant.lane]
        lane = Array(C(lane % width, width.bit_length()) for lane in lanes)[self.constant.lane]
        for k in range(width):
            m.submodules[f"lane{k}"] = store = BlockMemory(
                bits=8 * WIDE_CONSTANT_BYTES, depth=CONSTANT_GROUPS << column_bits
            )
            m.d.comb += [
                store.write_address.eq(Cat(column, self.constant.group)),
                store.write_data.eq(self.constant.data),
                store.write_enable.eq(self.constant_valid & (lane == k)),
                store.read_address.eq(Cat(self.column, self.group)),
                self.o[k].eq(store.read_data),
            ]
        return m


class Tables(wiring.Component):
    """Tables of the int8 values: for each lane of a column a copy of its own.

    Latency ``latency`` cycles. Throughput a column and a write a cycle. What is written can be
    read from the next cycle on. Without mode ``fixed`` no feature maps are combined: then there is
    no second table, and of the first only the low byte of each entry.

    Parameters
    ----------
    config : Config

    Members
    -------
    table : In(TableWrite), table_valid : In(1)
    place : In(1)
        Which of the two places is read.
    first, second : In(ArrayLayout(8, post_lanes))
        Values that are looked up in either table, in two's complement.
    o_first, o_second : Out(ArrayLayout(signed(32), post_lanes))
        Their entries; zero where there is no such table.
    """

    latency = BlockMemory.latency

    def __init__(self, *, config: Config):
        self._config = config
        values = data.ArrayLayout(8, config.post_lanes)
        entries = data.ArrayLayout(signed(8 * TABLE_ENTRY_BYTES), config.post_lanes)
        super().__init__(
            {
                "table": In(TableWrite),
                "table_valid": In(1),
                "place": In(1),
                "first": In(values),
                "second": In(values),
                "o_first": Out(entries),
                "o_second": Out(entries),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tables = [("first", self.first, self.o_first), ("second", self.second, self.o_second)]
        bits = 8 * TABLE_ENTRY_BYTES
        if "fixed" not in self._config.requantise_modes:
            tables, bits = tables[:1], 8
        for number, (name, values, entries) in enumerate(tables):
            for k in range(self._config.post_lanes):
                m.submodules[f"{name}{k}"] = store = BlockMemory(
                    bits=bits, depth=TABLE_PLACES * TABLE_ENTRIES
                )
                m.d.comb += [
                    store.write_address.eq(Cat(self.table.entry, self.table.place)),
                    store.write_data.eq(self.table.data),
                    store.write_enable.eq(self.table_valid & (self.table.second == number)),
                    store.read_address.eq(Cat(values[k], self.place)),
                    entries[k].eq(store.read_data),
                ]
        return m

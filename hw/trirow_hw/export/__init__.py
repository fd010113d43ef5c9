"""The core for other people's designs: plain Verilog, register map, C header, LiteX module."""

from .register_header import register_header
from .register_table import register_table
from .verilog import TOP, core_verilog

__all__ = ["TOP", "core_verilog", "register_header", "register_table"]

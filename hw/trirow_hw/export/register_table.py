"""The register map as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..config import Config
from ..registers import ADDRESS_BITS, REGISTERS
from .register_values import BITS, ERROR_MEANINGS, UNIT_MEANINGS, describe, reset_values

__all__ = ["register_table"]


def register_table(config: Config) -> str:
    """Return the register map of a configuration as a page of Markdown."""
    values = reset_values(config)
    registers = [
        (f"0x{r.offset:02X}", f"`{name}`", r.access, f"0x{values[name]:08X}", r.meaning)
        for name, r in sorted(REGISTERS.items(), key=lambda item: item[1].offset)
    ]
    bits = [
        (f"`{register}`", str(bit), f"`{name}`")
        for register, positions in BITS.items()
        for name, bit in positions.items()
    ]
    errors = [(str(code.value), code.name, text) for code, text in ERROR_MEANINGS.items()]
    units = [(str(unit.value), unit.name, text) for unit, text in UNIT_MEANINGS.items()]
    return "\n".join(
        [
            "# Registers of Trirow",
            "",
            f"Configuration {describe(config)}.",
            "",
            f"AXI4-Lite, 32-bit registers, {ADDRESS_BITS}-bit byte addresses, little-endian.",
            "Reads of other offsets give 0; writes to them or to read-only registers do nothing.",
            "",
            *_table(("offset", "name", "access", "after reset", "meaning"), registers),
            "",
            "## Bits",
            "",
            *_table(("register", "bit", "name"), bits),
            "",
            "## Error codes",
            "",
            "In bits 7:0 of `error`.",
            "",
            *_table(("code", "name", "meaning"), errors),
            "",
            "## Units",
            "",
            "In bits 15:8 of `error`: where it happened. Bits 31:16 are the index of the pass.",
            "",
            *_table(("unit", "name", "what it reads, writes or does"), units),
            "",
        ]
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]

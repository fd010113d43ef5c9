"""The register map as a C header."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from ..config import Config
from ..errors import ErrorCode, Unit
from ..registers import REGISTERS
from ..supervisor import COUNTERS
from .register_values import BITS, describe, reset_values

__all__ = ["register_header"]


def register_header(config: Config) -> str:
    """Return the register map of a configuration as a C header.

    It defines ``TRIROW_REG_<NAME>``, byte offsets; ``TRIROW_RESET_<NAME>``, values after reset,
    of which those of read-only parameters tell the configuration; ``TRIROW_<REGISTER>_<BIT>``,
    masks; and ``TRIROW_ERRORS``, ``TRIROW_UNITS`` and ``TRIROW_COUNTERS``, lists for a macro that
    is applied to each name and number.
    """
    values = reset_values(config)
    lines = [
        "/* Registers of Trirow. Generated: do not edit. Configuration:",
        f" * {describe(config)} */",
        "#ifndef TRIROW_REGISTERS_H",
        "#define TRIROW_REGISTERS_H",
        "",
        "#include <stdint.h>",
        "",
        "/* Byte offsets. */",
    ]
    for name, register in REGISTERS.items():
        text = f"{register.access}: {register.meaning}"
        lines += [f"/* {text} */", _define(f"REG_{name}", register.offset, 2)]
    lines += ["", "/* Values after reset. */"]
    lines += [_define(f"RESET_{name}", value, 8) for name, value in values.items()]
    lines += ["", "/* Masks of bits. */"]
    lines += [
        _define(f"{register}_{name}", 1 << bit, 8)
        for register, positions in BITS.items()
        for name, bit in positions.items()
    ]
    lines += ["", "/* X(NAME, number): bits 7:0 of `error`. */", *_list("ERRORS", _enum(ErrorCode))]
    lines += ["", "/* X(NAME, number): bits 15:8 of `error`. */", *_list("UNITS", _enum(Unit))]
    counters = [(name, f"TRIROW_REG_{name.upper()}") for name in COUNTERS]
    lines += ["", "/* X(name, offset): counters of the last run. */", *_list("COUNTERS", counters)]
    return "\n".join([*lines, "", "#endif", ""])


def _define(name: str, value: int, digits: int) -> str:
    return f"#define TRIROW_{name.upper()} UINT32_C(0x{value:0{digits}X})"


def _enum(kind: type[IntEnum]) -> list[tuple[str, str]]:
    return [(member.name, str(member.value)) for member in kind]


def _list(name: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"#define TRIROW_{name}(X)", *(f"    X({key}, {value})" for key, value in entries)]
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]

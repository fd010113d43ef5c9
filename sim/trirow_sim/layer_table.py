"""Read a table of layers from a CSV file."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import trirow_golden

__all__ = ["COLUMNS", "Row", "read_rows"]

#: Columns that are read; a file may have more.
COLUMNS = (
    "net",
    "layer",
    "op",
    *("in_c", "in_h", "in_w", "out_c", "out_h", "out_w"),
    *("kh", "kw", "stride", "pad", "dilation", "group"),
)

_NUMBERS = tuple(name for name in COLUMNS[3:] if name != "pad")


@dataclass(frozen=True)
class Row:
    """One layer of a table.

    Parameters
    ----------
    index, line : int
        Which of the rows it is, from 0 on, and which line of the file, from 1 on.
    net, layer, op : str
        Names of network, layer and operation.
    in_shape, out_shape : (int, int, int)
        Feature map and output (H, W, C); zeros where the operation is not supported.
    kernel, stride : (int, int)
        Rows and columns.
    pad : (int, int, int, int)
        Padding (top, left, bottom, right).
    dilation, groups : int
    unsupported : str
        Why Trirow cannot compute such a layer; empty if it can.
    """

    index: int
    line: int
    net: str
    layer: str
    op: str
    in_shape: tuple[int, int, int] = (0, 0, 0)
    out_shape: tuple[int, int, int] = (0, 0, 0)
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: int = 1
    groups: int = 1
    unsupported: str = ""

    @property
    def macs(self) -> int:
        """Multiplications, also those that take padding."""
        height, width, channels = self.out_shape
        taps = self.kernel[0] * self.kernel[1] * self.in_shape[2] // self.groups
        return height * width * channels * taps


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Read a table of layers: CSV, with the names of the columns in its first line.

    Padding is a number for all sides, or ``SAME``: then the output has the size of the input
    divided by the stride, rounded up, and the odd one goes to the bottom and the right. Of rows
    whose operation is not ``conv``, only the names are read.

    Parameters
    ----------
    path : path
        The file. `COLUMNS` are the columns that it must have.

    Raises
    ------
    ValueError
        If the file cannot be read or is not such a table; the line says file, line and column.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(csv.reader(file, strict=True), path))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: is not a CSV file in UTF-8: {error}") from error
    if not rows:
        raise ValueError(f"{path}: has no rows")
    return rows


def _rows(lines: Any, path: object) -> Iterator[Row]:
    header = [name.strip() for name in next(lines, [])]
    if not header:
        raise ValueError(f"{path}: line 1: must have the names of the columns, but is empty")
    for name in COLUMNS:
        if header.count(name) != 1:
            problem = "appears twice" if name in header else "is missing"
            raise ValueError(f"{path}: line 1: column {name!r} {problem}")
    index = 0
    for fields in lines:
        if not any(field.strip() for field in fields):
            continue
        place = f"{path}: line {lines.line_num}"
        if len(fields) != len(header):
            raise ValueError(f"{place}: has {len(fields)} fields, and the header {len(header)}")
        values = {name: field.strip() for name, field in zip(header, fields, strict=True)}
        yield _row(index, lines.line_num, values, place)
        index += 1


def _row(index: int, line: int, values: Mapping[str, str], place: str) -> Row:
    for name in ("net", "layer", "op"):
        if not values[name]:
            raise ValueError(f"{place}, column {name!r}: must not be empty")
    row = Row(index, line, values["net"], values["layer"], values["op"])
    if row.op != "conv":
        return replace(row, unsupported=f"operation {row.op}")
    number = {name: _number(values[name], place, name) for name in _NUMBERS}
    size, kernel = (number["in_h"], number["in_w"]), (number["kh"], number["kw"])
    stride = (number["stride"], number["stride"])
    row = replace(
        row,
        in_shape=(*size, number["in_c"]),
        out_shape=(number["out_h"], number["out_w"], number["out_c"]),
        kernel=kernel,
        stride=stride,
        pad=_pad(values["pad"], size, kernel, stride, number["dilation"], place),
        dilation=number["dilation"],
        groups=number["group"],
    )
    for column in ("in_c", "out_c"):
        if number[column] % row.groups:
            raise ValueError(
                f"{place}, column 'group': {row.groups} does not divide the {number[column]} of "
                f"column {column!r}"
            )
    _check_output(row, place)
    return row


def _number(text: str, place: str, column: str, least: int = 1) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise ValueError(
            f"{place}, column {column!r}: must be an integer of at least {least}, not {text!r}"
        )
    return int(text)


def _pad(
    text: str,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: int,
    place: str,
) -> tuple[int, int, int, int]:
    if text.upper() != "SAME":
        if not text.isdecimal():
            raise ValueError(
                f"{place}, column 'pad': must be an integer of at least 0 or SAME, not {text!r}"
            )
        pad = _number(text, place, "pad", 0)
        return pad, pad, pad, pad
    return trirow_golden.same_padding(size, kernel, stride, (dilation, dilation))


def _check_output(row: Row, place: str) -> None:
    try:
        apart = (row.dilation, row.dilation)
        output = trirow_golden.output_size(row.in_shape[:2], row.kernel, row.stride, row.pad, apart)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    for column, given, wanted in zip(("out_h", "out_w"), row.out_shape, output, strict=False):
        if given != wanted:
            raise ValueError(
                f"{place}, column {column!r}: is {given}, but input, kernel, stride, pad "
                f"and dilation make it {wanted}"
            )

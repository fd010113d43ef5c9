"""The pass descriptor: the one definition that the gateware and the driver share.

A run is a chain of descriptors in memory. One pass convolves one feature map with one chunk of
weights. All counts are worked out by the driver, so that the gateware only adds and compares.

A *word* is ``in_lanes`` bytes. A *run* is the bytes of one kernel row under the window: kernel
columns x channels. A *span* is a stretch of adjacent bytes in memory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from amaranth.hdl import signed, unsigned
from amaranth.lib import data

__all__ = [
    "CHECK",
    "DESCRIPTOR_BYTES",
    "FIELDS",
    "OP_CONVOLUTION",
    "VERSION",
    "Descriptor",
    "pack_descriptor",
    "unpack_descriptor",
]

#: Version of the layout; another one is refused by the sequencer.
VERSION = 1
#: Operation code of a dense convolution, the only one so far.
OP_CONVOLUTION = 1
#: Bytes of a descriptor in memory; the fields fill its beginning, the rest is zero.
DESCRIPTOR_BYTES = 128
#: Exclusive or of all 16-bit units of a valid descriptor.
CHECK = 0x5452

#: Name, shape and meaning of each field, in order of their bits from the lowest up.
FIELDS: list[tuple[str, object, str]] = [
    ("version", unsigned(8), "layout of the descriptor"),
    ("op", unsigned(8), "operation"),
    ("check", unsigned(16), "makes the exclusive or of all 16-bit units CHECK"),
    ("next", unsigned(32), "address of the next descriptor, a multiple of 128"),
    ("last", unsigned(8), "1: the chain ends here"),
    ("wait", unsigned(8), "1: read features only once all earlier outputs have landed"),
    ("kernel_rows", unsigned(8), "R"),
    ("stride_rows", unsigned(8), "stride in y"),
    ("in_address", unsigned(32), "first byte of the feature map that is fetched"),
    ("in_bytes", unsigned(32), "bytes fetched in all"),
    ("in_first", unsigned(32), "bytes of the first span"),
    ("in_span", unsigned(32), "bytes of each further span"),
    ("in_gap", unsigned(32), "bytes between the end of a span and the next"),
    ("rows", unsigned(16), "rows fetched"),
    ("row_words", unsigned(16), "words of a row, the last one may be ragged"),
    ("row_pitch", unsigned(16), "row_words rounded up to even, modulo the words of a bank"),
    ("row_tail", unsigned(8), "bytes in the last word of a row"),
    ("zero_in", signed(8), "zero point of the feature map"),
    ("row_bytes", unsigned(32), "W * C"),
    ("out_rows", unsigned(16), "rows of the output"),
    ("out_columns", unsigned(16), "columns of the output"),
    ("top", signed(16), "minus the padding above"),
    ("in_rows", unsigned(16), "H"),
    ("first_word", signed(16), "floor(-padding_left * C / in_lanes)"),
    ("first_wrapped", unsigned(16), "first_word modulo the words of a bank"),
    ("first_byte", unsigned(8), "-padding_left * C modulo in_lanes"),
    ("step_byte", unsigned(8), "stride_x * C modulo in_lanes"),
    ("step_words", unsigned(16), "stride_x * C // in_lanes"),
    ("run_words", unsigned(16), "words of a run, the last one may be ragged"),
    ("run_tail", unsigned(8), "bytes in the last word of a run"),
    ("last_lanes", unsigned(8), "channels in the last lane group"),
    ("clipped_words", unsigned(16), "run_words * min(padding above, R)"),
    ("group_words", unsigned(16), "run_words * R: words of a lane group in each lane"),
    ("groups", unsigned(16), "lane groups of the chunk"),
    ("step_wrapped", unsigned(16), "step_words modulo the words of a bank"),
    ("weight_address", unsigned(32), "first byte of the chunk"),
    ("weight_bytes", unsigned(32), "bytes of the chunk"),
    ("group_bytes", unsigned(32), "bytes of each lane group but the last"),
    ("out_address", unsigned(32), "first byte of the output"),
    ("out_bytes", unsigned(32), "bytes written in all"),
    ("out_span", unsigned(32), "bytes of each span"),
    ("out_gap", unsigned(32), "bytes between the end of a span and the next"),
    ("zero_out", signed(8), "zero point of the output"),
    ("low", signed(8), "lower clip bound"),
    ("high", signed(8), "upper clip bound"),
    ("reserved", unsigned(8), "0"),
]

#: The descriptor as the gateware sees it.
Descriptor = data.StructLayout({name: shape for name, shape, _ in FIELDS})

assert Descriptor.size <= 8 * DESCRIPTOR_BYTES


def _checksum(raw: bytes) -> int:
    check = 0
    for (unit,) in struct.iter_unpack("<H", raw):
        check ^= unit
    return check


def pack_descriptor(values: Mapping[str, int]) -> bytes:
    """Return the bytes of a descriptor.

    Parameters
    ----------
    values : mapping of str to int
        Every field but ``version``, ``check`` and ``reserved``, which may be left out. A
        ``check`` is replaced by the right one.

    Returns
    -------
    bytes
        ``DESCRIPTOR_BYTES`` bytes, with version and check filled in.

    Raises
    ------
    ValueError
        If a field is unknown, is missing, or does not fit; the text names it and its range.
    """
    filled = {"version": VERSION, "reserved": 0, **values, "check": 0}
    unknown = set(filled) - {name for name, _, _ in FIELDS}
    if unknown:
        raise ValueError(f"unknown descriptor fields: {', '.join(sorted(unknown))}")
    word, position = 0, 0
    for name, shape, meaning in FIELDS:
        if name not in filled:
            raise ValueError(f"descriptor field {name!r} is missing")
        value = int(filled[name])
        low = -(1 << shape.width - 1) if shape.signed else 0
        high = low + (1 << shape.width) - 1
        if not low <= value <= high:
            raise ValueError(
                f"descriptor field {name!r} ({meaning}) must be from {low} to {high}, not {value}"
            )
        word |= (value & ((1 << shape.width) - 1)) << position
        position += shape.width
    raw = word.to_bytes(DESCRIPTOR_BYTES, "little")
    check = _checksum(raw) ^ CHECK
    return raw[:2] + struct.pack("<H", check) + raw[4:]


def unpack_descriptor(raw: bytes) -> dict[str, int]:
    """Return the fields of a descriptor; the inverse of `pack_descriptor`.

    Raises
    ------
    ValueError
        If the size or the check is wrong.
    """
    if len(raw) != DESCRIPTOR_BYTES:
        raise ValueError(f"a descriptor has {DESCRIPTOR_BYTES} bytes, not {len(raw)}")
    if _checksum(raw) != CHECK:
        raise ValueError("the descriptor's check does not match its bytes")
    word, values = int.from_bytes(raw, "little"), {}
    for name, shape, _ in FIELDS:
        value = word & ((1 << shape.width) - 1)
        if shape.signed and value >> shape.width - 1:
            value -= 1 << shape.width
        values[name] = value
        word >>= shape.width
    return values

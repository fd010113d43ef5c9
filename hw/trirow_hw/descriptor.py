"""The pass descriptor: the one definition that the gateware and the driver share.

A run is a chain of descriptors in memory. One pass convolves or pools one feature map, or a part of
it, with one chunk of weights. All counts are worked out by the driver, so that the gateware only
adds and compares.

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
    "OP_DENSE",
    "OP_DEPTHWISE",
    "OP_MAX_POOL",
    "OP_SUM_POOL",
    "VERSION",
    "Descriptor",
    "pack_descriptor",
    "unpack_descriptor",
]

#: Version of the layout; another one is refused by the sequencer.
VERSION = 2
#: Operation codes: each lane a filter over all channels; or each lane a channel, convolved, summed
#: or its largest value taken.
OP_DENSE, OP_DEPTHWISE, OP_SUM_POOL, OP_MAX_POOL = 1, 2, 3, 4
#: Bytes of a descriptor in memory; the fields fill its beginning, the rest is zero.
DESCRIPTOR_BYTES = 256
#: Exclusive or of all 16-bit units of a valid descriptor.
CHECK = 0x5452

#: Name, shape and meaning of each field, in order of their bits from the lowest up.
FIELDS: list[tuple[str, object, str]] = [
    ("version", unsigned(8), "layout of the descriptor"),
    ("op", unsigned(8), "operation"),
    ("check", unsigned(16), "makes the exclusive or of all 16-bit units CHECK"),
    ("next", unsigned(32), "address of the next descriptor, further up, a multiple of 256"),
    ("last", unsigned(8), "1: the chain ends here"),
    ("wait", unsigned(8), "1: read features only once all earlier outputs have landed"),
    ("load_weights", unsigned(8), "1: a chunk of weights of its own; 0: that of the pass before"),
    ("keep_weights", unsigned(8), "1: the next pass uses the same chunk"),
    # Feature map in memory.
    ("in_address", unsigned(32), "first byte of the feature map that is fetched"),
    ("in_bytes", unsigned(32), "bytes fetched in all"),
    ("in_first", unsigned(32), "bytes of the first span"),
    ("in_span", unsigned(32), "bytes of each further span"),
    ("in_gap", unsigned(32), "bytes between the end of a span and the next"),
    ("in_line", unsigned(32), "bytes of the spans of a line"),
    ("in_turn", unsigned(32), "bytes between the end of a line and the next"),
    # Its rows in the line buffer.
    ("rows", unsigned(16), "rows fetched"),
    ("row_words", unsigned(16), "words of a row, the last one may be ragged"),
    ("row_pitch", unsigned(16), "row_words rounded up to even, modulo the words of a bank"),
    ("row_tail", unsigned(8), "bytes in the last word of a row"),
    ("zero_in", signed(8), "zero point of the feature map"),
    ("row_bytes", unsigned(32), "W * C"),
    # Window.
    ("in_rows", unsigned(16), "H"),
    ("in_columns", unsigned(16), "W"),
    ("out_rows", unsigned(16), "rows of the output"),
    ("out_columns", unsigned(16), "columns of the output"),
    ("kernel_rows", unsigned(8), "R"),
    ("kernel_columns", unsigned(8), "S"),
    ("stride_rows", unsigned(8), "stride in y"),
    ("stride_columns", unsigned(8), "stride in x"),
    ("top", signed(16), "minus the padding above"),
    ("first_column", signed(16), "minus the padding on the left"),
    ("first_word", signed(16), "floor(first_column * C / in_lanes)"),
    ("first_wrapped", unsigned(16), "first_word modulo the words of a bank"),
    ("first_byte", unsigned(8), "first_column * C modulo in_lanes"),
    ("step_byte", unsigned(8), "stride_columns * C modulo in_lanes"),
    ("step_words", unsigned(16), "stride_columns * C // in_lanes"),
    ("step_wrapped", unsigned(16), "step_words modulo the words of a bank"),
    ("run_words", unsigned(16), "words of a run, the last one may be ragged"),
    ("run_tail", unsigned(8), "bytes in the last word of a run"),
    ("top_bank", unsigned(8), "top modulo 3"),
    # Taps. A step is a kernel row of a dense convolution, tap_rows kernel rows of another one.
    ("tap_words", unsigned(16), "from one tap of a step to the next: words, modulo a bank"),
    ("step_weights", unsigned(16), "words of weights of a step in each lane, 0 for a pool"),
    ("clipped_words", unsigned(16), "words of weights of the steps above the feature map"),
    ("tap_byte", unsigned(8), "from one tap of a step to the next: bytes, modulo in_lanes"),
    ("columns", unsigned(8), "columns of the array that a lane group takes"),
    ("last_columns", unsigned(8), "columns of the array that the last lane group takes"),
    ("spacing", unsigned(8), "fewest cycles between the ends of two lane groups"),
    # Weights.
    ("wide", unsigned(8), "1: 12 bytes of constants for a channel, 0: 8"),
    ("chunk_tail", unsigned(8), "bytes in the last word of a run of the chunk"),
    ("groups", unsigned(16), "lane groups of the chunk"),
    ("group_lanes", unsigned(8), "channels in each lane group but the last"),
    ("last_lanes", unsigned(8), "channels in the last lane group"),
    ("group_words", unsigned(16), "words of a lane group in each lane"),
    ("chunk_steps", unsigned(16), "runs of weights of a lane group in the chunk"),
    ("chunk_run", unsigned(16), "words of such a run"),
    ("table_bytes", unsigned(16), "bytes of tables in front of the chunk: 0, 1024 or 2048"),
    ("zero_weight", signed(8), "zero point of the weights; 0 where a weight has 8 bits"),
    ("table", unsigned(8), "1: outputs are looked up in the first table"),
    ("weight_address", unsigned(32), "first byte of the chunk"),
    ("weight_bytes", unsigned(32), "bytes of the chunk"),
    ("group_bytes", unsigned(32), "bytes of each lane group but the last"),
    # Output.
    ("out_address", unsigned(32), "first byte of the output"),
    ("out_bytes", unsigned(32), "bytes written in all"),
    ("out_span", unsigned(32), "bytes of each span"),
    ("out_gap", unsigned(32), "bytes between the end of a span and the next"),
    ("out_line", unsigned(32), "bytes of the spans of a line"),
    ("out_turn", unsigned(32), "bytes between the end of a line and the next"),
    # Second operand, a feature map or int32 sums of an earlier pass, and how it is combined.
    ("second_address", unsigned(32), "its first byte"),
    ("second_bytes", unsigned(32), "its bytes in all; 0: there is none"),
    ("second_span", unsigned(32), "bytes of each span"),
    ("second_gap", unsigned(32), "bytes between the end of a span and the next"),
    ("second_line", unsigned(32), "bytes of the spans of a line"),
    ("second_turn", unsigned(32), "bytes between the end of a line and the next"),
    ("second_wait", unsigned(8), "1: read it only once all earlier outputs have landed"),
    ("combine", unsigned(8), "with a second feature map: 0 nothing, 1 sum, 2 maximum"),
    ("sum_left", unsigned(8), "scale of the combination, mode fixed: left shift"),
    ("sum_right", unsigned(8), "right shift"),
    ("sum_mantissa", unsigned(32), "mantissa"),
    ("sum_zero", signed(8), "zero point of the combination"),
    ("sum_low", signed(8), "its lower clip bound"),
    ("sum_high", signed(8), "its upper clip bound"),
    # Behind the array.
    ("partial_in", unsigned(8), "int32 sums in place of the bias, 1: read, 2: kept on chip"),
    ("partial_out", unsigned(8), "1: int32 sums are written, 2: they are kept for the next pass"),
    ("fixed", unsigned(8), "requantisation mode, 1: fixed, 0: float32"),
    ("prelu", unsigned(8), "1: the second scale is that of negative sums"),
    ("zero_out", signed(8), "zero point of the output"),
    ("low", signed(8), "lower clip bound"),
    ("high", signed(8), "upper clip bound"),
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
        Every field but ``version`` and ``check``, which may be left out. A ``check`` is replaced
        by the right one.

    Returns
    -------
    bytes
        ``DESCRIPTOR_BYTES`` bytes, with version and check filled in.

    Raises
    ------
    ValueError
        If a field is unknown, is missing, or does not fit; the text names it and its range.
    """
    filled = {"version": VERSION, **values, "check": 0}
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

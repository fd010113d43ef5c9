"""Work out the passes of a layer: descriptors and chunks of weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import trirow_golden
from trirow_driver.layer import ConvLayer
from trirow_driver.tiling import Chunk, Tiling, UnsupportedError
from trirow_hw.config import CONSTANT_BYTES, Config
from trirow_hw.descriptor import OP_CONVOLUTION, pack_descriptor

__all__ = ["chunk_bytes", "pass_fields"]


def chunk_bytes(layer: ConvLayer, chunk: Chunk, config: Config) -> bytes:
    """Return a chunk as the weight reader takes it.

    Lane group by lane group: first 8 bytes of constants for each channel (bias, int32; mantissa, 24
    bits; exponent, 8 bits; all little-endian), then the weights by kernel row, word of the run, and
    channel. The last word of a run has only the bytes that are left.
    """
    mantissa, exponent = trirow_golden.encode_multiplier(layer.multiplier)
    constants = np.empty(layer.out_channels, dtype=[("bias", "<i4"), ("scale", "<u4")])
    constants["bias"] = layer.bias
    constants["scale"] = mantissa | exponent.astype(np.uint32) << 24
    assert constants.itemsize == CONSTANT_BYTES
    rows, columns = layer.kernel
    runs: npt.NDArray[np.int8] = layer.weights.reshape(layer.out_channels, rows, -1)
    pieces = []
    for first in range(chunk.first, chunk.first + chunk.channels, config.out_lanes):
        lanes = slice(first, min(first + config.out_lanes, chunk.first + chunk.channels))
        pieces.append(constants[lanes].tobytes())
        for row in range(rows):
            for byte in range(0, columns * layer.in_channels, config.in_lanes):
                pieces.append(runs[lanes, row, byte : byte + config.in_lanes].tobytes())
    return b"".join(pieces)


def pass_fields(
    layer: ConvLayer,
    height: int,
    width: int,
    tiling: Tiling,
    chunk: Chunk,
    config: Config,
    *,
    in_address: int,
    weight_address: int,
    out_address: int,
    wait: bool = False,
    last: bool = True,
    next_address: int = 0,
) -> dict[str, int]:
    """Return the fields of the descriptor of one pass.

    Parameters
    ----------
    layer : ConvLayer
    height, width : int
        Rows and columns of the feature map.
    tiling : Tiling
        The layer's, for this configuration.
    chunk : Chunk
        Output channels of this pass.
    config : Config
    in_address, out_address : int
        First bytes of the NHWC feature map and of the NHWC output of the whole layer.
    weight_address : int
        First byte of the chunk.
    wait : bool
        The feature map is written by an earlier pass of the chain.
    last, next_address
        Whether the chain ends, and where it goes on.

    Raises
    ------
    UnsupportedError
        If a number does not fit its field; the text names the layer and the field.
    """
    lanes = config.in_lanes
    rows, columns = layer.kernel
    channels = layer.in_channels
    stride_y, stride_x = layer.stride
    top, left = layer.pad[:2]
    out_rows, out_columns = layer.output_shape(height, width)
    row_bytes = width * channels
    first_word, first_byte = divmod(-left * channels, lanes)
    step_words, step_byte = divmod(stride_x * channels, lanes)
    first_row, first_rows, rows_fetched = _fetched_rows(height, rows, stride_y, top, out_rows)
    gap_rows = max(0, stride_y - rows)
    span_rows = rows if gap_rows else rows_fetched
    group_channels = min(config.out_lanes, chunk.channels)
    filter_bytes = rows * columns * channels + CONSTANT_BYTES
    pixels = out_rows * out_columns
    whole = chunk.channels == layer.out_channels
    fields = {
        "op": OP_CONVOLUTION,
        "next": next_address,
        "last": int(last),
        "wait": int(wait),
        "kernel_rows": rows,
        "stride_rows": stride_y,
        "in_address": in_address + first_row * row_bytes,
        "in_bytes": rows_fetched * row_bytes,
        "in_first": first_rows * row_bytes,
        "in_span": span_rows * row_bytes,
        "in_gap": gap_rows * row_bytes,
        "rows": rows_fetched,
        "row_words": tiling.row_words,
        "row_pitch": tiling.row_pitch % config.line_bank_words,
        "row_tail": (row_bytes - 1) % lanes + 1,
        "zero_in": layer.input.zero_point,
        "row_bytes": row_bytes,
        "out_rows": out_rows,
        "out_columns": out_columns,
        "top": -top,
        "in_rows": height,
        "first_word": first_word,
        "first_wrapped": first_word % config.line_bank_words,
        "first_byte": first_byte,
        "step_byte": step_byte,
        "step_words": step_words,
        "step_wrapped": step_words % config.line_bank_words,
        "run_words": tiling.run_words,
        "run_tail": (columns * channels - 1) % lanes + 1,
        "last_lanes": (chunk.channels - 1) % config.out_lanes + 1,
        "clipped_words": min(top, rows) * tiling.run_words,
        "group_words": tiling.group_words,
        "groups": -(-chunk.channels // config.out_lanes),
        "weight_address": weight_address,
        "weight_bytes": chunk.channels * filter_bytes,
        "group_bytes": group_channels * filter_bytes,
        "out_address": out_address + chunk.first,
        "out_bytes": pixels * chunk.channels,
        "out_span": pixels * chunk.channels if whole else chunk.channels,
        "out_gap": layer.out_channels - chunk.channels,
        "zero_out": layer.output.zero_point,
        "low": layer.low,
        "high": layer.high,
    }
    if rows_fetched == 0:
        # Every window lies in the padding; a pass has features all the same, if only one byte.
        fields |= dict.fromkeys(("in_bytes", "in_first", "in_span"), 1)
        fields |= dict.fromkeys(("rows", "row_words", "row_tail", "row_bytes"), 1)
        fields["row_pitch"] = 2 % config.line_bank_words
    try:
        pack_descriptor(fields)
        # The window's left edge is kept in 16 bits and a sign.
        if first_word + (out_columns * stride_x * channels) // lanes >= 1 << 16:
            raise ValueError(f"rows of {row_bytes} bytes with their padding are too long")
    except ValueError as error:
        raise UnsupportedError(f"layer {layer.name!r}: {error}") from error
    return fields


def _fetched_rows(
    height: int, kernel_rows: int, stride: int, top: int, out_rows: int
) -> tuple[int, int, int]:
    """Return the first row that is fetched, the rows of the first span, and all of them.

    Rows that no window covers are left out, so with a stride larger than the kernel the rows of
    each window are a span of their own. Where every window lies in the padding, there are none.
    """
    covered = [
        (max(0, y * stride - top), min(height, y * stride - top + kernel_rows))
        for y in range(out_rows)
    ]
    covered = [(begin, end) for begin, end in covered if end > begin]
    if not covered:
        return 0, 0, 0
    first = covered[0][0]
    if stride <= kernel_rows:
        rows = covered[-1][1] - first
        return first, rows, rows
    return first, covered[0][1] - first, sum(end - begin for begin, end in covered)

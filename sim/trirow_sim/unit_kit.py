"""Helpers of the unit tests of the compute half: payloads as integers, and a model of the window.

Payloads travel as plain integers, which is much faster than setting a field at a time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import Value
from amaranth.lib import data

from trirow_driver.layer import ConvLayer
from trirow_driver.passes import pass_fields
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import UnsupportedError, tile
from trirow_hw.config import BANKS, MAX_KERNEL, MAX_STRIDE, Config
from trirow_sim.stream_kit import run

__all__ = [
    "PixelModel",
    "WindowModel",
    "empty_layer",
    "feed",
    "pack",
    "random_geometry",
    "unpack",
]


def feed(dut: Any, inputs: Any, words: Sequence[int], output: Any, *, after: int) -> list[int]:
    """Set ``inputs`` to a word each cycle and return ``output`` as it is in every cycle.

    Parameters
    ----------
    dut : Component
    inputs, output : Value or View
    words : sequence of int
    after : int
        Cycles that are simulated beyond the words, with the last of them.
    """
    outputs: list[int] = []
    target, result = Value.cast(inputs), Value.cast(output)

    async def testbench(ctx: Any) -> None:
        sample = ctx.tick().sample(result)
        for word in words:
            ctx.set(target, word)
            outputs.append((await sample)[-1])
        for _ in range(after):
            outputs.append((await sample)[-1])

    run(dut, testbench, max_cycles=len(words) + after + 2)
    return outputs


def pack(layout: data.Layout, values: Any) -> int:
    """Return a payload as an integer; fields that are left out are 0.

    Raises
    ------
    ValueError
        If a value does not fit its field.
    KeyError
        If there is no such field.
    """
    word = 0
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    for key, value in items:
        field = layout[key]
        if isinstance(field.shape, data.Layout):
            value = pack(field.shape, value)
        elif not _fits(value, field.shape, field.width):
            raise ValueError(f"{key!r} does not hold {value}")
        word |= (int(value) & ((1 << field.width) - 1)) << field.offset
    return word


def unpack(layout: data.Layout, word: int) -> Any:
    """Return an integer as a dictionary of its fields, or as a list for an array."""
    values = {}
    for key, field in layout:
        value = word >> field.offset & ((1 << field.width) - 1)
        if isinstance(field.shape, data.Layout):
            values[key] = unpack(field.shape, value)
        else:
            negative = _signed(field.shape) and value >> field.width - 1
            values[key] = value - (1 << field.width) if negative else value
    return list(values.values()) if isinstance(layout, data.ArrayLayout) else values


def _signed(shape: Any) -> bool:
    return bool(getattr(shape, "signed", False))


def _fits(value: int, shape: Any, width: int) -> bool:
    low = -(1 << width - 1) if _signed(shape) else 0
    return low <= value < low + (1 << width)


def empty_layer(
    kernel: tuple[int, int],
    channels: int,
    *,
    filters: int = 1,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> ConvLayer:
    """Return a layer of which only the geometry matters."""
    return ConvLayer(
        name="geometry",
        weights=np.zeros((filters, *kernel, channels), np.int8),
        bias=np.zeros(filters, np.int32),
        multiplier=np.ones(filters, np.float32),
        stride=stride,
        pad=pad,
        input=Quantisation(1.0, 0),
        output=Quantisation(1.0, 0),
    )


def random_geometry(
    generator: random.Random, config: Config, *, pixels: int = 150
) -> tuple[ConvLayer, int, int]:
    """Return a layer that the configuration can compute, and height and width of its input.

    Kernels of 1 to 11 rows and columns, strides of 1 to 4, and padding that may be wider than the
    kernel; small inputs, also smaller than the kernel or narrower than a word.
    """
    while True:
        kernel = generator.randint(1, MAX_KERNEL), generator.randint(1, MAX_KERNEL)
        if generator.random() < 0.5:
            kernel = min(kernel[0], 4), min(kernel[1], 4)
        most = generator.choice([0, 1, 3, MAX_KERNEL + 3])
        pad = [generator.randint(0, most) for _ in range(4)]
        height, width = generator.randint(1, 9), generator.randint(1, 9)
        layer = empty_layer(
            kernel,
            generator.choice([1, 1, 2, 3, 13]),
            stride=(generator.randint(1, MAX_STRIDE), generator.randint(1, MAX_STRIDE)),
            pad=(pad[0], pad[1], pad[2], pad[3]),
        )
        try:
            rows, columns = layer.output_shape(height, width)
            tile(layer, height, width, config)
        except (ValueError, UnsupportedError):
            continue
        if rows * columns <= pixels:
            return layer, height, width


@dataclass(frozen=True)
class PixelModel:
    """What an output pixel needs and frees.

    Parameters
    ----------
    rows : int
        Kernel rows inside the map.
    taps : dict
        For each word of the run with a byte inside the row: the set of its bytes that are.
    position : int
        Byte of the row at which the run begins; negative in the padding.
    first_row : int
        Uppermost row of the window inside the map, counted from the start of the run.
    skipped_rows : int
        Kernel rows above the map.
    starts : tuple of int
        Place of the next row of the window in each bank (only where the window has one).
    row_end, pass_end : bool
        Last pixel of an output row, of the pass.
    frees : bool
        The uppermost row in the buffer is not needed by the next output row.
    keep_from : int
        Words of it that no further pixel of this output row needs.
    retire : int
        Rows that no further output row needs.
    retired_row : int
        The last of them, counted from the start of the run.
    """

    rows: int
    taps: dict[int, set[int]]
    position: int
    first_row: int
    skipped_rows: int
    starts: tuple[int | None, ...]
    row_end: bool
    pass_end: bool
    frees: bool
    keep_from: int
    retire: int
    retired_row: int

    @property
    def empty(self) -> bool:
        """Every tap is padding."""
        return not (self.rows and self.taps)


class WindowModel:
    """The passes of a run as the window should walk them, byte by byte.

    Parameters
    ----------
    config : Config
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._row_index = 0
        self._starts = [0] * BANKS

    def fields(self, layer: ConvLayer, height: int, width: int, chunk: int = 0) -> dict[str, int]:
        """Return the fields of the descriptor of one pass of a layer."""
        tiling = tile(layer, height, width, self._config)
        return pass_fields(
            layer,
            height,
            width,
            tiling,
            tiling.chunks[chunk],
            self._config,
            in_address=0,
            weight_address=0,
            out_address=0,
        )

    def walk(self, layer: ConvLayer, height: int, width: int) -> list[PixelModel]:
        """Return the pixels of a pass over a layer's feature map."""
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        kernel_rows, kernel_columns = layer.kernel
        channels, row_bytes = layer.in_channels, width * layer.in_channels
        out_rows, out_columns = layer.output_shape(height, width)
        row_words = -(-row_bytes // lanes)

        windows = [
            [
                row
                for row in range(
                    y * layer.stride[0] - layer.pad[0],
                    y * layer.stride[0] - layer.pad[0] + kernel_rows,
                )
                if 0 <= row < height
            ]
            for y in range(out_rows)
        ]
        fetched = sorted({row for window in windows for row in window})
        if not fetched:  # one byte stands for the feature map that no window touches
            fetched, row_words = [0], 1
        last_use = {row: y for y, window in enumerate(windows) for row in window}
        places = self._place_rows(len(fetched), (row_words + 1) // 2 * 2, depth)

        pixels = []
        retired = 0
        for y, window in enumerate(windows):
            retire = sum(last_use.get(row, out_rows - 1) == y for row in fetched)
            above = sum(y * layer.stride[0] - layer.pad[0] + r < 0 for r in range(kernel_rows))
            first = fetched.index(window[0]) if window else 0
            starts: list[int | None] = [None] * BANKS
            for k in reversed(range(first, first + len(window))):
                starts[(self._row_index + k) % BANKS] = places[k]
            for x in range(out_columns):
                position = (x * layer.stride[1] - layer.pad[1]) * channels
                taps: dict[int, set[int]] = {}
                for byte in range(kernel_columns * channels):
                    if 0 <= position + byte < row_bytes:
                        taps.setdefault(byte // lanes, set()).add(byte % lanes)
                row_end = x == out_columns - 1
                next_word = (position + layer.stride[1] * channels) // lanes
                pixels.append(
                    PixelModel(
                        rows=len(window),
                        taps=taps,
                        position=position,
                        first_row=self._row_index + first,
                        skipped_rows=above,
                        starts=tuple(starts),
                        row_end=row_end,
                        pass_end=row_end and y == out_rows - 1,
                        frees=retire > 0,
                        keep_from=min(max(next_word, 0), row_words),
                        retire=retire,
                        retired_row=self._row_index + retired + retire - 1,
                    )
                )
            retired += retire
        assert retired == len(fetched)
        self._row_index += len(fetched)
        return pixels

    def _place_rows(self, rows: int, pitch: int, depth: int) -> list[int]:
        """Give each fetched row its place in its bank."""
        places = []
        for k in range(rows):
            bank = (self._row_index + k) % BANKS
            places.append(self._starts[bank])
            self._starts[bank] = (self._starts[bank] + pitch) % depth
        return places

    def payload(self, pixel: PixelModel, run_words: int, row_words: int) -> dict[str, Any]:
        """Return the fields of a `Pixel` as the window's contract has them.

        Fields of which nothing is said are left out: those of the run and the rows where every tap
        is padding, and what is needed where nothing is.
        """
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        values: dict[str, Any] = {
            "empty": int(pixel.empty),
            "row_end": int(pixel.row_end),
            "pass_end": int(pixel.pass_end),
            "frees": int(pixel.frees),
            "retire": pixel.retire,
        }
        if not pixel.row_end and pixel.frees:
            values["keep_from"] = pixel.keep_from
        need_row, need_words = -1, 0
        if not pixel.empty:
            first, last = min(pixel.taps), max(pixel.taps)
            begin = pixel.position + first * lanes
            values |= {
                "rows": pixel.rows,
                "skipped_words": pixel.skipped_rows * run_words,
                "words": last - first,
                "first_word": first,
                "place": begin // lanes % depth,
                "byte": begin % lanes,
                "bank": pixel.first_row % BANKS,
                "starts": pixel.starts,
                "mask_low": min(pixel.taps[first]),
                "mask_high": max(pixel.taps[last]) + 1,
            }
            need_row = pixel.first_row + pixel.rows - 1
            # A read takes `lanes` bytes, so it touches the word of its last byte too.
            touched = (pixel.position + last * lanes + lanes - 1) // lanes + 1
            need_words = min(touched, row_words)
        if pixel.row_end and pixel.retire:
            # All words of the rows that retire, and of the window's, must be there.
            need_row = max(pixel.first_row + pixel.rows - 1, pixel.retired_row)
            need_words = row_words
        values["needs"] = int(need_row >= 0)
        if need_row >= 0:
            values |= {"need_row": need_row & 0xFFFF, "need_words": need_words}
        return values

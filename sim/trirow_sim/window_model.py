"""Model of the window: what each output pixel needs from the line buffer, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trirow_hw.config import BANKS, Config
from trirow_sim.tap_kit import Geometry, pass_fields

__all__ = ["PixelModel", "WindowModel"]


@dataclass(frozen=True)
class PixelModel:
    """What an output pixel needs and frees.

    Parameters
    ----------
    rows : int
        Kernel rows inside the map.
    taps : dict
        For each word of the run with a byte inside the row: the set of its bytes that are.
    columns : list of int
        Kernel columns inside the map.
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
    columns: list[int]
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

    def walk(self, geometry: Geometry) -> list[PixelModel]:
        """Return the pixels of a pass."""
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        kernel_rows, kernel_columns = geometry.kernel
        (stride_y, stride_x), (top, left) = geometry.stride, geometry.pad[:2]
        channels, width = geometry.channels, geometry.width
        row_bytes = width * channels
        out_rows, out_columns = geometry.out_shape
        row_words = -(-row_bytes // lanes)
        windows, fetched = geometry.windows, geometry.fetched
        if not fetched:
            fetched, row_words = [0], 1
        last_use = {row: y for y, window in enumerate(windows) for row in window}
        places = self._place_rows(len(fetched), (row_words + 1) // 2 * 2, depth)

        pixels = []
        retired = 0
        for y, window in enumerate(windows):
            retire = sum(last_use.get(row, out_rows - 1) == y for row in fetched)
            above = sum(y * stride_y - top + r < 0 for r in range(kernel_rows))
            first = fetched.index(window[0]) if window else 0
            starts: list[int | None] = [None] * BANKS
            for k in reversed(range(first, first + len(window))):
                starts[(self._row_index + k) % BANKS] = places[k]
            for x in range(out_columns):
                column = x * stride_x - left
                position = column * channels
                taps: dict[int, set[int]] = {}
                for byte in range(kernel_columns * channels):
                    if 0 <= position + byte < row_bytes:
                        taps.setdefault(byte // lanes, set()).add(byte % lanes)
                row_end = x == out_columns - 1
                next_word = (position + stride_x * channels) // lanes
                pixels.append(
                    PixelModel(
                        rows=len(window),
                        taps=taps,
                        columns=[s for s in range(kernel_columns) if 0 <= column + s < width],
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

    def payload(self, geometry: Geometry, pixel: PixelModel) -> dict[str, Any]:
        """Return the fields of a `Pixel` as the window's contract has them.

        Fields of which nothing is said are left out: those of the run and the rows where every tap
        is padding, and what is needed where nothing is.
        """
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        fields = pass_fields(geometry, self._config)
        row_words = fields["row_words"]
        values: dict[str, Any] = {
            "empty": int(pixel.empty),
            "row_end": int(pixel.row_end),
            "pass_end": int(pixel.pass_end),
            "frees": int(pixel.frees),
            "retire": pixel.retire,
        }
        if pixel.empty:
            values |= {"single": 1, "one_step": 1, "inside": 0}
        if not pixel.row_end and pixel.frees:
            values["keep_from"] = pixel.keep_from
        need_row, need_words = -1, 0
        if not pixel.empty:
            if geometry.depthwise:
                first, last = pixel.columns[0], pixel.columns[-1]
                begin = pixel.position + first * geometry.channels
                low, high = 0, lanes
            else:
                first, last = min(pixel.taps), max(pixel.taps)
                begin = pixel.position + first * lanes
                low, high = min(pixel.taps[first]), max(pixel.taps[last]) + 1
            end_row, taken = pixel.skipped_rows + pixel.rows, self._config.tap_rows
            inside = [p for p in range(taken) if pixel.skipped_rows <= p < end_row]
            values |= {
                "single": int(last == first),
                "one_step": int(end_row <= taken if geometry.depthwise else pixel.rows == 1),
                "inside": sum(1 << p for p in inside) if geometry.depthwise else 1,
                "rows": pixel.rows,
                "skipped_rows": pixel.skipped_rows,
                "end_row": pixel.skipped_rows + pixel.rows,
                "skipped_words": 0
                if geometry.depthwise
                else pixel.skipped_rows * fields["run_words"],
                "words": last - first,
                "first_word": first,
                "place": begin // lanes % depth,
                "byte": begin % lanes,
                "bank": pixel.first_row % BANKS,
                "top_bank": (pixel.first_row - pixel.skipped_rows) % BANKS,
                "starts": pixel.starts,
                "mask_low": low,
                "mask_high": high,
            }
            need_row = pixel.first_row + pixel.rows - 1
            # A read takes `lanes` bytes, so it touches the word of its last byte too.
            touched = (pixel.position + max(pixel.taps) * lanes + lanes - 1) // lanes + 1
            need_words = min(touched, row_words)
        if pixel.row_end and pixel.retire:
            # All words of the rows that retire, and of the window's, must be there.
            need_row = max(pixel.first_row + pixel.rows - 1, pixel.retired_row)
            need_words = row_words
        values["needs"] = int(need_row >= 0)
        if need_row >= 0:
            values |= {"need_row": need_row & 0xFFFF, "need_words": need_words}
        return values

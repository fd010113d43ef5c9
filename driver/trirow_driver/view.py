"""Strided views of feature maps in memory, and the spans of bytes that they are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """Part of one NHWC feature map: some of its rows, columns and channels, evenly spaced.

    Byte (y, x, c) is at ``address + y * row_pitch + x * pixel_pitch + c``.

    Parameters
    ----------
    address : int
        Of the first byte.
    rows, columns, channels : int
        Extents. Rows and columns may be 0, where nothing of the feature map is seen.
    row_pitch, pixel_pitch : int
        Bytes from one row, and from one column, to the next.
    """

    address: int
    rows: int
    columns: int
    channels: int
    row_pitch: int
    pixel_pitch: int

    @classmethod
    def whole(cls, address: int, rows: int, columns: int, channels: int) -> View:
        """Return the view of a whole feature map without gaps."""
        return cls(address, rows, columns, channels, columns * channels, channels)

    @property
    def empty(self) -> bool:
        """Nothing is seen."""
        return self.rows == 0 or self.columns == 0

    @property
    def bytes(self) -> int:
        """Bytes that are seen."""
        return self.rows * self.columns * self.channels

    @property
    def contiguous(self) -> bool:
        """Its bytes follow each other without a gap."""
        pixels_adjoin = self.columns <= 1 or self.pixel_pitch == self.channels
        return pixels_adjoin and self.row_pitch == self.columns * self.channels

    def take_rows(self, first: int, count: int, step: int = 1) -> View:
        """Return every ``step``-th row from ``first`` on."""
        return replace(
            self,
            address=self.address + first * self.row_pitch,
            rows=count,
            row_pitch=self.row_pitch * step,
        )

    def take_columns(self, first: int, count: int, step: int = 1) -> View:
        """Return every ``step``-th column from ``first`` on."""
        return replace(
            self,
            address=self.address + first * self.pixel_pitch,
            columns=count,
            pixel_pitch=self.pixel_pitch * step,
        )

    def take_channels(self, first: int, count: int) -> View:
        """Return ``count`` channels from ``first`` on."""
        return replace(self, address=self.address + first, channels=count)

    def spans(self) -> dict[str, int]:
        """Return its bytes, row by row, as spans: see `trirow_hw.spans.Spans`.

        Raises
        ------
        ValueError
            If the view is empty.
        """
        if self.empty:
            raise ValueError("an empty view has no spans")
        row = self.columns * self.channels
        total = self.rows * row
        # What adjoins in memory is one span.
        if self.columns == 1 or self.pixel_pitch == self.channels:
            whole = self.rows == 1 or self.row_pitch == row
            span, gap = (total, 0) if whole else (row, self.row_pitch - row)
            line, turn = total, 0
        else:
            span, gap = self.channels, self.pixel_pitch - self.channels
            line = row
            turn = self.row_pitch - (self.columns - 1) * self.pixel_pitch - self.channels
            if self.rows == 1 or turn == gap:
                line, turn = total, 0
        return {"bytes": total, "span": span, "gap": gap, "line": line, "turn": turn % (1 << 32)}

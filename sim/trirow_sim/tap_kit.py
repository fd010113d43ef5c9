"""Helpers of the tests of window and issuer: passes of any geometry and their fields.

Nothing here knows of the driver: the fields are worked out from their meaning in
`trirow_hw.descriptor.FIELDS`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trirow_hw.config import BANKS, Config

__all__ = ["Geometry", "fits", "pass_fields", "random_geometry"]


@dataclass(frozen=True)
class Geometry:
    """A pass, as far as addresses depend on it.

    Parameters
    ----------
    kernel, stride : tuple of int
        Rows and columns.
    pad : tuple of int
        Top, left, bottom, right.
    height, width, channels : int
        Of the feature map.
    op : str
        ``"dense"``, ``"depthwise"``, ``"sum"`` or ``"max"``; the last two are pools.
    filters : int
        Output channels of a dense pass.
    spacing : int
        Fewest cycles between the ends of two lane groups, if more than the array's columns.
    chained : bool
        The next pass uses the same chunk of weights.
    second : bool
        There is a second operand.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    height: int
    width: int
    channels: int
    op: str = "dense"
    filters: int = 1
    spacing: int = 1
    chained: bool = False
    second: bool = False

    @property
    def depthwise(self) -> bool:
        """Every lane works on a channel of its own."""
        return self.op != "dense"

    @property
    def out_shape(self) -> tuple[int, int]:
        """Rows and columns of the output."""
        rows = self.height + self.pad[0] + self.pad[2] - self.kernel[0]
        columns = self.width + self.pad[1] + self.pad[3] - self.kernel[1]
        return rows // self.stride[0] + 1, columns // self.stride[1] + 1

    @property
    def windows(self) -> list[list[int]]:
        """Rows of the feature map under the window, for each output row."""
        tops = [y * self.stride[0] - self.pad[0] for y in range(self.out_shape[0])]
        return [
            [row for row in range(top, top + self.kernel[0]) if 0 <= row < self.height]
            for top in tops
        ]

    @property
    def fetched(self) -> list[int]:
        """Rows that some window needs, in order."""
        return sorted({row for window in self.windows for row in window})


def pass_fields(geometry: Geometry, config: Config) -> dict[str, int]:
    """Return the fields of the descriptor that window and issuer look at."""
    lanes, depth = config.in_lanes, config.line_bank_words
    (kernel_rows, kernel_columns), channels = geometry.kernel, geometry.channels
    row_bytes, rows = geometry.width * channels, len(geometry.fetched)
    if not rows:  # one byte stands for the feature map that no window touches
        row_bytes, rows = 1, 1
    row_words, run_words = -(-row_bytes // lanes), -(-kernel_columns * channels // lanes)
    first_column = -geometry.pad[1]
    tap_words, tap_byte = divmod(channels, lanes)
    if geometry.depthwise:
        steps = -(-kernel_rows // config.tap_rows)
        step_weights = kernel_columns if geometry.op == "depthwise" else 0
        block, outputs, most = lanes, channels, config.depthwise_lanes
    else:
        tap_words, tap_byte = 1 % depth, 0
        steps, step_weights = kernel_rows, run_words
        block, outputs, most = config.out_lanes, geometry.filters, config.out_lanes
    group_lanes, last_lanes = min(outputs, most), min((outputs - 1) % block + 1, most)
    columns = -(-group_lanes // config.post_lanes)
    skipped = 0 if geometry.depthwise else min(max(geometry.pad[0], 0), kernel_rows) * run_words
    out_rows, out_columns = geometry.out_shape
    step = geometry.stride[1] * channels
    return {
        "depthwise": int(geometry.depthwise),
        "maximum": int(geometry.op == "max"),
        "kernel_rows": kernel_rows,
        "kernel_columns": kernel_columns,
        "stride_rows": geometry.stride[0],
        "stride_columns": geometry.stride[1],
        "rows": rows,
        "row_words": row_words,
        "row_pitch": (row_words + row_words % 2) % depth,
        "row_tail": (row_bytes - 1) % lanes + 1,
        "in_rows": geometry.height,
        "in_columns": geometry.width,
        "out_rows": out_rows,
        "out_columns": out_columns,
        "top": -geometry.pad[0],
        "top_bank": -geometry.pad[0] % BANKS,
        "first_column": first_column,
        "first_word": first_column * channels // lanes,
        "first_wrapped": first_column * channels // lanes % depth,
        "first_byte": first_column * channels % lanes,
        "step_words": step // lanes,
        "step_wrapped": step // lanes % depth,
        "step_byte": step % lanes,
        "run_words": run_words,
        "run_tail": (kernel_columns * channels - 1) % lanes + 1,
        "clipped_words": skipped,
        "step_weights": step_weights,
        "tap_words": tap_words % depth,
        "tap_byte": tap_byte,
        "columns": columns,
        "last_columns": -(-last_lanes // config.post_lanes),
        "spacing": max(geometry.spacing, columns),
        "group_words": steps * step_weights or 1,
        "groups": -(-outputs // block),
        "group_lanes": group_lanes,
        "last_lanes": last_lanes,
        "zero_in": 0,
        "keep_weights": int(geometry.chained),
        "second": int(geometry.second),
        "kept_out": 0,
        "index": 0,
    }


def fits(geometry: Geometry, config: Config) -> bool:
    """Whether the window's rows fit the line buffer, and a lane group the weight memories."""
    fields, depth = pass_fields(geometry, config), config.line_bank_words
    pitch = fields["row_words"] + fields["row_words"] % 2
    if fields["group_words"] * fields["groups"] > config.weight_words:
        return False
    if geometry.kernel[0] > 1:
        return bool(-(-geometry.kernel[0] // BANKS) * pitch <= depth)
    # A single row streams, but its window has to fit.
    return bool(min(pitch, fields["run_words"] + 2 * fields["step_words"] + 6) <= depth)


def random_geometry(
    generator: random.Random,
    config: Config,
    *,
    ops: Sequence[str] = ("dense", "depthwise", "sum", "max"),
    pixels: int = 150,
    largest: int = 11,
) -> Geometry:
    """Return a pass that the configuration can compute.

    Kernels of 1 to ``largest`` rows and columns and strides of 1 to 4, now and then larger ones,
    padding that may be wider than the kernel, and small maps, also smaller than the kernel or
    narrower than a word.
    """
    lanes = config.in_lanes
    while True:
        usual = generator.random() > 0.05
        longest, widest = (largest, 4) if usual else (24, 12)
        kernel = generator.randint(1, longest), generator.randint(1, longest)
        if generator.random() < 0.5:
            kernel = min(kernel[0], 4), min(kernel[1], 4)
        most = generator.choice([0, 1, 3, 9, longest + 3])
        pad = [generator.randint(0, most) for _ in range(4)]
        geometry = Geometry(
            kernel=kernel,
            stride=(generator.randint(1, widest), generator.randint(1, widest)),
            pad=(pad[0], pad[1], pad[2], pad[3]),
            height=generator.randint(1, 9),
            width=generator.randint(1, 9),
            channels=generator.choice([1, 1, 2, 3, 13, lanes, 2 * lanes, 2 * lanes + 1]),
            op=generator.choice(ops),
            filters=generator.randint(1, 2 * config.out_lanes + 1),
            spacing=generator.choice([1, 1, 2, 5, 20]),
            second=generator.random() < 0.3,
        )
        rows, columns = geometry.out_shape
        if 0 < rows * columns <= pixels and min(rows, columns) > 0 and fits(geometry, config):
            return geometry

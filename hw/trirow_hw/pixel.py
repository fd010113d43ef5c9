"""What the window is told of a pass, and what it says of each output pixel."""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import data

from .config import BANKS, MAX_KERNEL, Config

__all__ = ["Pixel", "WindowPass"]

_KERNEL = range(MAX_KERNEL + 1)

#: What the window needs to know of a pass; see the fields of the descriptor.
WindowPass = data.StructLayout(
    {
        "depthwise": 1,
        "kernel_rows": 8,
        "kernel_columns": 8,
        "stride_rows": 8,
        "stride_columns": 8,
        "rows": 16,
        "row_words": 16,
        "row_pitch": 16,
        "row_tail": 8,
        "out_rows": 16,
        "out_columns": 16,
        "top": signed(16),
        "top_bank": 2,
        "first_column": signed(16),
        "in_rows": 16,
        "in_columns": 16,
        "first_word": signed(16),
        "first_wrapped": 16,
        "first_byte": 8,
        "step_words": 16,
        "step_wrapped": 16,
        "step_byte": 8,
        "run_words": 16,
        "run_tail": 8,
        "clipped_words": 16,
    }
)


def Pixel(config: Config):
    """Return the layout of one output pixel's demands.

    ``empty``: every tap is padding. ``rows``: kernel rows inside the map, below ``skipped_rows``
    above it (modulo 256 where there are no ``rows``); kernel row ``end_row`` is the first below it.
    ``skipped_words``: weight words of the rows above it. In the line buffer the rows are in banks
    from ``bank`` on, each at ``starts[bank]`` or ``row_pitch`` behind the row before it in the
    bank; ``top_bank`` is the bank of the uppermost kernel row, as if all of them were inside.

    The taps of a row are words of the run, or whole kernel columns in a depthwise pass: ``words``
    of them less one are inside, from ``first_word`` on. They begin at ``byte`` of word ``place`` of
    a row. ``mask_low``: bytes at the front of the first tap that are padding; ``mask_high``: bytes
    of the last tap before the padding or the end of the run.

    ``single``: a step of the window has one tap; ``one_step``: there is only one step; both are set
    if ``empty``. ``inside``: kernel rows of the first step with features, in a depthwise pass; in
    a dense one there is one row, if not ``empty``.

    If ``needs``, the pixel can be computed when ``need_words`` words of row ``need_row`` have been
    loaded. After it, the words below ``keep_from`` of the uppermost row are free (if ``frees``),
    and at the end of an output row (``row_end``) the first ``retire`` rows are; those must be
    there by then.
    """
    depth = config.line_bank_words
    return data.StructLayout(
        {
            "empty": 1,
            "rows": _KERNEL,
            "skipped_rows": 8,
            "end_row": _KERNEL,
            "skipped_words": 16,
            "words": 16,
            "single": 1,
            "one_step": 1,
            "inside": config.tap_rows,
            "first_word": 16,
            "place": range(depth),
            "byte": range(config.in_lanes),
            "bank": 2,
            "top_bank": 2,
            "starts": data.ArrayLayout(range(depth), BANKS),
            "mask_low": range(config.in_lanes),
            "mask_high": range(config.in_lanes + 1),
            "needs": 1,
            "need_row": 16,
            "need_words": 16,
            "frees": 1,
            "keep_from": 16,
            "row_end": 1,
            "retire": 16,
            "pass_end": 1,
        }
    )

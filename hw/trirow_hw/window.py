"""Walk the window over the feature map: what each output pixel needs from the line buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, MAX_KERNEL, Config
from .modular import wrap_add

__all__ = ["Pixel", "Window", "WindowPass"]

_KERNEL = range(MAX_KERNEL + 1)

#: What the window needs to know of a pass; see the fields of the descriptor.
WindowPass = data.StructLayout(
    {
        "kernel_rows": _KERNEL,
        "stride_rows": 8,
        "rows": 16,
        "row_words": 16,
        "row_pitch": 16,
        "row_tail": 8,
        "out_rows": 16,
        "out_columns": 16,
        "top": signed(16),
        "in_rows": 16,
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

    ``empty``: every tap is padding. ``rows``: kernel rows inside the map, ``skipped_words``:
    weight words of the rows above it. ``words``: words of the run to be multiplied less one, from
    ``first_word`` of the run on. In the line buffer they begin at ``byte`` of word ``place`` of a
    row, and the rows are in banks from ``bank`` on, each at ``starts[bank]`` or ``row_pitch``
    behind the row before it in the bank. ``mask_low``: bytes at the front of the first word that
    are padding; ``mask_high``: bytes of the last word before the padding or the end of the run.

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
            "skipped_words": 16,
            "words": 16,
            "first_word": 16,
            "place": range(depth),
            "byte": range(config.in_lanes),
            "bank": 2,
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


class Window(wiring.Component):
    """Compute the demands of each output pixel of each pass, in order.

    A pixel a cycle within an output row; ``stride_rows + 3`` cycles between output rows, which a
    queue behind this unit hides.

    Taps in the padding are left out: kernel rows above and below the map, and whole words of
    the run left and right of it. Bytes of the words at its edges are masked.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WindowPass))
    o : Out(stream.Signature(Pixel))
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {"i": In(stream.Signature(WindowPass)), "o": Out(stream.Signature(Pixel(config)))}
        )

    def elaborate(self, platform):
        m = Module()
        config, depth = self._config, self._config.line_bank_words
        spec = Signal(WindowPass)
        # Uppermost row of the window, its place in the ring, and the rows since the start.
        top = Signal(signed(17))
        bank = Signal(range(BANKS))
        starts = Array(Signal(range(depth), name=f"start{b}") for b in range(BANKS))
        row_index = Signal(16)
        rows_left, out_rows_left, columns_left = Signal(16), Signal(16), Signal(16)
        skipped_words = Signal(16)
        # Left edge of the window in the row: word, the same modulo the bank, and byte.
        word, byte = Signal(signed(17)), Signal(range(config.in_lanes))
        place = Signal(range(depth))
        retire_left, steps_left = Signal(16), Signal(range(16))
        pixel = self.o.payload

        last_row = out_rows_left == 1
        m.d.comb += [
            pixel.bank.eq(bank),
            *(pixel.starts[b].eq(starts[b]) for b in range(BANKS)),
            pixel.skipped_words.eq(skipped_words),
            pixel.row_end.eq(columns_left == 1),
            pixel.pass_end.eq((columns_left == 1) & last_row),
        ]
        retiring = self._elaborate_rows(m, spec, top, rows_left, row_index, last_row)
        next_word, next_byte, next_place = self._elaborate_columns(m, spec, word, byte, place)
        with m.If(pixel.row_end & (retiring != 0)):
            m.d.comb += [
                pixel.needs.eq(1),
                pixel.need_row.eq(row_index + Mux(retiring > pixel.rows, retiring, pixel.rows) - 1),
                pixel.need_words.eq(spec.row_words),
            ]

        rewind = [
            word.eq(spec.first_word),
            place.eq(spec.first_wrapped),
            byte.eq(spec.first_byte),
            columns_left.eq(spec.out_columns),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [
                    spec.eq(self.i.payload),
                    top.eq(self.i.payload.top),
                    rows_left.eq(self.i.payload.rows),
                    out_rows_left.eq(self.i.payload.out_rows),
                    skipped_words.eq(self.i.payload.clipped_words),
                ]
                with m.If(self.i.valid):
                    m.next = "ROW"

            with m.State("ROW"):
                m.d.sync += rewind
                m.next = "PIXELS"

            with m.State("PIXELS"):
                m.d.comb += self.o.valid.eq(1)
                m.d.sync += [retire_left.eq(retiring), steps_left.eq(spec.stride_rows)]
                with m.If(self.o.ready):
                    m.d.sync += [
                        word.eq(next_word),
                        byte.eq(next_byte),
                        place.eq(next_place),
                        columns_left.eq(columns_left - 1),
                    ]
                    with m.If(columns_left == 1):
                        m.d.sync += out_rows_left.eq(out_rows_left - 1)
                        m.next = "STEP"

            with m.State("STEP"):
                with m.If(retire_left != 0):
                    m.d.sync += [
                        retire_left.eq(retire_left - 1),
                        starts[bank].eq(wrap_add(starts[bank], spec.row_pitch, depth)),
                        bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                        row_index.eq(row_index + 1),
                        rows_left.eq(rows_left - 1),
                    ]
                with m.If(steps_left != 0):
                    m.d.sync += [steps_left.eq(steps_left - 1), top.eq(top + 1)]
                    with m.If((top < 0) & (top + spec.kernel_rows >= 0)):
                        m.d.sync += skipped_words.eq(skipped_words - spec.run_words)
                with m.If((steps_left == 0) & (retire_left == 0)):
                    m.next = "ROW"
                    with m.If(out_rows_left == 0):
                        m.next = "IDLE"
        return m

    def _elaborate_rows(self, m, spec, top, rows_left, row_index, last_row):
        """Clip the window above and below; return the rows that retire after this output row."""
        pixel = self.o.payload
        below, end = Signal(signed(18)), Signal(signed(18))
        first, inside = Signal(signed(18)), Signal(signed(18))
        keep, keep_end = Signal(signed(18)), Signal(signed(18))
        step = Mux(spec.stride_rows < spec.kernel_rows, spec.stride_rows, spec.kernel_rows)
        in_rows = spec.in_rows
        m.d.comb += [
            first.eq(Mux(top < 0, 0, top)),
            below.eq(top + spec.kernel_rows),
            end.eq(Mux(below > in_rows, in_rows, below)),
            inside.eq(Mux(end > first, end - first, 0)),
            keep.eq(top + step),
            keep_end.eq(Mux(keep > in_rows, in_rows, keep)),
        ]
        rows, retiring = Signal.like(pixel.rows), Signal(16)
        m.d.sync += [rows.eq(inside), retiring.eq(0)]
        with m.If(last_row):
            m.d.sync += retiring.eq(rows_left)
        with m.Elif(keep_end > first):
            m.d.sync += retiring.eq(keep_end - first)
        m.d.comb += [
            pixel.rows.eq(rows),
            pixel.retire.eq(retiring),
            pixel.frees.eq(retiring != 0),
            pixel.need_row.eq(row_index + rows - 1),
        ]
        return retiring

    def _elaborate_columns(self, m, spec, word, byte, place):
        """Clip the run left and right; return the left edge of the next pixel."""
        config, depth = self._config, self._config.line_bank_words
        pixel = self.o.payload
        # Next left edge: add stride * C, carry from bytes to words.
        next_byte_sum = Signal(range(2 * config.in_lanes))
        carry = Signal()
        next_word, next_byte = Signal.like(word), Signal.like(byte)
        m.d.comb += [
            next_byte_sum.eq(byte + spec.step_byte),
            carry.eq(next_byte_sum >= config.in_lanes),
            next_byte.eq(Mux(carry, next_byte_sum - config.in_lanes, next_byte_sum)),
            next_word.eq(word + spec.step_words + carry),
        ]
        next_place = wrap_add(place, (spec.step_wrapped + carry)[: len(place) + 1], depth)

        # Left: the words of the run before the row are left out, all but a ragged one.
        left, ragged = Signal(), Signal()
        m.d.comb += [left.eq(word < 0), ragged.eq(left & (byte != 0))]
        with m.If(left):
            m.d.comb += [
                pixel.first_word.eq(-word - ragged),
                pixel.place.eq(Mux(ragged, depth - 1, 0)),
            ]
        with m.Else():
            m.d.comb += pixel.place.eq(place)
        m.d.comb += [
            pixel.byte.eq(byte),
            pixel.mask_low.eq(Mux(ragged, config.in_lanes - byte, 0)),
        ]

        # Right: words of the run up to the end of the row, and bytes of the last one.
        run_end, words_inside = Signal(signed(18)), Signal(signed(18))
        tail_inside = Signal(range(config.in_lanes + 1))
        spills = Signal()
        m.d.comb += [
            spills.eq(spec.row_tail > byte),
            words_inside.eq(spec.row_words - 1 - word + spills),
            tail_inside.eq(spec.row_tail - byte + Mux(spills, 0, config.in_lanes)),
            run_end.eq(Mux(words_inside < spec.run_words, words_inside, spec.run_words)),
            pixel.mask_high.eq(spec.run_tail),
        ]
        with m.If(words_inside < spec.run_words):
            m.d.comb += pixel.mask_high.eq(tail_inside)
        with m.Elif((words_inside == spec.run_words) & (tail_inside < spec.run_tail)):
            m.d.comb += pixel.mask_high.eq(tail_inside)
        # Nothing is left where the run ends in front of the row, be it within a word.
        outside = (run_end <= pixel.first_word) | (
            (run_end - pixel.first_word == 1) & (pixel.mask_low >= pixel.mask_high)
        )
        needed = Signal(signed(18))
        m.d.comb += [
            pixel.empty.eq(outside | (pixel.rows == 0)),
            pixel.needs.eq(~pixel.empty),
            pixel.words.eq(run_end - pixel.first_word - 1),
            needed.eq(word + run_end + (byte != 0)),
            pixel.need_words.eq(Mux(needed < spec.row_words, needed, spec.row_words)),
            pixel.keep_from.eq(
                Mux(next_word < 0, 0, Mux(next_word < spec.row_words, next_word, spec.row_words))
            ),
        ]
        return next_word, next_byte, next_place

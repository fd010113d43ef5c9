"""Walk the window over the feature map: what each output pixel needs from the line buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .modular import wrap_add
from .pixel import Pixel, WindowPass

__all__ = ["Pixel", "Window", "WindowPass"]


def _Edge(config: Config):
    """Return the layout of the window's left edge in the row.

    ``column``; ``word`` and ``byte`` of its first channel; ``place``: the word modulo the bank.
    """
    return data.StructLayout(
        {
            "column": signed(17),
            "word": signed(17),
            "place": range(config.line_bank_words),
            "byte": range(config.in_lanes),
        }
    )


def _Clip(config: Config):
    """Return the layout between the two steps of clipping a row of the window left and right.

    ``to_row``, ``to_run``: taps from the first one inside to the end of the row and to the end of
    the run, less one. ``row_tail``: bytes of the row in its last tap. ``needed``: words of the row
    up to the end of the window. ``keep_from``: the next pixel's left edge.
    """
    return data.StructLayout(
        {
            "first": 16,
            "place": range(config.line_bank_words),
            "byte": range(config.in_lanes),
            "mask_low": range(config.in_lanes),
            "to_row": signed(18),
            "to_run": signed(18),
            "row_tail": range(config.in_lanes + 1),
            "needed": signed(18),
            "keep_from": signed(17),
            "row_end": 1,
        }
    )


class Window(wiring.Component):
    """Compute the demands of each output pixel of each pass, in order.

    A pixel a cycle within an output row, from 4 cycles behind the pass on; ``stride_rows + 3``
    cycles between output rows, which a queue behind this unit hides.

    Taps in the padding are left out: kernel rows above and below the map, and whole words of
    the run left and right of it. Bytes of the words at its edges are masked. In a depthwise pass
    whole kernel columns are left out left and right, and nothing is masked.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(WindowPass))
        The window stays below column 2^16 and word 2^16 of a row.
    o : Out(stream.Signature(Pixel))
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {"i": In(stream.Signature(WindowPass)), "o": Out(stream.Signature(Pixel(config)))}
        )

    def elaborate(self, platform):
        m = Module()
        spec = Signal(WindowPass)
        edge, clip = Signal(_Edge(self._config)), Signal(_Clip(self._config))
        out_rows_left, columns_left = Signal(16), Signal(16)
        pixel, last_row = self.o.payload, Signal()
        m.d.comb += last_row.eq(out_rows_left == 1)

        # A pixel is clipped in two steps with the registers `clip` in between.
        clipped, free = Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(clipped),
            free.eq(~clipped | self.o.ready),
            pixel.row_end.eq(clip.row_end),
            pixel.pass_end.eq(clip.row_end & last_row),
        ]
        with m.If(self.o.ready):
            m.d.sync += clipped.eq(0)
        with m.If(self.o.valid & self.o.ready & clip.row_end):
            m.d.sync += out_rows_left.eq(out_rows_left - 1)

        start, step, stepped = Signal(), Signal(), Signal()
        self._elaborate_rows(m, spec, start, step, stepped, last_row)
        next_edge, next_clip = self._elaborate_left(m, spec, edge)
        self._elaborate_right(m, spec, clip)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), start.eq(1)]
                m.d.sync += [
                    spec.eq(self.i.payload),
                    out_rows_left.eq(self.i.payload.out_rows),
                ]
                with m.If(self.i.valid):
                    m.next = "START"

            with m.State("START"):  # rows are clipped in two steps too
                m.next = "ROW"

            with m.State("ROW"):
                m.d.sync += [
                    edge.column.eq(spec.first_column),
                    edge.word.eq(spec.first_word),
                    edge.place.eq(spec.first_wrapped),
                    edge.byte.eq(spec.first_byte),
                    columns_left.eq(spec.out_columns),
                ]
                m.next = "PIXELS"

            with m.State("PIXELS"):
                with m.If(free):
                    m.d.sync += [
                        clipped.eq(1),
                        clip.eq(next_clip),
                        clip.row_end.eq(columns_left == 1),
                        edge.eq(next_edge),
                        columns_left.eq(columns_left - 1),
                    ]
                    with m.If(columns_left == 1):
                        m.next = "STEP"

            with m.State("STEP"):
                m.d.comb += step.eq(free)
                with m.If(free & stepped):
                    m.next = "ROW"
                    with m.If(out_rows_left == 0):
                        m.next = "IDLE"
        return m

    def _elaborate_rows(self, m, spec, start, step, stepped, last_row):
        """Walk down: uppermost row of the window, and the rows in the line buffer.

        ``start``: a pass may begin. ``step``: go down a row, until ``stepped``.
        """
        depth, pixel = self._config.line_bank_words, self.o.payload
        # Uppermost row of the window, and its bank if the map went on above.
        top, top_phase = Signal(signed(17)), Signal(range(BANKS))
        # The oldest row in the ring: its bank and place, and the rows since the start.
        bank, row_index = Signal(range(BANKS)), Signal(16)
        starts = Array(Signal(range(depth), name=f"start{b}") for b in range(BANKS))
        rows_left, skipped_words = Signal(16), Signal(16)
        retire_left, steps_left, reach = Signal(16), Signal(8), Signal(8)
        retiring = self._elaborate_row_clip(m, spec, top, reach, rows_left, row_index, last_row)
        m.d.comb += [
            pixel.bank.eq(bank),
            pixel.top_bank.eq(Mux(top < 0, wrap_add(bank, top_phase, BANKS), bank)),
            *(pixel.starts[b].eq(starts[b]) for b in range(BANKS)),
            pixel.skipped_words.eq(skipped_words),
            stepped.eq((steps_left == 0) & (retire_left == 0)),
        ]
        stride, kernel = self.i.payload.stride_rows, self.i.payload.kernel_rows
        with m.If(start):
            m.d.sync += [
                top.eq(self.i.payload.top),
                reach.eq(Mux(stride < kernel, stride, kernel)),
                top_phase.eq(self.i.payload.top_bank),
                rows_left.eq(self.i.payload.rows),
                skipped_words.eq(self.i.payload.clipped_words),
            ]
        with m.Elif(step):
            with m.If(retire_left != 0):
                m.d.sync += [
                    retire_left.eq(retire_left - 1),
                    starts[bank].eq(wrap_add(starts[bank], spec.row_pitch, depth)),
                    bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                    row_index.eq(row_index + 1),
                    rows_left.eq(rows_left - 1),
                ]
            with m.If(steps_left != 0):
                m.d.sync += [
                    steps_left.eq(steps_left - 1),
                    top.eq(top + 1),
                    top_phase.eq(Mux(top_phase == BANKS - 1, 0, top_phase + 1)),
                ]
                with m.If((top < 0) & (top + spec.kernel_rows >= 0) & ~spec.depthwise):
                    m.d.sync += skipped_words.eq(skipped_words - spec.run_words)
        with m.Else():
            m.d.sync += [retire_left.eq(retiring), steps_left.eq(spec.stride_rows)]

    def _elaborate_row_clip(self, m, spec, top, reach, rows_left, row_index, last_row):
        """Clip the window above and below; return the rows that retire after this output row.

        ``reach``: kernel rows that the next output row does not need.
        The results are there three cycles after ``top``: two steps, and the row that is needed.
        """
        pixel = self.o.payload
        below, keep = Signal(signed(18)), Signal(signed(18))
        m.d.comb += [below.eq(top + spec.kernel_rows), keep.eq(top + reach)]
        first, end, keep_end = Signal(16), Signal(signed(18)), Signal(signed(18))
        m.d.sync += [
            first.eq(Mux(top < 0, 0, top)),
            pixel.skipped_rows.eq(Mux(top < 0, -top, 0)),
            end.eq(Mux(below > spec.in_rows, spec.in_rows, below)),
            keep_end.eq(Mux(keep > spec.in_rows, spec.in_rows, keep)),
        ]
        rows, retiring = Signal.like(pixel.rows), Signal(16)
        m.d.sync += [
            rows.eq(Mux(end > first, end - first, 0)),
            pixel.end_row.eq(end - top),
            retiring.eq(Mux(keep_end > first, keep_end - first, 0)),
        ]
        with m.If(last_row):
            m.d.sync += retiring.eq(rows_left)

        needed, needed_at_end = Signal(16), Signal(16)
        m.d.sync += [
            needed.eq(row_index + rows - 1),
            needed_at_end.eq(row_index + Mux(retiring > rows, retiring, rows) - 1),
        ]
        m.d.comb += [
            pixel.rows.eq(rows),
            pixel.retire.eq(retiring),
            pixel.frees.eq(retiring != 0),
            pixel.need_row.eq(Mux(pixel.row_end & pixel.frees, needed_at_end, needed)),
        ]
        return retiring

    def _elaborate_left(self, m, spec, edge):
        """First step: clip the run on the left; return the next pixel's left edge, and the clip."""
        config, depth = self._config, self._config.line_bank_words
        # Add stride * C, carry from bytes to words.
        next_edge = Signal.like(edge)
        byte_sum, carry = Signal(range(2 * config.in_lanes)), Signal()
        m.d.comb += [
            byte_sum.eq(edge.byte + spec.step_byte),
            carry.eq(byte_sum >= config.in_lanes),
            next_edge.byte.eq(Mux(carry, byte_sum - config.in_lanes, byte_sum)),
            next_edge.word.eq(edge.word + spec.step_words + carry),
            next_edge.column.eq(edge.column + spec.stride_columns),
        ]
        step_place = (spec.step_wrapped + carry)[: len(edge.place) + 1]
        m.d.comb += next_edge.place.eq(wrap_add(edge.place, step_place, depth))

        # The taps before the row are left out, all but a ragged word.
        clip = Signal(_Clip(config))
        word, byte = edge.word, edge.byte
        tap, left, ragged = Signal(signed(17)), Signal(), Signal()
        m.d.comb += [
            tap.eq(Mux(spec.depthwise, edge.column, word)),
            left.eq(tap < 0),
            ragged.eq((word < 0) & (byte != 0) & ~spec.depthwise),
            clip.first.eq(Mux(left, -tap - ragged, 0)),
            clip.place.eq(Mux(left, Mux(ragged, depth - 1, 0), edge.place)),
            clip.byte.eq(Mux(left & spec.depthwise, 0, byte)),
            clip.mask_low.eq(Mux(ragged, config.in_lanes - byte, 0)),
        ]
        # Words of the run before the end of the row, one more if its ragged tail spills over; or
        # columns, of which none is ragged.
        run_last, row_last, spills = Signal(16), Signal(16), Signal()
        m.d.sync += [
            run_last.eq(Mux(spec.depthwise, spec.kernel_columns, spec.run_words) - 1),
            row_last.eq(Mux(spec.depthwise, spec.in_columns, spec.row_words) - 1),
        ]
        full = Mux(spec.row_tail > byte, 0, config.in_lanes)
        m.d.comb += [
            spills.eq((spec.row_tail > byte) | spec.depthwise),
            clip.to_row.eq(row_last + spills + Mux(left, Mux(ragged, 0, -1), ~tap)),
            clip.to_run.eq(run_last + Mux(left, tap + ragged, 0)),
            clip.row_tail.eq(Mux(spec.depthwise, config.in_lanes, spec.row_tail - byte + full)),
            clip.needed.eq(word + spec.run_words + (byte != 0)),
            clip.keep_from.eq(next_edge.word),
        ]
        return next_edge, clip

    def _elaborate_right(self, m, spec, clip):
        """Second step: clip the run on the right."""
        config, pixel = self._config, self.o.payload
        shorter, equal = Signal(), Signal()
        run_tail = Signal(range(config.in_lanes + 1))
        m.d.sync += run_tail.eq(Mux(spec.depthwise, config.in_lanes, spec.run_tail))
        m.d.comb += [
            shorter.eq(clip.to_row < clip.to_run),
            equal.eq(clip.to_row == clip.to_run),
            pixel.first_word.eq(clip.first),
            pixel.words.eq(Mux(shorter, clip.to_row, clip.to_run)),
            pixel.place.eq(clip.place),
            pixel.byte.eq(clip.byte),
            pixel.mask_low.eq(clip.mask_low),
            pixel.mask_high.eq(run_tail),
        ]
        with m.If(shorter | (equal & (clip.row_tail < run_tail))):
            m.d.comb += pixel.mask_high.eq(clip.row_tail)
        # Nothing is left where row or run end in front of the first tap, be it within a word.
        row_ends = (clip.to_row < 0) | ((clip.to_row == 0) & (clip.mask_low >= clip.row_tail))
        run_ends = (clip.to_run < 0) | ((clip.to_run == 0) & (clip.mask_low >= run_tail))
        m.d.comb += [
            pixel.empty.eq(row_ends | run_ends | (pixel.rows == 0)),
            pixel.needs.eq(~pixel.empty),
            pixel.need_words.eq(Mux(clip.needed < spec.row_words, clip.needed, spec.row_words)),
            pixel.keep_from.eq(
                Mux(
                    clip.keep_from < 0,
                    0,
                    Mux(clip.keep_from < spec.row_words, clip.keep_from, spec.row_words),
                )
            ),
        ]
        with m.If(pixel.row_end & pixel.frees):
            m.d.comb += [pixel.needs.eq(1), pixel.need_words.eq(spec.row_words)]

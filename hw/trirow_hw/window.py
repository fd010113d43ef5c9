"""Walk the window over the feature map: what each output pixel needs from the line buffer."""

from __future__ import annotations

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .modular import add_carry, wrap_add
from .pixel import Pixel, WindowPass

__all__ = ["Pixel", "Window", "WindowPass"]


def _Edge(config: Config):
    """Return the layout of the window's left edge in the row.

    ``column``; ``word`` of its first channel; ``place``: the word modulo the bank. ``byte``: of the
    first channel, counted up to a power of two, so that byte and word are one number.
    """
    return data.StructLayout(
        {
            "column": signed(17),
            "word": signed(17),
            "place": range(config.line_bank_words),
            "byte": range(config.in_lanes),
        }
    )


def _Cut(config: Config):
    """Return the layout between the first two steps of clipping a row of the window.

    ``left``: the run begins in front of the row; ``ragged``: in the middle of a word there.
    ``before``: taps in front of the row, negative; ``after``: what the taps of the row lose, less
    one. ``spills``: the row's ragged tail needs a tap more.
    """
    return data.StructLayout(
        {
            "word": signed(17),
            "place": range(config.line_bank_words),
            "byte": range(config.in_lanes),
            "left": 1,
            "ragged": 1,
            "before": signed(17),
            "after": signed(17),
            "spills": 1,
            "keep_from": signed(17),
            "row_end": 1,
        }
    )


def _Clip(config: Config):
    """Return the layout between the last two steps of clipping a row of the window.

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

    A pixel a cycle within an output row, from 6 cycles behind the pass on; ``stride_rows + 5``
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
        edge, cut = Signal(_Edge(self._config)), Signal(_Cut(self._config))
        clip = Signal(_Clip(self._config))
        out_rows_left, columns_left = Signal(16), Signal(16)
        last_row, last_column = Signal(), Signal()
        m.d.sync += last_row.eq(out_rows_left == 1)

        # A pixel is clipped in three steps: from `edge` to `cut`, to `clip`, to the output.
        comes, cut_valid, clip_valid, free = Signal(), Signal(), Signal(), Signal()
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        with m.If(free):
            m.d.sync += [cut_valid.eq(comes), clip_valid.eq(cut_valid), self.o.valid.eq(clip_valid)]

        start, begin, step, stepped = Signal(), Signal(), Signal(), Signal()
        row, needed_at_end = self._elaborate_rows(m, spec, start, begin, step, stepped, last_row)
        next_edge, next_cut = self._elaborate_left(m, spec, edge)
        next_clip = self._elaborate_middle(m, spec, cut)
        pixel = self._elaborate_right(m, spec, clip, row, needed_at_end, last_row)
        with m.If(free):
            m.d.sync += [
                cut.eq(next_cut),
                cut.row_end.eq(last_column),
                clip.eq(next_clip),
                self.o.payload.eq(pixel),
            ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.i.ready.eq(1), start.eq(1)]
                m.d.sync += [
                    spec.eq(self.i.payload),
                    out_rows_left.eq(self.i.payload.out_rows),
                ]
                with m.If(self.i.valid):
                    m.next = "START"

            with m.State("START"):
                m.d.comb += begin.eq(1)
                m.next = "ROW"

            with m.State("ROW"):
                m.d.sync += [
                    edge.column.eq(spec.first_column),
                    edge.word.eq(spec.first_word),
                    edge.place.eq(spec.first_wrapped),
                    edge.byte.eq(spec.first_byte + self._unused),
                    columns_left.eq(spec.out_columns),
                    last_column.eq(spec.out_columns == 1),
                ]
                m.next = "PIXELS"

            with m.State("PIXELS"):
                m.d.comb += comes.eq(1)
                with m.If(free):
                    m.d.sync += [
                        edge.eq(next_edge),
                        columns_left.eq(columns_left - 1),
                        last_column.eq(columns_left == 2),
                    ]
                    with m.If(last_column):
                        m.next = "LAST"

            with m.State("LAST"):  # the last pixel of the row leaves
                with m.If(free & ~cut_valid):
                    m.d.sync += step.eq(1)
                    m.next = "STEP"

            with m.State("STEP"):
                with m.If(stepped):
                    m.d.sync += [step.eq(0), out_rows_left.eq(out_rows_left - 1)]
                    m.next = "ROW"
                    with m.If(last_row):
                        m.next = "IDLE"
        return m

    @property
    def _unused(self):
        """Values of a byte's number that no byte has."""
        return (1 << (self._config.in_lanes - 1).bit_length()) - self._config.in_lanes

    def _elaborate_rows(self, m, spec, start, begin, step, stepped, last_row):
        """Walk down: uppermost row of the window, and the rows in the line buffer.

        ``start``: a pass may begin, and does with ``begin``. ``step``: go down a row, until
        ``stepped``. Return the part of a pixel that is the same in the whole row, and the row that
        its last pixel needs.
        """
        depth, row = self._config.line_bank_words, Signal(Pixel(self._config))
        # Uppermost row of the window, its bank if the map went on above, and the row below it.
        top, top_phase, below = Signal(signed(17)), Signal(range(BANKS)), Signal(signed(18))
        # The oldest row in the ring: its bank and place, and the rows since the start.
        bank, row_index = Signal(range(BANKS)), Signal(16)
        starts = Array(Signal(range(depth), name=f"start{b}") for b in range(BANKS))
        pitch_less = Signal(signed(len(starts[0]) + 1))
        m.d.sync += pitch_less.eq(spec.row_pitch - depth)
        pitch = spec.row_pitch[: len(starts[0])]
        rows_left, skipped_words = Signal(16), Signal(16)
        retire_left, steps_left, reach = Signal(16), Signal(8), Signal(8)
        retiring, needed_at_end = self._elaborate_row_clip(
            m, spec, row, (top, below, reach), rows_left, row_index, last_row
        )
        m.d.comb += [
            row.bank.eq(bank),
            row.top_bank.eq(Mux(top < 0, wrap_add(bank, top_phase, BANKS), bank)),
            *(row.starts[b].eq(starts[b]) for b in range(BANKS)),
            row.skipped_words.eq(skipped_words),
            stepped.eq((steps_left == 0) & (retire_left == 0)),
        ]
        stride, kernel = self.i.payload.stride_rows, self.i.payload.kernel_rows
        with m.If(begin):
            m.d.sync += below.eq(top + spec.kernel_rows)
        with m.If(start):
            m.d.sync += [
                top.eq(self.i.payload.top),
                reach.eq(Mux(stride < kernel, stride, kernel)),
                top_phase.eq(self.i.payload.top_bank),
                rows_left.eq(self.i.payload.rows),
                skipped_words.eq(self.i.payload.clipped_words),
            ]
        with m.If(step):
            with m.If(retire_left != 0):
                m.d.sync += [
                    retire_left.eq(retire_left - 1),
                    starts[bank].eq(wrap_add(starts[bank], pitch, depth, less=pitch_less)),
                    bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                    row_index.eq(row_index + 1),
                    rows_left.eq(rows_left - 1),
                ]
            with m.If(steps_left != 0):
                m.d.sync += [
                    steps_left.eq(steps_left - 1),
                    top.eq(top + 1),
                    below.eq(below + 1),
                    top_phase.eq(Mux(top_phase == BANKS - 1, 0, top_phase + 1)),
                ]
                with m.If((top < 0) & (below >= 0) & ~spec.depthwise):
                    m.d.sync += skipped_words.eq(skipped_words - spec.run_words)
        with m.Else():
            m.d.sync += [retire_left.eq(retiring), steps_left.eq(spec.stride_rows)]
        return row, needed_at_end

    def _elaborate_row_clip(self, m, spec, row, window, rows_left, row_index, last_row):
        """Clip the window above and below.

        Return the rows that retire after this output row, and the row that its last pixel needs.

        ``window``: its uppermost row, the row below it, and the kernel rows that the next output
        row does not need. The results are there four cycles after ``top``: three steps, and what
        is made of the rows.
        """
        top, below, reach = window
        keep = Signal(signed(18))
        a_first, a_skipped, first = Signal(16), Signal(8), Signal(16)
        end, keep_end = Signal(signed(18)), Signal(signed(18))
        m.d.sync += [
            keep.eq(top + reach),
            a_first.eq(Mux(top < 0, 0, top)),
            a_skipped.eq(Mux(top < 0, -top, 0)),
            first.eq(a_first),
            end.eq(Mux(below > spec.in_rows, spec.in_rows, below)),
            keep_end.eq(Mux(keep > spec.in_rows, spec.in_rows, keep)),
        ]
        rows, retiring = Signal.like(row.rows), Signal(16)
        skipped_rows, end_row = Signal.like(row.skipped_rows), Signal.like(row.end_row)
        inside, outside = end - first, Signal()
        kept_out = keep_end - first
        m.d.comb += outside.eq(inside < 0)
        m.d.sync += [
            rows.eq(Mux(outside, 0, inside)),
            skipped_rows.eq(a_skipped),
            end_row.eq(end - top),
            retiring.eq(Mux(kept_out < 0, 0, kept_out)),
        ]
        with m.If(last_row):
            m.d.sync += retiring.eq(rows_left)

        # The next output row needs no row that this one does not, but the last one ends the map.
        taken = self._config.tap_rows
        needed, needed_at_end, frees = Signal(16), Signal(16), Signal()
        one_step, first_rows, no_rows = Signal(), Signal(taken), Signal()
        m.d.sync += [
            needed.eq(row_index + rows - 1),
            needed_at_end.eq(row_index + Mux(last_row, rows_left, rows) - 1),
            frees.eq(retiring != 0),
            no_rows.eq(rows == 0),
            one_step.eq(Mux(spec.depthwise, end_row <= taken, rows <= 1)),
            *(
                first_rows[p].eq(Mux(spec.depthwise, (skipped_rows <= p) & (end_row > p), p == 0))
                for p in range(taken)
            ),
        ]
        m.d.comb += [
            row.rows.eq(rows),
            row.skipped_rows.eq(skipped_rows),
            row.end_row.eq(end_row),
            row.empty.eq(no_rows),
            row.one_step.eq(one_step),
            row.inside.eq(first_rows),
            row.retire.eq(retiring),
            row.frees.eq(frees),
            row.need_row.eq(needed),
        ]
        return retiring, needed_at_end

    def _elaborate_left(self, m, spec, edge):
        """First step: return the next pixel's left edge, and where the taps of this one begin."""
        config, depth, bits = self._config, self._config.line_bank_words, len(edge.byte)
        # Add stride * C, carry from bytes to words.
        next_edge = Signal.like(edge)
        step_byte = spec.step_byte[:bits]
        step, step_less = Signal(range(depth << bits)), Signal(signed(len(edge.place) + bits + 1))
        m.d.sync += [
            step.eq(Cat(step_byte, spec.step_wrapped)),
            step_less.eq(Cat(step_byte, spec.step_wrapped) - (depth << bits)),
        ]
        byte_sum = edge.byte + step_byte
        place_sum = wrap_add(Cat(edge.byte, edge.place), step, depth << bits, less=step_less)
        word_sum = Cat(edge.byte, edge.word) + Cat(step_byte, spec.step_words)
        m.d.comb += [
            next_edge.byte.eq(Mux(byte_sum[bits], byte_sum + self._unused, byte_sum)),
            next_edge.word.eq(word_sum >> bits),
            next_edge.place.eq(place_sum >> bits),
            next_edge.column.eq(edge.column + spec.stride_columns),
        ]

        # The taps before the row are left out, all but a ragged word.
        cut = Signal(_Cut(config))
        tap, byte = Signal(signed(17)), Signal.like(edge.byte)
        m.d.comb += [
            tap.eq(Mux(spec.depthwise, edge.column, edge.word)),
            byte.eq(edge.byte - self._unused),
            cut.word.eq(edge.word),
            cut.place.eq(edge.place),
            cut.byte.eq(byte),
            cut.left.eq(tap < 0),
            cut.ragged.eq((edge.word < 0) & (byte != 0) & ~spec.depthwise),
            cut.before.eq(Mux(tap < 0, tap, 0)),
            cut.after.eq(Mux(tap < 0, Mux(cut.ragged, 0, -1), ~tap)),
            cut.spills.eq((spec.row_tail > byte) | spec.depthwise),
            cut.keep_from.eq(next_edge.word),
        ]
        return next_edge, cut

    def _elaborate_middle(self, m, spec, cut):
        """Second step: clip the run on the left; return the distances to its ends."""
        config, depth = self._config, self._config.line_bank_words
        # Words of the run before the end of the row, one more if its ragged tail spills over; or
        # columns, of which none is ragged.
        run_last, row_last = Signal(signed(18)), Signal(signed(18))
        m.d.sync += [
            run_last.eq(Mux(spec.depthwise, spec.kernel_columns, spec.run_words) - 1),
            row_last.eq(Mux(spec.depthwise, spec.in_columns, spec.row_words) - 1),
        ]
        byte, left, ragged = cut.byte, cut.left, cut.ragged
        before, after, word = Signal(signed(18)), Signal(signed(18)), Signal(signed(18))
        run_words, first = Signal(signed(18)), Signal(signed(18))
        clip = Signal(_Clip(config))
        full = Mux(spec.row_tail > byte, 0, config.in_lanes)
        m.d.comb += [
            before.eq(cut.before),
            after.eq(cut.after),
            word.eq(cut.word),
            run_words.eq(spec.run_words),
            first.eq(Mux(left, ~cut.before, 0)),
            clip.first.eq(add_carry(first, C(0, signed(18)), left & ~ragged)),
            clip.place.eq(Mux(left, Mux(ragged, depth - 1, 0), cut.place)),
            clip.byte.eq(Mux(left & spec.depthwise, 0, byte)),
            clip.mask_low.eq(Mux(ragged, config.in_lanes - byte, 0)),
            clip.to_row.eq(add_carry(row_last, after, cut.spills)),
            clip.to_run.eq(add_carry(run_last, before, ragged)),
            clip.row_tail.eq(Mux(spec.depthwise, config.in_lanes, spec.row_tail - byte + full)),
            clip.needed.eq(add_carry(word, run_words, byte != 0)),
            clip.keep_from.eq(cut.keep_from),
            clip.row_end.eq(cut.row_end),
        ]
        return clip

    def _elaborate_right(self, m, spec, clip, row, needed_at_end, last_row):
        """Third step: clip the run on the right; return the pixel."""
        config, pixel = self._config, Signal(Pixel(self._config))
        shorter, equal, row_words = Signal(), Signal(), spec.row_words
        run_tail = Signal(range(config.in_lanes + 1))
        m.d.sync += run_tail.eq(Mux(spec.depthwise, config.in_lanes, spec.run_tail))
        m.d.comb += [
            pixel.eq(row),
            shorter.eq(clip.to_row < clip.to_run),
            equal.eq(clip.to_row == clip.to_run),
            pixel.first_word.eq(clip.first),
            pixel.words.eq(Mux(shorter, clip.to_row, clip.to_run)),
            pixel.place.eq(clip.place),
            pixel.byte.eq(clip.byte),
            pixel.mask_low.eq(clip.mask_low),
            pixel.mask_high.eq(run_tail),
            pixel.row_end.eq(clip.row_end),
            pixel.pass_end.eq(clip.row_end & last_row),
        ]
        with m.If(shorter | (equal & (clip.row_tail < run_tail))):
            m.d.comb += pixel.mask_high.eq(clip.row_tail)
        # Nothing is left where row or run end in front of the first tap, be it within a word.
        row_last, run_last = clip.to_row == 0, clip.to_run == 0
        row_ends = (clip.to_row < 0) | (row_last & (clip.mask_low >= clip.row_tail))
        run_ends = (clip.to_run < 0) | (run_last & (clip.mask_low >= run_tail))
        empty = row_ends | run_ends | row.empty
        keep_all = clip.keep_from >= row_words
        m.d.comb += [
            pixel.empty.eq(empty),
            pixel.single.eq(empty | Mux(shorter, row_last, run_last)),
            pixel.one_step.eq(empty | row.one_step),
            pixel.inside.eq(Mux(empty, 0, row.inside)),
            pixel.needs.eq(~empty),
            pixel.need_words.eq(Mux(clip.needed < row_words, clip.needed, row_words)),
            pixel.keep_from.eq(
                Mux(clip.keep_from < 0, 0, Mux(keep_all, row_words, clip.keep_from))
            ),
        ]
        with m.If(clip.row_end & row.frees):
            m.d.comb += [
                pixel.needs.eq(1),
                pixel.need_row.eq(needed_at_end),
                pixel.need_words.eq(row_words),
            ]
        return pixel

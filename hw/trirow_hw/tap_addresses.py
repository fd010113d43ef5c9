"""Where each tap finds its features in the line buffer and its weights in the array."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .line_buffer import LineRead
from .mac_array import Tap
from .modular import wrap, wrap_add
from .pixel import Pixel

__all__ = ["IssuePass", "Mask", "Position", "TapAddresses"]

#: What the issuer needs to know of a pass; see the fields of the descriptor.
IssuePass = data.StructLayout(
    {
        "depthwise": 1,
        "maximum": 1,
        "row_words": 16,
        "row_pitch": 16,
        "step_weights": 16,
        "tap_words": 16,
        "tap_byte": 8,
        "columns": 8,
        "last_columns": 8,
        "spacing": 8,
        "group_words": 16,
        "groups": 16,
        "group_lanes": 8,
        "last_lanes": 8,
        "zero_in": signed(8),
        "keep_weights": 1,
        "second": 1,
        "kept_out": 1,
        "index": 16,
    }
)


def Mask(config: Config):
    """Return the layout of what turns runs into activations.

    Of the runs in ``rows`` the bytes from ``low`` up to ``high``, exclusive, count; ``zero`` is
    their zero point. ``maximum``: take the largest of the runs, not each of them.
    """
    return data.StructLayout(
        {
            "rows": config.tap_rows,
            "low": range(config.in_lanes + 1),
            "high": range(config.in_lanes + 1),
            "zero": signed(8),
            "maximum": 1,
        }
    )


def Position(config: Config):
    """Return the layout of a tap's position in its pixel.

    ``first_group``: it is in the first lane group; ``begins`` and ``ends``: it is the first and the
    last of its lane group, ``step_begins`` and ``step_ends``: of its step. ``word``: number of the
    tap in the step. ``rows``: kernel rows of the step that are inside the map, from the uppermost
    one on. ``group_place``: place of the lane group in the weight memories.
    """
    return data.StructLayout(
        {
            "first_group": 1,
            "begins": 1,
            "ends": 1,
            "step_begins": 1,
            "step_ends": 1,
            "word": 16,
            "rows": config.tap_rows,
            "group_place": range(config.weight_words),
        }
    )


class TapAddresses(wiring.Component):
    """Follow the taps of a pixel through the line buffer and the weight memories.

    A step of a dense pass is a kernel row, and its taps are the words of the run. A step of a
    depthwise pass is ``tap_rows`` kernel rows, which are in different banks, and its taps are the
    kernel columns; the lane groups follow each other in the row, a word each.

    Latency 2 cycles to all outputs, a tap a cycle, no back-pressure.

    Parameters
    ----------
    config : Config

    Members
    -------
    spec : In(IssuePass), pixel : In(Pixel)
        Of the present tap.
    position : In(Position), issued : In(1)
        The tap, and whether it is issued.
    read : Out(LineRead), mask : Out(Mask), tap : Out(Tap)
        What belongs to it.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "spec": In(IssuePass),
                "pixel": In(Pixel(config)),
                "position": In(Position(config)),
                "issued": In(1),
                "read": Out(LineRead(config)),
                "mask": Out(Mask(config)),
                "tap": Out(Tap(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth, spec, pixel = self._config.line_bank_words, self.spec, self.pixel
        bank, lines = self._elaborate_lines(m)
        place, byte = self._elaborate_row(m)
        # First stage: offsets. Second: places.
        a_lines = [Signal(range(depth), name=f"a_line{b}") for b in range(BANKS)]
        a_place = Signal(range(depth))
        a_bank, a_byte = Signal.like(self.read.bank), Signal.like(self.read.byte)
        m.d.sync += [
            *(a_line.eq(line) for a_line, line in zip(a_lines, lines, strict=True)),
            a_place.eq(place),
            a_bank.eq(bank),
            a_byte.eq(byte),
            self.read.bank.eq(a_bank),
            self.read.byte.eq(a_byte),
            *(self.read.words[b].eq(wrap_add(a_lines[b], a_place, depth)) for b in range(BANKS)),
        ]

        position, mask = self.position, Signal(Mask(self._config))
        m.d.sync += [
            mask.rows.eq(Mux(pixel.empty, 0, position.rows)),
            mask.low.eq(Mux(position.step_begins, pixel.mask_low, 0)),
            mask.high.eq(Mux(position.step_ends, pixel.mask_high, self._config.in_lanes)),
            mask.zero.eq(spec.zero_in),
            mask.maximum.eq(spec.maximum),
            self.mask.eq(mask),
        ]
        with m.If(pixel.empty):
            m.d.sync += mask.high.eq(0)
        self._elaborate_weights(m)
        return m

    def _elaborate_lines(self, m):
        """Return the bank of the step's uppermost row, and the place of a row in each bank."""
        config, depth = self._config, self._config.line_bank_words
        spec, pixel, position = self.spec, self.pixel, self.position
        bank, bank_here = Signal(range(BANKS)), Signal(range(BANKS))
        step = Mux(spec.depthwise, config.tap_rows % BANKS, 1)
        first_bank = Mux(spec.depthwise, pixel.top_bank, pixel.bank)
        m.d.comb += bank_here.eq(Mux(position.begins, first_bank, bank))
        next_bank = wrap_add(bank_here, step, BANKS)
        with m.If(self.issued):
            m.d.sync += bank.eq(Mux(position.step_ends, next_bank, bank_here))

        # A bank goes on to its next row behind a step that has a row in it.
        lines_here = []
        for b in range(BANKS):
            line = Signal(range(depth), name=f"line{b}")
            line_here = Signal(range(depth), name=f"line_here{b}")
            m.d.comb += line_here.eq(Mux(position.begins, pixel.starts[b], line))
            lines_here.append(line_here)
            used = Signal(name=f"used{b}")
            for p in range(config.tap_rows):
                with m.If(position.rows[p] & (bank_here == (b - p) % BANKS)):
                    m.d.comb += used.eq(1)
            with m.If(self.issued):
                m.d.sync += line.eq(line_here)
                with m.If(position.step_ends & used):
                    m.d.sync += line.eq(wrap_add(line_here, spec.row_pitch, depth))
        return bank_here, lines_here

    def _elaborate_row(self, m):
        """Return word and byte of the tap in its row."""
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        spec, pixel, position = self.spec, self.pixel, self.position
        # Where the lane group begins, and the tap; both at the same byte of a word.
        start, start_here = Signal(range(depth)), Signal(range(depth))
        place, place_here = Signal(range(depth)), Signal(range(depth))
        byte, byte_here = Signal(range(lanes)), Signal(range(lanes))
        m.d.comb += [
            start_here.eq(Mux(position.first_group, pixel.place, start)),
            place_here.eq(Mux(position.step_begins, start_here, place)),
            byte_here.eq(Mux(position.step_begins, pixel.byte, byte)),
        ]
        byte_sum, carry = Signal(range(2 * lanes)), Signal()
        m.d.comb += [
            byte_sum.eq(byte_here + spec.tap_byte),
            carry.eq(byte_sum >= lanes),
        ]
        next_place = wrap(place_here + spec.tap_words[: len(place)] + carry, depth)
        next_start = wrap_add(start_here, 1, depth)
        with m.If(self.issued):
            m.d.sync += [
                place.eq(next_place),
                byte.eq(Mux(carry, byte_sum - lanes, byte_sum)),
                start.eq(Mux(position.ends & spec.depthwise, next_start, start_here)),
            ]
        return place_here, byte_here

    def _elaborate_weights(self, m):
        """Find the tap's weights: behind those of the steps before, or one word for all."""
        spec, pixel, position = self.spec, self.pixel, self.position
        depth = self._config.weight_words
        step, step_here = Signal(16), Signal(16)
        m.d.comb += step_here.eq(Mux(position.begins, pixel.skipped_words, step))
        with m.If(self.issued):
            m.d.sync += step.eq(step_here + Mux(position.step_ends, spec.step_weights, 0))

        a_group, a_offset = Signal(range(depth)), Signal(16)
        a_tap = Signal(Tap(self._config))
        m.d.sync += [
            a_group.eq(position.group_place),
            a_offset.eq(step_here + pixel.first_word + position.word),
            a_tap.valid.eq(self.issued),
            a_tap.first.eq(position.begins),
            a_tap.last.eq(position.ends),
            a_tap.depthwise.eq(spec.depthwise),
            a_tap.maximum.eq(spec.maximum),
            self.tap.eq(a_tap),
            self.tap.word.eq(wrap_add(a_group, a_offset[: len(a_group)], depth)),
        ]
        with m.If(spec.step_weights == 0):  # a pool
            m.d.sync += a_offset.eq(0)

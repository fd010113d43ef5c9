"""Where each tap finds its features in the line buffer and its weights in the array."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .line_buffer import LineRead
from .mac_array import Tap
from .modular import wrap, wrap_add
from .pixel import Pixel

__all__ = ["Advance", "IssuePass", "Mask", "Position", "TapAddresses"]

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

    ``begins`` and ``ends``: it is the first and the last of its lane group, ``step_begins`` and
    ``step_ends``: of its step. ``fresh``: a pixel begins behind it. Where there is no tap,
    ``fresh``, ``ends`` and ``step_ends`` are set. ``rows``: kernel rows of the step that are inside
    the map, from the uppermost one on. ``group_place``: place of the lane group in the weight
    memories.
    """
    return data.StructLayout(
        {
            "fresh": 1,
            "begins": 1,
            "ends": 1,
            "step_begins": 1,
            "step_ends": 1,
            "rows": config.tap_rows,
            "group_place": range(config.weight_words),
        }
    )


#: What begins in the next cycle: a tap; also a step; also a lane group; also a pixel.
Advance = data.StructLayout({"tap": 1, "step": 1, "group": 1, "pixel": 1})


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
    spec : In(IssuePass)
        Of the present tap and of the next pixel, from the cycle before the first of them on.
    pixel : In(Pixel)
        The next pixel.
    position : In(Position), issued : In(1)
        The tap, and whether it is issued.
    advance : In(Advance)
        What begins behind it in this cycle.
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
                "advance": In(Advance),
                "read": Out(LineRead(config)),
                "mask": Out(Mask(config)),
                "tap": Out(Tap(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self._config.line_bank_words
        bank, lines = self._elaborate_lines(m)
        place, byte = self._elaborate_row(m)
        # First stage: line and place together. Second: around the end of the bank.
        a_words = [Signal(range(2 * depth), name=f"a_word{b}") for b in range(BANKS)]
        a_bank, a_byte = Signal.like(self.read.bank), Signal.like(self.read.byte)
        m.d.sync += [
            *(a_word.eq(line + place) for a_word, line in zip(a_words, lines, strict=True)),
            a_bank.eq(bank),
            a_byte.eq(byte),
            self.read.bank.eq(a_bank),
            self.read.byte.eq(a_byte),
            *(self.read.words[b].eq(wrap(a_words[b], depth)) for b in range(BANKS)),
        ]
        self._elaborate_mask(m)
        self._elaborate_weights(m)
        return m

    def _origin(self, m, name, value):
        """Return what a lane group begins with: ``value`` of its pixel."""
        held, origin = (
            Signal.like(value, name=f"{name}0"),
            Signal.like(value, name=f"{name}_origin"),
        )
        m.d.comb += origin.eq(Mux(self.position.fresh, value, held))
        with m.If(self.position.fresh):
            m.d.sync += held.eq(value)
        return origin

    def _elaborate_mask(self, m):
        """Say which bytes of the tap count."""
        config, spec, position = self._config, self.spec, self.position
        low, high = Signal.like(self.mask.low), Signal.like(self.mask.high)
        a_mask = Signal(Mask(config))
        with m.If(self.advance.pixel):
            m.d.sync += [
                low.eq(self.pixel.mask_low),
                high.eq(Mux(self.pixel.empty, 0, self.pixel.mask_high)),
            ]
        m.d.sync += [
            a_mask.rows.eq(position.rows),
            a_mask.low.eq(Mux(position.step_begins, low, 0)),
            a_mask.high.eq(Mux(position.step_ends, high, config.in_lanes)),
            a_mask.zero.eq(spec.zero_in),
            a_mask.maximum.eq(spec.maximum),
            self.mask.eq(a_mask),
        ]

    def _elaborate_lines(self, m):
        """Return the bank of the step's uppermost row, and the place of a row in each bank."""
        config, depth = self._config, self._config.line_bank_words
        spec, pixel, position = self.spec, self.pixel, self.position
        bank = Signal(range(BANKS))
        step = Mux(spec.depthwise, config.tap_rows % BANKS, 1)
        first_bank = self._origin(m, "bank", Mux(spec.depthwise, pixel.top_bank, pixel.bank))
        pitch_less = Signal(signed(len(pixel.place) + 1))
        m.d.sync += pitch_less.eq(spec.row_pitch - depth)
        with m.If(self.advance.step):
            m.d.sync += bank.eq(Mux(position.ends, first_bank, wrap_add(bank, step, BANKS)))

        # A bank goes on to its next row behind a step that has a row in it.
        lines = []
        for b in range(BANKS):
            line, used = Signal(range(depth), name=f"line{b}"), Signal(name=f"used{b}")
            lines.append(line)
            first_line = self._origin(m, f"line{b}", pixel.starts[b])
            for p in range(config.tap_rows):
                with m.If(position.rows[p] & (bank == (b - p) % BANKS)):
                    m.d.comb += used.eq(1)
            next_line = wrap_add(line, spec.row_pitch[: len(line)], depth, less=pitch_less)
            with m.If(self.advance.step & (position.ends | used)):
                m.d.sync += line.eq(Mux(position.ends, first_line, next_line))
        return bank, lines

    def _elaborate_row(self, m):
        """Return word and byte of the tap in its row."""
        lanes, depth = self._config.in_lanes, self._config.line_bank_words
        spec, pixel, position = self.spec, self.pixel, self.position
        bits = len(pixel.byte)
        # Bytes count up to 2^bits, so that word and byte are one number.
        unused = (1 << bits) - lanes
        first_byte = self._origin(m, "byte", (pixel.byte + unused)[:bits])
        # Where the lane group begins, and the tap; both at the same byte of a word.
        start, group_start = Signal(range(depth)), Signal(range(depth))
        place, byte = Signal(range(depth)), Signal(bits)
        tap, tap_less = Signal(range(depth << bits)), Signal(signed(len(place) + bits + 1))
        m.d.sync += [
            tap.eq(Cat(spec.tap_byte[:bits], spec.tap_words)),
            tap_less.eq(Cat(spec.tap_byte[:bits], spec.tap_words) - (depth << bits)),
        ]
        next_place = wrap_add(Cat(byte, place), tap, depth << bits, less=tap_less)
        byte_sum = byte + spec.tap_byte[:bits]
        next_byte = Mux(byte_sum[bits], byte_sum + unused, byte_sum)
        next_start = Mux(spec.depthwise & (start == depth - 1), 0, start + spec.depthwise)
        m.d.comb += group_start.eq(
            Mux(position.fresh, pixel.place, Mux(position.ends, next_start, start))
        )
        with m.If(self.advance.tap):
            m.d.sync += [
                start.eq(group_start),
                place.eq(Mux(position.step_ends, group_start, next_place >> bits)),
                byte.eq(Mux(position.step_ends, first_byte, next_byte)),
            ]
        return place, (byte - unused)[:bits]

    def _elaborate_weights(self, m):
        """Find the tap's weights: behind those of the steps before, or one word for all."""
        spec, pixel, position = self.spec, self.pixel, self.position
        depth = self._config.weight_words
        bits = len(position.group_place)
        step, word = Signal(bits), Signal(bits)
        first = self._origin(m, "word", (pixel.skipped_words + pixel.first_word)[:bits])
        next_step = Signal(bits)
        m.d.comb += next_step.eq(Mux(position.ends, first, step + spec.step_weights))
        with m.If(self.advance.tap):
            m.d.sync += word.eq(Mux(position.step_ends, next_step, word + 1))
        with m.If(self.advance.step):
            m.d.sync += step.eq(next_step)

        a_group, a_word = Signal(range(depth)), Signal(bits)
        pool, a_tap = Signal(), Signal(Tap(self._config))
        m.d.sync += [
            pool.eq(spec.step_weights == 0),
            a_group.eq(position.group_place),
            a_word.eq(Mux(pool, 0, word)),
            a_tap.valid.eq(self.issued),
            a_tap.first.eq(position.begins),
            a_tap.last.eq(position.ends),
            a_tap.depthwise.eq(spec.depthwise),
            a_tap.maximum.eq(spec.maximum),
            self.tap.eq(a_tap),
            self.tap.word.eq(wrap_add(a_group, a_word, depth)),
        ]

"""Issue one tap a cycle to line buffer and array, when everything it needs is there."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, CONSTANT_GROUPS, Config
from .delay import delay
from .feature_reader import Release
from .line_buffer import LineBuffer, LineRead
from .mac_array import MacArray, Tap
from .modular import wrap_add
from .window import Pixel

__all__ = ["GroupTag", "IssuePass", "Mask", "Stall", "TapIssuer"]

#: What the issuer needs to know of a pass; see the fields of the descriptor.
IssuePass = data.StructLayout(
    {
        "row_words": 16,
        "row_pitch": 16,
        "run_words": 16,
        "group_words": 16,
        "groups": 16,
        "last_lanes": 8,
        "zero_in": signed(8),
        "index": 16,
    }
)

#: What follows a lane group's sums: place of its constants, channels, whether the ring's place is
#: free behind it, and whether the pass ends.
GroupTag = data.StructLayout(
    {"group": range(CONSTANT_GROUPS), "lanes": 8, "release": 1, "pass_end": 1}
)

#: Why no tap is issued.
Stall = data.StructLayout({"features": 1, "weights": 1, "output": 1})


def Mask(config: Config):
    """Return the layout of what turns a run into activations.

    Bytes from ``low`` up to ``high``, exclusive, count; ``zero`` is their zero point.
    """
    return data.StructLayout(
        {"low": range(config.in_lanes + 1), "high": range(config.in_lanes + 1), "zero": signed(8)}
    )


class TapIssuer(wiring.Component):
    """For each pixel, each lane group, each kernel row, each word of the run: issue a tap.

    A tap a cycle without a gap between pixels, groups or rows. It waits for the pixel's features,
    for its group's weights, and at the end of a group for room behind the array: nothing behind
    this unit ever waits, so the pipeline has no stall.

    Latency to ``read``: 2 cycles. The tap leaves so that it meets its activations in the array.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(IssuePass)), pixels : In(stream.Signature(Pixel))
    rows_loaded, words_loaded : In(16)
        Progress of the feature reader.
    groups_loaded : In(16)
        Progress of the weight reader.
    room : In(1)
        The results of another group have room.
    read : Out(LineRead)
        To the line buffer.
    mask : Out(Mask)
        With the run that the line buffer gives.
    tap : Out(Tap)
        To the array.
    tag : Out(GroupTag), tag_valid : Out(1)
        Strobe at the last tap of a group.
    release : Out(Release), release_valid : Out(1)
        Places of the line buffer that are free now. The memory reads them for the last time 2
        cycles after this strobe, and the feature reader writes them 3 cycles after at the
        earliest.
    active : Out(16)
        Index of the pass in the array.
    issued : Out(1)
        A tap is issued.
    stall : Out(Stall)
        Why none is, if a pixel is there.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "i": In(stream.Signature(IssuePass)),
                "pixels": In(stream.Signature(Pixel(config))),
                "rows_loaded": In(16),
                "words_loaded": In(16),
                "groups_loaded": In(16),
                "room": In(1),
                "read": Out(LineRead(config)),
                "mask": Out(Mask(config)),
                "tap": Out(Tap(config)),
                "tag": Out(GroupTag),
                "tag_valid": Out(1),
                "release": Out(Release(config)),
                "release_valid": Out(1),
                "active": Out(16),
                "issued": Out(1),
                "stall": Out(Stall),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        spec, pixel = self.i.payload, self.pixels.payload

        # Position: group, row of the window, word of the run; `begins` at the first tap of a group.
        begins = Signal(init=1)
        group, row, word = Signal(16), Signal.like(pixel.rows), Signal(16)
        group_index, pass_index = Signal(16), Signal(16)
        group_place = Signal(range(config.weight_words))
        pass_place = Signal.like(group_place)
        row_here, word_here = Signal.like(row), Signal.like(word)
        row_ends, group_ends, pixel_ends = Signal(), Signal(), Signal()
        m.d.comb += [
            row_here.eq(Mux(begins, 0, row)),
            word_here.eq(Mux(begins, 0, word)),
            row_ends.eq(pixel.empty | (word_here == pixel.words)),
            group_ends.eq(row_ends & (pixel.empty | (row_here + 1 == pixel.rows))),
            pixel_ends.eq(group_ends & (group + 1 == spec.groups)),
        ]

        retiring = Signal()
        ahead = Signal(signed(16))
        features, weights, output = Signal(), Signal(), Signal()
        since_end = Signal(range(config.stages + 1))
        m.d.comb += [
            ahead.eq(self.rows_loaded - pixel.need_row),
            features.eq(
                ~pixel.needs
                | (ahead > 0)
                | ((ahead == 0) & (self.words_loaded >= pixel.need_words))
            ),
            weights.eq(self.groups_loaded != group_index),
            output.eq(
                ~group_ends
                | (self.room & (since_end == 0) & ~(pixel_ends & pixel.row_end & retiring))
            ),
            self.issued.eq(self.i.valid & self.pixels.valid & features & weights & output),
        ]
        with m.If(self.i.valid & self.pixels.valid):
            m.d.comb += [
                self.stall.features.eq(~features),
                self.stall.weights.eq(features & ~weights),
                self.stall.output.eq(features & weights & ~output),
            ]
        with m.If(since_end != 0):
            m.d.sync += since_end.eq(since_end - 1)

        m.d.comb += [
            self.pixels.ready.eq(self.issued & pixel_ends),
            self.i.ready.eq(self.issued & pixel_ends & pixel.pass_end),
            self.active.eq(spec.index),
        ]
        with m.If(self.issued):
            m.d.sync += [
                begins.eq(group_ends),
                word.eq(Mux(row_ends, 0, word_here + 1)),
                row.eq(row_here + row_ends),
            ]
            with m.If(group_ends):
                next_place = wrap_add(
                    group_place, spec.group_words[: len(group_place) + 1], config.weight_words
                )
                m.d.sync += [
                    since_end.eq(config.stages - 1),
                    group.eq(group + 1),
                    group_index.eq(group_index + 1),
                    group_place.eq(next_place),
                ]
                with m.If(pixel_ends):
                    m.d.sync += group.eq(0)
                    with m.If(pixel.pass_end):
                        m.d.sync += [pass_index.eq(group_index + 1), pass_place.eq(next_place)]
                    with m.Else():
                        m.d.sync += [group_index.eq(pass_index), group_place.eq(pass_place)]

        m.d.comb += [
            self.tag_valid.eq(self.issued & group_ends),
            self.tag.group.eq(group_index),
            self.tag.lanes.eq(Mux(group + 1 == spec.groups, spec.last_lanes, config.out_lanes)),
            self.tag.release.eq(pixel.pass_end),
            self.tag.pass_end.eq(pixel.pass_end & pixel_ends),
        ]
        self._elaborate_addresses(m, begins, group_place, word_here, row_ends, group_ends)
        self._elaborate_release(m, pixel_ends, retiring)
        return m

    def _elaborate_addresses(self, m, begins, group_place, word, row_ends, group_ends):
        """Two stages: places in the line buffer and in the weight memories."""
        config = self._config
        spec, pixel = self.i.payload, self.pixels.payload
        depth, weight_depth = config.line_bank_words, config.weight_words

        # Where the next rows of the window begin in each bank, and the weights of the kernel row.
        bank, bank_here = Signal(2), Signal(2)
        lines = [Signal(range(depth), name=f"line{b}") for b in range(BANKS)]
        lines_here = [Mux(begins, pixel.starts[b], lines[b]) for b in range(BANKS)]
        line = Signal(range(depth))
        row_offset, row_offset_here = Signal(16), Signal(16)
        m.d.comb += [
            bank_here.eq(Mux(begins, pixel.bank, bank)),
            line.eq(Array(lines_here)[bank_here]),
            row_offset_here.eq(Mux(begins, pixel.skipped_words, row_offset)),
        ]
        with m.If(self.issued):
            m.d.sync += [bank.eq(bank_here), row_offset.eq(row_offset_here)]
            for b in range(BANKS):
                m.d.sync += lines[b].eq(lines_here[b])
            with m.If(row_ends):
                m.d.sync += [
                    bank.eq(Mux(bank_here == BANKS - 1, 0, bank_here + 1)),
                    row_offset.eq(row_offset_here + spec.run_words),
                ]
                for b in range(BANKS):
                    with m.If(bank_here == b):
                        m.d.sync += lines[b].eq(wrap_add(line, spec.row_pitch, depth))

        # First stage: offsets in the row and in the group. Second: places.
        a_line, a_place = Signal(range(depth)), Signal(range(depth))
        a_group, a_offset = Signal(range(weight_depth)), Signal(16)
        a_tap, b_tap = Signal(Tap(config)), Signal(Tap(config))
        a_read = Signal(LineRead(config))
        a_mask, b_mask = Signal(Mask(config)), Signal(Mask(config))
        row_place = wrap_add(pixel.place, word[: len(pixel.place)], depth)
        m.d.sync += [
            a_line.eq(line),
            a_place.eq(row_place),
            a_read.bank.eq(bank_here),
            a_read.byte.eq(pixel.byte),
            a_group.eq(group_place),
            a_offset.eq(row_offset_here + pixel.first_word + word),
            a_tap.valid.eq(self.issued),
            a_tap.first.eq(begins),
            a_tap.last.eq(group_ends),
            a_mask.zero.eq(spec.zero_in),
            a_mask.low.eq(Mux(word == 0, pixel.mask_low, 0)),
            a_mask.high.eq(Mux(word == pixel.words, pixel.mask_high, config.in_lanes)),
        ]
        with m.If(pixel.empty):
            m.d.sync += a_mask.high.eq(0)
        m.d.sync += [
            self.read.eq(a_read),
            self.read.word.eq(wrap_add(a_line, a_place, depth)),
            b_tap.eq(a_tap),
            b_tap.word.eq(wrap_add(a_group, a_offset[: len(a_group)], weight_depth)),
            b_mask.eq(a_mask),
        ]
        # The activations come out of a register behind the line buffer.
        tap_delay = LineBuffer.latency + 1 - MacArray.activation_delay
        m.d.comb += [
            self.mask.eq(delay(m, b_mask, LineBuffer.latency, name="mask")),
            self.tap.eq(delay(m, b_tap, tap_delay, name="tap", reset_less=False)),
        ]

    def _elaborate_release(self, m, pixel_ends, retiring):
        """Give places back: word by word of the uppermost row, then the rows that retire."""
        spec, pixel = self.i.payload, self.pixels.payload
        bank = Signal(range(BANKS))
        freed, pitch = Signal(16), Signal(17)
        rows_left = Signal(16)
        m.d.comb += retiring.eq(rows_left != 0)
        m.d.sync += self.release_valid.eq(0)
        m.d.sync += self.release.bank.eq(bank)
        with m.If(retiring):
            m.d.sync += [
                self.release.words.eq(pitch - freed),
                self.release_valid.eq(1),
                freed.eq(0),
                rows_left.eq(rows_left - 1),
                bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
            ]
        with m.Elif(self.issued & pixel_ends & ~pixel.row_end):
            with m.If(pixel.frees & (pixel.keep_from > freed)):
                m.d.sync += [
                    self.release.words.eq(pixel.keep_from - freed),
                    self.release_valid.eq(1),
                    freed.eq(pixel.keep_from),
                ]
        with m.If(self.issued & pixel_ends & pixel.row_end):
            m.d.sync += [
                rows_left.eq(pixel.retire),
                pitch.eq(spec.row_words + spec.row_words[0]),
            ]

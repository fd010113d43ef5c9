"""Issue one tap a cycle to line buffer and array, when everything it needs is there."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .activation import Activation
from .config import BANKS, CONSTANT_GROUPS, Config
from .delay import delay
from .feature_reader import Release
from .line_buffer import LineBuffer, LineRead
from .mac_array import MacArray, Tap
from .modular import wrap_add
from .pixel import Pixel
from .tap_addresses import IssuePass, Mask, TapAddresses

__all__ = ["GroupTag", "IssuePass", "Mask", "Stall", "TapIssuer"]

#: What follows a lane group's sums: place of its constants, its channels and the columns of the
#: array that they take, whether a second operand is due for them, whether they are kept on chip,
#: whether the ring's place is free behind it, and whether the pass ends.
GroupTag = data.StructLayout(
    {
        "group": range(CONSTANT_GROUPS),
        "lanes": 8,
        "columns": 8,
        "second": 1,
        "kept_out": 1,
        "release": 1,
        "pass_end": 1,
    }
)

#: Why no tap is issued.
Stall = data.StructLayout({"features": 1, "weights": 1, "output": 1})


class TapIssuer(wiring.Component):
    """For each pixel, each lane group, each step of the window, each tap of the step: issue it.

    A tap a cycle without a gap between pixels, groups or steps. It waits for the pixel's features,
    for its group's weights, and at the end of a group for room behind the array and for
    ``spacing`` cycles to have passed since the end before, be it of another pass: nothing behind
    this unit ever waits, so the pipeline has no stall.

    A step of a dense pass is a kernel row, its taps are words of the run. A step of a depthwise
    pass is ``tap_rows`` kernel rows, its taps are kernel columns. Steps below the map are left out;
    those above it are left out in a dense pass and masked in a depthwise one.

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
        The results of the group that ``tag`` shows have room.
    read : Out(LineRead)
        To the line buffer.
    mask : Out(Mask)
        With the run that the line buffer gives.
    tap : Out(Tap)
        To the array.
    tag : Out(GroupTag), tag_valid : Out(1)
        Strobe at the last tap of a group. ``tag.columns``, ``tag.lanes``, ``tag.second`` and
        ``tag.kept_out`` are those of the group that ends next in all cycles, as long as a pass is
        there.
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
        m.submodules.addresses = addresses = TapAddresses(config=self._config)
        spec, pixel, position = self.i.payload, self.pixels.payload, addresses.position
        m.d.comb += [
            addresses.spec.eq(spec),
            addresses.pixel.eq(pixel),
            addresses.issued.eq(self.issued),
            self.read.eq(addresses.read),
        ]
        # The taps leave early enough to meet the activations.
        tap_delay = LineBuffer.latency + Activation.latency - MacArray.activation_delay
        m.d.comb += [
            self.mask.eq(delay(m, addresses.mask, LineBuffer.latency, name="mask")),
            self.tap.eq(delay(m, addresses.tap, tap_delay, name="tap", reset_less=False)),
        ]

        pixel_ends, retiring = Signal(), Signal()
        self._elaborate_steps(m, position)
        group_index, last_group = self._elaborate_groups(m, position, pixel_ends)
        m.d.comb += [
            pixel_ends.eq(position.ends & last_group),
            self.pixels.ready.eq(self.issued & pixel_ends),
            self.i.ready.eq(self.issued & pixel_ends & pixel.pass_end),
            self.active.eq(spec.index),
            self.tag_valid.eq(self.issued & position.ends),
            self.tag.group.eq(group_index),
            self.tag.lanes.eq(Mux(last_group, spec.last_lanes, spec.group_lanes)),
            self.tag.columns.eq(Mux(last_group, spec.last_columns, spec.columns)),
            self.tag.second.eq(spec.second),
            self.tag.kept_out.eq(spec.kept_out),
            self.tag.release.eq(pixel.pass_end & ~spec.keep_weights),
            self.tag.pass_end.eq(pixel.pass_end & pixel_ends),
        ]
        self._elaborate_conditions(m, position, group_index, pixel_ends, retiring)
        self._elaborate_release(m, pixel_ends, retiring)
        return m

    def _elaborate_conditions(self, m, position, group_index, pixel_ends, retiring):
        """Issue a tap if all is there that it needs; else say what is not."""
        spec, pixel = self.i.payload, self.pixels.payload
        ahead, there = Signal(signed(16)), Signal()
        features, weights, output = Signal(), Signal(), Signal()
        # Cycles in which no group may end.
        spacing_left = Signal(8)
        m.d.comb += [
            there.eq(self.i.valid & self.pixels.valid),
            ahead.eq(self.rows_loaded - pixel.need_row),
            features.eq(
                ~pixel.needs
                | (ahead > 0)
                | ((ahead == 0) & (self.words_loaded >= pixel.need_words))
            ),
            weights.eq(self.groups_loaded != group_index),
            output.eq(
                ~position.ends
                | (self.room & (spacing_left == 0) & ~(pixel_ends & pixel.row_end & retiring))
            ),
            self.issued.eq(there & features & weights & output),
            self.stall.features.eq(there & ~features),
            self.stall.weights.eq(there & features & ~weights),
            self.stall.output.eq(there & features & weights & ~output),
        ]
        with m.If(self.tag_valid):
            m.d.sync += spacing_left.eq(spec.spacing - 1)
        with m.Elif(spacing_left != 0):
            m.d.sync += spacing_left.eq(spacing_left - 1)

    def _elaborate_steps(self, m, position):
        """Go through the steps of the window and the taps of each of them."""
        taken = self._config.tap_rows
        spec, pixel = self.i.payload, self.pixels.payload
        begins, step_begins, word = Signal(init=1), Signal(init=1), Signal(16)
        # Kernel rows from the uppermost one of the step to the first one inside the map, and to the
        # first one below it. Those above it do not count in a dense pass.
        above, above_here = Signal(8), Signal(8)
        below, below_here = Signal.like(pixel.rows), Signal.like(pixel.rows)
        last_step = Signal()
        with m.If(~begins):
            m.d.comb += [above_here.eq(above), below_here.eq(below)]
        with m.Elif(spec.depthwise):
            m.d.comb += [above_here.eq(pixel.skipped_rows), below_here.eq(pixel.end_row)]
        with m.Else():
            m.d.comb += below_here.eq(pixel.rows)
        m.d.comb += [
            last_step.eq(below_here <= Mux(spec.depthwise, taken, 1)),
            position.begins.eq(begins),
            position.step_begins.eq(step_begins),
            position.step_ends.eq(pixel.empty | (word == pixel.words)),
            position.ends.eq(pixel.empty | ((word == pixel.words) & last_step)),
            position.word.eq(word),
            position.rows[0].eq((above_here == 0) & (below_here != 0)),
        ]
        for p in range(1, taken):
            inside = (above_here <= p) & (below_here > p)
            m.d.comb += position.rows[p].eq(spec.depthwise & inside)
        with m.If(self.issued):
            m.d.sync += [
                begins.eq(position.ends),
                step_begins.eq(position.step_ends),
                word.eq(Mux(position.step_ends, 0, word + 1)),
                above.eq(above_here),
                below.eq(below_here),
            ]
            with m.If(position.step_ends):
                m.d.sync += [
                    above.eq(Mux(above_here > taken, above_here - taken, 0)),
                    below.eq(below_here - Mux(spec.depthwise, taken, 1)),
                ]

    def _elaborate_groups(self, m, position, pixel_ends):
        """Go through the lane groups; return the number of the group in the run, and if it is last.

        Behind a pass that keeps its weights, as behind a pixel, it goes on with the first group.
        """
        depth = self._config.weight_words
        spec, pixel = self.i.payload, self.pixels.payload
        group, group_index, pass_index = Signal(16), Signal(16), Signal(16)
        group_place, pass_place = Signal(range(depth)), Signal(range(depth))
        first_group, last_next, last_group = Signal(init=1), Signal(), Signal()
        m.d.comb += [
            last_group.eq(Mux(first_group, spec.groups == 1, last_next)),
            position.first_group.eq(first_group),
            position.group_place.eq(group_place),
        ]
        next_place = wrap_add(group_place, spec.group_words[: len(group_place) + 1], depth)
        with m.If(self.tag_valid):
            m.d.sync += [
                first_group.eq(pixel_ends),
                last_next.eq(group + 2 == spec.groups),
                group.eq(group + 1),
                group_index.eq(group_index + 1),
                group_place.eq(next_place),
            ]
            with m.If(pixel_ends):
                m.d.sync += group.eq(0)
                with m.If(pixel.pass_end & ~spec.keep_weights):
                    m.d.sync += [pass_index.eq(group_index + 1), pass_place.eq(next_place)]
                with m.Else():
                    m.d.sync += [group_index.eq(pass_index), group_place.eq(pass_place)]
        return group_index, last_group

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

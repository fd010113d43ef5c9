"""Issue one tap a cycle to line buffer and array, when everything it needs is there."""

from __future__ import annotations

from typing import NamedTuple

from amaranth.hdl import Module, Mux, Signal, Value, signed
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
from .pixel_gate import PixelGate
from .tap_addresses import Advance, IssuePass, Mask, Position, TapAddresses

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

#: Where there is no tap, a pixel begins in the next cycle.
_NO_TAP = {"fresh": 1, "ends": 1, "step_ends": 1}


def _Origin(config: Config):
    """Return the layout of the steps with which each lane group of a pixel begins.

    ``words``: taps of a step less one; ``single``: there is none but one; ``last``: so are the
    steps; ``two_taps``, ``two_steps``: there are two (at most). ``rows``: kernel rows of the first
    step that are inside the map. ``above``, ``below``: kernel rows from the uppermost one of the
    step to the first one inside the map, and to the first one below it. In a dense pass those above
    it do not count.
    """
    return data.StructLayout(
        {
            "words": 16,
            "single": 1,
            "two_taps": 1,
            "last": 1,
            "two_steps": 1,
            "rows": config.tap_rows,
            "above": 8,
            "below": 8,
        }
    )


class _Conditions(NamedTuple):
    """What a tap needs in order to be issued, but for the room behind the array.

    It is there; it ends its group, a pixel, an output row, a pass; its weights are loaded; a group
    may end; rows retire.
    """

    there: Value
    ends: Value
    pixel_ends: Value
    row_ends: Value
    pass_ends: Value
    groups_loaded: Value
    spaced: Value
    retiring: Value

    @property
    def loaded(self):
        """All is there that it takes."""
        return self.there & self.groups_loaded

    @property
    def flows(self):
        """It may be issued, and ends no group."""
        return self.loaded & ~self.ends

    @property
    def may_end(self):
        """It may be issued, and ends its group."""
        return self.loaded & self.ends & self.spaced & ~(self.row_ends & self.retiring)


class TapIssuer(wiring.Component):
    """For each pixel, each lane group, each step of the window, each tap of the step: issue it.

    A tap a cycle without a gap between pixels, groups or steps; two cycles between passes. It waits
    for the pixel's features, for its group's weights, and at the end of a group for room behind the
    array and for ``spacing`` cycles to have passed since the end before, be it of another pass:
    nothing behind this unit ever waits, so the pipeline has no stall.

    Passes and pixels are taken ahead: a pass when the one before has ended, up to three pixels. The
    next tap stands in registers, decoded, so that it is issued by a few flags. The first tap of a
    pixel can be issued 2 cycles after the pixel has come and its pass, and after its features have
    been loaded; the first one of a group 2 cycles after its weights have been.

    A step of a dense pass is a kernel row, its taps are words of the run. A step of a depthwise
    pass is ``tap_rows`` kernel rows, its taps are kernel columns. Steps below the map are left out;
    those above it are left out in a dense pass and masked in a depthwise one.

    Latency from ``issued`` to ``read``: 2 cycles. The tap leaves so that it meets its activations
    in the array.

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
    tag : Out(GroupTag), tag_there : Out(1), tag_valid : Out(1)
        Strobe at the last tap of a group. ``tag.columns``, ``tag.lanes``, ``tag.second`` and
        ``tag.kept_out`` are those of the group that ends next as long as it is there.
    release : Out(Release), release_valid : Out(1)
        Places of the line buffer that are free now. The memory reads them for the last time 2
        cycles after this strobe at the latest, and the feature reader writes them 3 cycles after at
        the earliest.
    active : Out(16)
        Index of the pass in the array.
    issued : Out(1)
        A tap is issued.
    stall : Out(Stall)
        Why none is, if a pixel is there.
    waits : Out(1)
        None is since the pass has no pixel yet.
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
                "tag_there": Out(1),
                "tag_valid": Out(1),
                "release": Out(Release(config)),
                "release_valid": Out(1),
                "active": Out(16),
                "issued": Out(1),
                "stall": Out(Stall),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.gate = gate = PixelGate(config=self._config)
        m.submodules.addresses = addresses = TapAddresses(config=self._config)
        wiring.connect(m, wiring.flipped(self.pixels), gate.i)
        # The next tap stands decoded in registers, if it is `there`. A pixel that `comes` follows.
        spec, position = Signal(IssuePass), Signal(Position(self._config), init=_NO_TAP)
        pixel, next_pixel = Signal(Pixel(self._config)), gate.o.payload
        spec_valid, spec_free, there, comes = Signal(), Signal(init=1), Signal(), Signal()
        advance = Signal(Advance)
        one_group, row_ends, pass_ends = Signal(), Signal(), Signal()
        # What `position` says, in registers with less behind them: the tap is there and ends its
        # group; it does not end its group; not its pixel.
        ending, within, inner = Signal(), Signal(), Signal()
        m.d.comb += [
            gate.rows_loaded.eq(self.rows_loaded),
            gate.words_loaded.eq(self.words_loaded),
            comes.eq(gate.o.valid & spec_valid & ~pass_ends),
            self.i.ready.eq(spec_free),
            self.active.eq(spec.index),
            self.stall.features.eq(spec_valid & ~there & gate.waits),
            self.waits.eq(spec_valid & ~there & ~comes & ~gate.waits),
        ]
        with m.If(spec_free):
            m.d.sync += [
                spec.eq(self.i.payload),
                one_group.eq(self.i.payload.groups == 1),
                spec_valid.eq(self.i.valid),
                spec_free.eq(~self.i.valid),
            ]
        with m.Elif(self.tag_valid & pass_ends):
            m.d.sync += [spec_valid.eq(0), spec_free.eq(1)]

        missing, pixel_ends = ~inner & ~comes, Signal()
        next_step_ends, next_ends = self._elaborate_steps(
            m, spec, position, (within, inner), next_pixel, advance, missing
        )
        next_last, loaded = self._elaborate_groups(
            m, spec, one_group, position, (ending, within, inner), next_pixel, advance
        )
        next_row_ends = Mux(inner, pixel.row_end, next_pixel.row_end) & pixel_ends
        next_pass_ends = Mux(inner, pixel.pass_end, next_pixel.pass_end) & pixel_ends
        m.d.comb += [
            pixel_ends.eq(next_ends & next_last & ~missing),
            self.tag.pass_end.eq(pass_ends),
            self.tag_there.eq(there),
        ]
        with m.If(advance.group):
            m.d.sync += there.eq(~missing)
        with m.If(advance.pixel):
            m.d.sync += pixel.eq(next_pixel)
        with m.If(advance.tap):
            m.d.sync += [
                position.fresh.eq(missing | pixel_ends),
                inner.eq(~(missing | pixel_ends)),
                ending.eq(~missing & next_ends),
                within.eq(~(missing | next_ends)),
                row_ends.eq(next_row_ends),
                pass_ends.eq(next_pass_ends),
            ]
        spaced = self._elaborate_spacing(m, spec, ending)
        retiring = self._elaborate_release(m, spec, position, pixel, row_ends)
        now = _Conditions(
            there=there,
            ends=~within,
            pixel_ends=~inner,
            row_ends=row_ends,
            pass_ends=pass_ends,
            groups_loaded=loaded[0],
            spaced=spaced[0],
            retiring=retiring[0],
        )
        then = _Conditions(
            there=~missing,
            ends=next_ends,
            pixel_ends=pixel_ends,
            row_ends=next_row_ends,
            pass_ends=next_pass_ends,
            groups_loaded=loaded[1],
            spaced=spaced[1],
            retiring=retiring[1],
        )
        moves = self._elaborate_decision(m, now, then)
        replaces = self._elaborate_advance(m, position, now, then, next_step_ends, moves, advance)
        m.d.comb += gate.o.ready.eq((replaces & self.room) | (spec_valid & ~there))
        self._connect_addresses(m, addresses, spec, position, next_pixel, advance)
        return m

    def _connect_addresses(self, m, addresses, spec, position, next_pixel, advance):
        """Let the addresses follow; the taps leave early enough to meet the activations."""
        tap_delay = LineBuffer.latency + Activation.latency - MacArray.activation_delay
        m.d.comb += [
            addresses.spec.eq(spec),
            addresses.pixel.eq(next_pixel),
            addresses.position.eq(position),
            addresses.advance.eq(advance),
            addresses.issued.eq(self.issued),
            self.read.eq(addresses.read),
            self.mask.eq(delay(m, addresses.mask, LineBuffer.latency, name="mask")),
            self.tap.eq(delay(m, addresses.tap, tap_delay, name="tap", reset_less=False)),
        ]

    def _elaborate_decision(self, m, now, then):
        """Decide a cycle ahead whether the next tap is issued, but for the room.

        ``now``: the conditions if the present tap stays, ``then``: if the next one takes its place.
        Return whether it does.
        """
        # A tap that ends no group; one that does, and needs room.
        flows, may_end, loaded = Signal(), Signal(), Signal()
        moves = flows | ~now.there | (may_end & self.room)
        m.d.sync += [
            flows.eq(Mux(moves, then.flows, now.flows)),
            may_end.eq(Mux(moves, then.may_end, now.may_end)),
            loaded.eq(Mux(moves, then.loaded, now.loaded)),
        ]
        m.d.comb += [
            self.issued.eq(flows | self.tag_valid),
            self.stall.weights.eq(now.there & ~loaded),
            self.stall.output.eq(loaded & ~self.issued),
        ]
        return moves

    def _elaborate_advance(self, m, position, now, then, next_step_ends, moves, advance):
        """Say what ends, and begins in the next cycle; return whether a pixel of the pass may.

        All of it from flags of its own: many registers wait for this.
        """
        goes, goes_step = Signal(init=1), Signal(init=1)
        stays, ends_pixel, replaces = Signal(init=1), Signal(), Signal()
        next_ends_pixel = then.may_end & then.pixel_ends
        ends_now = now.may_end & now.pixel_ends
        next_goes_step = (then.flows & next_step_ends) | ~then.there
        goes_step_now = (now.flows & position.step_ends) | ~now.there
        m.d.sync += [
            goes.eq(Mux(moves, then.flows | ~then.there, now.flows | ~now.there)),
            goes_step.eq(Mux(moves, next_goes_step, goes_step_now)),
            stays.eq(Mux(moves, ~then.may_end, ~now.may_end)),
            ends_pixel.eq(Mux(moves, next_ends_pixel, ends_now)),
            replaces.eq(Mux(moves, next_ends_pixel & ~then.pass_ends, ends_now & ~now.pass_ends)),
        ]
        m.d.comb += [
            self.tag_valid.eq(self.room & ~stays),
            advance.tap.eq(goes | self.tag_valid),
            advance.step.eq(goes_step | self.tag_valid),
            advance.group.eq(~now.there | self.tag_valid),
            advance.pixel.eq(~now.there | (ends_pixel & self.room)),
        ]
        return replaces

    def _elaborate_spacing(self, m, spec, ending):
        """Return whether a group may end in the next cycle, and whether if the present tap goes."""
        spaced, tight, left = Signal(init=1), Signal(), Signal(8)
        stays = spaced | (left == 1)
        m.d.sync += [spaced.eq(stays), left.eq(left - 1), tight.eq(spec.spacing <= 1)]
        with m.If(self.tag_valid):
            m.d.sync += [spaced.eq(tight), left.eq(spec.spacing - 1)]
        return stays, Mux(ending, tight, stays)

    def _elaborate_steps(self, m, spec, position, present, next_pixel, advance, missing):
        """Go through the steps of the window and the taps of each of them.

        Return whether the tap that follows the present one ends a step, and its lane group.
        """
        taken, (within, inner) = self._config.tap_rows, present

        def steps_left(below, count):
            """Return whether so many steps reach the end of the map."""
            return Mux(spec.depthwise, below <= count * taken, below <= count)

        held, first = Signal(_Origin(self._config)), Signal(_Origin(self._config))
        origin, held_single = Signal.like(first), Signal()
        m.d.comb += [
            first.words.eq(next_pixel.words),
            first.single.eq(next_pixel.single),
            first.two_taps.eq(next_pixel.words == 1),
            first.last.eq(next_pixel.one_step),
            first.two_steps.eq(steps_left(first.below, 2)),
            first.rows.eq(next_pixel.inside),
            first.above.eq(next_pixel.skipped_rows),
            first.below.eq(Mux(spec.depthwise, next_pixel.end_row, next_pixel.rows)),
            origin.eq(Mux(position.fresh, first, held)),
        ]
        with m.If(position.fresh):
            m.d.sync += [held.eq(first), held_single.eq(first.single & first.last)]

        # Of the next tap and of the next step it is known beforehand whether it is the last.
        left, last_next = Signal(16), Signal()
        along = Signal()  # not `position.step_ends`, with less behind it
        last_step, next_last, next_ends = Signal(), Signal(), Signal()
        above, below = Signal.like(first.above), Signal.like(first.below)
        rows = Signal.like(first.rows)
        m.d.comb += []
        for p in range(taken):
            inside = (above <= taken + p) & (below > taken + p)
            m.d.comb += rows[p].eq(Mux(spec.depthwise, inside, p == 0))
        single = Mux(inner, held.single, first.single)
        all_single = Mux(inner, held_single, first.single & first.last)
        m.d.comb += next_ends.eq(
            Mux(
                within,
                Mux(along, last_next & last_step, held.single & next_last),
                all_single,
            )
        )
        next_step_ends = Mux(along, last_next, single)
        with m.If(advance.tap):
            m.d.sync += [
                position.begins.eq(position.ends),
                position.step_begins.eq(position.step_ends),
                position.step_ends.eq(missing | next_step_ends),
                along.eq(~(missing | next_step_ends)),
                position.ends.eq(missing | next_ends),
                left.eq(Mux(position.step_ends, origin.words, left - 1)),
                last_next.eq(Mux(position.step_ends, origin.two_taps, left == 2)),
            ]
        with m.If(advance.step):
            m.d.sync += [
                position.rows.eq(Mux(position.ends, origin.rows, rows)),
                last_step.eq(Mux(position.ends, origin.last, next_last)),
                next_last.eq(Mux(position.ends, origin.two_steps, steps_left(below, 3))),
                above.eq(Mux(position.ends, origin.above, Mux(above > taken, above - taken, 0))),
                below.eq(Mux(position.ends, origin.below, below - Mux(spec.depthwise, taken, 1))),
            ]
        return next_step_ends, next_ends

    def _elaborate_groups(self, m, spec, one_group, position, present, next_pixel, advance):
        """Go through the lane groups.

        Behind a pass that keeps its weights, as behind a pixel, it goes on with the first group.
        Return whether the tap that follows the present one is in the last group, and whether
        weights have been loaded: those of the present tap, and of the one that follows.
        """
        depth, (ending, within, inner) = self._config.weight_words, present
        groups_left, last_group, next_last = Signal(16), Signal(), Signal()
        two_left = Signal()
        lanes, columns, drops = Signal(8), Signal(8), Signal()
        m.d.comb += next_last.eq(last_group)
        with m.If(~inner):
            m.d.comb += next_last.eq(one_group)
        with m.Elif(~within):
            m.d.comb += next_last.eq(two_left)
        with m.If(advance.group):
            m.d.sync += [
                groups_left.eq(Mux(position.fresh, spec.groups, groups_left - 1)),
                two_left.eq(Mux(position.fresh, spec.groups == 2, groups_left == 3)),
                last_group.eq(next_last),
                lanes.eq(Mux(next_last, spec.last_lanes, spec.group_lanes)),
                columns.eq(Mux(next_last, spec.last_columns, spec.columns)),
            ]
        with m.If(advance.pixel):
            m.d.sync += drops.eq(next_pixel.pass_end & ~spec.keep_weights)

        index, pass_index, place = Signal(16), Signal(16), position.group_place
        pass_place, words_less = Signal.like(place), Signal(signed(len(place) + 1))
        m.d.sync += words_less.eq(spec.group_words - depth)
        next_place = wrap_add(place, spec.group_words[: len(place) + 1], depth, less=words_less)
        # Both are of the same age: the group behind the present one cannot be there without it.
        groups_loaded, groups_less = Signal(16), Signal(16)
        loaded, next_loaded = Signal(), Signal()
        m.d.sync += [
            groups_loaded.eq(self.groups_loaded),
            groups_less.eq(self.groups_loaded - 1),
        ]
        m.d.comb += [
            loaded.eq(groups_loaded != index),
            # A pixel begins again with groups that are there, but where a chunk begins.
            next_loaded.eq((~inner & ~drops) | (groups_less != index)),
        ]
        with m.If(self.tag_valid):
            m.d.sync += [index.eq(index + 1), place.eq(next_place)]
            with m.If(position.fresh & drops):
                m.d.sync += [pass_index.eq(index + 1), pass_place.eq(next_place)]
            with m.Elif(position.fresh):
                m.d.sync += [index.eq(pass_index), place.eq(pass_place)]
        m.d.comb += [
            self.tag.group.eq(index),
            self.tag.lanes.eq(lanes),
            self.tag.columns.eq(columns),
            self.tag.second.eq(spec.second),
            self.tag.kept_out.eq(spec.kept_out),
            self.tag.release.eq(drops),
        ]
        return next_last, (loaded, Mux(ending, next_loaded, loaded))

    def _elaborate_release(self, m, spec, position, pixel, row_ends):
        """Give places back: word by word of the uppermost row, then the rows that retire.

        Return whether rows retire in the next cycle, and whether if the present tap goes.
        """
        bank, retiring = Signal(range(BANKS)), Signal()
        freed, pitch = Signal(16), Signal(17)
        rows_left = Signal(16)
        frees, keep_from = Signal(), Signal(16)
        stays = retiring & (rows_left != 1)
        leaves = frees & (keep_from > freed)
        m.d.sync += [
            frees.eq(self.tag_valid & position.fresh & ~pixel.row_end & pixel.frees),
            keep_from.eq(pixel.keep_from),
            self.release.bank.eq(bank),
            self.release.words.eq(Mux(retiring, pitch, keep_from) - freed),
            self.release_valid.eq(retiring | leaves),
            retiring.eq(stays),
        ]
        with m.If(retiring):
            m.d.sync += [
                freed.eq(0),
                rows_left.eq(rows_left - 1),
                bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
            ]
        with m.Elif(leaves):
            m.d.sync += freed.eq(keep_from)
        with m.If(self.tag_valid & row_ends):
            m.d.sync += [
                rows_left.eq(pixel.retire),
                retiring.eq(pixel.frees),
                pitch.eq(spec.row_words + spec.row_words[0]),
            ]
        return stays, Mux(row_ends, pixel.frees, stays)

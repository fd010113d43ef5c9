"""Read the rows of a feature map into the three banks of the line buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .fetcher import Fetcher
from .modular import wrap
from .queue import Queue
from .read_port import ReadRequest
from .spans import Spans
from .unpacker import BeatMarker, Unpacker

__all__ = ["FeatureReader", "FeatureRows", "LineWrite", "Release"]

#: What the feature reader needs to know of a pass. ``wait``: earlier outputs must have landed.
FeatureRows = data.StructLayout(
    {
        "spans": Spans,
        "rows": 16,
        "row_words": 16,
        "row_tail": 8,
        "row_pitch": 16,
        "row_bytes": 32,
        "wait": 1,
        "index": 16,
    }
)

#: What is needed of it where the rows arrive.
_Arriving = data.StructLayout({"rows": 16, "row_words": 16, "row_tail": 8, "row_pitch": 16})


def LineWrite(config: Config):
    """Return the layout of a word on its way into the line buffer."""
    return data.StructLayout(
        {"bank": 2, "word": range(config.line_bank_words), "data": 8 * config.in_lanes}
    )


def Release(config: Config):
    """Return the layout of places of the line buffer that become free: bank and words."""
    return data.StructLayout({"bank": 2, "words": range(config.line_bank_words + 1)})


class FeatureReader(wiring.Component):
    """Fetch rows into the ring of places that the three banks make.

    Row i of a run goes to bank i mod 3, behind the row that is there already; a row starts at an
    even word and may wrap around the end of its bank. Places are allocated in the order of the
    rows, a row in 3 cycles while whole rows fit, else a word a cycle, and a burst is requested only
    for places that are allocated. The next pass is requested while this one arrives.

    Throughput a word of ``in_lanes`` bytes a cycle.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(FeatureRows))
        Passes, in order.
    landed : In(16)
        Passes of the run whose outputs have landed.
    starving : In(1)
        The array waits for features.
    on_the_way : In(1)
        Some answer to this reader is due.
    request : Out(stream.Signature(ReadRequest)), answer : In(stream.Signature(8 * bus_bytes))
        To and from the read port.
    release : In(Release), release_valid : In(1)
        Places that the array does not need any more.
    write : Out(LineWrite), write_valid : Out(1)
        Into the line buffer.
    rows_loaded : Out(16)
        Complete rows since the start of the run, modulo 2^16.
    words_loaded : Out(16)
        Words of the row after those.
    waits : Out(1)
        A pass waits for earlier outputs to land.
    full : Out(1)
        A row waits for places.
    loading : Out(16)
        Index of the pass whose rows get places.
    """

    def __init__(self, *, config: Config):
        self._config = config
        beat = stream.Signature(8 * config.bus_bytes)
        super().__init__(
            {
                "i": In(stream.Signature(FeatureRows)),
                "landed": In(16),
                "starving": In(1),
                "on_the_way": In(1),
                "request": Out(stream.Signature(ReadRequest)),
                "answer": In(beat),
                "release": In(Release(config)),
                "release_valid": In(1),
                "write": Out(LineWrite(config)),
                "write_valid": Out(1),
                "rows_loaded": Out(16),
                "words_loaded": Out(16),
                "waits": Out(1),
                "full": Out(1),
                "loading": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        bus_bytes = config.bus_bytes
        m.submodules.fetcher = fetcher = Fetcher(bus_bytes=bus_bytes)
        m.submodules.marker = marker = BeatMarker(bus_bytes=bus_bytes)
        place = data.StructLayout(
            {"bank": range(BANKS), "word": range(config.line_bank_words), "row_ends": 1}
        )
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=bus_bytes, word_bytes=config.in_lanes, tag=place
        )
        m.submodules.arriving = arriving = Queue(_Arriving, depth=4, registered=True)
        wiring.connect(m, fetcher.request, wiring.flipped(self.request))
        wiring.connect(m, fetcher.bursts, marker.bursts)
        wiring.connect(m, wiring.flipped(self.answer), marker.i)
        wiring.connect(m, marker.o, unpacker.i)
        m.d.comb += [
            fetcher.starving.eq(self.starving),
            fetcher.urgent.eq(self.starving & ~self.on_the_way),
        ]
        allocated = Signal(range(config.line_bank_words + 1))
        self._elaborate_allocation(m, fetcher, arriving.i, allocated)
        self._elaborate_arrival(m, arriving.o, unpacker.want, allocated)
        self._elaborate_writes(m, unpacker)
        return m

    def _elaborate_allocation(self, m, fetcher, arriving, allocated):
        """Start a pass; give out places of the banks to its rows, one after the other.

        Places and room are given out a cycle behind the decision.
        """
        config = self._config
        current = Signal(FeatureRows)
        rows_left, words_left = Signal(16), Signal(16)
        needed, was_needed = Signal(17), Signal(17)
        bytes_left = Signal(32)
        bank = Signal(range(BANKS))
        row_places = Signal(17)  # a row ends at an even word
        last_row, last_word, single = Signal(), Signal(), Signal()
        ordered = Signal()
        give_row, give_word = Signal(), Signal()
        fits, some = self._elaborate_free(m, bank, needed, was_needed, give_row, give_word)
        m.d.comb += [
            fetcher.i.payload.eq(current.spans),
            fetcher.index.eq(current.index),
            self.loading.eq(current.index),
        ]
        m.d.sync += [
            was_needed.eq(needed),
            allocated.eq(Mux(give_row, words_left, give_word)),
            fetcher.grant.eq(Mux(give_row, bytes_left, Mux(give_word, config.in_lanes, 0))),
            # These are looked at only where they have been right for a cycle.
            ordered.eq(~current.wait | (self.landed == current.index)),
            row_places.eq(current.row_words + current.row_words[0]),
            single.eq(current.row_words == 1),
            last_row.eq(rows_left == 1),
        ]
        with m.If(give_word):
            m.d.sync += [
                words_left.eq(words_left - 1),
                needed.eq(needed - 1),
                bytes_left.eq(bytes_left - config.in_lanes),
                last_word.eq(words_left == 2),
            ]
        # The state too, but with nothing else behind it: so wide a register is slow to enable.
        loads = Signal(init=1)
        with m.If(loads):
            m.d.sync += current.eq(self.i.payload)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += loads.eq(0)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    [arriving.payload[k].eq(self.i.payload[k]) for k in _Arriving.members],
                    arriving.valid.eq(self.i.valid),
                    self.i.ready.eq(arriving.ready),
                ]
                m.d.sync += rows_left.eq(self.i.payload.rows)
                with m.If(self.i.valid & self.i.ready):
                    m.next = "BEGIN"

            with m.State("BEGIN"):
                m.next = "ORDER"

            with m.State("ORDER"):
                m.d.comb += [fetcher.i.valid.eq(ordered), self.waits.eq(~ordered)]
                with m.If(ordered & fetcher.i.ready):
                    m.next = "ROW"

            with m.State("ROW"):
                m.d.sync += [
                    words_left.eq(current.row_words),
                    bytes_left.eq(current.row_bytes),
                    needed.eq(row_places),
                    was_needed.eq(row_places),
                    last_word.eq(single),
                ]
                m.next = "LOOK"

            with m.State("LOOK"):
                m.next = "PLACES"

            with m.State("PLACES"):
                m.d.comb += [
                    give_row.eq(fits),
                    give_word.eq(some & ~fits & ~last_word),
                    self.full.eq(~fits & (last_word | ~some)),
                ]
                with m.If(fits):
                    m.d.sync += [
                        rows_left.eq(rows_left - 1),
                        bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                    ]
                    m.next = "ROW"
                    with m.If(last_row):
                        m.next = "END"

            with m.State("END"):
                with m.If(fetcher.done):
                    m.d.sync += loads.eq(1)
                    m.next = "IDLE"

    def _elaborate_free(self, m, bank, needed, was_needed, give_row, give_word):
        """Count the free places; return whether a row fits, and whether there is one.

        A decision shows in the places 2 cycles later. While a row waits that does no harm, since
        what is needed shrinks with the places, and releases only add to them.
        """
        depth = self._config.line_bank_words
        # The array may release words of a row before they are allocated, less than a bank of them,
        # where it goes past columns that no window needs.
        places = range(2 * depth + 1)
        here, fits, some = Signal(places), Signal(), Signal()
        given, gave_word, gave_bank = Signal.like(needed), Signal(), Signal.like(bank)
        free = [Signal(places, init=depth, name=f"free{b}") for b in range(BANKS)]
        m.d.comb += here.eq(Array(free)[bank])
        m.d.sync += [
            fits.eq(here >= was_needed),
            some.eq((here[2:] != 0) | (here[:2] > gave_word + give_word)),
            gave_word.eq(give_word),
            gave_bank.eq(bank),
            given.eq(Mux(give_row, needed, give_word)),
        ]
        for b, count in enumerate(free):
            released = Signal(range(depth + 1), name=f"released{b}")
            mine = self.release_valid & (self.release.bank == b)
            m.d.sync += [
                released.eq(Mux(mine, self.release.words, 0)),
                count.eq(count + released - Mux(gave_bank == b, given, 0)),
            ]
        return fits, some

    def _elaborate_arrival(self, m, arriving, want, allocated):
        """Cut what arrives at the ends of the rows and find the places of its words."""
        config = self._config
        depth = config.line_bank_words
        places, asked = Signal(range(BANKS * depth + 1)), Signal()
        some = Signal()
        rows_left, words_left = Signal(16), Signal(16)
        row_ends, last_row, single = Signal(), Signal(), Signal()
        rows, place = arriving.payload, want.payload.tag
        bank, word = Signal.like(place.bank), Signal.like(place.word)
        m.d.comb += [
            want.payload.bytes.eq(Mux(row_ends, rows.row_tail, config.in_lanes)),
            place.bank.eq(bank),
            place.word.eq(word),
            place.row_ends.eq(row_ends),
            asked.eq(want.valid & want.ready),
        ]
        m.d.sync += [
            places.eq(places + allocated - asked),
            some.eq((places[1:] != 0) | (places[0] & ~asked)),
        ]
        next_start = self._elaborate_starts(m, bank, rows.row_pitch, asked & row_ends)
        with m.If(asked):
            m.d.sync += [
                words_left.eq(words_left - 1),
                row_ends.eq(words_left == 2),
                word.eq(Mux(word == depth - 1, 0, word + 1)),
                rows_left.eq(rows_left - row_ends),
                last_row.eq(Mux(row_ends, rows_left == 2, last_row)),
            ]
            with m.If(row_ends):
                m.d.sync += [
                    words_left.eq(rows.row_words),
                    row_ends.eq(single),
                    word.eq(next_start),
                    bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [
                    rows_left.eq(rows.rows),
                    last_row.eq(rows.rows == 1),
                    words_left.eq(rows.row_words),
                    row_ends.eq(rows.row_words == 1),
                    single.eq(rows.row_words == 1),
                ]
                with m.If(arriving.valid):
                    m.next = "WORDS"

            with m.State("WORDS"):
                m.d.comb += want.valid.eq(some)
                with m.If(asked & row_ends & last_row):
                    m.next = "END"

            with m.State("END"):
                m.d.comb += arriving.ready.eq(1)
                m.next = "IDLE"

    def _elaborate_starts(self, m, bank, pitch, row_ends):
        """Keep where the next row of each bank begins; return that of the bank behind this one.

        A bank's turn comes again 3 rows later, so there are two cycles to find its next place.
        """
        depth = self._config.line_bank_words
        starts = Array(Signal(range(depth), name=f"start{b}") for b in range(BANKS))
        end, end_bank, ended = Signal(range(2 * depth)), Signal.like(bank), Signal()
        m.d.sync += [end.eq(starts[bank] + pitch), end_bank.eq(bank), ended.eq(row_ends)]
        with m.If(ended):
            m.d.sync += starts[end_bank].eq(wrap(end, depth))
        return Array(starts[(b + 1) % BANKS] for b in range(BANKS))[bank]

    def _elaborate_writes(self, m, unpacker):
        """Write the words to their places, and count them."""
        place = unpacker.tag
        m.d.comb += [
            self.write.bank.eq(place.bank),
            self.write.word.eq(place.word),
            self.write.data.eq(unpacker.data),
            self.write_valid.eq(unpacker.valid),
        ]
        with m.If(unpacker.valid):
            m.d.sync += self.words_loaded.eq(self.words_loaded + 1)
            with m.If(place.row_ends):
                m.d.sync += [self.rows_loaded.eq(self.rows_loaded + 1), self.words_loaded.eq(0)]

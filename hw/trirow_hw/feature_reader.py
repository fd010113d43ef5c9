"""Read the rows of a feature map into the three banks of the line buffer."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import BANKS, Config
from .fetcher import Fetcher
from .modular import wrap_add
from .queue import Queue
from .read_port import ReadRequest
from .spans import Spans
from .unpacker import Unpacker

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
    rows, a row a cycle while whole rows fit, else a word a cycle, and a burst is requested only for
    places that are allocated. The next pass is requested while this one arrives.

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
        m.submodules.fetcher = fetcher = Fetcher(bus_bytes=config.bus_bytes)
        m.submodules.unpacker = unpacker = Unpacker(
            bus_bytes=config.bus_bytes, word_bytes=config.in_lanes
        )
        m.submodules.arriving = arriving = Queue(FeatureRows, depth=4)
        wiring.connect(m, fetcher.request, wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.answer), unpacker.i)
        m.d.comb += [
            fetcher.starving.eq(self.starving),
            fetcher.urgent.eq(self.starving & ~self.on_the_way),
        ]
        allocated = Signal(range(config.line_bank_words + 1))
        self._elaborate_allocation(m, fetcher, arriving, allocated)
        self._elaborate_arrival(m, arriving, unpacker, allocated)
        return m

    def _elaborate_allocation(self, m, fetcher, arriving, allocated):
        """Start a pass; give out places of the banks to its rows, one after the other."""
        config = self._config
        current = Signal(FeatureRows)
        rows_left, words_left = Signal(16), Signal(16)
        bytes_left = Signal(32)
        bank = Signal(range(BANKS))
        # The array may release words of a row before they are allocated, less than a bank of them,
        # where it goes past columns that no window needs.
        places = range(2 * config.line_bank_words + 1)
        free = [Signal(places, init=config.line_bank_words, name=f"free{b}") for b in range(BANKS)]
        free_here = Signal(places)
        needed = Signal(17)  # a row ends at an even word
        m.d.comb += [
            free_here.eq(Array(free)[bank]),
            needed.eq(words_left + current.row_words[0]),
            fetcher.i.payload.eq(current.spans),
            fetcher.index.eq(current.index),
            self.loading.eq(current.index),
        ]
        given = Signal(range(config.line_bank_words + 1))

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [
                    arriving.i.payload.eq(self.i.payload),
                    arriving.i.valid.eq(self.i.valid),
                    self.i.ready.eq(arriving.i.ready),
                ]
                m.d.sync += [
                    current.eq(self.i.payload),
                    rows_left.eq(self.i.payload.rows),
                    words_left.eq(self.i.payload.row_words),
                    bytes_left.eq(self.i.payload.row_bytes),
                ]
                with m.If(self.i.valid & self.i.ready):
                    m.next = "ORDER"

            with m.State("ORDER"):
                ordered = ~current.wait | (self.landed == current.index)
                m.d.comb += [fetcher.i.valid.eq(ordered), self.waits.eq(~ordered)]
                with m.If(ordered & fetcher.i.ready):
                    m.next = "ROWS"

            with m.State("ROWS"):
                with m.If(rows_left == 0):
                    with m.If(fetcher.done):
                        m.next = "IDLE"
                with m.Elif(free_here >= needed):
                    m.d.comb += [
                        given.eq(needed),
                        allocated.eq(words_left),
                        fetcher.grant.eq(bytes_left),
                    ]
                    m.d.sync += [
                        rows_left.eq(rows_left - 1),
                        words_left.eq(current.row_words),
                        bytes_left.eq(current.row_bytes),
                        bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
                    ]
                with m.Elif((free_here != 0) & (words_left != 1)):
                    m.d.comb += [
                        given.eq(1),
                        allocated.eq(1),
                        fetcher.grant.eq(config.in_lanes),
                    ]
                    m.d.sync += [
                        words_left.eq(words_left - 1),
                        bytes_left.eq(bytes_left - config.in_lanes),
                    ]
                with m.Else():
                    m.d.comb += self.full.eq(1)

        for b, count in enumerate(free):
            released = Mux(self.release_valid & (self.release.bank == b), self.release.words, 0)
            m.d.sync += count.eq(count + released - Mux(bank == b, given, 0))

    def _elaborate_arrival(self, m, arriving, unpacker, allocated):
        """Cut what arrives at the ends of the rows and write it to its places."""
        config = self._config
        depth = config.line_bank_words
        places, written = Signal(range(BANKS * depth + 1)), Signal()
        rows_left, words_left = Signal(16), Signal(16)
        bank = Signal(range(BANKS))
        starts = Array(Signal(range(depth), name=f"start{b}") for b in range(BANKS))
        word = Signal(range(depth))
        busy = Signal()
        rows = arriving.o.payload
        row_ends, next_bank = Signal(), Signal.like(bank)
        m.d.comb += [
            unpacker.spans.payload.eq(rows.spans),
            row_ends.eq(words_left == 1),
            next_bank.eq(Mux(bank == BANKS - 1, 0, bank + 1)),
            unpacker.want.eq(Mux(row_ends, rows.row_tail, config.in_lanes)),
            written.eq(busy & unpacker.valid & (places != 0)),
            unpacker.take.eq(written),
        ]
        m.d.sync += places.eq(places + allocated - written)

        with m.If(~busy):
            m.d.comb += unpacker.spans.valid.eq(arriving.o.valid)
            with m.If(arriving.o.valid & unpacker.spans.ready):
                m.d.sync += [busy.eq(1), rows_left.eq(rows.rows), words_left.eq(rows.row_words)]
        with m.If(written):
            m.d.sync += [words_left.eq(words_left - 1), word.eq(wrap_add(word, 1, depth))]
            with m.If(row_ends):
                m.d.sync += [
                    rows_left.eq(rows_left - 1),
                    words_left.eq(rows.row_words),
                    starts[bank].eq(wrap_add(starts[bank], rows.row_pitch, depth)),
                    word.eq(starts[next_bank]),
                    bank.eq(next_bank),
                ]
                with m.If(rows_left == 1):
                    m.d.comb += arriving.o.ready.eq(1)
                    m.d.sync += busy.eq(0)

        row_ended = Signal()
        m.d.sync += [
            self.write.bank.eq(bank),
            self.write.word.eq(word),
            self.write.data.eq(unpacker.data),
            self.write_valid.eq(written),
            row_ended.eq(written & row_ends),
        ]
        with m.If(row_ended):
            m.d.sync += [self.rows_loaded.eq(self.rows_loaded + 1), self.words_loaded.eq(0)]
        with m.Elif(self.write_valid):
            m.d.sync += self.words_loaded.eq(self.words_loaded + 1)

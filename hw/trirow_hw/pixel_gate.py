"""Let a pixel through when the features that it needs have been loaded."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .pixel import Pixel

__all__ = ["PixelGate"]


class PixelGate(wiring.Component):
    """Hold each pixel until its features have been loaded.

    Two places, so that both hands are registers. Latency 1 cycle, throughput a pixel a cycle. What
    has been loaded counts a cycle later.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream.Signature(Pixel)), o : Out(stream.Signature(Pixel))
        ``o.payload`` is the next pixel also while it waits.
    rows_loaded, words_loaded : In(16)
        Progress of the feature reader.
    waits : Out(1)
        A pixel waits for features.
    """

    def __init__(self, *, config: Config):
        self._shape = Pixel(config)
        super().__init__(
            {
                "i": In(stream.Signature(self._shape)),
                "o": Out(stream.Signature(self._shape)),
                "rows_loaded": In(16),
                "words_loaded": In(16),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        head, spare = self.o.payload, Signal(self._shape, reset_less=True)
        head_valid, spare_valid, comes, moves = Signal(), Signal(), Signal(), Signal()
        spare_free = Signal(init=1)  # a register of its own, with less behind it
        come = Mux(spare_valid, spare, self.i.payload)
        m.d.comb += [
            self.i.ready.eq(spare_free),
            self.waits.eq(head_valid & ~self.o.valid),
            comes.eq(spare_valid | self.i.valid),
            moves.eq(~head_valid | (self.o.valid & self.o.ready)),
        ]
        # All pixels that may be the next head are looked at: which of them it is comes late.
        head_loaded, come_loaded = self._loaded(head), Signal()
        with m.If(spare_free):
            m.d.comb += come_loaded.eq(self.i.valid & self._loaded(self.i.payload))
        with m.Else():
            m.d.comb += come_loaded.eq(self._loaded(spare))
        with m.If(moves):
            m.d.sync += [head.eq(come), head_valid.eq(comes)]
        m.d.sync += self.o.valid.eq(
            Mux(
                self.o.valid,
                ~self.o.ready | come_loaded,
                Mux(head_valid, head_loaded, come_loaded),
            )
        )
        m.d.sync += [spare_valid.eq(~moves & comes), spare_free.eq(moves | ~comes)]
        with m.If(~spare_valid):
            m.d.sync += spare.eq(self.i.payload)
        return m

    def _loaded(self, pixel):
        """Return whether the features of a pixel are there."""
        # Complete rows behind the one that is needed: fewer than 2^15.
        beyond = (self.rows_loaded + ~pixel.need_row)[:16]
        here = self.rows_loaded == pixel.need_row
        return ~pixel.needs | ~beyond[-1] | (here & (self.words_loaded >= pixel.need_words))

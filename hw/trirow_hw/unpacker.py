"""Turn the beats of bursts into a stream of bytes that is taken word by word."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from .delay import delay
from .queue import Queue
from .spans import BurstBytes, check_power_of_two

__all__ = ["BeatMarker", "MarkedBeat", "Unpacker"]

#: Bursts that a marker knows of: those on the way, and some whose requests wait.
BURST_QUEUE = 16
#: Bytes that a lane of an unpacker keeps: as many as a LUT RAM has places.
LANE_BYTES = 16
#: Levels of multiplexers between two registers of a rotation.
LEVELS = 3


def MarkedBeat(bus_bytes: int):
    """Return the layout of a beat of which the bytes from ``first`` to ``last`` are wanted."""
    place = range(bus_bytes)
    return data.StructLayout({"data": 8 * bus_bytes, "first": place, "last": place})


class BeatMarker(wiring.Component):
    """Tell for each beat which of its bytes belong to the spans that were asked for.

    No latency, a beat a cycle; 2 cycles for a burst at least.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.

    Members
    -------
    bursts : In(stream.Signature(BurstBytes(bus_bytes)))
        What has been requested, in order. ``BURST_QUEUE`` of them may wait for their beats.
    i : In(stream.Signature(8 * bus_bytes))
        The beats of these bursts.
    o : Out(stream.Signature(MarkedBeat(bus_bytes)))
    """

    def __init__(self, *, bus_bytes: int):
        check_power_of_two("bus_bytes", bus_bytes)
        self._bus_bytes = bus_bytes
        super().__init__(
            {
                "bursts": In(stream.Signature(BurstBytes(bus_bytes))),
                "i": In(stream.Signature(8 * bus_bytes)),
                "o": Out(stream.Signature(MarkedBeat(bus_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = BurstBytes(self._bus_bytes)
        m.submodules.waiting = waiting = Queue(shape, depth=BURST_QUEUE)
        wiring.connect(m, wiring.flipped(self.bursts), waiting.i)
        burst = Signal(shape)
        valid, ends, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            self.o.payload.data.eq(self.i.payload),
            self.o.payload.first.eq(burst.first),
            self.o.payload.last.eq(Mux(ends, burst.last, self._bus_bytes - 1)),
            self.o.valid.eq(self.i.valid & valid),
            self.i.ready.eq(self.o.ready & valid),
            taken.eq(self.o.valid & self.o.ready),
            waiting.o.ready.eq(~valid | (taken & ends)),
        ]
        with m.If(waiting.o.ready):
            m.d.sync += [
                burst.eq(waiting.o.payload),
                valid.eq(waiting.o.valid),
                ends.eq(waiting.o.payload.beats == 1),
            ]
        with m.Elif(taken):
            m.d.sync += [
                burst.first.eq(0),
                burst.beats.eq(burst.beats - 1),
                ends.eq(burst.beats == 2),
            ]
        return m


class Unpacker(wiring.Component):
    """Cut the wanted bytes out of their beats and hand them out in words of any length.

    The bytes are dealt out to lanes in turn, each a small memory: a beat is rotated on its way in,
    so that its first byte meets the lane whose turn it is, and a word on its way out. Nothing
    stalls behind ``want``: a word is asked for only by who can take it.

    Latency 4 cycles from ``want`` to the word if its bytes are there, and from a beat until its
    bytes are there; a cycle more each for wide beats and words. Throughput a beat and a word a
    cycle, whichever is the shorter. Beats are taken, even if no word is, while they hold less than
    ``LANE_BYTES // 2`` times the longer of a beat and a word.

    Parameters
    ----------
    bus_bytes : int
        Bytes of a beat.
    word_bytes : int
        Most bytes taken at once.
    tag : ShapeLike
        What is to come back with each word.

    Members
    -------
    i : In(stream.Signature(MarkedBeat(bus_bytes)))
        Beats; at least a byte is wanted of each.
    want : In(stream.Signature(StructLayout({"bytes": range(word_bytes + 1), "tag": tag})))
        Asks for the next bytes, 1 to ``word_bytes`` of them.
    valid : Out(1)
        Strobe: a word that was asked for.
    data : Out(8 * word_bytes)
        The bytes; beyond those wanted they are undefined.
    tag : Out(tag)
        Came with ``want``.
    """

    def __init__(self, *, bus_bytes: int, word_bytes: int, tag=0):
        check_power_of_two("bus_bytes", bus_bytes)
        if word_bytes < 1:
            raise ValueError(f"word_bytes must be at least 1, not {word_bytes!r}")
        self._bus_bytes = bus_bytes
        self._word_bytes = word_bytes
        self._tag = tag
        self._lanes = max(bus_bytes, 1 << (word_bytes - 1).bit_length())
        self._want = data.StructLayout({"bytes": range(word_bytes + 1), "tag": tag})
        super().__init__(
            {
                "i": In(stream.Signature(MarkedBeat(bus_bytes))),
                "want": In(stream.Signature(self._want)),
                "valid": Out(1),
                "data": Out(8 * word_bytes),
                "tag": Out(tag),
            }
        )

    @property
    def most_beats(self) -> int:
        """Beats that are taken at most while no word is, if each holds ``bus_bytes`` bytes."""
        half = LANE_BYTES // 2 * self._lanes
        return half // self._bus_bytes + 3 + self._rotations(self._bus_bytes)

    @staticmethod
    def _rotations(lanes: int) -> int:
        """Return how many registers a rotation by any number of bytes takes."""
        return max(1, -(-(lanes - 1).bit_length() // LEVELS))

    def elaborate(self, platform):
        m = Module()
        bits = (self._lanes - 1).bit_length()
        stores = []
        for k in range(self._lanes):
            m.submodules[f"lane{k}"] = store = memory.Memory(shape=8, depth=LANE_BYTES, init=[])
            stores.append(store)
        fill = Signal(range(LANE_BYTES * self._lanes))
        added = self._elaborate_beats(m, stores, fill, bits)
        self._elaborate_words(m, stores, fill, added, bits)
        return m

    def _elaborate_beats(self, m, stores, fill, bits):
        """Deal out the bytes of the beats; return how many are written in this cycle."""
        bus_bytes = self._bus_bytes
        beat, beat_valid = Signal(MarkedBeat(bus_bytes), reset_less=True), Signal()
        m.d.comb += self.i.ready.eq(~fill[-1])
        m.d.sync += [beat.eq(self.i.payload), beat_valid.eq(self.i.valid & self.i.ready)]

        position = Signal(bits)  # lane whose turn it is
        count, turn = Signal(range(bus_bytes + 1)), Signal(range(bus_bytes))
        t_data, t_turn = Signal(8 * bus_bytes, reset_less=True), Signal.like(turn)
        t_count, t_position = Signal.like(count), Signal.like(position)
        m.d.comb += [
            count.eq(Mux(beat_valid, beat.last - beat.first + 1, 0)),
            turn.eq(beat.first - position),
        ]
        m.d.sync += [
            position.eq(position + count),
            t_data.eq(beat.data),
            t_turn.eq(turn),
            t_count.eq(count),
            t_position.eq(position),
        ]
        stages = self._rotations(bus_bytes)
        rotated = self._rotate(m, t_data, t_turn, "beat")
        t_count = delay(m, t_count, stages - 1, name="t_count", reset_less=False)
        t_position = delay(m, t_position, stages - 1, name="t_position", reset_less=False)
        w_count = Signal.like(count)
        m.d.sync += w_count.eq(t_count)
        for k, store in enumerate(stores):
            write, enable = store.write_port(), Signal(name=f"write{k}")
            place = Signal(range(LANE_BYTES), name=f"write_place{k}")
            m.d.sync += [enable.eq(self._turn(k, t_position) < t_count), place.eq(place + enable)]
            m.d.comb += [
                write.addr.eq(place),
                write.data.eq(rotated.word_select(k % bus_bytes, 8)),
                write.en.eq(enable),
            ]
        return w_count

    def _elaborate_words(self, m, stores, fill, added, bits):
        """Take a word as soon as its bytes are there, and move its first byte to the front."""
        want, want_valid = Signal(self._want), Signal()
        behind, behind_valid = Signal(self._want, reset_less=True), Signal()
        left = Signal(len(fill) + 1)
        position, count = Signal(bits), Signal.like(want.bytes)
        issue, free = Signal(), Signal()
        m.d.comb += [
            left.eq(fill - want.bytes),
            issue.eq(want_valid & ~left[-1]),
            free.eq(~want_valid | ~left[-1]),
            # From a register: there is a second place for what comes while the first one waits.
            self.want.ready.eq(~behind_valid),
            count.eq(Mux(issue, want.bytes, 0)),
        ]
        with m.If(~behind_valid):
            m.d.sync += behind.eq(self.want.payload)
        m.d.sync += behind_valid.eq(~free & (behind_valid | self.want.valid))
        with m.If(free):
            m.d.sync += [
                want.eq(Mux(behind_valid, behind, self.want.payload)),
                want_valid.eq(behind_valid | self.want.valid),
            ]
        m.d.sync += fill.eq(Mux(issue, left + added, fill + added))

        r_valid, r_count, r_position = Signal(), Signal.like(count), Signal.like(position)
        m.d.sync += [
            position.eq(position + count),
            r_valid.eq(issue),
            r_count.eq(count),
            r_position.eq(position),
        ]
        word, w_position = Signal(8 * self._lanes, reset_less=True), Signal.like(position)
        m.d.sync += w_position.eq(r_position)
        for k, store in enumerate(stores):
            read, place = (
                store.read_port(domain="comb"),
                Signal(range(LANE_BYTES), name=f"place{k}"),
            )
            with m.If(self._turn(k, r_position) < r_count):
                m.d.sync += place.eq(place + 1)
            m.d.comb += read.addr.eq(place)
            m.d.sync += word.word_select(k, 8).eq(read.data)
        stages = 1 + self._rotations(self._lanes)
        tag = Signal(self._tag, reset_less=True)
        m.d.sync += tag.eq(want.tag)
        m.d.comb += [
            self.data.eq(self._rotate(m, word, w_position, "word")),
            self.valid.eq(delay(m, r_valid, stages, name="valid", reset_less=False)),
            self.tag.eq(delay(m, tag, stages, name="tag")),
        ]

    def _turn(self, lane, position):
        """Return how many lanes it is from ``position`` to a lane."""
        return (lane - position)[: len(position)]

    def _rotate(self, m, value, turn, name):
        """Return the bytes of ``value`` with that of number ``turn`` in front, registered."""
        for low in range(0, max(1, len(turn)), LEVELS):
            for level, bit in enumerate(turn[:LEVELS], low):
                value = Mux(bit, value.rotate_right(8 << level), value)
            value, turn = self._register(m, value, f"{name}{low}"), turn[LEVELS:]
            if len(turn):
                turn = self._register(m, turn, f"{name}_turn{low}")
        return value

    @staticmethod
    def _register(m, value, name):
        register = Signal(len(value), name=name, reset_less=True)
        m.d.sync += register.eq(value)
        return register

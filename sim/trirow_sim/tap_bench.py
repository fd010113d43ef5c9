"""Bench of window and issuer, and the checks of every tap against the plain loop nest."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

from amaranth import Module
from amaranth.hdl import Cat, Elaboratable
from amaranth.lib import wiring

from trirow_hw.activation import Activation
from trirow_hw.config import BANKS, CONSTANT_GROUPS, Config
from trirow_hw.line_buffer import LineBuffer
from trirow_hw.mac_array import MacArray
from trirow_hw.queue import Queue
from trirow_hw.tap_issuer import IssuePass, TapIssuer
from trirow_hw.window import Pixel, Window, WindowPass
from trirow_sim.stream_kit import run, send, stalls
from trirow_sim.tap_kit import Geometry, pass_fields
from trirow_sim.tap_model import GroupFeeder, LineFeeder, TapModel, make_chunks, plain_taps
from trirow_sim.unit_kit import pack, unpack

__all__ = ["SIDES", "Bench", "Checker", "run_passes"]

#: What may hold back.
SIDES = ("features", "weights", "output", "passes")


class Bench(Elaboratable):  # type: ignore[misc]
    """Window and issuer, and with ``array`` the line buffer and the array behind them.

    Parameters
    ----------
    config : Config
    array : bool
    """

    def __init__(self, config: Config, *, array: bool = False) -> None:
        self.window = Window(config=config)
        self.pixels = Queue(Pixel(config), depth=8)
        self.issuer = TapIssuer(config=config)
        self.array: Any = None
        if array:
            self.line_buffer = LineBuffer(config=config)
            self.activation = Activation(config=config)
            self.array = MacArray(config=config)

    def elaborate(self, platform: Any) -> Module:
        """Connect them as in the accelerator."""
        m = Module()
        m.submodules.window, m.submodules.pixels = self.window, self.pixels
        m.submodules.issuer = issuer = self.issuer
        wiring.connect(m, self.window.o, self.pixels.i)
        wiring.connect(m, self.pixels.o, issuer.pixels)
        if self.array:
            m.submodules.line_buffer = self.line_buffer
            m.submodules.activation = self.activation
            m.submodules.array = self.array
            m.d.comb += [
                self.line_buffer.read.eq(issuer.read),
                self.activation.run.eq(self.line_buffer.run),
                self.activation.mask.eq(issuer.mask),
                self.array.activations.eq(self.activation.o),
                self.array.tap.eq(issuer.tap),
            ]
        return m


class Checker:
    """Everything around the bench, cycle by cycle; compares each tap with the loop nest.

    Parameters
    ----------
    config : Config
    geometries : sequence of Geometry
        The passes.
    seed : int or str
        Of the stalls.
    slow : sequence of str
        Sides of `SIDES` that hold back at random.

    Attributes
    ----------
    issued_at : list of tuple
        Cycle and model of each tap.
    idle : dict
        Cycles without a tap, by what was missing.
    """

    #: Cycles from a tap's issue to its read, its mask and itself.
    READ = 2
    MASK = READ + LineBuffer.latency
    TAP = MASK + Activation.latency - MacArray.activation_delay

    def __init__(
        self, config: Config, geometries: Sequence[Geometry], seed: Any, slow: Sequence[str]
    ) -> None:
        self.config, self.geometries = config, geometries
        self.fields = [pass_fields(geometry, config) for geometry in geometries]
        self.chunks = make_chunks(config, geometries)
        self.taps = deque(
            tap
            for index, geometry in enumerate(geometries)
            for tap in plain_taps(index, geometry, config)
        )
        self.lines = LineFeeder(config, geometries)
        self.groups = GroupFeeder(config, geometries)
        generator = random.Random(seed)
        seeds = {side: generator.getrandbits(32) for side in SIDES}
        self.held = {side: stalls(seeds[side] if side in slow else None) for side in SIDES}
        self.stall_seed = seeds["passes"] if "passes" in slow else None
        # Taps on their way to a read, a mask, the array; reads in the memory.
        self.reads: deque[tuple[int, TapModel]] = deque()
        self.masks: deque[tuple[int, TapModel]] = deque()
        self.array_taps: deque[tuple[int, TapModel]] = deque()
        self.reading: tuple[TapModel, dict[str, Any]] | None = None
        self.begun = False
        self.cycle, self.spacing = 0, 0
        # Pixels in the issuer, whether their pass is, and cycles without a tap or a reason.
        self.pixels_inside, self.pass_inside, self.quiet = 0, False, 0
        self.last_end: int | None = None
        self.issued_at: list[tuple[int, TapModel]] = []
        self.idle = dict.fromkeys(("features", "weights", "output"), 0)

    async def run(self, ctx: Any, bench: Bench) -> None:
        """Run until all taps have been issued and nothing is on its way."""
        issuer = bench.issuer
        shapes = {name: getattr(issuer, name).shape() for name in ("read", "mask", "tap", "tag")}
        release_shape = issuer.release.shape()
        sampler = ctx.tick().sample(
            Cat(issuer.issued, issuer.tag_valid, issuer.release_valid, issuer.waits),
            Cat(issuer.pixels.ready, issuer.pixels.valid, issuer.i.ready, issuer.i.valid),
            issuer.stall.as_value(),
            issuer.active,
            issuer.release.as_value(),
            *(getattr(issuer, name).as_value() for name in shapes),
        )
        rest, self.begun = 40, True
        while rest:
            told = self.lines.rows, self.lines.words, self.groups.loaded
            ctx.set(issuer.rows_loaded, told[0])
            ctx.set(issuer.words_loaded, told[1])
            ctx.set(issuer.groups_loaded, told[2])
            room = not next(self.held["output"])
            ctx.set(issuer.room, room)
            *_, strobes, hands, stall, active, release, read, mask, tap, tag = await sampler
            issued, tag_valid, release_valid, waits = (strobes >> k & 1 for k in range(4))
            self.check_hands(issued, hands, stall, waits)
            if issued or stall & ~1:
                self.check_group(unpack(shapes["tag"], tag))
            if issued:
                here = self.taps.popleft()
                assert active == here.index
                assert self.chunks[here.index].first + here.group < told[2]
                assert tag_valid == here.last
                self.issued_at.append((self.cycle, here))
                self.reads.append((self.cycle + self.READ, here))
                self.masks.append((self.cycle + self.MASK, here))
                self.array_taps.append((self.cycle + self.TAP, here))
                if here.last:
                    assert room
                    self.check_end(here, unpack(shapes["tag"], tag))
                    if here.group + 1 == self.groups_of(here):
                        self.pixels_inside -= 1
                        self.pass_inside = not here.pass_end
            else:
                assert not tag_valid
            self.check_features(unpack(shapes["read"], read))
            self.check_mask(unpack(shapes["mask"], mask))
            self.check_tap(unpack(shapes["tap"], tap))
            if release_valid:
                self.lines.release(self.cycle, **unpack(release_shape, release))
            self.write(ctx, bench, self.lines.step(self.cycle, held=next(self.held["features"])))
            self.groups.step(held=next(self.held["weights"]))
            self.cycle += 1
            if not self.taps:
                rest -= 1
        assert not self.reads
        assert not self.masks
        assert not self.array_taps
        assert self.lines.done, "not every place is free again"
        assert self.groups.done

    def write(self, ctx: Any, bench: Bench, word: Any) -> None:
        """Write a word into the line buffer; here it is in the feeder already."""

    async def take(self, ctx: Any, bench: Bench) -> None:
        """Take the sums, where there is an array."""

    def groups_of(self, tap: TapModel) -> int:
        """Return the lane groups of the tap's pass."""
        return self.fields[tap.index]["groups"]

    def check_hands(self, issued: int, hands: int, stall: int, waits: int) -> None:
        """Nothing, or one reason why no tap is issued, soon after pixel and pass have come.

        A pass is taken only when the one before it has ended, and at most three pixels are.
        """
        there = self.pixels_inside and self.pass_inside
        assert issued + stall.bit_count() <= bool(there)
        assert waits == (self.pass_inside and not self.pixels_inside)
        self.quiet = 0 if issued or stall or not there else self.quiet + 1
        assert self.quiet <= 2
        for k, name in enumerate(self.idle):
            self.idle[name] += stall >> k & 1
        if hands & 3 == 3:
            self.pixels_inside += 1
            assert self.pixels_inside <= 3
        if hands >> 2 == 3:
            assert not self.pass_inside
            self.pass_inside = True

    def check_group(self, tag: dict[str, Any]) -> None:
        """Check that the group that ends next is shown, be a tap issued or not."""
        here = self.taps[0]
        fields = self.fields[here.index]
        last = "last_" if here.group + 1 == fields["groups"] else ""
        assert tag["columns"] == fields[f"{last}columns"]
        assert tag["lanes"] == fields[f"{last}lanes" if last else "group_lanes"]
        assert tag["second"] == fields["second"]

    def check_end(self, tap: TapModel, tag: dict[str, Any]) -> None:
        """Check what follows the sums, and the distance from the end before."""
        fields, chunk = self.fields[tap.index], self.chunks[tap.index]
        assert tag["group"] == (chunk.first + tap.group) % CONSTANT_GROUPS
        assert tag["release"] == (tap.pass_end and not fields["keep_weights"])
        assert tag["pass_end"] == (tap.pass_end and tap.group + 1 == fields["groups"])
        if tag["release"]:
            self.groups.release()
        if self.last_end is not None:
            assert self.cycle - self.last_end >= self.spacing
        self.last_end, self.spacing = self.cycle, fields["spacing"]

    def check_features(self, read: dict[str, Any]) -> None:
        """Look at the bytes in the memories, which are read in the cycle behind `read`."""
        if self.reading:
            tap, where = self.reading
            runs = [
                self.lines.run(bank, where["words"][bank], where["byte"])
                for bank in ((where["bank"] + p) % BANKS for p in range(self.config.tap_rows))
            ]
            found = {(p, k): runs[p][k] for p, k in tap.values}
            assert found == tap.values, f"pixel {tap.pixel} of {self.geometries[tap.index]}"
        self.reading = None
        if self.reads and self.reads[0][0] == self.cycle:
            self.reading = self.reads.popleft()[1], read

    def check_mask(self, mask: dict[str, Any]) -> None:
        """Check which bytes count."""
        if self.masks and self.masks[0][0] == self.cycle:
            tap = self.masks.popleft()[1]
            maximum = self.fields[tap.index]["maximum"]
            wanted = {"rows": tap.rows, "high": tap.high, "zero": 0, "maximum": maximum}
            if not tap.empty:
                wanted["low"] = tap.low
            assert {name: mask[name] for name in wanted} == wanted, self.geometries[tap.index]

    def check_tap(self, values: dict[str, Any]) -> None:
        """Check the word of weights, and where sums begin and end."""
        assert values["valid"] == bool(self.array_taps and self.array_taps[0][0] == self.cycle)
        if values["valid"]:
            tap = self.array_taps.popleft()[1]
            fields, chunk = self.fields[tap.index], self.chunks[tap.index]
            place = chunk.place + tap.group * chunk.group_words + tap.word
            if not tap.empty:
                assert values["word"] == place % self.config.weight_words
            wanted = [tap.first, tap.last, fields["depthwise"], fields["maximum"]]
            assert [values[k] for k in ("first", "last", "depthwise", "maximum")] == wanted


def run_passes(driver: Checker, bench: Bench) -> None:
    """Run the passes of a checker on a bench."""
    windows, passes = [], []
    for index, fields in enumerate(driver.fields):
        fields["index"] = index
        windows.append(pack(WindowPass, {name: fields[name] for name, _ in WindowPass}))
        passes.append(pack(IssuePass, {name: fields[name] for name, _ in IssuePass}))

    async def begin(ctx: Any) -> None:
        while not driver.begun:
            await ctx.tick()

    async def send_windows(ctx: Any) -> None:
        await begin(ctx)
        await send(ctx, bench.window.i, windows, driver.stall_seed)

    async def send_passes(ctx: Any) -> None:
        await begin(ctx)
        await send(ctx, bench.issuer.i, passes, driver.stall_seed)

    async def testbench(ctx: Any) -> None:
        await driver.run(ctx, bench)

    async def take_sums(ctx: Any) -> None:
        await driver.take(ctx, bench)

    spacing = max(fields["spacing"] for fields in driver.fields)
    cycles = 20 * len(driver.taps) + spacing * sum(tap.last for tap in driver.taps) + 20_000
    run(bench, send_windows, send_passes, testbench, take_sums, max_cycles=cycles)

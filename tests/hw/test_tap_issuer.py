"""The issuer with line buffer, activation, array and requantisation behind it, against golden.

The test stands for the readers and the window: it loads features and weights by hand, in random
strides, hands out the pixels of the window's model, and takes the outputs.
"""

import random
from collections import deque

import numpy as np
import pytest
from amaranth import Module
from amaranth.hdl import Cat, Elaboratable

from trirow_driver.layer import ConvLayer
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import tile
from trirow_golden import conv2d_int8, encode_multiplier
from trirow_hw.activation import Activation
from trirow_hw.config import BANKS, CONSTANT_GROUPS, PRESETS
from trirow_hw.line_buffer import LineBuffer
from trirow_hw.mac_array import MacArray
from trirow_hw.post_process import PostPass, PostProcess
from trirow_hw.tap_issuer import IssuePass, TapIssuer
from trirow_hw.window import Pixel
from trirow_sim.stream_kit import run, send, stalls
from trirow_sim.unit_kit import WindowModel, pack, unpack

CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "odd", "ecp5-85f")},
    # Banks and weight memories that wrap around all the time.
    "tiny, short": PRESETS["tiny"].override(
        line_buffer_bytes=3 * 20 * 4, weight_buffer_bytes=21 * 16
    ),
    "odd, short": PRESETS["odd"].override(
        line_buffer_bytes=3 * 26 * 3, weight_buffer_bytes=25 * 15
    ),
    "one column": PRESETS["tiny"].override(post_lanes=4),
    "one column, short": PRESETS["tiny"].override(
        post_lanes=4, line_buffer_bytes=3 * 20 * 4, weight_buffer_bytes=21 * 16
    ),
}
#: Kernel, stride, padding, height, width, channels, filters.
LAYERS = {
    "3x3": ((3, 3), (1, 1), (1, 1, 1, 1), 5, 4, 3, 7),
    "1x1, stride 2": ((1, 1), (2, 2), (0, 0, 0, 0), 5, 5, 5, 4),
    "wide padding": ((3, 2), (2, 1), (4, 3, 2, 4), 4, 3, 2, 5),
    "5 rows": ((5, 2), (1, 2), (2, 0, 2, 1), 6, 5, 2, 1),
    "stride beyond the kernel": ((2, 1), (3, 4), (0, 0, 0, 0), 7, 6, 3, 3),
    "all padding": ((1, 2), (4, 4), (2, 3, 0, 0), 1, 2, 1, 2),
    "long rows": ((1, 3), (1, 1), (0, 1, 0, 1), 2, 33, 3, 2),
    "1x1, stride 4, long rows": ((1, 1), (1, 4), (0, 0, 0, 3), 2, 19, 5, 2),
    "1x1, long rows": ((1, 1), (1, 1), (0, 0, 0, 0), 2, 40, 4, 3),
}
#: Cycles after a release before which its place is not written again.
REUSE = 3


class Bench(Elaboratable):
    """The compute half, connected as in the accelerator."""

    def __init__(self, config):
        self.issuer = TapIssuer(config=config)
        self.line_buffer = LineBuffer(config=config)
        self.activation = Activation(config=config)
        self.array = MacArray(config=config)
        self.post = PostProcess(config=config)

    def elaborate(self, platform):
        m = Module()
        for name in ("issuer", "line_buffer", "activation", "array", "post"):
            m.submodules[name] = getattr(self, name)
        m.d.comb += [
            self.line_buffer.read.eq(self.issuer.read),
            self.activation.run.eq(self.line_buffer.run),
            self.activation.mask.eq(self.issuer.mask),
            self.array.tap.eq(self.issuer.tap),
            self.array.activations.eq(self.activation.o),
            self.issuer.room.eq(self.post.room),
            self.post.tag.eq(self.issuer.tag),
            self.post.tag_valid.eq(self.issuer.tag_valid),
            self.post.sums.eq(self.array.sums),
            self.post.done.eq(self.array.done),
        ]
        return m


def random_layer(name, seed):
    """Return the layer with random numbers, and a feature map for it."""
    kernel, stride, pad, height, width, channels, filters = LAYERS[name]
    rng = np.random.default_rng(seed)
    weights = rng.integers(-128, 128, (filters, *kernel, channels)).astype(np.int8)
    scale = 1 / (np.sqrt(weights[0].size) * 74 * 60)
    low, high = sorted(rng.integers(-128, 128, 2))
    if high - low < 100:
        low, high = -128, 127
    layer = ConvLayer(
        name=name,
        weights=weights,
        bias=rng.integers(-5000, 5000, filters).astype(np.int32),
        multiplier=(rng.uniform(0.5, 2, filters) * scale).astype(np.float32),
        stride=stride,
        pad=pad,
        input=Quantisation(1.0, int(rng.choice([-128, 127, 3]))),
        output=Quantisation(1.0, int(rng.choice([-128, 127, -9]))),
        low=int(low),
        high=int(high),
    )
    return layer, rng.integers(-128, 128, (1, height, width, channels)).astype(np.int8)


class Pass:
    """One pass: what the units are told, what is loaded, what comes out."""

    def __init__(self, config, model, layer, features, chunk, index):
        height, width = features.shape[1:3]
        self.fields = model.fields(layer, height, width, chunk)
        self.pixels = model.walk(layer, height, width)
        fields = {**self.fields, "index": index}
        self.issue = pack(IssuePass, {name: fields[name] for name, _ in IssuePass})
        self.post = pack(PostPass, {name: fields[name] for name, _ in PostPass})
        part = tile(layer, height, width, config).chunks[chunk]
        channels = slice(part.first, part.first + part.channels)
        self.groups = fields["groups"]
        self.weights = layer.weights[channels]
        self.constants = layer.bias[channels], *encode_multiplier(layer.multiplier[channels])
        self.features = features[0]
        golden = conv2d_int8(
            features,
            layer.weights,
            layer.bias,
            layer.multiplier,
            stride=layer.stride,
            pad=layer.pad,
            zero_in=layer.input.zero_point,
            zero_out=layer.output.zero_point,
            low=layer.low,
            high=layer.high,
        )[0, :, :, channels]
        self.outputs = []
        for pixel in golden.reshape(-1, part.channels):
            for group in range(self.groups):
                here = pixel[group * config.out_lanes :][: config.out_lanes].tobytes()
                for column in range(config.stages):
                    self.outputs.append(here[column * config.post_lanes :][: config.post_lanes])
        self.rows = self._fetched_rows(layer, height)
        assert len(self.rows) == fields["rows"]

    def _fetched_rows(self, layer, height):
        rows = set()
        for y in range(self.fields["out_rows"]):
            top = y * layer.stride[0] - layer.pad[0]
            rows |= set(range(max(top, 0), min(top + layer.kernel[0], height)))
        return sorted(rows) or [0]


def feature_words(config, passes):
    """List the words of all rows as they are loaded: bank, place, data, and places they take."""
    lanes, depth = config.in_lanes, config.line_bank_words
    starts, words, index = [0] * BANKS, [], 0
    for each in passes:
        for row in each.rows:
            raw = each.features[row].tobytes()
            pieces = [raw[k : k + lanes] for k in range(0, len(raw), lanes)]
            bank = index % BANKS
            for k, piece in enumerate(pieces):
                last = k == len(pieces) - 1
                takes = 1 + (last and len(pieces) % 2)
                words.append((bank, (starts[bank] + k) % depth, piece, takes, last))
            starts[bank] = (starts[bank] + len(pieces) + len(pieces) % 2) % depth
            index += 1
    return words


def weight_items(config, passes):
    """List constants and weights as they are loaded, group by group."""
    lanes, place, slot, groups = config.in_lanes, 0, 0, []
    for each in passes:
        bias, mantissa, exponent = each.constants
        run_words = each.fields["run_words"]
        for first in range(0, len(bias), config.out_lanes):
            items = []
            filters = each.weights[first : first + config.out_lanes]
            for lane, kernel in enumerate(filters):
                k = first + lane
                data = int(bias[k]) & 0xFFFF_FFFF | int(mantissa[k]) << 32 | int(exponent[k]) << 56
                items.append(("constant", lane, slot, data))
                for r, kernel_row in enumerate(kernel):
                    raw = kernel_row.tobytes()
                    for w in range(run_words):
                        word = (place + r * run_words + w) % config.weight_words
                        data = int.from_bytes(raw[w * lanes : (w + 1) * lanes], "little")
                        items.append(("weight", lane, word, data))
            groups.append((each.fields["group_words"], items))
            place = (place + each.fields["group_words"]) % config.weight_words
            slot = (slot + 1) % CONSTANT_GROUPS
    return groups


class Driver:
    """Everything around the bench, cycle by cycle."""

    def __init__(self, config, passes, seed, slow):
        self.config, self.passes, self.seed = config, passes, seed
        self.slow = slow
        self.generator = random.Random(repr(seed))
        self.outputs = []
        self.last_taps = []
        self.issued = 0
        self.tags = 0
        self.released = [0] * BANKS
        self.idle = dict.fromkeys(("features", "weights", "output"), 0)

    def stalls(self, name):
        return stalls(self.generator.getrandbits(32) if name in self.slow else None)

    async def run(self, ctx, bench):
        config, generator = self.config, self.generator
        issuer, post, array, line_buffer = bench.issuer, bench.post, bench.array, bench.line_buffer
        words, groups = deque(feature_words(config, self.passes)), weight_items(config, self.passes)
        allocated = deque()
        self.groups = [(k, p) for p, each in enumerate(self.passes) for k in range(each.groups)]
        wanted = [column for each in self.passes for column in each.outputs]
        resident = deque(size for size, _ in groups)
        items = deque((k, item) for k, (_, list_) in enumerate(groups) for item in list_)
        left = [len(list_) for _, list_ in groups]
        free = [config.line_bank_words] * BANKS
        loaded = [0] * BANKS
        free_words, free_slots, granted = config.weight_words, CONSTANT_GROUPS, 0
        returns = deque()
        rows = row_words = groups_loaded = 0
        shape, write_shape = issuer.release.shape(), line_buffer.write.shape()
        slow_features, slow_weights = self.stalls("features"), self.stalls("weights")
        slow_output = self.stalls("output")
        where = (0, 0)  # pass and pixel
        group = 0
        cycle = 0
        sampler = ctx.tick().sample(
            Cat(
                issuer.issued,
                issuer.tag_valid,
                issuer.release_valid,
                post.release,
                post.o.valid,
                issuer.tap.valid,
                issuer.tap.last,
                issuer.stall.as_value(),
            ),
            issuer.release.as_value(),
            post.o.payload.as_value(),
            Cat(issuer.pixels.ready, issuer.pixels.valid, issuer.i.ready, issuer.i.valid),
            issuer.active,
        )
        while len(self.outputs) < len(wanted):
            # Progress as the readers tell it: in the cycle behind the last write.
            ctx.set(issuer.rows_loaded, rows)
            ctx.set(issuer.words_loaded, row_words)
            ctx.set(issuer.groups_loaded, groups_loaded)
            told = rows, row_words, groups_loaded

            while returns and returns[0][0] <= cycle:
                _, bank, places = returns.popleft()
                free[bank] += places
                assert free[bank] <= config.line_bank_words, "more is freed than was given out"
            if words and words[0][3] <= free[words[0][0]]:
                allocated.append(words.popleft())
                free[allocated[-1][0]] -= allocated[-1][3]
            write = not next(slow_features) and bool(allocated)
            data = generator.getrandbits(write_shape.size)
            if write:
                bank, place, piece, takes, last = allocated.popleft()
                loaded[bank] += takes
                # Beyond the row's end there is whatever follows.
                piece += generator.randbytes(config.in_lanes - len(piece))
                data = int.from_bytes(piece, "little")
                data = pack(write_shape, {"bank": bank, "word": place, "data": data})
                rows, row_words = (rows + 1, 0) if last else (rows, row_words + 1)
            ctx.set(line_buffer.write.as_value(), data)
            ctx.set(line_buffer.write_valid, write)

            while granted < len(groups) and groups[granted][0] <= free_words and free_slots:
                free_words -= groups[granted][0]
                free_slots -= 1
                granted += 1
            kind = None
            if not next(slow_weights) and items and items[0][0] < granted:
                k, (kind, lane, place, data) = items.popleft()
                if kind == "constant":
                    value = pack(
                        post.constant.shape(), {"group": place, "lane": lane, "data": data}
                    )
                    ctx.set(post.constant.as_value(), value)
                else:
                    value = pack(array.weight.shape(), {"word": place, "lane": lane, "data": data})
                    ctx.set(array.weight.as_value(), value)
                left[k] -= 1
                groups_loaded += not left[k]
            ctx.set(post.constant_valid, kind == "constant")
            ctx.set(array.weight_valid, kind == "weight")

            ready = not next(slow_output)
            ctx.set(post.o.ready, ready)
            *_, flags, release, output, hands, active = await sampler
            issued, tag, releases, weights_free, valid, tap, tap_last = (
                flags >> k & 1 for k in range(7)
            )
            stall = flags >> 7
            self.check_stall(issued, stall, hands)
            if issued:
                self.issued += 1
                assert active == where[0]
                self.check_there(where, group, *told)
                if tag:
                    self.tags += 1
                    group += 1
            if hands & 3 == 3:
                assert group == self.passes[where[0]].groups
                group = 0
                ends = where[1] == len(self.passes[where[0]].pixels) - 1
                assert ends == (hands & 12 == 12)
                where = (where[0] + 1, 0) if ends else (where[0], where[1] + 1)
            if tap and tap_last:
                self.last_taps.append(cycle)
            if releases:
                place = unpack(shape, release)
                bank = place["bank"]
                self.released[bank] += place["words"]
                returns.append((cycle + REUSE, bank, place["words"]))
            if weights_free:
                free_words += resident.popleft()
                free_slots += 1
            if valid and ready:
                column = unpack(post.o.payload.shape(), output)
                data = column["data"].to_bytes(config.post_lanes, "little")[: column["count"]]
                self.outputs.append(data)
                assert data == wanted[len(self.outputs) - 1], f"column {len(self.outputs) - 1}"
            cycle += 1
        for _ in range(20):
            *_, flags, release, _, _, _ = await sampler
            assert not flags & 1
            if flags >> 2 & 1:
                place = unpack(shape, release)
                self.released[place["bank"]] += place["words"]
        assert not words
        assert not allocated
        assert self.released == loaded

    def check_stall(self, issued, stall, hands):
        """One reason, and only while a pixel of a pass is there and no tap is issued."""
        there = hands >> 1 & 1 and hands >> 3 & 1
        assert stall.bit_count() == (there and not issued)
        for k, name in enumerate(("features", "weights", "output")):
            self.idle[name] += stall >> k & 1

    def check_there(self, where, group, rows, words, groups):
        """Check that what a tap needs has been loaded."""
        each = self.passes[where[0]]
        pixel = each.pixels[where[1]]
        assert groups > sum(p.groups for p in self.passes[: where[0]]) + group
        if not pixel.empty:
            lanes = self.config.in_lanes
            last = max(pixel.taps)
            byte = pixel.position + last * lanes + max(pixel.taps[last])
            row = pixel.first_row + pixel.rows - 1
            assert row < rows or (row == rows and byte // lanes < words)

    def check_taps(self):
        """Check distances and number of the taps."""
        config = self.config
        gaps = np.diff(self.last_taps)
        assert gaps.min(initial=config.stages) >= config.stages
        # Where every tap is padding, one that is masked ends the sum all the same.
        assert self.issued == sum(
            each.groups * (1 if pixel.empty else pixel.rows * len(pixel.taps))
            for each in self.passes
            for pixel in each.pixels
        )
        assert self.tags == len(self.last_taps)


def make_passes(config, names, seed):
    model, passes = WindowModel(config), []
    for name in names:
        layer, features = random_layer(name, seed)
        chunks = tile(layer, *features.shape[1:3], config).chunks
        for chunk in range(len(chunks)):
            passes.append(Pass(config, model, layer, features, chunk, len(passes)))
    return passes


def check(config, names, *, seed, slow=()):
    passes = make_passes(config, names, seed)
    bench = Bench(config)
    driver = Driver(config, passes, seed, slow)
    rng = random.Random(seed)
    held = {name: rng.getrandbits(32) if name in slow else None for name in ("passes", "pixels")}
    shape = Pixel(config)
    pixels = []
    for each in passes:
        sizes = each.fields["run_words"], each.fields["row_words"]
        for pixel in each.pixels:
            values = driver_payload(WindowModel(config).payload(pixel, *sizes))
            pixels.append(pack(shape, values))

    async def send_passes(ctx):
        await send(ctx, bench.issuer.i, [each.issue for each in passes], held["passes"])

    async def send_pixels(ctx):
        await send(ctx, bench.issuer.pixels, pixels, held["pixels"])

    async def send_post(ctx):
        await send(ctx, bench.post.i, [each.post for each in passes])

    async def testbench(ctx):
        await driver.run(ctx, bench)

    cycles = 200 * len(pixels) + 5000
    run(bench, send_passes, send_pixels, send_post, testbench, max_cycles=cycles)
    driver.check_taps()
    return driver


def driver_payload(values):
    """Fill in what the model leaves open: places of banks without a row of the window."""
    if "starts" in values:
        values["starts"] = [0 if place is None else place for place in values["starts"]]
    return values


SIDES = ("features", "weights", "output", "pixels", "passes")
SHORT = [name for name in LAYERS if "long rows" not in name and name != "3x3"]


@pytest.mark.parametrize("name", ["tiny", "odd", "one column"])
def test_layers(name):
    """A chain of all layers, without a stall."""
    check(CONFIGS[name], list(LAYERS), seed=1)


@pytest.mark.parametrize("slow", [*[(side,) for side in SIDES], SIDES], ids="+".join)
@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_stalls(name, slow):
    """Each side in turn holds back, then all of them."""
    driver = check(CONFIGS[name], SHORT, seed=2, slow=slow)
    for side in ("features", "weights", "output"):
        if slow == (side,):
            assert driver.idle[side]


@pytest.mark.parametrize("slow", [(), ("features",), ("output",), SIDES], ids="+".join)
@pytest.mark.parametrize("name", ["one column, short", "odd, short"])
def test_rings_wrap(name, slow):
    """Places are loaded again as soon as they are released."""
    check(
        CONFIGS[name],
        [name for name in LAYERS if name not in ("3x3", "1x1, stride 2")],
        seed=3,
        slow=slow,
    )


@pytest.mark.parametrize("slow", [(), SIDES], ids="+".join)
def test_ecp5_85f(slow):
    check(CONFIGS["ecp5-85f"], ["3x3", "wide padding", "1x1, stride 2"], seed=4, slow=slow)


@pytest.mark.parametrize("name", ["tiny", "odd", "one column"])
def test_output_is_not_waited_for(name):
    """Where every group has as many taps as the array has columns, none waits for the array."""
    driver = check(CONFIGS[name], ["3x3"], seed=5)
    assert driver.idle["output"] == 0

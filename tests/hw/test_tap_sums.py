"""Window, issuer, line buffer and array together: their sums against those of NumPy."""

import numpy as np
import pytest

from trirow_hw.config import PRESETS
from trirow_sim.tap_bench import Bench, Checker, run_passes
from trirow_sim.tap_kit import Geometry
from trirow_sim.unit_kit import pack


class ArrayChecker(Checker):
    """Loads numbers into line buffer and array, and takes the sums."""

    def __init__(self, config, geometries, seed, slow):
        super().__init__(config, geometries, seed, slow)
        rng = np.random.default_rng(len(geometries))
        self.maps, self.weights, self.zeros, self.wanted = [], [], [], []
        for geometry, fields in zip(geometries, self.fields, strict=True):
            shape = (geometry.height, geometry.width, geometry.channels)
            channels = geometry.filters, geometry.channels
            outputs = channels[geometry.depthwise]
            self.maps.append(rng.integers(-128, 128, shape))
            deep = 1 if geometry.depthwise else geometry.channels
            weights = rng.integers(-128, 128, (outputs, *geometry.kernel, deep))
            self.weights.append(weights if geometry.op in ("dense", "depthwise") else weights**0)
            fields["zero_in"] = int(rng.integers(-128, 128))
            self.wanted += self.sums(geometry, fields)
        assert sum(c.groups * c.group_words for c in self.chunks) <= config.weight_words

    def sums(self, geometry, fields):
        """Return the sums of each lane group of each pixel."""
        (rows, columns), (top, left, bottom, right) = geometry.kernel, geometry.pad
        kinds = {"max": -256}
        padded = np.pad(
            self.maps[-1] - fields["zero_in"],
            ((top, bottom), (left, right), (0, 0)),
            constant_values=kinds.get(geometry.op, 0),
        )
        sums = []
        for y, x in np.ndindex(*geometry.out_shape):
            y0, x0 = y * geometry.stride[0], x * geometry.stride[1]
            window = padded[y0 : y0 + rows, x0 : x0 + columns]
            if geometry.op == "max":
                values = window.max(axis=(0, 1))
            elif geometry.depthwise:
                values = np.einsum("rsc,crs->c", window, self.weights[-1][..., 0])
            else:
                values = np.einsum("rsc,frsc->f", window, self.weights[-1])
            size = self.config.in_lanes if geometry.depthwise else self.config.out_lanes
            sums += [values[k : k + size].tolist() for k in range(0, len(values), size)]
        return sums

    def words(self, index):
        """Return the words of weights of a pass: lane, place and list of weights."""
        config, geometry, chunk = self.config, self.geometries[index], self.chunks[index]
        weights, lanes = self.weights[index], config.in_lanes
        words = []
        for k, kernel in enumerate(weights):
            if geometry.depthwise:
                group, lane = divmod(k, lanes)
                taken, (rows, columns) = config.tap_rows, geometry.kernel
                if geometry.op == "depthwise":
                    padded = np.zeros((-(-rows // taken) * taken, columns), int)
                    padded[:rows] = kernel[..., 0]
                    steps = padded.reshape(-1, taken, columns).swapaxes(1, 2)
                    list_ = steps.reshape(-1, taken).tolist()
                else:
                    list_ = [[1] + [geometry.op == "sum"] * (taken - 1)]
            else:
                group, lane = divmod(k, config.out_lanes)
                list_ = []
                for row in kernel.reshape(geometry.kernel[0], -1).tolist():
                    list_ += [row[j : j + lanes] for j in range(0, len(row), lanes)]
            place = chunk.place + group * chunk.group_words
            words += [(lane, place + j, word) for j, word in enumerate(list_)]
        return words

    async def run(self, ctx, bench):
        array, bits = bench.array, self.config.weight_bits
        ctx.set(array.weight_valid, 1)
        for index in range(len(self.geometries)):
            for lane, place, word in self.words(index):
                data = sum((int(w) & ((1 << bits) - 1)) << k * bits for k, w in enumerate(word))
                values = {"lane": lane, "word": place, "data": data}
                ctx.set(array.weight.as_value(), pack(array.weight.shape(), values))
                await ctx.tick()
        ctx.set(array.weight_valid, 0)
        await super().run(ctx, bench)

    async def take(self, ctx, bench):
        """Take the sums column by column and compare them."""
        sampler = ctx.tick().sample(bench.array.done, bench.array.sums)
        for group, wanted in enumerate(self.wanted):
            sums = []
            while len(sums) < len(wanted):
                *_, done, values = await sampler
                assert not (done and sums), "columns of two groups collide"
                if done or sums:
                    sums += [values[k] for k in range(self.config.post_lanes)]
            assert sums[: len(wanted)] == wanted, f"group {group}"

    def check_mask(self, mask):
        """Left to the sums."""
        if self.masks and self.masks[0][0] == self.cycle:
            self.masks.popleft()

    def write(self, ctx, bench, word):
        line_buffer = bench.line_buffer
        ctx.set(line_buffer.write_valid, word is not None)
        if word:
            bank, place, bytes_ = word
            data = bytes(0 if b is None else int(self.maps[b[0]][b[1:]]) & 255 for b in bytes_)
            values = {"bank": bank, "word": place, "data": int.from_bytes(data, "little")}
            shape = line_buffer.write.shape()
            ctx.set(line_buffer.write.as_value(), pack(shape, values))


@pytest.mark.parametrize("name", ["tiny", "odd", "up5k"])
def test_sums(name):
    """Features, masks and weights meet in the array."""
    config = PRESETS[name]
    passes = [
        Geometry((3, 3), (1, 1), (1, 1, 1, 1), 5, 4, 3, filters=3),
        Geometry((3, 3), (1, 1), (1, 1, 1, 1), 5, 4, 7, op="depthwise"),
        Geometry((5, 2), (2, 1), (3, 1, 2, 0), 6, 4, 5, op="depthwise"),
        Geometry((2, 2), (2, 2), (0, 0, 0, 0), 6, 4, 4, op="max"),
        Geometry((3, 3), (2, 2), (3, 1, 1, 1), 6, 4, 3, op="max"),
        Geometry((1, 1), (1, 1), (0, 0, 0, 0), 3, 4, 5, filters=4),
        Geometry((6, 4), (1, 1), (0, 0, 0, 0), 6, 4, 5, op="sum"),
    ]
    run_passes(ArrayChecker(config, passes, 1, ()), Bench(config, array=True))

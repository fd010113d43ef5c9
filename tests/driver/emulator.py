"""Compute a packed image in plain numpy, from nothing but the bytes of its descriptors.

It knows what the fields mean and nothing of layers, so a wrong field gives wrong bytes.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from trirow_driver.image import DdrImage
from trirow_driver.program import DESCRIPTORS
from trirow_golden import requantise, requantise_fixed
from trirow_hw.config import CONSTANT_GROUPS, SECOND_QUEUE, Config
from trirow_hw.descriptor import (
    DESCRIPTOR_BYTES,
    OP_DENSE,
    OP_MAX_POOL,
    unpack_descriptor,
)


class Emulator:
    """Memory and what stays on chip from pass to pass."""

    def __init__(self, image: DdrImage, config: Config) -> None:
        self.config = config
        self.base = image.base
        self.memory = np.frombuffer(image.data, np.uint8).copy()
        self.first = image.address(DESCRIPTORS)
        self.weights = None
        self.kept = 0
        self.kept_sums: deque[np.ndarray] = deque()
        self.landed = 0

    def run(self) -> None:
        address, index = self.first, 0
        while True:
            raw = self.memory[address - self.base :][:DESCRIPTOR_BYTES].tobytes()
            fields = unpack_descriptor(raw)
            self._check(fields)
            self._pass(fields)
            index += 1
            if fields["last"]:
                return
            address = fields["next"]

    def _check(self, f: dict[str, int]) -> None:
        """Check what the gateware relies on."""
        c = self.config
        bank = c.line_bank_words
        pitch = f["row_words"] + f["row_words"] % 2
        assert f["row_pitch"] == pitch % bank
        window_rows = min(f["kernel_rows"], f["rows"])
        if window_rows > 1:
            assert -(-window_rows // 3) * pitch <= bank, "rows exceed the line buffer"
        assert f["group_words"] <= c.weight_words
        streams = (f["out_rows"], f["out_columns"]) == (1, 1) and f["load_weights"]
        if not streams or f["keep_weights"]:
            assert f["groups"] <= CONSTANT_GROUPS
            assert f["groups"] * f["group_words"] <= c.weight_words, "the chunk exceeds the ring"
        self._check_positions(f)
        assert f["load_weights"] != bool(self.kept)
        self.kept = f["keep_weights"]

    def _check_positions(self, f: dict[str, int]) -> None:
        """Check that counters of 16 bits and a sign hold all positions, and one step more."""
        across = f["out_columns"] * f["stride_columns"]
        assert f["first_column"] + across + f["kernel_columns"] < 1 << 16
        if f["in_bytes"] > 1:
            lanes, (channels, rest) = self.config.in_lanes, divmod(f["row_bytes"], f["in_columns"])
            assert rest == 0
            assert f["first_word"] + across * channels // lanes + 1 < 1 << 16
            assert f["first_word"] == f["first_column"] * channels // lanes
        assert f["top"] + f["out_rows"] * f["stride_rows"] + f["kernel_rows"] < 1 << 16
        # The rows in the line buffer are counted relative to the window.
        assert f["in_rows"] < 1 << 15
        assert f["top_bank"] == f["top"] % 3
        assert f["spacing"] >= max(f["columns"], f["last_columns"])
        line = f["in_line"]
        assert line >= f["in_bytes"] or (line % f["in_span"] == 0 and f["in_first"] == f["in_span"])
        assert f["in_first"] <= f["in_bytes"]

    def _walk(self, f: dict[str, int], prefix: str) -> np.ndarray:
        """Return the addresses of all bytes of some spans, in order."""
        total, span = f[f"{prefix}_bytes"], f[f"{prefix}_span"]
        length = f.get(f"{prefix}_first", span)
        address, covered, pieces = f[f"{prefix}_address"], 0, []
        while covered < total:
            length = min(length, total - covered)
            pieces.append(np.arange(address, address + length))
            covered += length
            ends = covered % f[f"{prefix}_line"] == 0
            address = (address + length + f[f"{prefix}_{'turn' if ends else 'gap'}"]) % (1 << 32)
            length = span
        return np.concatenate(pieces) - self.base

    def _read(self, f: dict[str, int], prefix: str) -> np.ndarray:
        where = self._walk(f, prefix)
        assert where.min() >= 0
        assert where.max() < len(self.memory)
        return self.memory[where]

    def _rows(self, f: dict[str, int]) -> dict[int, np.ndarray]:
        """Return the rows of the feature map that are fetched, by their number."""
        data = self._read(f, "in").reshape(f["rows"], f["row_bytes"])
        seen = sorted(
            {
                y
                for row in range(f["out_rows"])
                for y in range(
                    row * f["stride_rows"] + f["top"],
                    row * f["stride_rows"] + f["top"] + f["kernel_rows"],
                )
                if 0 <= y < f["in_rows"]
            }
        )
        if f["stride_rows"] <= f["kernel_rows"] and seen:
            seen = list(range(seen[0], seen[-1] + 1))
        if seen:
            assert len(seen) == f["rows"]
        return dict(zip(seen, data, strict=False))

    def _load(self, f: dict[str, int]) -> None:
        """Take tables, constants and weights out of the chunk."""
        chunk = self.memory[f["weight_address"] - self.base :][: f["weight_bytes"]]
        tables, position = [], 0
        while position < f["table_bytes"]:
            tables.append(chunk[position : position + 1024].view("<i4"))
            position += 1024
        constants, weights = [], []
        record = 12 if f["wide"] else 8
        for group in range(f["groups"]):
            begin = position
            lanes = f["last_lanes"] if group == f["groups"] - 1 else f["group_lanes"]
            raw = chunk[position : position + lanes * record].reshape(lanes, record)
            constants += [row.view("<u4") for row in raw]
            position += lanes * record
            words = []
            for _ in range(f["chunk_steps"]):
                for word in range(f["chunk_run"]):
                    last = word == f["chunk_run"] - 1
                    size = f["chunk_tail"] if last else self.config.in_lanes
                    piece = chunk[position : position + lanes * size].view(np.int8)
                    padded = np.zeros((lanes, self.config.in_lanes), np.int32)
                    padded[:, :size] = piece.reshape(lanes, size).astype(np.int32)
                    padded[:, :size] -= f["zero_weight"]
                    words.append(padded)
                    position += lanes * size
            assert f["chunk_steps"] * f["chunk_run"] == f["group_words"] == len(words)
            if group < f["groups"] - 1:
                assert position - begin == f["group_bytes"]
            weights.append(words)
        assert position == f["weight_bytes"]
        self.weights = tables, constants, weights

    def _sums(self, f: dict[str, int]) -> np.ndarray:
        """Return the sums of all pixels, of shape (pixels, channels)."""
        rows = self._rows(f)
        assert self.weights is not None
        _, _, weights = self.weights
        width = f["in_columns"]
        channels = f["row_bytes"] // width if rows else 1
        dense, maximum = f["op"] == OP_DENSE, f["op"] == OP_MAX_POOL
        lanes, taps = self.config.in_lanes, min(3, self.config.in_lanes)
        totals = []
        for y in range(f["out_rows"]):
            for x in range(f["out_columns"]):
                window = {}
                for r in range(f["kernel_rows"]):
                    row = rows.get(y * f["stride_rows"] + f["top"] + r)
                    for s in range(f["kernel_columns"]):
                        at = x * f["stride_columns"] + f["first_column"] + s
                        if row is not None and 0 <= at < width:
                            pixel = row[at * channels : (at + 1) * channels].view(np.int8)
                            window[r, s] = pixel.astype(np.int32) - f["zero_in"]
                pixel_sums: list[int] = []
                for group, words in enumerate(weights):
                    used = len(words[0])
                    total = np.full(used, -256 if maximum else 0, np.int64)
                    for (r, s), pixel in window.items():
                        if dense:
                            for c in range(channels):
                                word, byte = divmod(s * channels + c, lanes)
                                word += r * f["step_weights"]
                                total += pixel[c] * words[word][:, byte]
                            continue
                        step, position = divmod(r, taps)
                        word = words[step * f["step_weights"] + s if f["step_weights"] else 0]
                        own = pixel[group * lanes :][:used]
                        if maximum:
                            total = np.maximum(total, own)
                        else:
                            total += own * word[:, position]
                    pixel_sums += total.tolist()
                totals.append(pixel_sums)
        return np.array(totals, np.int64)

    def _pass(self, f: dict[str, int]) -> None:
        if f["load_weights"]:
            self._load(f)
        assert self.weights is not None
        tables, constants, _ = self.weights
        sums = self._sums(f)
        words = np.array([list(row) for row in constants], np.int64)
        second = self._read(f, "second") if f["second_bytes"] else None
        if f["partial_in"] == 2:
            sums = sums + self.kept_sums.popleft()
        elif f["partial_in"]:
            assert second is not None
            sums = sums + second.view("<i4").reshape(sums.shape)
        else:
            sums = sums + words[:, 0].astype(np.uint32).view(np.int32)
        sums = sums.astype(np.int32)
        if f["partial_out"] == 2:
            self.kept_sums.append(sums)
            columns = (-(-s.shape[1] // self.config.post_lanes) * len(s) for s in self.kept_sums)
            assert sum(columns) <= SECOND_QUEUE
            return
        where = self._walk(f, "out")
        if f["partial_out"]:
            self.memory[where] = np.frombuffer(sums.astype("<i4").tobytes(), np.uint8)
            return
        y = self._requantise(f, sums, words)
        if f["combine"]:
            assert second is not None
            t = tables[0][y.view(np.uint8)].astype(np.int64)
            u = tables[1][second.reshape(y.shape)].astype(np.int64)
            t = np.maximum(t, u) if f["combine"] == 2 else t + u
            y = requantise_fixed(
                t.astype(np.int32),
                np.full(t.shape[-1], f["sum_mantissa"]),
                np.full(t.shape[-1], f["sum_left"]),
                np.full(t.shape[-1], f["sum_right"]),
                f["sum_zero"],
                f["sum_low"],
                f["sum_high"],
            )
        elif f["table"]:
            y = tables[0][y.view(np.uint8)].astype(np.int8)
        self.memory[where] = y.view(np.uint8).reshape(-1)

    def _requantise(self, f: dict[str, int], sums: np.ndarray, words: np.ndarray) -> np.ndarray:
        bounds = f["zero_out"], f["low"], f["high"]
        if f["fixed"]:
            left, right = words[:, 2] & 15, words[:, 2] >> 8 & 31
            return requantise_fixed(sums, words[:, 1], left, right, *bounds)
        scale = _float(words[:, 1])
        if f["prelu"]:
            return requantise(sums, scale, *bounds, negative_multiplier=_float(words[:, 2]))
        return requantise(sums, scale, *bounds)


def _float(words: np.ndarray) -> np.ndarray:
    mantissa, exponent = words & 0xFFFFFF, words >> 24 & 63
    value = mantissa * 2.0 ** -exponent.astype(np.float64)
    return np.where(words >> 31, -value, value).astype(np.float32)

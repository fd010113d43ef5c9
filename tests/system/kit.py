"""Lay layers out in memory, run them on the accelerator, and compare every byte afterwards.

Blobs, chunks and descriptors lie at chosen addresses between bytes drawn from a seed. What the
memory must hold at the end is worked out with the golden model, for the whole memory, so that a
byte written to a wrong place shows wherever it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import trirow_golden
from trirow_driver.layer import ConvLayer
from trirow_driver.passes import chunk_bytes, pass_fields
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import Chunk, Tiling, UnsupportedError, tile
from trirow_hw.config import PRESETS, Config
from trirow_hw.descriptor import DESCRIPTOR_BYTES, pack_descriptor
from trirow_hw.errors import ErrorCode
from trirow_sim.job import Job, RunResult
from trirow_sim.memory import Memory, MemoryModel, make_memory
from trirow_sim.pysim import PysimEngine

TINY, ODD = PRESETS["tiny"], PRESETS["odd"]

BASE = 0x1000
MEMORY_BYTES = 1 << 18
#: Cycles without progress after which a test run ends; no memory model is silent for as long.
WATCHDOG = 2000


def make_layer(
    rng: np.random.Generator,
    name: str = "conv",
    *,
    kernel: tuple[int, int] = (3, 3),
    channels: int = 4,
    filters: int = 4,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    zero_in: int = 3,
    zero_out: int = -5,
    low: int = -128,
    high: int = 127,
) -> ConvLayer:
    """Return a layer with random weights whose outputs fill int8, and clip now and then."""
    taps = kernel[0] * kernel[1] * channels
    weights = rng.integers(-128, 128, (filters, *kernel, channels), dtype=np.int8)
    bias = rng.integers(-20_000, 20_000, filters, dtype=np.int32)
    # The sums' standard deviation is about 74 * 74 * sqrt(taps).
    scale = rng.uniform(0.3, 1.5, filters) * 60 / (74 * 74 * np.sqrt(taps))
    return ConvLayer(
        name,
        weights,
        bias,
        scale.astype(np.float32),
        stride,
        pad,
        Quantisation(0.1, zero_in),
        Quantisation(0.1, zero_out),
        low,
        high,
    )


def make_map(rng: np.random.Generator, height: int, width: int, channels: int) -> np.ndarray:
    """Return a random feature map of shape (1, H, W, C)."""
    return rng.integers(-128, 128, (1, height, width, channels), dtype=np.int8)


def golden(layer: ConvLayer, features: np.ndarray) -> np.ndarray:
    """Return what the layer must give."""
    return trirow_golden.conv2d_int8(
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
    )


def cut(tiling: Tiling, channels: int, per_chunk: int) -> Tiling:
    """Return the tiling with chunks of another size."""
    chunks = tuple(
        Chunk(first, min(per_chunk, channels - first)) for first in range(0, channels, per_chunk)
    )
    return replace(tiling, chunks=chunks)


@dataclass
class Link:
    """A layer of a chain.

    Parameters
    ----------
    layer : ConvLayer
    source : int or array
        Index of the link whose output it reads, or a feature map of its own.
    per_chunk : int or None
        Output channels of a chunk; None: as the driver cuts them.
    in_place, out_place : int or None
        Bytes by which the blobs miss a multiple of 64; None: drawn.
    """

    layer: ConvLayer
    source: int | np.ndarray
    per_chunk: int | None = None
    in_place: int | None = None
    out_place: int | None = None


@dataclass
class Case:
    """A chain in memory.

    Attributes
    ----------
    before, after : bytes
        The whole memory before the run and as it must be behind it.
    job : Job
    outputs : list of (address, array)
        Where each link's output is, and what it must be.
    fields : list of dict
        Fields of the descriptors, in order.
    descriptors, weights : list of int
        Address of the descriptor and of the chunk of each pass.
    inputs : list of int
        Address of the feature map of each link.
    links : list of int
        Link of each pass.
    """

    before: bytes
    after: bytes
    job: Job
    outputs: list[tuple[int, np.ndarray]]
    fields: list[dict[str, int]]
    descriptors: list[int]
    weights: list[int]
    inputs: list[int]
    links: list[int]
    text: str = ""


class _Places:
    """Hand out addresses one behind the other."""

    def __init__(self, seed: int, at: int) -> None:
        self._draw = random.Random(seed)
        self._at = at

    def take(self, size: int, place: int | None = None, align: int = 1) -> int:
        """Return the address of ``size`` bytes that miss a multiple of 64 by ``place``."""
        if place is None:
            place = self._draw.randrange(0, 64, align)
        # Leave enough bytes between two blobs to see what is written behind them.
        self._at = -(-(self._at + 128) // 64) * 64 + place
        at, self._at = self._at, self._at + size
        if self._at > BASE + MEMORY_BYTES - 256:
            raise ValueError("the test's memory is too small for this chain")
        return at


def lay_out(
    links: Sequence[Link], config: Config, seed: int = 1, *, start: int = BASE, text: str = ""
) -> Case:
    """Place a chain in memory and work out what it must do.

    Parameters
    ----------
    links : sequence of Link
    config : Config
    seed : int
        Of the places and of the bytes between.
    start : int
        Address from which on things are placed.
    text : str
        Says in messages what the chain is.

    Raises
    ------
    UnsupportedError
        As `tile` and `pass_fields`.
    """
    places = _Places(seed, start)
    rng = np.random.default_rng(seed)
    before = bytearray(rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8).tobytes())

    def put(at: int, data: bytes) -> None:
        before[at - BASE : at - BASE + len(data)] = data

    plans = []
    inputs: list[int] = []
    outputs: list[tuple[int, np.ndarray]] = []
    for link in links:
        if isinstance(link.source, int):
            at, features = outputs[link.source]
        else:
            features = link.source
            at = places.take(features.size, link.in_place)
            put(at, features.tobytes())
        expected = golden(link.layer, features)
        height, width = features.shape[1:3]
        tiling = tile(link.layer, height, width, config)
        if link.per_chunk is not None:
            tiling = cut(tiling, link.layer.out_channels, link.per_chunk)
        inputs.append(at)
        outputs.append((places.take(expected.size, link.out_place), expected))
        plans.append((link, height, width, tiling))

    count = sum(len(tiling.chunks) for *_, tiling in plans)
    first = places.take(count * DESCRIPTOR_BYTES, place=0)
    first = -(-first // DESCRIPTOR_BYTES) * DESCRIPTOR_BYTES
    places.take(DESCRIPTOR_BYTES)
    descriptors = [first + k * DESCRIPTOR_BYTES for k in range(count)]
    fields: list[dict[str, int]] = []
    weights: list[int] = []
    owners: list[int] = []
    for index, (link, height, width, tiling) in enumerate(plans):
        for k, chunk in enumerate(tiling.chunks):
            data = chunk_bytes(link.layer, chunk, config)
            weights.append(places.take(len(data)))
            put(weights[-1], data)
            number = len(fields)
            fields.append(
                pass_fields(
                    link.layer,
                    height,
                    width,
                    tiling,
                    chunk,
                    config,
                    in_address=inputs[index],
                    weight_address=weights[-1],
                    out_address=outputs[index][0],
                    wait=k == 0 and isinstance(link.source, int),
                    last=number == count - 1,
                    next_address=0 if number == count - 1 else descriptors[number + 1],
                )
            )
            owners.append(index)
            put(descriptors[number], pack_descriptor(fields[-1]))
    after = bytearray(before)
    for at, expected in outputs:
        after[at - BASE : at - BASE + expected.size] = expected.tobytes()
    job = Job(descriptors[0], BASE, BASE + MEMORY_BYTES, watchdog=WATCHDOG)
    return Case(
        bytes(before),
        bytes(after),
        job,
        outputs,
        fields,
        descriptors,
        weights,
        inputs,
        owners,
        text,
    )


def single(
    layer: ConvLayer, features: np.ndarray, config: Config, seed: int = 1, **options: object
) -> Case:
    """Place one layer in memory; the options are those of `Link`."""
    text = (
        f"{features.shape[1:]} {layer.out_channels} x {layer.kernel}, stride {layer.stride}, "
        f"pad {layer.pad}, zero points {layer.input.zero_point} and {layer.output.zero_point}"
    )
    return lay_out([Link(layer, features, **options)], config, seed, text=text)


def with_descriptor(case: Case, index: int, **fields: int) -> Case:
    """Return the case with some fields of a descriptor replaced; its memory is to stay as it is."""
    raw = pack_descriptor({**case.fields[index], **fields})
    return with_bytes(case, case.descriptors[index], raw)


def with_bytes(case: Case, at: int, data: bytes) -> Case:
    """Return the case with other bytes at an address, before and after."""

    def replaced(memory: bytes) -> bytes:
        return memory[: at - BASE] + data + memory[at - BASE + len(data) :]

    values = {**vars(case), "before": replaced(case.before), "after": replaced(case.after)}
    return Case(**values)


@dataclass
class Bench:
    """An engine with its memory. Cases run one after the other on the same machine.

    Parameters
    ----------
    config : Config
    memory : str
        Name of a memory model.
    seed : int
        Of the memory model.
    model : MemoryModel, optional
        To be used instead, on the bytes of ``storage``.
    """

    config: Config
    memory: str = "random"
    seed: int = 1
    model: MemoryModel | None = None
    results: list[RunResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = Memory(MEMORY_BYTES, base=BASE)

    def make_model(self) -> MemoryModel:
        """Return a new memory model."""
        return make_memory(self.memory, self.storage, self.config.bus_bytes, self.seed)

    def engine(self) -> PysimEngine:
        """Return a new engine."""
        return PysimEngine(self.config, self.model or self.make_model())

    def run(self, cases: Iterable[Case], *, max_cycles: int = 400_000) -> list[RunResult]:
        """Run the cases and compare the memory after each, every byte of it."""
        return self.run_steps(((case, case.job, None) for case in cases), max_cycles=max_cycles)

    def run_steps(
        self,
        steps: Iterable[tuple[Case, Job, object]],
        *,
        max_cycles: int = 400_000,
    ) -> list[RunResult]:
        """Run jobs; a step is a case, its job, and what is expected of it.

        Expected is None for a right result, else a triple of error code, unit and index (None
        for any): then no byte may differ from ``before`` but those of the outputs.
        """
        engine = self.engine()
        done: list[tuple[Case, object, bytes]] = []
        open_step: list[tuple[Case, object]] = []

        def finish() -> None:
            case, expected = open_step.pop()
            done.append((case, expected, bytes(self.storage.data)))

        def jobs() -> Iterator[Job]:
            for case, job, expected in steps:
                if open_step:
                    finish()
                self.storage.data[:] = case.before
                open_step.append((case, expected))
                yield job
            if open_step:
                finish()

        results = engine.run(jobs(), max_cycles=max_cycles)
        assert len(results) == len(done)
        for number, (result, (case, expected, found)) in enumerate(zip(results, done, strict=True)):
            where = f"job {number} ({case.text}) on {self.config.name}, {self.memory}"
            if expected is None:
                check_right(case, result, found, where)
            else:
                check_ended(case, result, found, expected, where)
        self.results = results
        return results


def check_right(case: Case, result: RunResult, found: bytes, where: str) -> None:
    """Check that a run ended without an error and left the memory as it must be."""
    assert result.error == ErrorCode.NONE, (
        f"{where}: ended with {result.error.name}, {result.unit.name}, pass {result.index}"
    )
    if found == case.after:
        return
    wrong = _differences(found, case.after)
    for at, expected in case.outputs:
        inside = [a for a in wrong if at <= a < at + expected.size]
        if inside:
            place = np.unravel_index(inside[0] - at, expected.shape)
            raise AssertionError(
                f"{where}: {len(inside)} of {expected.size} output bytes are wrong, the first at "
                f"{tuple(int(p) for p in place[1:])}; {len(wrong)} bytes in all"
            )
    raise AssertionError(
        f"{where}: {len(wrong)} bytes outside the outputs were written: {wrong[0]:#x}"
    )


def check_ended(case: Case, result: RunResult, found: bytes, expected: tuple, where: str) -> None:
    """Check how a run failed, and that it wrote nothing but outputs."""
    ended = (result.error, result.unit, result.index)
    assert all(e is None or e == r for e, r in zip(expected, ended, strict=True)), (
        f"{where}: expected {expected}, got {ended}"
    )
    inside = set()
    for at, output in case.outputs:
        inside |= set(range(at, at + output.size))
    outside = [a for a in _differences(found, case.before) if a not in inside]
    assert not outside, f"{where}: {len(outside)} bytes outside the outputs were written"


def _differences(found: bytes, wanted: bytes) -> list[int]:
    a, b = (np.frombuffer(data, np.uint8) for data in (found, wanted))
    return [BASE + int(k) for k in np.nonzero(a != b)[0]]


def random_case(config: Config, seed: int, *, cycles: int = 6000) -> Case:
    """Return a random layer that takes about as many cycles at most.

    Shapes that the configuration refuses, or that take too long, are drawn again.
    """
    rng = np.random.default_rng(seed)
    while True:
        kernel = _draw_kernel(rng)
        stride = tuple(int(s) for s in rng.choice([1, 1, 2, 3, 4], 2))
        channels = int(rng.choice([1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 40]))
        filters = int(rng.integers(1, 2 * config.out_lanes + 6))
        height, width = (int(n) for n in rng.integers(1, 15, 2))
        if rng.random() < 0.15:
            height = 1
        if rng.random() < 0.15:
            width = int(rng.choice([1, 40]))
        pad = tuple(int(p) for p in rng.integers(0, [kernel[0] + 2, kernel[1] + 2] * 2))
        if rng.random() < 0.3:
            pad = (0, 0, 0, 0)
        if height + pad[0] + pad[2] < kernel[0] or width + pad[1] + pad[3] < kernel[1]:
            continue
        layer = make_layer(
            rng,
            f"seed{seed}",
            kernel=kernel,
            channels=channels,
            filters=filters,
            stride=stride,
            pad=pad,
            zero_in=int(rng.choice([-128, 127, int(rng.integers(-128, 128))])),
            zero_out=int(rng.choice([-128, 127, int(rng.integers(-128, 128))])),
        )
        per_chunk = None
        if rng.random() < 0.4:
            per_chunk = config.out_lanes * int(rng.integers(1, 3))
        try:
            tiling = tile(layer, height, width, config)
        except UnsupportedError:
            continue
        groups = -(-filters // config.out_lanes)
        most = config.weight_words // tiling.group_words
        if per_chunk is not None and per_chunk > most * config.out_lanes:
            per_chunk = None
        pixels = layer.output_shape(height, width)
        work = pixels[0] * pixels[1] * groups * max(tiling.group_words, config.stages)
        moved = layer.weights.size + filters * (8 + pixels[0] * pixels[1]) * 2
        moved += height * width * channels * len(tiling.chunks)
        if work + moved // config.bus_bytes > cycles:
            continue
        return single(
            layer, make_map(rng, height, width, channels), config, seed, per_chunk=per_chunk
        )


def _draw_kernel(rng: np.random.Generator) -> tuple[int, int]:
    if rng.random() < 0.4:
        return [(1, 1), (3, 3), (1, 3), (3, 1)][int(rng.integers(4))]
    rows, columns = rng.integers(1, 12, 2) if rng.random() < 0.3 else rng.integers(1, 6, 2)
    return int(rows), int(columns)

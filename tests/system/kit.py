"""Lay programs out in memory, run them on the accelerator, and compare every byte afterwards.

The driver packs a program; here its regions move to chosen addresses, between bytes drawn from a
seed. What the memory must hold at the end is worked out with the golden model, for the whole
memory, so that a byte written to a wrong place shows wherever it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.layer import Layer
from trirow_driver.program import DESCRIPTORS, INPUT, Node, Program, Slice, chain, pack
from trirow_driver.quantise import Quantisation
from trirow_hw.config import PRESETS, Config
from trirow_hw.descriptor import DESCRIPTOR_BYTES, pack_descriptor, unpack_descriptor
from trirow_hw.errors import ErrorCode
from trirow_sim.compiled import CompiledEngine, ToolchainError, find_toolchain
from trirow_sim.job import Job, RunResult
from trirow_sim.memory import Memory, MemoryModel, make_memory
from trirow_sim.pysim import PysimEngine
from trirow_sim.simulate import golden_graph

TINY, ODD = PRESETS["tiny"], PRESETS["odd"]

BASE = 0x1000
MEMORY_BYTES = 1 << 18
#: Configurations of which the compiled engine is built where there are tools for it.
BUILT = (TINY, ODD)
#: Cycles without progress after which a test run ends; no memory model is silent for as long.
WATCHDOG = 2000


def compiled(config: Config) -> bool:
    """Tell whether programs for a configuration run in the compiled engine."""
    try:
        find_toolchain()
    except ToolchainError:
        return False
    return config in BUILT


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
    **more: object,
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
        **more,
    )


def make_map(rng: np.random.Generator, height: int, width: int, channels: int) -> np.ndarray:
    """Return a random feature map of shape (1, H, W, C)."""
    return rng.integers(-128, 128, (1, height, width, channels), dtype=np.int8)


@dataclass(frozen=True)
class Setup:
    """A program in memory, and what must be there afterwards.

    Attributes
    ----------
    before, after : bytes
        The whole memory before the run and as it must be behind it.
    job : Job
    outputs : dict
        Address of each feature map that is written, and what it must be, by name of its region.
    scratch : list of range
        Addresses of int32 sums, which may hold anything afterwards.
    fields : list of dict
        Fields of the descriptors, in order.
    descriptors : list of int
        Their addresses.
    layers : list of str
        Name of the layer of each pass.
    text : str
        Says in messages what it is.
    """

    before: bytes
    after: bytes
    job: Job
    outputs: Mapping[str, tuple[int, np.ndarray]]
    scratch: Sequence[range]
    fields: Sequence[dict[str, int]]
    descriptors: Sequence[int]
    layers: Sequence[str]
    text: str = ""


#: Kinds of addresses in a descriptor, and the fields that say whether they are used.
_ADDRESSES = {
    "in": "in_bytes",
    "second": "second_bytes",
    "weight": "weight_bytes",
    "out": "out_bytes",
}


def lay_out(
    nodes: Sequence[Node],
    features: Mapping[str, np.ndarray],
    config: Config,
    seed: int = 1,
    *,
    slices: Mapping[str, Slice] | None = None,
    cut: int | None = None,
    places: Mapping[str, int] | None = None,
    start: int = BASE,
    text: str = "",
) -> Setup:
    """Place a program in memory and work out what it must do.

    Parameters
    ----------
    nodes, features, config, slices
        As for `pack`.
    seed : int
        Of the places and of the bytes between.
    cut : int, optional
        Size of the weight buffer for which the program is packed: of a smaller one, chunks get
        smaller and still go through the whole buffer.
    places : mapping of str to int, optional
        Bytes by which regions miss a multiple of 64; drawn for those that are not here.
    start : int
        Address from which on things are placed.
    text : str
        Says in messages what it is.
    """
    program = pack(
        nodes,
        features,
        config if cut is None else config.override(weight_buffer_bytes=cut),
        slices=slices,
    )
    moved = _move(program, random.Random(seed), places or {}, start)
    rng = np.random.default_rng(seed)
    before = bytearray(rng.integers(0, 256, MEMORY_BYTES, dtype=np.uint8).tobytes())

    def put(memory: bytearray, at: int, data: bytes) -> None:
        memory[at - BASE : at - BASE + len(data)] = data

    written = {program.place(node.output)[0] for node in nodes}
    for region in program.image.regions:
        if region.kind == "weights" or (region.kind == "blob" and region.name not in written):
            put(before, moved[region.name], program.image.read(region.name))

    first = moved[DESCRIPTORS]
    raw = program.image.read(DESCRIPTORS)
    fields = [
        _relocated(program, unpack_descriptor(raw[at : at + DESCRIPTOR_BYTES]), moved)
        for at in range(0, len(raw), DESCRIPTOR_BYTES)
    ]
    put(before, first, b"".join(map(pack_descriptor, fields)))

    outputs = _expected(program, nodes, golden_graph(nodes, features, slices), moved)
    after = bytearray(before)
    for at, expected in outputs.values():
        put(after, at, expected.tobytes())
    sums = [region for region in program.image.regions if region.kind == "sums"]
    return Setup(
        bytes(before),
        bytes(after),
        Job(first, BASE, BASE + MEMORY_BYTES, watchdog=WATCHDOG),
        outputs,
        [range(moved[region.name], moved[region.name] + region.size) for region in sums],
        fields,
        [first + k * DESCRIPTOR_BYTES for k in range(len(fields))],
        [step.layer.name for step in program.steps for _ in range(step.passes)],
        text,
    )


def _move(
    program: Program, draw: random.Random, places: Mapping[str, int], at: int
) -> dict[str, int]:
    """Return a new address for each region."""
    unknown = set(places) - {region.name for region in program.image.regions}
    assert not unknown, f"no such regions: {unknown}"
    moved = {}
    for region in program.image.regions:
        # Leave enough bytes between two regions to see what is written behind them.
        at = -(-(at + 128) // 64) * 64 + places.get(region.name, draw.randrange(64))
        if region.name == DESCRIPTORS:
            at = -(-at // DESCRIPTOR_BYTES) * DESCRIPTOR_BYTES
        moved[region.name] = at
        at += region.size
    if at > BASE + MEMORY_BYTES - 256:
        raise ValueError("the test's memory is too small for this program")
    return moved


def _relocated(
    program: Program, fields: Mapping[str, int], moved: Mapping[str, int]
) -> dict[str, int]:
    """Return the fields of a descriptor for regions that have moved."""

    def new(at: int) -> int:
        for region in program.image.regions:
            if region.offset <= at < region.offset + region.size:
                return moved[region.name] + at - region.offset
        raise ValueError(f"no region has address {at:#x}")

    used = [name for name, size in _ADDRESSES.items() if fields[size]]
    result = {**fields, **{f"{name}_address": new(fields[f"{name}_address"]) for name in used}}
    return result if fields["last"] else {**result, "next": new(fields["next"])}


def _expected(
    program: Program,
    nodes: Sequence[Node],
    golden: Sequence[np.ndarray],
    moved: Mapping[str, int],
) -> dict[str, tuple[int, np.ndarray]]:
    """Return address and contents of the regions that are written."""
    outputs: dict[str, tuple[int, np.ndarray]] = {}
    for node, output in zip(nodes, golden, strict=True):
        name, first = program.place(node.output)
        images, channels, rows, columns = program.image.region(name).shape or (0, 0, 0, 0)
        whole = np.zeros((images, rows, columns, channels), np.int8)
        _, whole = outputs.setdefault(name, (moved[name], whole))
        whole[..., first : first + output.shape[3]] = output
    return outputs


def single(
    layer: Layer, features: np.ndarray, config: Config, seed: int = 1, **options: object
) -> Setup:
    """Place one layer of one feature map in memory; the options are those of `lay_out`."""
    text = f"{features.shape[1:]}, {getattr(layer, 'weights', np.empty(0)).shape}, {layer.name}"
    return lay_out(chain([layer]), {INPUT: features}, config, seed, text=text, **options)


def with_descriptor(setup: Setup, index: int, text: str = "", **fields: int) -> Setup:
    """Return the setup with some fields of a descriptor replaced."""
    raw = pack_descriptor({**setup.fields[index], **fields})
    return with_bytes(setup, setup.descriptors[index], raw, text or f"{fields} in pass {index}")


def with_bytes(setup: Setup, at: int, data: bytes, text: str) -> Setup:
    """Return the setup with other bytes at an address, before and after."""

    def replaced(memory: bytes) -> bytes:
        return memory[: at - BASE] + data + memory[at - BASE + len(data) :]

    return replace(setup, before=replaced(setup.before), after=replaced(setup.after), text=text)


#: A setup, its job, and how it must end: error code, unit and index of the pass, None for any.
#: None for a right result.
Step = tuple[Setup, Job, tuple[object, object, object] | None]


@dataclass
class Bench:
    """An engine with its memory. Programs run one after the other on the same machine.

    Parameters
    ----------
    config : Config
    memory : str
        Name of a memory model.
    seed : int
        Of the memory model.
    model : MemoryModel, optional
        To be used instead, on the bytes of ``storage``; in pysim.
    """

    config: Config
    memory: str = "random"
    seed: int = 1
    model: MemoryModel | None = None
    storage: Memory = field(default_factory=lambda: Memory(MEMORY_BYTES, base=BASE))

    def run(self, setups: Iterable[Setup], *, max_cycles: int = 400_000) -> list[RunResult]:
        """Run the programs and compare the memory after each, every byte of it."""
        return self.run_steps(((setup, setup.job, None) for setup in setups), max_cycles=max_cycles)

    def run_steps(self, steps: Iterable[Step], *, max_cycles: int = 400_000) -> list[RunResult]:
        """Run jobs and check how they end.

        After an error no byte may differ from ``before`` but those of outputs and sums.
        """
        begun: list[Step] = []
        found: list[bytes] = []

        def jobs() -> Iterator[Job]:
            for step in steps:
                if begun:
                    found.append(bytes(self.storage.data))
                begun.append(step)
                self.storage.data[:] = step[0].before
                yield step[1]
            if begun:
                found.append(bytes(self.storage.data))

        results = self._run_jobs(jobs(), max_cycles)
        ended = zip(results, begun, found, strict=True)
        for number, (result, (setup, _, expected), memory) in enumerate(ended):
            where = f"job {number} ({setup.text}) on {self.config.name}, {self.memory}"
            if expected is None:
                check_right(setup, result, memory, where)
            else:
                check_ended(setup, result, memory, expected, where)
        return results

    def _run_jobs(self, jobs: Iterable[Job], max_cycles: int) -> list[RunResult]:
        if self.model is None and compiled(self.config):
            with CompiledEngine(self.config, self.storage, self.memory, seed=self.seed) as engine:
                return engine.run(jobs, max_cycles=max_cycles)
        model = self.model or make_memory(
            self.memory, self.storage, self.config.bus_bytes, self.seed
        )
        return PysimEngine(self.config, model).run(jobs, max_cycles=max_cycles)


def check_right(setup: Setup, result: RunResult, found: bytes, where: str) -> None:
    """Check that a run ended without an error and left the memory as it must be."""
    assert result.error == ErrorCode.NONE, (
        f"{where}: ended with {result.error.name}, {result.unit.name}, pass {result.index}"
        f" {result.waiting}"
    )
    wrong = _differences(found, setup.after, setup.scratch)
    for name, (at, expected) in setup.outputs.items():
        inside = wrong[(wrong >= at) & (wrong < at + expected.size)]
        if inside.size:
            place = np.unravel_index(inside[0] - at, expected.shape)
            raise AssertionError(
                f"{where}: {inside.size} of {expected.size} bytes of {name} are wrong, the first "
                f"at {tuple(int(p) for p in place)}; {wrong.size} bytes in all"
            )
    assert not wrong.size, f"{where}: {wrong.size} bytes outside the outputs: {wrong[0]:#x}"


def check_ended(setup: Setup, result: RunResult, found: bytes, expected: tuple, where: str) -> None:
    """Check how a run failed, and that it wrote nothing but outputs."""
    ended = (result.error, result.unit, result.index)
    assert all(e is None or e == r for e, r in zip(expected, ended, strict=True)), (
        f"{where}: expected {expected}, got {ended}"
    )
    outputs = [range(at, at + output.size) for at, output in setup.outputs.values()]
    outside = _differences(found, setup.before, [*outputs, *setup.scratch])
    assert not outside.size, f"{where}: {outside.size} bytes outside the outputs were written"


def _differences(found: bytes, wanted: bytes, ignored: Iterable[range]) -> np.ndarray:
    """Return the addresses of bytes that differ."""
    a, b = (np.frombuffer(data, np.uint8) for data in (found, wanted))
    differ = a != b
    for part in ignored:
        differ[part.start - BASE : part.stop - BASE] = False
    return np.nonzero(differ)[0] + BASE

"""Every way in which a run can fail: what is reported, what is written, and what comes after."""

from dataclasses import replace

import numpy as np
import pytest

from trirow_hw.config import CONSTANT_GROUPS, MAX_KERNEL, MAX_STRIDE
from trirow_hw.descriptor import DESCRIPTOR_BYTES, FIELDS
from trirow_hw.errors import ErrorCode, Unit
from trirow_sim.memory import FaultyMemory, make_memory

from .kit import (
    BASE,
    MEMORY_BYTES,
    TINY,
    Bench,
    Link,
    lay_out,
    make_layer,
    make_map,
    single,
    with_bytes,
    with_descriptor,
)

END = BASE + MEMORY_BYTES


@pytest.fixture(scope="module")
def chain():
    """Two layers, the first of two chunks: passes 0, 1 and 2."""
    rng = np.random.default_rng(9)
    first = make_layer(rng, "first", channels=3, filters=8, pad=(1, 1, 1, 1))
    second = make_layer(rng, "second", kernel=(1, 1), channels=8, filters=5, zero_in=-5)
    case = lay_out([Link(first, make_map(rng, 3, 4, 3), 4), Link(second, 0)], TINY)
    assert case.links == [0, 0, 1]
    return case


@pytest.fixture(scope="module")
def good():
    rng = np.random.default_rng(10)
    return single(make_layer(rng, channels=5, filters=3), make_map(rng, 3, 4, 5), TINY)


# Descriptors

DEPTH = TINY.line_bank_words
BAD_FIELDS = {
    "op": [0, 2, 255],
    "next": [0x2001, 0x2002, 0x2040],
    "last": [2],
    "wait": [2],
    "kernel_rows": [0, MAX_KERNEL + 1],
    "stride_rows": [0, MAX_STRIDE + 1],
    "in_bytes": [0],
    "in_first": [0],
    "in_span": [0],
    "rows": [0],
    "row_words": [0],
    "row_pitch": [DEPTH],
    "row_tail": [0, TINY.in_lanes + 1],
    "row_bytes": [0],
    "out_rows": [0],
    "out_columns": [0],
    "first_wrapped": [DEPTH],
    "first_byte": [TINY.in_lanes],
    "step_byte": [TINY.in_lanes],
    "step_wrapped": [DEPTH],
    "run_words": [0],
    "run_tail": [0, TINY.in_lanes + 1],
    "last_lanes": [0, TINY.out_lanes + 1],
    "group_words": [0, TINY.weight_words + 1],
    "groups": [0, CONSTANT_GROUPS + 1],
    "weight_bytes": [0],
    "group_bytes": [0],
    "out_bytes": [0],
    "out_span": [0],
}


def test_bad_fields(chain, good):
    """Each field in turn, in each of the passes."""
    steps = []
    for number, (field, values) in enumerate(BAD_FIELDS.items()):
        for value in values:
            index = number % 3
            bad = with_descriptor(chain, index, **{field: value})
            bad.text = f"{field} = {value} in pass {index}"
            steps.append((bad, bad.job, (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, index)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_flipped_bits(chain, good, index):
    at = chain.descriptors[index] - BASE
    raw = int.from_bytes(chain.before[at : at + DESCRIPTOR_BYTES], "little")
    steps = []
    for bit in range(index * 17, 8 * DESCRIPTOR_BYTES, 101):
        flipped = (raw ^ 1 << bit).to_bytes(DESCRIPTOR_BYTES, "little")
        bad = with_bytes(chain, chain.descriptors[index], flipped)
        bad.text = f"bit {bit} of descriptor {index}"
        steps.append((bad, bad.job, (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, index)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


def test_wrong_version(chain, good):
    """Right in all but the version, with a check that matches."""
    steps = []
    for version in (0, 2, 255):
        bad = with_descriptor(chain, 0, version=version)
        steps.append((bad, bad.job, (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 0)))
        steps.append((good, good.job, None))
    Bench(TINY, "ideal").run_steps(steps)


def test_every_field_is_known_to_these_tests():
    """A new field of the descriptor has to be thought of here."""
    free = (
        "version check in_address in_gap zero_in top in_rows first_word clipped_words step_words "
        "weight_address out_address out_gap zero_out low high reserved"
    )
    assert {name for name, _, _ in FIELDS} == set(BAD_FIELDS) | set(free.split())


def test_first_descriptor_that_is_not_aligned(chain, good):
    """It does not reach the bus, where it would cross 4 KB."""
    expected = (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 0)
    steps = [
        (chain, replace(chain.job, descriptor=chain.job.descriptor + offset), expected)
        for offset in (1, 2, 4, 64, 127)
    ]
    results = Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])
    assert all(result.counters["beats_read"] == 0 for result in results[:-1])


# The window


def test_first_descriptor_outside_the_window(chain, good):
    expected = (ErrorCode.WINDOW, Unit.SEQUENCER, 0)
    steps = [
        (chain, replace(chain.job, descriptor=descriptor), expected)
        for descriptor in (0, BASE - 128, END, END + 0x1000, 0xFFFF_FF80)
    ]
    steps.append((chain, replace(chain.job, limit=chain.job.descriptor + 124), expected))
    Bench(TINY).run_steps([*steps, (good, good.job, None)])


def test_next_descriptor_outside_the_window(chain, good):
    steps = []
    for at in (0, BASE - 128, END, 0xFFFF_FF80):
        bad = with_descriptor(chain, 0, next=at)
        steps.append((bad, bad.job, (ErrorCode.WINDOW, Unit.SEQUENCER, 1)))
    Bench(TINY).run_steps([*steps, (good, good.job, None)])


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("in_address", Unit.FEATURES),
        ("weight_address", Unit.WEIGHTS),
        ("out_address", Unit.WRITER),
    ],
)
def test_addresses_outside_the_window(chain, good, field, unit):
    steps = []
    places = (0, BASE - 1, END, END + 5, 0xFFFF_FFF0)
    for number, at in enumerate([*places, *places[:3]]):
        index = number % 3
        bad = with_descriptor(chain, index, **{field: at})
        bad.text = f"{field} = {at:#x} in pass {index}"
        steps.append((bad, bad.job, (ErrorCode.WINDOW, unit, index)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


def test_window_that_fits_exactly(good):
    """The window may end where the last region does."""
    field = good.fields[0]
    ends = [
        field["in_address"] + field["in_bytes"],
        field["weight_address"] + field["weight_bytes"],
        field["out_address"] + field["out_bytes"],
        good.descriptors[0] + DESCRIPTOR_BYTES,
    ]
    begins = [field[name] for name in ("in_address", "weight_address", "out_address")]
    base, limit = min(begins) // 4 * 4, -(-max(ends) // 4) * 4
    steps = [(good, replace(good.job, base=base, limit=limit), None)]
    failed = (ErrorCode.WINDOW, None, 0)
    steps.append((good, replace(good.job, base=base, limit=limit - 1), failed))
    steps.append((good, replace(good.job, base=base + 1, limit=limit), failed))
    Bench(TINY, "ideal").run_steps(steps)


# Answers of the memory


class FaultyBench(Bench):
    """A bench whose memory fails.

    Parameters
    ----------
    config : Config
    memory : str
        Name of the model inside.
    faults : dict
        Arguments of `FaultyMemory`.
    """

    def __init__(self, config, memory, **faults):
        super().__init__(config, memory)
        self.inner = make_memory(memory, self.storage, config.bus_bytes)
        self.model = FaultyMemory(self.inner, **faults)

    def run_faults(self, case, good, faults):
        """Run the case once for each fault, a good one after each, and the case itself at last.

        A fault is the name of the attribute with the addresses that fail, one of them, and how the
        run must end.
        """

        def steps():
            for name, at, expected in faults:
                setattr(self.inner, name, range(at, at + 1))
                yield case, case.job, expected
                setattr(self.inner, name, None)
                yield good, good.job, None
            yield case, case.job, None

        self.run_steps(steps())


@pytest.mark.parametrize("memory", ["ideal", "random"])
def test_error_response_on_read(chain, good, memory):
    faults = []
    for index, field in enumerate(chain.fields):
        places = {
            Unit.SEQUENCER: chain.descriptors[index] + 60,
            Unit.FEATURES: field["in_address"] + field["in_bytes"] // 2,
            Unit.WEIGHTS: field["weight_address"] + field["weight_bytes"] - 1,
        }
        if index == 1:
            del places[Unit.FEATURES]  # those of pass 0
        for unit, at in places.items():
            faults.append(("read_errors", at, (ErrorCode.READ_RESPONSE, unit, index)))
    FaultyBench(TINY, memory).run_faults(chain, good, faults)


@pytest.mark.parametrize("memory", ["ideal", "random"])
def test_error_response_on_write(chain, good, memory):
    """The channels of the two chunks are next to each other, so a beat may be of both."""
    faults = []
    for index, field in enumerate(chain.fields):
        at = field["out_address"] + (0 if index == 1 else field["out_bytes"] // 2)
        pass_index = None if index == 1 else index
        expected = (ErrorCode.WRITE_RESPONSE, Unit.WRITER, pass_index)
        faults.append(("write_errors", at, expected))
    FaultyBench(TINY, memory).run_faults(chain, good, faults)


# The watchdog


class SilentBench(FaultyBench):
    """A memory that stops, and comes back some time after the watchdog has barked."""

    def __init__(self, config, memory, stop_at, gap):
        super().__init__(config, memory, stop_at=stop_at, resume_at=stop_at + gap)


@pytest.mark.parametrize("memory", ["ideal", "random"])
def test_memory_that_stops_and_comes_back(chain, good, memory):
    """The machine says that it waits, is busy until the memory is back, and then runs the next."""
    seen = set()
    for stop_at in (30, 61, 150, 400):
        bench = SilentBench(TINY, memory, stop_at, gap=500)
        job = replace(chain.job, watchdog=200)
        expected = (ErrorCode.WATCHDOG, None, None)
        result = bench.run_steps([(chain, job, expected), (good, good.job, None)])[0]
        seen.add((result.unit, result.index))
    assert {unit for unit, _ in seen} <= {Unit.SEQUENCER, Unit.FEATURES, Unit.WEIGHTS, Unit.WRITER}
    assert len(seen) > 2


def test_memory_that_never_answers_is_the_sequencers(chain, good):
    bench = SilentBench(TINY, "ideal", 0, gap=500)
    job = replace(chain.job, watchdog=200)
    expected = (ErrorCode.WATCHDOG, Unit.SEQUENCER, 0)
    bench.run_steps([(chain, job, expected), (good, good.job, None)])


def test_memory_that_pauses_for_less_than_the_watchdog(chain):
    for stop_at in (120, 400):
        bench = SilentBench(TINY, "ideal", stop_at, gap=250)
        bench.run_steps([(chain, replace(chain.job, watchdog=300), None)])


@pytest.mark.parametrize("memory", ["ideal", "random"])
def test_reset_while_the_memory_is_silent(chain, good, memory):
    """Without a watchdog, the host's reset ends the run; the next one starts when it may."""
    for stop_at in (61, 250):
        bench = SilentBench(TINY, memory, stop_at, gap=400)
        job = replace(chain.job, watchdog=0, reset_at=stop_at + 200)
        steps = [(chain, job, (ErrorCode.NONE, None, None)), (good, good.job, None)]
        bench.run_steps(steps)


def test_chunk_that_can_never_fit_is_stopped(good):
    """More lane groups than the weight buffer holds: the pass waits for weights for ever."""
    rng = np.random.default_rng(3)
    layer = make_layer(rng, kernel=(1, 1), channels=60, filters=100)
    case = single(layer, make_map(rng, 2, 2, 60), TINY, per_chunk=100)
    assert case.fields[0]["groups"] * case.fields[0]["group_words"] > TINY.weight_words
    job = replace(case.job, watchdog=300)
    expected = (ErrorCode.WATCHDOG, Unit.WEIGHTS, 0)
    Bench(TINY, "ideal").run_steps([(case, job, expected), (good, good.job, None)])

"""Every way in which a run can fail: what is reported, what is written, and what comes after."""

from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, CombineLayer, combine_scales
from trirow_driver.program import Node
from trirow_driver.quantise import Quantisation
from trirow_hw.config import CONSTANT_GROUPS, MAX_LEFT_SHIFT
from trirow_hw.descriptor import DESCRIPTOR_BYTES, FIELDS, VERSION
from trirow_hw.errors import ErrorCode, Unit
from trirow_sim.memory import FaultyMemory, make_memory

from .kit import (
    BASE,
    MEMORY_BYTES,
    TINY,
    Bench,
    lay_out,
    make_layer,
    make_map,
    single,
    with_bytes,
    with_descriptor,
)

#: A memory that fails is there for pysim only; on a wide bus less time goes by.
WIDE = TINY.override(bus_bytes=16)
END = BASE + MEMORY_BYTES
PASSES = range(4)


@pytest.fixture(scope="module")
def chain():
    """A convolution of two chunks, another one, and a sum: passes 0 to 3."""
    rng = np.random.default_rng(9)
    first = make_layer(rng, "first", channels=3, filters=8, pad=(1, 1, 1, 1))
    second = make_layer(rng, "second", kernel=(1, 1), channels=8, filters=5, zero_in=-5)
    one, other, result = (Quantisation(scale, -5) for scale in (0.1, 0.2, 0.15))
    total = Combine("add", combine_scales("add", one, other, result), other, result)
    nodes = [
        Node(first, ("input",), "first"),
        Node(second, ("first",), "second"),
        Node(CombineLayer("sum", one, total), ("second", "other"), "sum"),
    ]
    features = {"input": make_map(rng, 3, 4, 3), "other": make_map(rng, 3, 4, 5)}
    setup = lay_out(nodes, features, TINY, cut=256)
    assert setup.layers == ["first", "first", "second", "sum"]
    return setup


@pytest.fixture(scope="module")
def good():
    rng = np.random.default_rng(10)
    return single(make_layer(rng, channels=5, filters=3), make_map(rng, 3, 4, 5), TINY)


# Descriptors

DEPTH = TINY.line_bank_words
FLAGS = "last load_weights keep_weights wait wide fixed prelu table second_wait"
NOT_ZERO = (
    "in_bytes in_first in_span in_line in_columns rows row_words row_bytes out_rows out_columns "
    "kernel_rows kernel_columns stride_rows stride_columns run_words groups chunk_steps "
    "chunk_run weight_bytes group_bytes out_bytes out_span out_line"
)
#: Values of each field that are refused whatever the others are.
BAD_FIELDS = {
    "version": [0, VERSION - 1, VERSION + 1, 255],
    "op": [0, 5, 255],
    "next": [0x2001, 0x2080, BASE],
    **{name: [2, 255] for name in FLAGS.split()},
    **{name: [0] for name in NOT_ZERO.split()},
    "row_pitch": [DEPTH],
    "row_tail": [0, TINY.in_lanes + 1],
    "top_bank": [3],
    "first_wrapped": [DEPTH],
    "first_byte": [TINY.in_lanes],
    "step_byte": [TINY.in_lanes],
    "step_wrapped": [DEPTH],
    "run_tail": [0, TINY.in_lanes + 1],
    "tap_words": [DEPTH],
    "tap_byte": [TINY.in_lanes],
    "columns": [0, 255],
    "last_columns": [0, 255],
    "spacing": [0],
    "group_lanes": [0, TINY.out_lanes + 1],
    "last_lanes": [0, TINY.out_lanes + 1],
    "group_words": [0, TINY.weight_words + 1],
    "groups": [0, CONSTANT_GROUPS + 1],
    "table_bytes": [1, 1023, 3072],
    "partial_in": [3, 255],
    "partial_out": [3, 255],
    "chunk_tail": [0, TINY.in_lanes + 1],
    "zero_weight": [-1, 1, 127],
    "combine": [3, 255],
    "sum_left": [MAX_LEFT_SHIFT + 1],
    "sum_right": [32],
    "sum_mantissa": [1 << 31],
}
#: Fields of which every value is possible.
FREE = (
    "check in_address in_gap in_turn zero_in in_rows top first_column first_word step_words "
    "step_weights clipped_words weight_address out_address out_gap out_turn second_address "
    "second_gap second_turn sum_zero sum_low sum_high zero_out low high"
)
#: Bad for one of the passes, in view of its other fields: index, field, value.
OUT_OF_LINE = [
    (0, "load_weights", 0),  # there are none to share
    (0, "in_first", 1 << 20),
    (0, "out_span", 1 << 20),
    (0, "second_bytes", 4),
    (0, "combine", 1),
    (0, "partial_in", 1),
    (0, "table", 1),
    (1, "keep_weights", 1),  # the next pass has its own
    (2, "row_bytes", 31),
    (3, "second_bytes", 0),
    (3, "second_span", 0),
    (3, "second_line", 0),
    (3, "combine", 0),
    (3, "partial_out", 1),
    (3, "partial_out", 2),
    (3, "partial_in", 2),
    (3, "table_bytes", 1024),
]


def test_bad_fields(chain, good):
    """Each field in turn, in each of the passes."""
    bad = [(field, value) for field, values in BAD_FIELDS.items() for value in values]
    cases = [(number % 4, field, value) for number, (field, value) in enumerate(bad)]
    # The last pass has no next one.
    cases = [(index % 3 if field == "next" else index, field, v) for index, field, v in cases]
    # A pass without a second operand does not look at its spans.
    steps = []
    for index, field, value in [*cases, *OUT_OF_LINE]:
        setup = with_descriptor(chain, index, **{field: value})
        # A pass that keeps its weights is right; the one after, which has its own, is not.
        late = field == "keep_weights" and value == 1
        steps.append((setup, setup.job, (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, index + late)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


def test_every_field_is_known_to_these_tests():
    """A new field of the descriptor has to be thought of here."""
    known = {*BAD_FIELDS, *(field for _, field, _ in OUT_OF_LINE), *FREE.split()}
    assert {name for name, _, _ in FIELDS} == known


@pytest.mark.parametrize("index", PASSES)
def test_flipped_bits(chain, good, index):
    """Bits of the fields, and of what follows them, which is zero."""
    at = chain.descriptors[index] - BASE
    raw = int.from_bytes(chain.before[at : at + DESCRIPTOR_BYTES], "little")
    steps = []
    for bit in range(index * 17, 8 * DESCRIPTOR_BYTES, 101):
        flipped = (raw ^ 1 << bit).to_bytes(DESCRIPTOR_BYTES, "little")
        text = f"bit {bit} of descriptor {index}"
        bad = with_bytes(chain, chain.descriptors[index], flipped, text)
        steps.append((bad, bad.job, (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, index)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


def test_first_descriptor_that_is_not_aligned(chain, good):
    """It does not reach the bus, where it would cross 4 KB."""
    expected = (ErrorCode.DESCRIPTOR, Unit.SEQUENCER, 0)
    steps = [
        (chain, replace(chain.job, descriptor=chain.job.descriptor + offset), expected)
        for offset in (1, 2, 4, 64, 128, 255)
    ]
    results = Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])
    assert all(result.counters["beats_read"] == 0 for result in results[:-1])


# The window


def test_first_descriptor_outside_the_window(chain, good):
    expected = (ErrorCode.WINDOW, Unit.SEQUENCER, 0)
    steps = [
        (chain, replace(chain.job, descriptor=descriptor), expected)
        for descriptor in (0, BASE - 256, END, END + 0x1000, 0xFFFF_FF00)
    ]
    steps.append((chain, replace(chain.job, limit=chain.job.descriptor + 252), expected))
    Bench(TINY).run_steps([*steps, (good, good.job, None)])


def test_next_descriptor_outside_the_window(chain, good):
    steps = []
    for at in (END, END + 0x1000, 0xFFFF_FF00):  # a chain goes upwards only
        bad = with_descriptor(chain, 0, next=at)
        steps.append((bad, bad.job, (ErrorCode.WINDOW, Unit.SEQUENCER, 1)))
    Bench(TINY).run_steps([*steps, (good, good.job, None)])


@pytest.mark.parametrize(
    ("field", "unit", "indices"),
    [
        ("in_address", Unit.FEATURES, PASSES),
        ("second_address", Unit.SECOND, [3]),
        ("weight_address", Unit.WEIGHTS, PASSES),
        ("out_address", Unit.WRITER, PASSES),
    ],
)
def test_addresses_outside_the_window(chain, good, field, unit, indices):
    steps = []
    places = (0, BASE - 1, END, END + 5, 0xFFFF_FFF0)
    for number, at in enumerate([*places, *places[:3]]):
        index = indices[number % len(indices)]
        bad = with_descriptor(chain, index, **{field: at})
        steps.append((bad, bad.job, (ErrorCode.WINDOW, unit, index)))
    Bench(TINY, "ideal").run_steps([*steps, (good, good.job, None)])


def test_window_that_fits_exactly(chain):
    """The window may begin and end where the outermost region does."""
    begins = [*chain.descriptors]
    ends = [at + DESCRIPTOR_BYTES for at in chain.descriptors]
    for field in chain.fields:
        for name in ("in", "second", "weight", "out"):
            if field[f"{name}_bytes"]:
                begins.append(field[f"{name}_address"])
    for at, output in chain.outputs.values():
        ends.append(at + output.size)
    base, limit = min(begins) // 4 * 4, -(-max(ends) // 4) * 4
    steps = [(chain, replace(chain.job, base=base, limit=limit), None)]
    failed = (ErrorCode.WINDOW, None, None)
    steps.append((chain, replace(chain.job, base=base, limit=limit - 1), failed))
    steps.append((chain, replace(chain.job, base=base + 1, limit=limit), failed))
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

    def run_faults(self, setup, faults):
        """Run it once for each fault, one after the other, and without a fault at last.

        A fault is the name of the attribute with the addresses that fail, one of them, and how the
        run must end.
        """

        def steps():
            for name, at, expected in faults:
                setattr(self.inner, name, range(at, at + 1))
                yield setup, setup.job, expected
                setattr(self.inner, name, None)
            yield setup, setup.job, None

        self.run_steps(steps())


@pytest.mark.parametrize("memory", ["ideal", pytest.param("random", marks=pytest.mark.slow)])
def test_error_response_on_read(chain, memory):
    faults = []
    for index, field in enumerate(chain.fields):
        places = {
            Unit.SEQUENCER: chain.descriptors[index] + 60,
            Unit.FEATURES: field["in_address"] + field["in_bytes"] // 2,
            Unit.WEIGHTS: field["weight_address"] + field["weight_bytes"] - 1,
        }
        if index == 1:
            del places[Unit.FEATURES]  # those of pass 0
        if field["second_bytes"]:
            places[Unit.SECOND] = field["second_address"] + field["second_bytes"] // 2
        for unit, at in places.items():
            if memory == "random" and index % 3:
                continue  # the others take long
            faults.append(("read_errors", at, (ErrorCode.READ_RESPONSE, unit, index)))
    FaultyBench(WIDE, memory).run_faults(chain, faults)


@pytest.mark.parametrize("memory", ["ideal", pytest.param("random", marks=pytest.mark.slow)])
def test_error_response_on_write(chain, memory):
    """The channels of the two chunks are next to each other, so a beat may be of both."""
    faults = []
    for index, field in enumerate(chain.fields):
        at = field["out_address"] + (0 if index == 1 else field["out_bytes"] // 2)
        pass_index = None if index == 1 else index
        expected = (ErrorCode.WRITE_RESPONSE, Unit.WRITER, pass_index)
        faults.append(("write_errors", at, expected))
    FaultyBench(WIDE, memory).run_faults(chain, faults)


# The watchdog


class SilentBench(FaultyBench):
    """A memory that stops, and comes back some time after the watchdog has barked."""

    def __init__(self, config, memory, stop_at, gap):
        super().__init__(config, memory, stop_at=stop_at, resume_at=stop_at + gap)


@pytest.mark.parametrize("memory", ["ideal", pytest.param("random", marks=pytest.mark.slow)])
def test_memory_that_stops_and_comes_back(chain, good, memory):
    """The machine says that it waits, is busy until the memory is back, and then runs the next."""
    seen = set()
    cycles = Bench(WIDE, memory).run([chain])[0].counters["cycles"]
    for part in (0.1, 0.4, 0.8):
        # The array may go on for a while with what it has.
        bench = SilentBench(WIDE, memory, round(part * cycles), gap=1500)
        job = replace(chain.job, watchdog=200)
        expected = (ErrorCode.WATCHDOG, None, None)
        result = bench.run_steps([(chain, job, expected), (good, good.job, None)])[0]
        seen.add((result.unit, result.index))
    assert Unit.ARRAY not in {unit for unit, _ in seen}
    assert len(seen) == 3


def test_memory_that_never_answers_is_the_sequencers(chain, good):
    bench = SilentBench(WIDE, "ideal", 0, gap=300)
    job = replace(chain.job, watchdog=200)
    expected = (ErrorCode.WATCHDOG, Unit.SEQUENCER, 0)
    bench.run_steps([(chain, job, expected), (good, good.job, None)])


def test_memory_that_pauses_for_less_than_the_watchdog(chain):
    for stop_at in (120, 400):
        bench = SilentBench(WIDE, "ideal", stop_at, gap=250)
        bench.run_steps([(chain, replace(chain.job, watchdog=300), None)])


@pytest.mark.parametrize("memory", ["ideal", pytest.param("random", marks=pytest.mark.slow)])
def test_reset_while_the_memory_is_silent(chain, good, memory):
    """Without a watchdog, the host's reset ends the run; the next one starts when it may."""
    for stop_at in (61, 250):
        bench = SilentBench(WIDE, memory, stop_at, gap=400)
        job = replace(chain.job, watchdog=0, reset_at=stop_at + 200)
        steps = [(chain, job, (ErrorCode.NONE, None, None)), (good, good.job, None)]
        bench.run_steps(steps)


def test_chunk_that_can_never_fit_is_stopped(good):
    """More lane groups than the weight buffer holds: the pass waits for weights for ever."""
    rng = np.random.default_rng(3)
    layer = make_layer(rng, kernel=(1, 1), channels=60, filters=100)
    large = TINY.override(weight_buffer_bytes=2 * TINY.weight_buffer_bytes)
    setup = single(layer, make_map(rng, 2, 2, 60), large)
    assert setup.fields[0]["groups"] * setup.fields[0]["group_words"] > TINY.weight_words
    job = replace(setup.job, watchdog=300)
    expected = (ErrorCode.WATCHDOG, Unit.WEIGHTS, 0)
    Bench(TINY, "ideal").run_steps([(setup, job, expected), (good, good.job, None)])

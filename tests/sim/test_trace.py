import json
import re

import pytest

from trirow_driver.program import DESCRIPTORS, pack_layers
from trirow_hw.config import PRESETS
from trirow_hw.descriptor import DESCRIPTOR_BYTES
from trirow_hw.errors import ErrorCode
from trirow_sim.case import random_layer
from trirow_sim.compiled import CompiledEngine, ToolchainError, find_toolchain
from trirow_sim.engines import run_job
from trirow_sim.job import Job
from trirow_sim.memory import FaultyMemory, Memory, make_memory
from trirow_sim.probe import what_waits
from trirow_sim.pysim import PysimEngine
from trirow_sim.simulate import RunError, simulate
from trirow_sim.trace import TRACKS, Slice, State, Timeline, write_chrome_trace

TINY = PRESETS["tiny"]
SHAPE = (6, 6, 3, 6)

IDLE, ACTIVE, MEMORY, ROOM, DEPENDENCY, FEATURES, WEIGHTS = State

#: States of the tracks and passes, with the cycles that they last.
EVENTS = [
    (2, (MEMORY, 0), (IDLE, 0), (FEATURES, 0), (IDLE, 0)),
    (3, (ACTIVE, 0), (IDLE, 0), (FEATURES, 0), (IDLE, 0)),
    (4, (IDLE, 0), (ACTIVE, 0), (WEIGHTS, 0), (IDLE, 0)),
    (20, (ROOM, 1), (ACTIVE, 1), (ACTIVE, 0), (IDLE, 0)),
    (15, (ROOM, 1), (ACTIVE, 1), (ROOM, 0), (ACTIVE, 0)),
    (1, (ACTIVE, 1), (IDLE, 0), (ACTIVE, 0), (MEMORY, 0)),
    (16, (DEPENDENCY, 2), (IDLE, 0), (DEPENDENCY, 1), (MEMORY, 0)),
    (5, (ACTIVE, 2), (IDLE, 0), (ACTIVE, 1), (IDLE, 0)),
    (3, (IDLE, 0), (IDLE, 0), (ACTIVE, 2), (ACTIVE, 1)),
]


def values(states):
    return [state | index << 3 for state, index in states]


def example(**options):
    """Return the timeline of the events."""
    timeline = Timeline(**options)
    for cycles, *states in EVENTS:
        for _ in range(cycles):
            timeline.step(values(states))
    return timeline


def make_job(watchdog=2000):
    """Return memory and job of a small layer."""
    layer, features = random_layer(*SHAPE)
    image = pack_layers([layer], features, TINY, base=0x1000).image
    storage = Memory(len(image.data), base=image.base)
    storage.write(image.base, image.data)
    end = image.base + len(image.data)
    return storage, Job(image.address(DESCRIPTORS), image.base, end, watchdog)


def count(timeline, track, state):
    return sum(one.cycles for one in timeline.slices(track) if one.state is state)


@pytest.fixture(scope="module")
def toolchain():
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))


# Timeline


def test_slices():
    timeline = example()
    assert timeline.cycles == 69
    assert timeline.slices("feature reader") == [
        Slice(0, 2, MEMORY, 0),
        Slice(2, 3, ACTIVE, 0),
        Slice(5, 4, IDLE, 0),
        Slice(9, 35, ROOM, 1),
        Slice(44, 1, ACTIVE, 1),
        Slice(45, 16, DEPENDENCY, 2),
        Slice(61, 5, ACTIVE, 2),
        Slice(66, 3, IDLE, 0),
    ]
    assert timeline.slices("weight reader") == [
        Slice(0, 5, IDLE, 0),
        Slice(5, 4, ACTIVE, 0),
        Slice(9, 35, ACTIVE, 1),
        Slice(44, 25, IDLE, 0),
    ]


def test_merged():
    timeline = example()
    assert timeline.merged("array") == [
        Slice(0, 5, FEATURES, 0),
        Slice(5, 4, WEIGHTS, 0),
        Slice(9, 36, ACTIVE, 0),  # with a stall of 15 cycles inside
        Slice(45, 16, DEPENDENCY, 1),
        Slice(61, 5, ACTIVE, 1),
        Slice(66, 3, ACTIVE, 2),
    ]
    assert timeline.merged("writer") == [
        Slice(29, 15, ACTIVE, 0),
        Slice(44, 17, MEMORY, 0),
        Slice(66, 3, ACTIVE, 1),
    ]


def test_shorter_gap():
    timeline = example(gap=15)
    assert timeline.gap == 15
    assert timeline.merged("array")[2:5] == [
        Slice(9, 20, ACTIVE, 0),
        Slice(29, 15, ROOM, 0),
        Slice(44, 1, ACTIVE, 0),
    ]


@pytest.mark.parametrize("gap", [1, 16, 1000])
def test_stalls_are_never_merged(gap):
    assert example(gap=gap).stalls() == [
        Slice(0, 5, FEATURES, 0),
        Slice(5, 4, WEIGHTS, 0),
        Slice(29, 15, ROOM, 0),
        Slice(45, 16, DEPENDENCY, 1),
    ]


def test_nothing_recorded():
    timeline = Timeline()
    assert timeline.cycles == 0
    for track in TRACKS:
        assert timeline.slices(track) == timeline.merged(track) == []


def test_extend_equals_step():
    timeline = Timeline()
    for cycles, *states in EVENTS:  # each with the value of every track, changed or not
        changes = [(0, number, value) for number, value in enumerate(values(states))]
        timeline.extend(changes, cycles)
    assert timeline == example()
    timeline.extend([(1, 2, WEIGHTS | 7 << 3)], 3)
    assert timeline.slices("array")[-2:] == [Slice(66, 4, ACTIVE, 2), Slice(70, 2, WEIGHTS, 7)]
    assert timeline != example()


def test_equality():
    longer = example()
    longer.step(values(EVENTS[-1][1:]))
    assert example() == example(gap=3)
    assert longer != example()
    assert example() != 69


@pytest.mark.parametrize("gap", [0, -1])
def test_wrong_gap(gap):
    with pytest.raises(ValueError, match=rf"^gap must be at least 1, not {gap}$"):
        Timeline(gap=gap)


# Chrome trace


def test_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    write_chrome_trace(path, example(), 50.0)
    assert list(tmp_path.iterdir()) == [path]
    trace = json.loads(path.read_text())
    assert set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["otherData"] == {"clock_mhz": 50.0}
    events = trace["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == [
        "feature reader",
        "weight reader",
        "array",
        "array stalls",
        "writer",
    ]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) + sum(event["ph"] == "M" for event in events) == len(events)
    assert [event for event in slices if event["tid"] == 5] == [
        {
            "name": name,
            "cat": "writer",
            "ph": "X",
            "pid": 1,
            "tid": 5,
            "ts": ts,
            "dur": dur,
            "args": {"cycle": cycle, "cycles": cycles, "pass": index},
        }
        for name, ts, dur, cycle, cycles, index in [
            ("outputs of pass 0", 0.58, 0.3, 29, 15, 0),
            ("waits for memory", 0.88, 0.34, 44, 17, 0),
            ("outputs of pass 1", 1.32, 0.06, 66, 3, 1),
        ]
    ]
    names = {thread: [e["name"] for e in slices if e["tid"] == thread] for thread in (1, 3, 4)}
    assert names == {
        1: [
            "waits for memory",
            "features of pass 0",
            "waits for places",
            "features of pass 1",
            "waits for earlier outputs",
            "features of pass 2",
        ],
        3: ["pass 0", "pass 1", "pass 2"],
        4: ["stall: features", "stall: weights", "stall: output", "stall: dependency"],
    }


def test_slices_of_a_row_do_not_overlap(tmp_path):
    path = tmp_path / "trace.json"
    write_chrome_trace(path, example(gap=1), 133.3)
    ends = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            begin = round(1000 * event["ts"])
            assert begin >= ends.get(event["tid"], 0)
            ends[event["tid"]] = begin + round(1000 * event["dur"])


@pytest.mark.parametrize("clock", [0.0, -1.0, float("inf"), float("nan")])
def test_wrong_clock(tmp_path, clock):
    text = rf"^clock_mhz must be finite and above 0, not {re.escape(repr(clock))}$"
    with pytest.raises(ValueError, match=text):
        write_chrome_trace(tmp_path / "trace.json", Timeline(), clock)
    assert list(tmp_path.iterdir()) == []


# Engines


def run_pysim(memory, timeline):
    storage, job = make_job()
    return run_job("pysim", TINY, storage, job, memory=memory, timeline=timeline)


def test_timeline_agrees_with_the_counters():
    timeline = Timeline()
    result = run_pysim("ddr", timeline)
    counters = result.counters
    assert (result.error, result.waiting) == (ErrorCode.NONE, "")
    assert timeline.cycles == counters["cycles"]
    assert count(timeline, "writer", ACTIVE) == counters["beats_written"]
    assert {
        "busy": count(timeline, "array", ACTIVE),
        "stall_features": count(timeline, "array", FEATURES),
        "stall_weights": count(timeline, "array", WEIGHTS),
        "stall_output": count(timeline, "array", ROOM),
        "stall_dependency": count(timeline, "array", DEPENDENCY),
    }.items() <= counters.items()
    # All other beats are those of the descriptor.
    readers = [count(timeline, track, ACTIVE) for track in TRACKS[:2]]
    assert sum(readers) == counters["beats_read"] - DESCRIPTOR_BYTES // TINY.bus_bytes
    for track in TRACKS:
        assert sum(one.cycles for one in timeline.slices(track)) == timeline.cycles


@pytest.mark.parametrize("memory", ["ddr", "random"])
def test_engines_agree(toolchain, memory):
    expected, found = Timeline(), Timeline()
    run_pysim(memory, expected)
    storage, job = make_job()
    result = run_job("compiled", TINY, storage, job, memory=memory, timeline=found)
    assert result.waiting == ""
    assert found == expected
    assert found.cycles == result.counters["cycles"]


def test_compiled_runs_follow_each_other(toolchain):
    timeline, once = Timeline(), Timeline()
    storage, job = make_job()
    with CompiledEngine(TINY, storage, "ideal", timeline=timeline) as engine:
        first, second = engine.run([job, job])
    run_job("compiled", TINY, storage, job, memory="ideal", timeline=once)
    assert timeline.cycles == first.counters["cycles"] + second.counters["cycles"]
    begin = once.slices("array")[:-1]
    assert timeline.slices("array")[: len(begin)] == begin


# What waits


def stopped(stop_at):
    """Run on a memory that stops answering, and return the result."""
    storage, job = make_job(watchdog=200)
    model = FaultyMemory(
        make_memory("ddr", storage, TINY.bus_bytes), stop_at=stop_at, resume_at=stop_at + 400
    )
    return PysimEngine(TINY, model).run([job], max_cycles=10_000)[0]


def watchdog_line(engine):
    storage, job = make_job(watchdog=20)
    return run_job(engine, TINY, storage, job, memory="ddr").waiting


@pytest.mark.parametrize(
    ("stop_at", "line"),
    [
        (
            20,
            "sequencer waits for the memory to answer a read of a descriptor; "
            "feature reader idle; weight reader idle; array idle; writer idle",
        ),
        (
            150,
            "the memory takes no read address; "
            "feature reader waits for the memory to answer a read of pass 0; "
            "weight reader waits for its turn to read pass 1; "
            "array waits for features of pass 0; writer idle",
        ),
        (
            345,
            "the memory takes no write address; "
            "feature reader idle; weight reader idle; array idle; "
            "writer waits for the memory to end a write of pass 0",
        ),
    ],
    ids=["descriptor", "features", "outputs"],
)
def test_memory_that_stops_answering(stop_at, line):
    result = stopped(stop_at)
    assert result.error is ErrorCode.WATCHDOG
    assert result.waiting == line


def test_max_cycles():
    storage, job = make_job(watchdog=0)
    model = FaultyMemory(make_memory("ddr", storage, TINY.bus_bytes), stop_at=200)
    text = (
        "the run did not end within 320 cycles: "
        "feature reader waits for its turn to read pass 1; "
        "weight reader waits for the memory to answer a read of pass 0; "
        "array waits for features of pass 0; writer idle"
    )
    with pytest.raises(TimeoutError, match=f"^{text}$"):
        PysimEngine(TINY, model).run([job], max_cycles=320)


def test_engines_wait_for_the_same(toolchain):
    line = watchdog_line("pysim")
    assert line.startswith("sequencer waits for the memory to answer a read of a descriptor; ")
    assert watchdog_line("compiled") == line


@pytest.mark.parametrize("max_cycles", [50, 100, 250, 400])
def test_engines_give_up_alike(toolchain, max_cycles):
    texts = []
    storage, job = make_job()
    model = make_memory("ddr", storage, TINY.bus_bytes)
    with pytest.raises(TimeoutError) as failure:
        PysimEngine(TINY, model).run([job], max_cycles=max_cycles)
    texts.append(str(failure.value))
    storage, job = make_job()
    with CompiledEngine(TINY, storage, "ddr") as engine:
        with pytest.raises(TimeoutError) as failure:
            engine.run([job], max_cycles=max_cycles)
        assert engine.cycles == max_cycles
    texts.append(str(failure.value))
    assert texts[0] == texts[1]


def test_error_of_simulate_says_what_waits():
    layer, features = random_layer(*SHAPE)
    text = r" after \d+ cycles: sequencer waits for the memory to answer a read of a descriptor; "
    with pytest.raises(RunError, match=text):
        simulate([layer], features, TINY, watchdog=10, engine="pysim")


@pytest.mark.parametrize(
    ("tracks", "detail", "line"),
    [
        (
            [(DEPENDENCY, 3), (IDLE, 0), (DEPENDENCY, 3), (MEMORY, 2)],
            2 << 8 | 3 << 24,
            "feature reader waits for the outputs of pass 2 to land before it reads pass 3; "
            "weight reader idle; array waits for features of pass 3 that are not computed yet; "
            "writer waits for the memory to end a write of pass 2",
        ),
        (
            [(ROOM, 1), (MEMORY, 1), (WEIGHTS, 1), (IDLE, 0)],
            1 << 1 | 3 << 6 | 1 << 24,
            "feature reader waits for places in the line buffer for pass 1; "
            "weight reader waits for the memory to answer a read of pass 1; "
            "array waits for weights of pass 1; writer idle",
        ),
        (
            [(ROOM, 4), (IDLE, 0), (ROOM, 4), (ACTIVE, 3)],
            1 << 3 | 1 << 5 | 4 << 24,
            "the memory takes no write data; sequencer waits for its turn to read a descriptor; "
            "feature reader waits for places in the line buffer for pass 4; "
            "weight reader idle; array waits for room for results of pass 4; "
            "writer sends beats of pass 3",
        ),
        (
            [(ACTIVE, 5), (ACTIVE, 6), (IDLE, 0), (IDLE, 0)],
            1 << 4 | 5 << 24,
            "feature reader takes beats of pass 5; weight reader takes beats of pass 6; "
            "array waits for pixels of pass 5; writer idle",
        ),
        (
            [(IDLE, 0), (IDLE, 0), (ROOM, 6), (IDLE, 0)],
            1 << 1 | 2 << 6 | 6 << 24 | values([(MEMORY, 6)])[0] << 40,
            "feature reader idle; weight reader idle; "
            "second reader waits for the memory to answer a read of pass 6; "
            "array waits for room for results of pass 6; writer idle",
        ),
        (
            [(MEMORY, 7), (IDLE, 0), (ROOM, 6), (MEMORY, 5)],
            1 << 1 | 1 << 6 | 5 << 8 | 6 << 24 | values([(DEPENDENCY, 0)])[0] << 40,
            "feature reader waits for the memory to answer a read of pass 7; weight reader idle; "
            "second reader waits for the outputs of pass 5 to land; "
            "array waits for room for results of pass 6; "
            "writer waits for the memory to end a write of pass 5",
        ),
    ],
    ids=["dependency", "weights", "results", "pixels", "second", "second-dependency"],
)
def test_what_waits(tracks, detail, line):
    assert what_waits(values(tracks), detail) == line

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from trirow_driver.program import DESCRIPTORS, pack_layers
from trirow_hw.config import PRESETS
from trirow_hw.errors import ErrorCode, Unit
from trirow_sim.axi import AxiViolation
from trirow_sim.case import random_layer
from trirow_sim.compiled import CompiledEngine, ToolchainError, build_library, is_built, toolchain
from trirow_sim.compiled.build import library_key
from trirow_sim.compiled.library import LIBRARY
from trirow_sim.engines import choose_engine
from trirow_sim.job import Job
from trirow_sim.memory import MEMORY_MODELS, Memory, make_memory
from trirow_sim.pysim import PysimEngine
from trirow_sim.simulate import golden_outputs, simulate

TINY = PRESETS["tiny"]


def load(program):
    image = program.image
    memory = Memory(len(image.data), base=image.base)
    memory.write(image.base, image.data)
    job = Job(image.address(DESCRIPTORS), image.base, image.base + len(image.data))
    return memory, job


def run(engine, program, jobs, model, seed):
    memory, job = load(program)
    jobs = [Job(**{**vars(job), **changes}) for changes in jobs]
    if engine is PysimEngine:
        results = PysimEngine(TINY, make_memory(model, memory, TINY.bus_bytes, seed)).run(jobs)
    else:
        with CompiledEngine(TINY, memory, model, seed=seed) as compiled:
            results = compiled.run(jobs)
    seen = [
        (r.error, r.unit, r.index, r.counters, [landing.counters for landing in r.landed])
        for r in results
    ]
    return seen, bytes(memory.data)


LAYERS = [
    {"shape": (6, 7, 5), "out_channels": 9, "pad": (1, 1, 1, 1)},
    {"shape": (5, 4, 3), "out_channels": 40, "kernel": (2, 3), "stride": (2, 1)},
]


QUICK_MODELS = ("ideal", "ddr", "random")


@pytest.mark.parametrize(
    ("model", "seed"),
    [
        pytest.param(
            model, seed, marks=() if seed == 1 and model in QUICK_MODELS else pytest.mark.slow
        )
        for model in MEMORY_MODELS
        for seed in (1, 77)
    ],
)
def test_both_engines_are_the_same(compiled_cache, model, seed):
    """Outputs, cycles and counters; also after an error, a reset, and from job to job."""
    for options in LAYERS:
        options = dict(options)
        layer, features = random_layer(*options.pop("shape"), seed=seed, **options)
        program = pack_layers([layer], features, TINY, base=0x1000)
        jobs = [{}, {"limit": 0x1100}, {"reset_at": 150}, {"watchdog": 3}, {}]
        pysim = run(PysimEngine, program, jobs, model, seed)
        compiled = run(CompiledEngine, program, jobs, model, seed)
        assert compiled == pysim
        assert [entry[0] for entry in pysim[0]][:2] == [ErrorCode.NONE, ErrorCode.WINDOW]
        assert pysim[0][3][0] is ErrorCode.WATCHDOG


def test_chain_of_layers(compiled_cache):
    first, features = random_layer(6, 6, 4, 8, pad=(1, 1, 1, 1), seed=3)
    second, _ = random_layer(6, 6, 8, 5, seed=4)
    second = type(second)(**{**vars(second), "name": "second", "input": first.output})
    reports = [
        simulate([first, second], features, TINY, memory="random", seed=5, engine=engine)
        for engine in ("pysim", "compiled")
    ]
    assert all(report.ok for report in reports)
    pysim, compiled = ([layer.to_dict() for layer in r.report.layers] for r in reports)
    for layer in (*pysim, *compiled):
        for key in ("seconds", "cycles_per_second", "engine"):
            layer.pop(key)
    assert compiled == pysim
    for ours, theirs in zip(reports[0].outputs, reports[1].outputs, strict=True):
        assert np.array_equal(ours, theirs)


def test_waveforms_of_a_range(compiled_cache, tmp_path):
    layer, features = random_layer(3, 3, 4, 4)
    path = tmp_path / "waves.vcd"
    result = simulate([layer], features, TINY, vcd=path, vcd_range=(50, 60), engine="compiled")
    assert result.ok
    times = [int(line[1:]) for line in path.read_text().splitlines() if line.startswith("#")]
    assert times
    assert min(times) >= 500
    assert max(times) < 610


def test_wrong_model(compiled_cache):
    with pytest.raises(ValueError, match="memory must be one of ideal, ddr"):
        CompiledEngine(TINY, Memory(64), "dram")


def test_broken_rule_of_the_bus(compiled_cache, monkeypatch):
    """A descriptor at an address that is not aligned never reaches the bus; a window error does."""
    layer, features = random_layer(3, 3, 4, 4)
    memory, job = load(pack_layers([layer], features, TINY, base=0x1000))
    with CompiledEngine(TINY, memory, "ideal") as engine:
        (result,) = engine.run([Job(**{**vars(job), "descriptor": 0x1001})])
        assert (result.error, result.unit) == (ErrorCode.DESCRIPTOR, Unit.SEQUENCER)
        monkeypatch.setattr(engine, "_library", Violating(engine._library))
        with pytest.raises(AxiViolation, match="cycle 3: W: WLAST"):
            engine.run([job])


class Violating:
    """The library, as if its checker had found a broken rule."""

    def __init__(self, library):
        self._library = library

    def __getattr__(self, name):
        if name == "trirow_error":
            return lambda: b"cycle 3: W: WLAST at the wrong beat"
        if name == "trirow_run":
            return lambda *_: -2
        return getattr(self._library, name)


# Builds


def test_key_covers_what_matters():
    tools = toolchain.Toolchain(("c++",), None, None, ("1", "2"))
    key = library_key(TINY, tools)
    assert key == library_key(TINY, tools)
    others = [
        library_key(TINY.override(bus_bytes=8), tools),
        library_key(TINY, toolchain.Toolchain(("c++",), None, None, ("1", "3"))),
        library_key(TINY, tools, trace=True),
    ]
    assert len({key, *others}) == 4


def test_build_that_is_killed_leaves_nothing_to_be_taken(compiled_cache, tmp_path, monkeypatch):
    """No library is found afterwards; what was left goes with the next build."""
    code = "from trirow_hw.config import PRESETS; from trirow_sim.compiled import build_library; "
    code += "build_library(PRESETS['tiny'], progress=lambda step: print(step, flush=True))"
    environment = os.environ | {"TRIROW_CACHE": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stdout:
        if line.startswith("compiling"):
            break
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not list(tmp_path.glob(f"*/{LIBRARY}"))
    assert list(tmp_path.glob("*.part"))
    monkeypatch.setenv("TRIROW_CACHE", str(tmp_path))
    assert not is_built(TINY)


def test_two_processes_build_at_once(compiled_cache):
    """One builds, the other waits for it or finds the library."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=build_library, args=(TINY,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    assert is_built(TINY)
    # Engines of other tests may be on their way.
    assert not list(compiled_cache.glob(f"{library_key(TINY, toolchain.find_toolchain())}*.part"))


def test_no_compiler(monkeypatch):
    monkeypatch.setattr(toolchain.shutil, "which", lambda *_, **__: None)
    monkeypatch.delenv("CXX", raising=False)
    toolchain.find_toolchain.cache_clear()
    try:
        text = "^the compiled engine needs a C\\+\\+ compiler: install .*; --engine pysim works"
        with pytest.raises(ToolchainError, match=text) as error:
            choose_engine("compiled", TINY, 10)
        assert "\n" not in str(error.value)
        choice = choose_engine("auto", TINY, 10**9)
        assert choice.engine == "pysim"
        assert choice.reason == "the compiled engine needs a C++ compiler"
    finally:
        toolchain.find_toolchain.cache_clear()


def test_auto_takes_what_suits():
    assert choose_engine("auto", TINY, 1000).engine == "pysim"
    assert choose_engine("pysim", TINY, 10**9).engine == "pysim"


def test_auto_takes_what_is_built(compiled_cache):
    build_library(TINY)
    assert choose_engine("auto", TINY, 1000).engine == "compiled"
    assert choose_engine("auto", TINY.override(out_lanes=3), 1000).engine == "pysim"
    assert choose_engine("auto", TINY.override(out_lanes=3), 10**6).engine == "compiled"


def test_memory_of_4_gb(compiled_cache):
    """An image far up in the address space; pages that nobody touches take no memory."""
    layer, features = random_layer(4, 4, 4, 4)
    program = pack_layers([layer], features, TINY, base=0xFFF0_0000)
    image = program.image
    memory = Memory((1 << 32) - 4096)
    memory.write(image.base, image.data)
    job = Job(image.address(DESCRIPTORS), image.base, image.base + len(image.data))
    with CompiledEngine(TINY, memory, "ddr") as engine:
        (result,) = engine.run([job])
    assert result.error is ErrorCode.NONE
    (golden,) = golden_outputs([layer], features)
    output = image.region(program.place(layer.name)[0])
    assert memory.read(image.base + output.offset, output.size) == golden.tobytes()
    assert not any(memory.read(0, 1 << 16))

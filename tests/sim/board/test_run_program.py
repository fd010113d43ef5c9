"""Layers as runs of their own, on a device that only notes what it is asked for."""

import numpy as np
import pytest

from trirow_driver.program import DESCRIPTORS, pack
from trirow_hw.descriptor import DESCRIPTOR_BYTES
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.supervisor import COUNTERS
from trirow_sim.board.run_program import run_program
from trirow_sim.case import Case
from trirow_sim.memory import Memory
from trirow_sim.simulate import RunError, simulate_graph

from .kit import TINY, chained

PAD = (1, 1, 1, 1)
CASES = [Case(shape=(8, 8, 24), out=24, pad=PAD), Case(shape=(8, 8, 24), out=24, pad=PAD)]
CASES.append(Case("depthwise", (8, 8, 24), pad=PAD))
NODES, FEATURES = chained(*CASES)
CONFIG = TINY.config
BASE = 0x1000


class NotingDevice:
    """Runs end at once; run k counts 100 * (k + 1) of everything.

    Parameters
    ----------
    passes : list of int
        What each run says has landed.
    error : (int, int), optional
        Run that ends in an error, and the register that says so.
    """

    name = "noting"

    def __init__(self, passes, error=(-1, 0)):
        self.passes, self.error = passes, error
        self.memory, self.runs, self.registers = {}, [], {}

    def write(self, address, data):
        self.memory.update(enumerate(data, address))

    def read(self, address, size):
        return bytes(self.memory[k] for k in range(address, address + size))

    def write_register(self, name, value):
        self.registers[name] = value
        if name == "control":
            self.runs.append(dict(self.registers))

    def read_register(self, name):
        run = len(self.runs) - 1
        failed = run == self.error[0]
        if name == "status":
            return 0 if run < 0 else 4 if failed else 2
        if name == "error":
            return self.error[1] if failed else 0
        return self.passes[run] if name == "passes" else 100 * (run + 1)

    def close(self):
        pass


def program():
    return pack(NODES, FEATURES, CONFIG, base=BASE, stops=True)


def loaded(packed):
    storage = Memory(len(packed.image.data), base=BASE)
    storage.write(BASE, packed.image.data)
    return storage


def test_chain_ends_after_each_layer():
    """Descriptors differ from those of one chain in ``last`` and ``next``, at ends of layers."""
    whole = pack(NODES, FEATURES, CONFIG, base=BASE).image
    packed = program()
    counts = [len(step.tiling.passes) for step in packed.steps]
    assert len(counts) > 1
    assert max(counts) > 1
    table = packed.image.region(DESCRIPTORS)
    old, new = (np.frombuffer(image.data, np.uint8) for image in (whole, packed.image))
    changed = {int(k - table.offset) // DESCRIPTOR_BYTES for k in np.flatnonzero(old != new)}
    ends = np.cumsum(counts) - 1
    assert changed == set(ends[:-1])
    first = packed.image.address(DESCRIPTORS)
    assert packed.starts == [first + DESCRIPTOR_BYTES * k for k in (0, *(ends[:-1] + 1))]


def test_each_layer_is_a_run():
    packed = program()
    passes = [step.passes for step in packed.steps]
    device, seen, stages = NotingDevice(passes), [], []
    storage = loaded(packed)
    result = run_program(
        device,
        packed,
        storage,
        watchdog=77,
        progress=lambda *values: seen.append(values),
        stage=stages.append,
    )
    assert [run["descriptor"] for run in device.runs] == packed.starts
    limit = BASE + storage.size
    assert {(run["base"], run["limit"], run["watchdog"]) for run in device.runs} == {
        (BASE, limit, 77)
    }
    assert bytes(storage.data) == packed.image.data == device.read(BASE, storage.size)
    assert result.error is ErrorCode.NONE
    totals = [sum(100 * (k + 1) for k in range(layer + 1)) for layer in range(len(passes))]
    ends = np.cumsum(passes) - 1
    assert [result.landed[end].counters["cycles"] for end in ends] == totals
    assert result.counters == dict.fromkeys(COUNTERS, totals[-1])
    assert stages == ["loading", "running", "reading back"]
    assert (sum(passes), sum(passes), totals[-1]) in seen
    assert seen[0] == (0, storage.size, 0)
    assert seen[-1] == (storage.size, storage.size, totals[-1])


def test_error_is_told_as_of_the_whole_chain():
    passes = [step.passes for step in program().steps]
    error = ErrorCode.WINDOW | Unit.SEQUENCER << 8 | 0 << 16
    device = NotingDevice(passes, (1, error))
    name = NODES[1].layer.name
    with pytest.raises(RunError, match=rf"WINDOW .* pass 1 of {passes[1]} of layer '{name}'"):
        simulate_graph(NODES, FEATURES, CONFIG, device=device)
    assert len(device.runs) == 2


def test_pass_that_has_not_landed_is_an_error():
    passes = [step.passes for step in program().steps]
    device = NotingDevice([passes[0] - 1, *passes[1:]])
    with pytest.raises(RunError, match="before the outputs of all passes had landed"):
        simulate_graph(NODES, FEATURES, CONFIG, device=device)


def test_nothing_computed_is_a_mismatch():
    passes = [step.passes for step in program().steps]
    run = simulate_graph(NODES, FEATURES, CONFIG, device=NotingDevice(passes))
    assert not run.ok
    assert all(layer.mismatches == layer.outputs for layer in run.comparison.layers)


@pytest.mark.parametrize(
    "options", [{"engine": "pysim"}, {"vcd": "x.vcd"}, {"trace": "x.json"}], ids=str
)
def test_what_a_device_does_not_give(options):
    with pytest.raises(ValueError, match="a device goes with no engine"):
        simulate_graph(NODES, FEATURES, CONFIG, device=NotingDevice([]), **options)

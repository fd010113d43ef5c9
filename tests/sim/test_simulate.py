import re

import numpy as np
import pytest

import trirow_golden
from trirow_driver.combine_layer import (
    Combine,
    CombineLayer,
    MultiplyLayer,
    combine_scales,
)
from trirow_driver.conv_layer import ConvLayer
from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import Node, Slice, pack, pack_layers
from trirow_driver.quantise import Quantisation
from trirow_hw.config import PRESETS
from trirow_hw.supervisor import COUNTERS
from trirow_sim import engines
from trirow_sim.axi import AxiChecker, AxiViolation
from trirow_sim.case import random_layer
from trirow_sim.memory import IdealMemory, make_memory
from trirow_sim.pysim import PysimEngine
from trirow_sim.simulate import RunError, golden_outputs, simulate, simulate_graph

TINY = PRESETS["tiny"]


def chain():
    """Return two layers and a feature map."""
    rng = np.random.default_rng(5)
    between = Quantisation(0.1, -7)

    def conv(name, k, r, s, c, stride, pad, given, output, low):
        return ConvLayer(
            name,
            rng.integers(-127, 128, (k, r, s, c), dtype=np.int8),
            rng.integers(-2000, 2000, k, dtype=np.int32),
            rng.uniform(0.001, 0.003, k).astype(np.float32),
            stride,
            pad,
            given,
            output,
            low,
        )

    layers = [
        conv("a", 5, 3, 3, 3, (2, 1), (1, 0, 1, 1), Quantisation(0.2, 9), between, -7),
        conv("b", 9, 2, 2, 5, (1, 1), (0, 0, 0, 0), between, Quantisation(0.3, 4), -128),
    ]
    return layers, rng.integers(-128, 128, (1, 6, 5, 3), dtype=np.int8)


# So few weights fit that both layers of the chain take more than one pass.
SMALL = TINY.override(weight_buffer_bytes=256)
PASSES = (2, 3)


@pytest.fixture(scope="module")
def results():
    """Keep what the engine returned, for the simulation that follows."""
    return []


@pytest.fixture(scope="module")
def run(results):
    calls = []
    original = PysimEngine.run

    def kept(self, jobs, **options):
        results.extend(original(self, jobs, **options))
        return results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PysimEngine, "run", kept)
        layers, features = chain()
        simulation = simulate(
            layers,
            features,
            SMALL,
            memory="ideal",
            progress=lambda *values: calls.append(values),
            clock_mhz=50,
            name="pair",
        )
    return simulation, calls


def test_outputs_are_what_golden_computes(run):
    simulation, _ = run
    layers, x = chain()
    assert simulation.ok
    for layer, output in zip(layers, simulation.outputs, strict=True):
        x = trirow_golden.conv2d_int8(
            x,
            layer.weights,
            layer.bias,
            layer.multiplier,
            stride=layer.stride,
            pad=layer.pad,
            zero_in=layer.input.zero_point,
            zero_out=layer.output.zero_point,
            low=layer.low,
        )
        assert output.dtype == np.int8
        np.testing.assert_array_equal(output, x)
        assert len(np.unique(x)) > 20


def test_report_of_a_chain(run, results):
    simulation, _ = run
    content = simulation.report.to_dict()
    first, second = content["layers"]
    (result,) = results
    assert tuple(step.passes for step in pack_layers(*chain(), SMALL).steps) == PASSES
    assert len(result.landed) == sum(PASSES)
    assert result.landed[-1].counters == result.counters
    assert list(result.counters) == COUNTERS
    landed = result.landed[PASSES[0] - 1].counters
    assert first["cycles"] == landed["cycles"]
    assert first["bytes_read"] == landed["beats_read"] * SMALL.bus_bytes
    assert first["cycles"] + second["cycles"] == result.counters["cycles"]
    network = content["network"]
    assert (network["name"], network["match"], network["clock_mhz"]) == ("pair", True, 50)
    assert network["cycles"] == result.counters["cycles"]
    assert network["milliseconds"] == network["cycles"] / 50_000
    assert network["bytes_read"] == result.counters["beats_read"] * SMALL.bus_bytes
    assert network["bytes_written"] == result.counters["beats_written"] * SMALL.bus_bytes
    for cause, cycles in network["stalls"].items():
        assert cycles == result.counters[f"stall_{cause}"]
        assert cycles == first["stalls"][cause] + second["stalls"][cause]
    assert (first["outputs"], second["outputs"]) == (3 * 4 * 5, 2 * 3 * 9)
    assert (first["macs"], second["macs"]) == (60 * 27, 54 * 20)
    assert first["macs_useful"] < first["macs"]
    assert second["macs_useful"] == second["macs"]
    assert first["bytes_ideal"] == 90 + 5 * 27 + 8 * 5 + 60
    assert (first["engine"], first["config"], first["memory"]) == ("pysim", "tiny", "ideal")
    assert first["seconds"] > 0
    assert second["seconds"] > 0
    assert network["seconds"] == pytest.approx(result.seconds)


def test_progress(run):
    _, calls = run
    total = 60 + 54
    written = [count for count, _, _ in calls]
    assert {limit for _, limit, _ in calls} == {total}
    cycles = [number for _, _, number in calls[:-1]]
    assert cycles == sorted(cycles)
    assert written == sorted(written)
    assert written[-1] == total
    assert 0 < written[len(written) // 2] <= total


def test_report_does_not_depend_on_when(run):
    layers, features = chain()
    again = simulate(layers, features, SMALL, memory="ideal", clock_mhz=50, name="pair")

    def timeless(report):
        content = report.to_dict()
        for entry in (*content["layers"], content["network"]):
            del entry["seconds"], entry["cycles_per_second"]
        return content

    assert timeless(again.report) == timeless(run[0].report)


SHAPE = (3, 3, 4, 4, (1, 1))


def test_seed_of_the_memory():
    layer, features = random_layer(*SHAPE)
    cycles = [
        simulate([layer], features, TINY, memory="random", seed=seed).report.cycles
        for seed in (1, 1, 3)
    ]
    assert cycles[0] == cycles[1] != cycles[2]


def test_mismatch(monkeypatch):
    original = trirow_golden.conv2d_int8

    def wrong(*arguments, **options):
        output = original(*arguments, **options)
        output[0, 2, 1, 3] ^= 1
        return output

    monkeypatch.setattr(trirow_golden, "conv2d_int8", wrong)
    layer, features = random_layer(*SHAPE)
    simulation = simulate([layer], features, TINY, memory="ideal", engine="pysim")
    assert not simulation.ok
    (report,) = simulation.report.layers
    assert (report.match, report.mismatches, report.outputs) == (False, 1, 36)
    first = simulation.comparison.layers[0].first
    assert (first.layer, first.y, first.x, first.k) == ("conv", 2, 1, 3)
    assert abs(first.got - first.expected) == 1
    assert first.got == simulation.outputs[0][0, 2, 1, 3]


def test_stray_byte(monkeypatch):
    original = PysimEngine.run

    def stray(self, jobs, **options):
        results = original(self, jobs, **options)
        self.model.memory.data[5] ^= 0xFF
        return results

    monkeypatch.setattr(PysimEngine, "run", stray)
    layer, features = random_layer(*SHAPE)
    simulation = simulate([layer], features, TINY, memory="ideal", engine="pysim")
    assert not simulation.ok
    assert simulation.report.layers[0].match
    assert not simulation.report.match
    assert simulation.comparison.first_stray.region == "descriptors"


def test_output_that_is_not_written_is_a_mismatch(monkeypatch):
    class Forgetful(IdealMemory):
        def _respond(self):
            self.slave.bvalid = 1

    monkeypatch.setattr(
        engines, "make_memory", lambda name, memory, bus_bytes, seed: Forgetful(memory, bus_bytes)
    )
    layer, features = random_layer(*SHAPE)
    simulation = simulate([layer], features, TINY, memory="ideal", engine="pysim")
    assert simulation.comparison.mismatches == 36


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        ("read_errors", "READ_RESPONSE (error response to a read) in unit sequencer, pass 1 of 1"),
        ("write_errors", "WRITE_RESPONSE (error response to a write) in unit writer, pass 1 of 1"),
    ],
)
def test_error_of_the_memory(monkeypatch, errors, text):
    def faulty(name, memory, bus_bytes, seed):
        model = make_memory(name, memory, bus_bytes, seed)
        setattr(model, errors, range(memory.base, memory.base + memory.size))
        return model

    monkeypatch.setattr(engines, "make_memory", faulty)
    layer, features = random_layer(*SHAPE)
    match = f"^the run ended with error {re.escape(text)} of layer 'conv', after [0-9]+ cycles$"
    with pytest.raises(RunError, match=match):
        simulate([layer], features, TINY, memory="ideal", engine="pysim")


def test_error_names_pass_and_layer(monkeypatch):
    def faulty(name, memory, bus_bytes, seed):
        model = make_memory(name, memory, bus_bytes, seed)
        begin = memory.base + output.offset
        model.write_errors = range(begin, begin + output.size)
        return model

    monkeypatch.setattr(engines, "make_memory", faulty)
    layers, features = chain()
    output = pack_layers(layers, features, SMALL).image.region("blob.b")
    with pytest.raises(RunError, match=r"unit writer, pass [123] of 3 of layer 'b', after"):
        simulate(layers, features, SMALL, memory="ideal", engine="pysim")


def test_watchdog(tmp_path):
    layer, features = random_layer(*SHAPE)
    path = tmp_path / "waves.vcd"
    text = r"error WATCHDOG \(no progress\) in unit sequencer, pass 1 of 1 of layer 'conv'"
    with pytest.raises(RunError, match=text):
        simulate([layer], features, TINY, watchdog=10, vcd=path, engine="pysim")
    assert list(tmp_path.iterdir()) == [path]  # the waveforms show what went wrong
    assert path.read_text().count("$enddefinitions") == 1


def test_broken_rule_of_the_bus(monkeypatch):
    def step(self, master, slave):
        raise AxiViolation(7, "AR", "address crosses 4 KB")

    monkeypatch.setattr(AxiChecker, "check", step)
    layer, features = random_layer(*SHAPE)
    text = "^a rule of the memory bus is broken: cycle 7: AR: address crosses 4 KB$"
    with pytest.raises(RunError, match=text):
        simulate([layer], features, TINY, engine="pysim")


def test_interrupted_run_leaves_no_waveforms(tmp_path, monkeypatch):
    def interrupt(written, total, cycles):
        raise KeyboardInterrupt

    layer, features = random_layer(4, 4, 4, 4)
    with pytest.raises(KeyboardInterrupt):
        simulate(
            [layer], features, TINY, vcd=tmp_path / "waves.vcd", progress=interrupt, engine="pysim"
        )
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments(tmp_path):
    layer, features = random_layer(*SHAPE)
    with pytest.raises(
        ValueError, match=r"^engine must be one of auto, pysim, compiled, netlist, not 'verilator'$"
    ):
        simulate([layer], features, TINY, engine="verilator")
    with pytest.raises(ValueError, match=r"^memory must be one of ideal, ddr, .*, not 'dram'$"):
        simulate([layer], features, TINY, memory="dram")
    with pytest.raises(ValueError, match=r"^clock_mhz must be finite and above 0, not 0$"):
        simulate([layer], features, TINY, clock_mhz=0)
    with pytest.raises(ValueError, match="at least one layer"):
        simulate([], features, TINY)
    only = TINY.override(requantise_modes=("fixed",))
    with pytest.raises(
        UnsupportedError, match=r"^layer 'conv': requantisation mode float32 is not"
    ):
        simulate([layer], features, only)
    with pytest.raises(FileNotFoundError):
        simulate([layer], features, TINY, vcd=tmp_path / "none" / "waves.vcd")


# Layers that the host computes


def multiply(name, given):
    """Return a layer that gives what it takes."""
    return MultiplyLayer(name, given, Quantisation(0.02, -3), given)


def add(name, given):
    second = Quantisation(0.3, 5)
    return CombineLayer(
        name, given, Combine("add", combine_scales("add", given, second, given), second, given)
    )


def feature_maps(*names):
    rng = np.random.default_rng(11)
    return {name: rng.integers(-128, 128, (1, 3, 2, 5), dtype=np.int8) for name in names}


def product(layer, first, second):
    """Return the products as they are in float64, which may round otherwise next to ties."""
    x = (first.astype(float) - layer.input.zero_point) * (second - float(layer.second.zero_point))
    scale = layer.input.scale * layer.second.scale / layer.output.scale
    return np.clip(np.rint(x * scale) + layer.output.zero_point, -128, 127)


def test_host_in_front_and_behind():
    given = Quantisation(0.25, 4)
    first, middle, last = multiply("first", given), add("middle", given), multiply("last", given)
    nodes = [
        Node(first, ("a", "b"), "x"),
        Node(middle, ("x", "c"), "y"),
        Node(last, ("y", "d"), "z"),
    ]
    features = feature_maps("a", "b", "c", "d")
    run = simulate_graph(nodes, features, TINY, memory="ideal", engine="pysim")
    assert run.ok
    x, y, z = run.outputs
    assert np.abs(x - product(first, features["a"], features["b"])).max() <= 1
    assert np.abs(z - product(last, y, features["d"])).max() <= 1
    assert len(np.unique(z)) > 10
    content = run.report.to_dict()
    assert [layer["name"] for layer in content["layers"]] == ["first", "middle", "last"]
    assert [layer["place"] for layer in content["layers"]] == ["host", "rtl", "host"]
    assert content["network"]["place"] == "host+rtl"
    counted = content["layers"][1]
    for key in ("cycles", "bytes_read", "bytes_written", "bytes_ideal", "seconds"):
        assert [content["layers"][0][key], content["layers"][2][key]] == [0, 0]
        assert content["network"][key] == counted[key] > 0
    assert content["network"]["utilisation"] == counted["utilisation"]
    lines = run.report.lines()
    assert lines[-1].startswith("Layers 'first', 'last' run on the host, computed as golden does")


def test_host_takes_what_the_accelerator_wrote(monkeypatch):
    original = PysimEngine.run

    def wrong(self, jobs, **options):
        results = original(self, jobs, **options)
        self.model.memory.data[image.region("blob.y").offset] ^= 0xFF
        return results

    given = Quantisation(0.25, 4)
    nodes = [
        Node(add("sum", given), ("a", "b"), "y"),
        Node(multiply("last", given), ("y", "c"), "z"),
    ]
    features = feature_maps("a", "b", "c")
    features["c"][0, 0, 0, 0] = 120  # so that the wrong byte shows in the product
    image = pack(nodes[:1], {name: features[name] for name in "ab"}, TINY).image
    monkeypatch.setattr(PysimEngine, "run", wrong)
    run = simulate_graph(nodes, features, TINY, memory="ideal", engine="pysim")
    assert [layer.mismatches for layer in run.comparison.layers] == [1, 1]
    assert run.comparison.layers[1].first.layer == "last"
    assert not run.ok


def test_host_alone(tmp_path):
    nodes = [Node(multiply("only", Quantisation(0.25, 4)), ("a", "b"), "x")]
    run = simulate_graph(nodes, feature_maps("a", "b"), TINY)
    assert run.ok
    assert (run.report.cycles, run.choice.engine) == (0, "none")
    assert len(run.report.lines()) == 1
    for option in ("vcd", "trace"):
        with pytest.raises(ValueError, match=r"^no layer runs on the accelerator: there are no w"):
            simulate_graph(nodes, feature_maps("a", "b"), TINY, **{option: tmp_path / "x"})
    with pytest.raises(ValueError, match=r"^engine must be one of "):
        simulate_graph(nodes, feature_maps("a", "b"), TINY, engine="verilator")


def test_host_where_it_cannot_be():
    given = Quantisation(0.25, 4)
    nodes = [
        Node(add("first", given), ("a", "b"), "x"),
        Node(multiply("between", given), ("x", "c"), "y"),
        Node(add("last", given), ("y", "b"), "z"),
    ]
    features = feature_maps("a", "b", "c")
    text = r"^layer 'last': it reads what layer 'between' computes on the host from outputs of"
    with pytest.raises(UnsupportedError, match=text):
        simulate_graph(nodes, features, TINY)
    with pytest.raises(UnsupportedError, match=r"^layer 'between': it runs on the host, which so"):
        simulate_graph(nodes[:2], features, TINY, slices={"y": Slice("whole", 0, 5)})
    with pytest.raises(ValueError, match=r"^layer 'between': nothing gives its input 'x'$"):
        simulate_graph(nodes[1:2], features, TINY)
    with pytest.raises(ValueError, match=r"^layer 'between': it takes 2 feature maps, not 1$"):
        simulate_graph([Node(nodes[1].layer, ("a",), "y")], features, TINY)
    with pytest.raises(ValueError, match=r"^layer 'between': its output 'a' is there already$"):
        simulate_graph([Node(nodes[1].layer, ("a", "c"), "a")], features, TINY)
    features["c"] = features["c"][:, :2]
    with pytest.raises(ValueError, match=r"its second feature map must have shape \(1, 3, 2, 5\)"):
        simulate_graph([Node(nodes[1].layer, ("a", "c"), "y")], features, TINY)


# Layers of random numbers


@pytest.mark.parametrize(
    "arguments",
    [
        (16, 16, 16, 8, (3, 3), (1, 1), (1, 1, 1, 1)),
        (20, 20, 3, 16, (1, 1)),
        (9, 11, 13, 10, (5, 2), (2, 3), (2, 0, 1, 1)),
        (12, 12, 2000, 4, (7, 7)),
        (24, 24, 1, 32, (2, 2)),
    ],
)
def test_random_outputs_spread_and_saturate(arguments):
    layer, features = random_layer(*arguments)
    assert layer.input.zero_point != 0 != layer.output.zero_point
    assert features.shape == (1, *arguments[:3])
    (output,) = golden_outputs([layer], features)
    saturated = np.mean((output == -128) | (output == 127))
    assert 0 < saturated < 0.25
    assert 45 < output.std() < 90
    assert output.min() == -128
    assert output.max() == 127


def test_random_layer_is_the_same_for_the_same_seed():
    (one, x), (two, y) = random_layer(5, 5, 2, 3, seed=7), random_layer(5, 5, 2, 3, seed=7)
    other, z = random_layer(5, 5, 2, 3, seed=8)
    np.testing.assert_array_equal(x, y)
    assert not np.array_equal(x, z)
    for field in ("weights", "bias", "multiplier"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))
        assert not np.array_equal(getattr(one, field), getattr(other, field))
    assert (one.input, one.output) == (two.input, two.output)


def test_wrong_random_layers():
    with pytest.raises(ValueError, match=r"^channels must be at least 1, not 0$"):
        random_layer(3, 3, 0, 1)
    with pytest.raises(ValueError, match=r"^out channels must be at least 1, not -1$"):
        random_layer(3, 3, 1, -1)
    with pytest.raises(ValueError, match=r"is empty: the padded input is only 2x2$"):
        random_layer(2, 2, 1, 1)
    with pytest.raises(ValueError, match=r"bytes is beyond 32-bit addresses$"):
        random_layer(100_000, 100_000, 1, 1)

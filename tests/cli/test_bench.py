import json
import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import trirow_golden
import trirow_sim.bench
from trirow.main import main
from trirow_driver.float_network import FloatConv, FloatNetwork, save_npz
from trirow_sim.compiled import ToolchainError
from trirow_sim.report import KEYS
from trirow_sim.simulate import RunError

TABLE = """\
net,layer,op,in_c,in_h,in_w,out_c,out_h,out_w,kh,kw,stride,pad,dilation,group
one,a,conv,4,4,3,4,4,3,1,1,1,0,1,1
one,pool,poolmax,4,4,3,4,2,1,2,2,2,0,1,1
two,b,conv,3,5,5,5,3,3,3,3,2,SAME,1,1
two,c,conv,8,5,5,8,5,5,3,3,1,1,1,8
two,a,conv,4,3,3,4,1,1,3,3,1,0,1,1
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "layers.csv"
    path.write_text(TABLE)
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["bench", "--engine", "pysim", *map(str, arguments)])


def refused(text, *arguments, status=2, command="bench"):
    """Check that a command fails with one line and nothing else."""
    result = CliRunner().invoke(main, [command, *map(str, arguments)])
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert re.fullmatch(f"Error: {text}", result.stderr.rstrip("\n")), result.stderr
    assert result.exit_code == status


def contents(path):
    """Return a file of JSON without the times that the simulation took."""
    content = json.loads(path.read_text())
    for network in content.get("networks", [content.get("network")]):
        for entry in (network, *network.get("layers", content.get("layers", []))):
            del entry["seconds"], entry["cycles_per_second"]
    return content


def test_table_and_json(table, tmp_path):
    path = tmp_path / "result.json"
    result = run(table, "--memory", "ideal", "--clock-mhz", "50", "--json", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for part in (
        *("one: 1 layer simulated", "two: 3 layers simulated", "ms at 50 MHz", "all layers"),
        *("4x3x4", "5x5x3", "3x3x5", "3x3 stride 2", "all 48 equal", "all 45 equal"),
        *("operation poolmax", "3x3 groups 8", "memory model ideal"),
        "4 layers match golden, 0 do not, 1 are not supported.",
    ):
        assert part in " ".join(result.stdout.split())
    content = json.loads(path.read_text())
    assert list(content) == ["networks"]
    one, two = content["networks"]
    assert (one["name"], one["match"], one["clock_mhz"]) == ("one", True, 50.0)
    assert [layer["name"] for layer in two["layers"]] == ["b", "c", "a"]
    assert list(two["layers"][0]) == list(KEYS)
    assert set(KEYS) | {"layers", "clock_mhz", "milliseconds"} <= set(one)
    assert [entry["name"] for entry in one["unsupported"]] == ["pool"]


def test_what_a_configuration_lacks(table):
    result = run(table, "--net", "one", "--set", "requantise_modes=fixed")
    assert result.exit_code == 0, result.output
    shown = " ".join(result.stdout.split())
    assert "0 layers match golden, 0 do not, 2 are not supported." in shown
    assert "not supported: requantisation mode float32" in shown


def test_processes_give_the_same(table, tmp_path):
    paths = [tmp_path / name for name in ("here.json", "processes.json")]
    for path, options in zip(paths, ([], ["--jobs", "2"]), strict=True):
        options += ["--memory", "random", "--seed", "3", "--config", "odd", "--set", "bus_bytes=8"]
        assert run(table, *options, "--json", path).exit_code == 0
    here, processes = map(contents, paths)
    assert here == processes
    assert here["networks"][0]["config"] == "odd"


def test_choice_of_layers(table, monkeypatch):
    taken = []

    def keep(layers, features, *arguments, **options):
        taken.append((layers[0].name, features.tobytes()))
        raise RunError("stop")

    monkeypatch.setattr(trirow_sim.bench, "simulate", keep)

    def chosen(*options):
        taken.clear()
        run(table, *options)
        return [name for name, _ in taken]

    assert chosen() == ["a", "b", "c", "a"]
    everything = dict(reversed(taken))
    assert chosen("--net", "two") == ["b", "c", "a"]
    assert chosen("--net", "two", "--net", "one") == ["a", "b", "c", "a"]
    assert chosen("--net", "two", "--layer", "b") == ["b"]
    assert taken == [("b", everything["b"])]
    assert chosen("--layer", "a") == ["a", "a"]
    assert chosen("--layer", "pool") == []


def test_failed_layer(table, tmp_path, monkeypatch):
    original = trirow_sim.bench.simulate

    def faulty(layers, *arguments, **options):
        if layers[0].name == "a":
            raise RunError("no progress in [unit] writer")
        return original(layers, *arguments, **options)

    monkeypatch.setattr(trirow_sim.bench, "simulate", faulty)
    path = tmp_path / "result.json"
    result = run(table, "--memory", "ideal", "--json", path)
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: 2 of 4 layers did not match, the first: one a (line 2): no progress in [unit] "
        "writer\n"
    )
    assert "2 layers match golden, 2 do not, 1 are not supported." in result.stdout
    assert "failed: no progress" in result.stdout
    one, two = json.loads(path.read_text())["networks"]
    assert (one["match"], two["match"]) == (False, False)
    assert one["failed"] == [{"name": "a", "line": 2, "error": "no progress in [unit] writer"}]
    assert [layer["match"] for layer in two["layers"]] == [True, True]


def test_mismatch(table, tmp_path, monkeypatch):
    original = trirow_golden.conv2d_int8

    def wrong(*arguments, **options):
        output = original(*arguments, **options)
        output[0, 1, 2, 3] ^= 1
        return output

    monkeypatch.setattr(trirow_golden, "conv2d_int8", wrong)
    path = tmp_path / "result.json"
    result = run(table, "--net", "one", "--memory", "ideal", "--json", path)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: 1 of 1 layers did not match, the first: one a (line 2): 1 of 48 outputs differ, "
        "the first: layer 'a': row 1, column 2, channel 3 is "
    )
    assert "1 of 48 differ" in result.stdout
    (one,) = json.loads(path.read_text())["networks"]
    assert (one["match"], one["mismatches"], one["failed"]) == (False, 1, [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--net", "x"], r".*layers\.csv: has no network 'x'; --net is one of one, two"),
        (["--net", "one", "--layer", "b"], r".*layers\.csv: has no layer 'b' in one"),
        (["--layer", "x"], r".*layers\.csv: has no layer 'x'"),
        (["--jobs", "0"], r"Invalid value for '--jobs': 0 .*"),
        (["--jobs", "2", "--scheduler", "tcp://x:1"], r"--jobs and --scheduler do not go .*"),
        (["--set", "bus_bytes=3"], r"Invalid value for '--set': bus_bytes .*"),
        (["--clock-mhz", "0"], r"Invalid value for '--clock-mhz': must be .*"),
        (["--json", "/none/x.json"], r"Invalid value for '--json': the folder .*"),
    ],
)
def test_bad_usage(table, options, text):
    refused(text, table, *options)


def test_no_compiler(table, monkeypatch):
    def missing():
        raise ToolchainError("no compiler")

    monkeypatch.setattr("trirow_sim.engines.find_toolchain", missing)
    refused("no compiler", table, "--engine", "compiled")


def test_bad_input(tmp_path):
    refused(r".*x\.csv: cannot be read: No such file or directory", tmp_path / "x.csv")
    path = tmp_path / "layers.csv"
    path.write_text(TABLE.replace("one,a,conv,4", "one,a,conv,four"))
    refused(r".*layers\.csv: line 2, column 'in_c': must be an integer .* not 'four'", path)


def test_help():
    result = run("--help")
    assert result.exit_code == 0
    for part in ("net,layer,op", "--scheduler", "--jobs", "2 on bad usage"):
        assert part in result.stdout


# Where the work is done


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Give the options of `sim` for a network of two layers and a picture."""
    folder = tmp_path_factory.mktemp("network")
    rng = np.random.default_rng(6)

    def conv(name, shape, *rest):
        weights = rng.standard_normal(shape).astype(np.float32)
        return FloatConv(name, weights, np.zeros(shape[0], np.float32), *rest)

    layers = [
        conv("first", (4, 2, 2, 1), (1, 1), (0, 0, 0, 0), True, (0.0, 4.0)),
        conv("last", (3, 3, 3, 4), (1, 1), (0, 0, 0, 0), False, (-9.0, 9.0)),
    ]
    save_npz(FloatNetwork(layers, (0.0, 1.0), (4, 4, 1)), folder / "net.npz")
    pixels = rng.integers(0, 256, (4, 4), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "picture.png")
    return ("--model", folder / "net.npz", "--image", folder / "picture.png", "--memory", "ideal")


def sim(*arguments):
    return CliRunner().invoke(main, ["sim", "--engine", "pysim", *map(str, arguments)])


def test_layers_of_a_model_in_processes(network, tmp_path):
    path = tmp_path / "result.json"
    result = sim(*network, "--jobs", "2", "--json", path)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "Each layer was run by itself, fed with golden's input." in result.stdout
    assert "The network says: class" in result.stdout
    parallel = contents(path)
    assert sim(*network, "--jobs", "1", "--json", path).exit_code == 0
    assert contents(path) == parallel
    assert "by itself" not in sim(*network).stdout


def test_missing_packages(table, network, monkeypatch):
    monkeypatch.setitem(sys.modules, "joblib", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    joblib = r"parallel processes need the package joblib: pip install joblib"
    distributed = r"a Dask cluster needs the package distributed: pip install 'trirow\[cluster\]'"
    for command, arguments in (("bench", [table]), ("sim", network)):
        refused(joblib, *arguments, "--jobs", "2", command=command)
        refused(distributed, *arguments, "--scheduler", "tcp://127.0.0.1:1", command=command)


def test_no_scheduler(table, network, monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    monkeypatch.setattr("trirow_sim.parallel._CONNECT", 0.3)
    for command, arguments in (("bench", [table]), ("sim", network)):
        text = r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9': .+"
        refused(text, *arguments, "--scheduler", "tcp://127.0.0.1:9", command=command)


def test_bad_usage_of_sim(network, tmp_path):
    for options in (["--jobs", "2"], ["--scheduler", "tcp://x:1"]):
        refused(rf"{options[0]} needs --model\. Try 'trirow sim --help'\.", *options, command="sim")
        text = r"--vcd and --trace do not go with --jobs or --scheduler\. Try 'trirow sim --help'\."
        refused(text, *network, *options, "--vcd", tmp_path / "waves.vcd", command="sim")
    text = r"--jobs and --scheduler do not go together\. Try 'trirow sim --help'\."
    refused(text, *network, "--jobs", "2", "--scheduler", "tcp://x:1", command="sim")

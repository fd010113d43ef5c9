import json
import re
import runpy
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import trirow
import trirow.model_options
import trirow.sim
import trirow_golden
import trirow_sim.accelerate
import trirow_sim.engines
from trirow.main import main
from trirow.options import InputError
from trirow_driver.float_network import FloatConv, FloatNetwork, save_npz
from trirow_sim.memory import make_memory
from trirow_sim.report import KEYS

SMALL = ("--shape", "3x4x4", "--out", "4", "--kernel", "1x1", "--memory", "ideal")


def run(*arguments, **options):
    return CliRunner().invoke(main, ["sim", *map(str, arguments)], **options)


def refused(text, *arguments, status=2):
    """Check that a command fails with one line and nothing else."""
    result = run(*arguments)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert re.fullmatch(f"Error: {text}", result.stderr.rstrip("\n")), result.stderr
    assert result.exit_code == status


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(4)

    def conv(name, shape, *rest):
        weights = rng.standard_normal(shape).astype(np.float32)
        return FloatConv(name, weights, np.zeros(shape[0], np.float32), *rest)

    network = FloatNetwork(
        [
            conv("first", (4, 3, 3, 1), (2, 2), (1, 1, 1, 1), True, (0.0, 6.0)),
            conv("last", (3, 3, 3, 4), (1, 1), (0, 0, 0, 0), False, (-12.0, 12.0)),
        ],
        (0.0, 1.0),
        (6, 6, 1),
    )
    path = tmp_path_factory.mktemp("model") / "tiny-net.npz"
    save_npz(network, path)
    return path


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("image") / "picture.png"
    pixels = np.random.default_rng(5).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


# Layers of random numbers


def test_small_layer(tmp_path):
    path = tmp_path / "result.json"
    result = run(*SMALL, "--json", path, "--clock-mhz", "50")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for part in ("conv", "3x4x4", "1x1", "all 48 equal", "at 50 MHz", "Every output equals"):
        assert part in result.stdout
    content = json.loads(path.read_text())
    assert list(content) == ["layers", "network"]
    (layer,) = content["layers"]
    assert list(layer) == list(KEYS)
    assert list(content["network"]) == [*KEYS, "clock_mhz", "milliseconds"]
    assert (layer["name"], layer["match"], layer["outputs"]) == ("conv", True, 48)
    assert (layer["config"], layer["memory"], layer["engine"]) == ("tiny", "ideal", "pysim")
    assert list(layer["stalls"]) == ["features", "weights", "output", "dependency"]
    assert list(tmp_path.iterdir()) == [path]


def test_defaults():
    result = run()
    assert result.exit_code == 0, result.output
    for part in ("8x8x8", "3x3", "memory model ddr", "all 512 equal"):
        assert part in result.stdout


def test_shape_of_a_layer():
    result = run(
        *("--shape", "5x6x3", "--out", "7", "--kernel", "3x2", "--stride", "2x1"),
        *("--pad", "1,0,1,1", "--config", "odd", "--set", "bus_bytes=8", "--memory", "ideal"),
    )
    assert result.exit_code == 0, result.output
    for part in ("5x6x3", "3x6x7", "3x2 stride 2x1", "configuration odd, 15 multipliers"):
        assert part in result.stdout


def contents(path, *arguments):
    result = run(*SMALL, *arguments, "--json", path)
    assert result.exit_code == 0, result.output
    content = json.loads(path.read_text())
    for entry in (*content["layers"], content["network"]):
        del entry["seconds"], entry["cycles_per_second"]
    return content


def test_one_seed_gives_one_run(tmp_path):
    path = tmp_path / "result.json"
    runs = [contents(path, "--memory", "random", "--seed", seed) for seed in (1, 1, 3)]
    assert runs[0] == runs[1] != runs[2]


def test_vcd(tmp_path):
    path = tmp_path / "waves.vcd"
    result = run(*SMALL, "--vcd", path)
    assert result.exit_code == 0, result.output
    assert f"Waveforms: {path}" in result.stdout
    assert "$enddefinitions" in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_interrupted_run_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(trirow_sim.accelerate, "_run", interrupt)
    result = run(*SMALL, "--vcd", tmp_path / "waves.vcd", "--json", tmp_path / "result.json")
    assert result.exit_code == 130
    assert result.stderr.strip() == "Error: interrupted"
    assert list(tmp_path.iterdir()) == []


# Models


def test_model(model, image, tmp_path):
    path = tmp_path / "result.json"
    result = run("--model", model, "--image", image, "--memory", "ideal", "--json", path)
    assert result.exit_code == 0, result.output
    content = json.loads(path.read_text())
    assert content["network"]["name"] == "tiny-net"
    assert [layer["name"] for layer in content["layers"]] == ["first", "last"]
    assert [layer["outputs"] for layer in content["layers"]] == [36, 3]
    assert content["network"]["match"]
    for key in ("cycles", "macs", "outputs", "bytes_read"):
        assert content["network"][key] == sum(layer[key] for layer in content["layers"])

    layers = trirow.quantise_network(trirow.load_npz(model))
    values = trirow.load_picture(image, (6, 6), channels="grey", scale=1 / 255)
    outputs = trirow.golden_outputs(layers, trirow.quantise(values, layers[0].input))
    best = int(outputs[-1][0, 0, 0].argmax())
    assert f"The network says: class {best} (score " in result.stdout


def test_one_layer_of_a_model(model, image):
    arguments = ("--model", model, "--image", image, "--memory", "ideal", "--layer")
    result = run(*arguments, "first")
    assert result.exit_code == 0, result.output
    assert "all 36 equal" in result.stdout
    assert "The network says" not in result.stdout
    result = run(*arguments, "last")
    assert result.exit_code == 0, result.output
    assert "all 3 equal" in result.stdout
    assert "The network says" in result.stdout


def test_options_of_the_picture(model, image, monkeypatch):
    taken = {}

    def keep(path, size, **options):
        taken.update(options, size=size)
        raise ValueError("stop")

    monkeypatch.setattr(trirow.model_options, "load_picture", keep)
    run("--model", model, "--image", image)
    assert taken == {"size": (6, 6), "channels": "grey", "mean": (0.0,), "scale": 1 / 255}
    run(
        *("--model", model, "--image", image, "--input-shape", "8x9x1"),
        *("--mean", "3.5", "--scale", "0.25"),
    )
    assert taken == {"size": (8, 9), "channels": "grey", "mean": (3.5,), "scale": 0.25}


# Mismatches and failed runs: status 1


def test_mismatch(monkeypatch, tmp_path):
    original = trirow_golden.conv2d_int8

    def wrong(*arguments, **options):
        output = original(*arguments, **options)
        output[0, 1, 2, 3] ^= 1
        return output

    monkeypatch.setattr(trirow_golden, "conv2d_int8", wrong)
    path = tmp_path / "result.json"
    result = run(*SMALL, "--json", path)
    assert result.exit_code == 1
    assert "1 of 48 differ" in result.stdout
    assert "Every output equals" not in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "Error: 1 of 48 outputs differ, the first: layer 'conv': row 1, column 2, channel 3 is "
    )
    layer = json.loads(path.read_text())["layers"][0]
    assert (layer["match"], layer["mismatches"]) == (False, 1)


def test_failed_run(monkeypatch, tmp_path):
    def faulty(name, memory, bus_bytes, seed):
        model = make_memory(name, memory, bus_bytes, seed)
        model.read_errors = range(memory.base, memory.base + 4)
        return model

    monkeypatch.setattr(trirow_sim.engines, "make_memory", faulty)
    text = (
        r"the run ended with error READ_RESPONSE \(error response to a read\) in unit sequencer, "
        r"pass 1 of 1 of layer 'conv', after \d+ cycles"
    )
    refused(text, *SMALL, "--json", tmp_path / "result.json", status=1)
    assert list(tmp_path.iterdir()) == []


# Bad usage and input: status 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--shape", "8x8"], r"Invalid value for '--shape': '8x8' is not rows x columns x chan.*"),
        (["--shape", "8x0x8"], r"Invalid value for '--shape': '8x0x8' is not .*"),
        (["--shape", "9" * 5000 + "x1x1"], r"Invalid value for '--shape': .*"),
        (["--kernel", "3x3x3"], r"Invalid value for '--kernel': '3x3x3' is not rows x columns.*"),
        (["--kernel", "0"], r"Invalid value for '--kernel': '0' is not rows x columns.*"),
        (["--stride", "a"], r"Invalid value for '--stride': 'a' is not .*"),
        (["--pad", "-1,0,0,0"], r"Invalid value for '--pad': '-1,0,0,0' is not top,left,bott.*"),
        (["--pad", "1,2"], r"Invalid value for '--pad': '1,2' is not top,left,bottom,right.*"),
        (["--out", "0"], r"Invalid value for '--out': 0 is not in the range x>=1\."),
        (["--seed", "-1"], r"Invalid value for '--seed': -1 is not in the range x>=0\."),
        (["--config", "x"], r"Invalid value for '--config': 'x' is not one of 'tiny', .*"),
        (["--memory", "x"], r"Invalid value for '--memory': 'x' is not one of 'ideal', .*"),
        (
            ["--engine", "x"],
            r"Invalid value for '--engine': 'x' is not one of "
            r"'auto', 'pysim', 'compiled', 'netlist'\.",
        ),
        (["--set", "bus_bytes"], r"Invalid value for '--set': 'bus_bytes' is not a field and .*"),
        (["--set", "lanes=3"], r"Invalid value for '--set': unknown field 'lanes' of a config.*"),
        (["--set", "bus_bytes=3"], r"Invalid value for '--set': bus_bytes must be a power of .*"),
        (["--clock-mhz", "0"], r"Invalid value for '--clock-mhz': must be from 0.001 to 1000000"),
        (["--clock-mhz", "nan"], r"Invalid value for '--clock-mhz': must be from 0.001 to 1000000"),
        (["--clock-mhz", "1/0"], r"Invalid value for '--clock-mhz': '1/0' is not a number .*"),
        (["--json", "/none/x"], r"Invalid value for '--json': the folder /none of 'x' does not.*"),
        (["--vcd", "/"], r"Invalid value for '--vcd': / is a folder; name a file in it"),
        (
            ["--vcd", "x", "--json", "x"],
            r"--vcd, --trace and --json must be different files\. Try .*",
        ),
        (["--zzz", "2"], r"No such option '?--zzz'?[.?] Try 'trirow sim --help'\."),
        (["--shape"], r"Option '--shape' requires an argument\. Try 'trirow( sim)? --help'\."),
        (["extra"], r"Got unexpected extra argument \(extra\)\.? Try 'trirow sim --help'\."),
        (["--image", "x.png"], r"--image needs --model\. Try 'trirow sim --help'\."),
        (["--layer", "a"], r"--layer needs --model\. Try 'trirow sim --help'\."),
        (["--mean", "a", "--model", "m"], r"Invalid value for '--mean': 'a' is not a number.*"),
        (["--model", "net.npz"], r"--model needs --image\. Try 'trirow sim --help'\."),
        (
            ["--model", "net.npz", "--image", "x", "--shape", "1x1x1"],
            r"--shape describes a random layer and does not go with --model\. Try .*",
        ),
    ],
)
def test_bad_usage(arguments, text):
    refused(text, *arguments)


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_networks_of_others(suffix, image):
    text = rf"net\.{suffix}: networks of .* cannot be read so far; --model takes .* own \.npz"
    refused(text, "--model", f"net.{suffix}", "--image", image)


def test_bad_models_and_pictures(model, image, tmp_path):
    bad = tmp_path / "bad.npz"
    bad.write_text("nothing")
    name = re.escape(str(bad))
    refused(rf"{name}: must be an \.npz archive of numpy", "--model", bad, "--image", image)
    refused(rf"{name}: is no picture in a known format", "--model", model, "--image", bad)
    bad.unlink()
    refused(rf"{name}: cannot be read: No such .*", "--model", bad, "--image", image)
    refused(rf"{name}: cannot be read: No such .*", "--model", model, "--image", bad)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--layer", "x"], r".*tiny-net\.npz: has no layer 'x'; --layer is one of first, last"),
        (["--channels", "rgb"], r"layer 'first' takes 1 channels, and a picture as rgb has 3; .*"),
        (["--input-shape", "6x6x3"], r"layer 'first' takes 1 channels, not the 3 of --input-.*"),
        (["--input-shape", "2x2x1"], r"layer 'last': .* is empty: .*; give a larger --input-.*"),
        (["--mean", "1,2,3"], r"mean must be 1 finite number for channels grey, not 1, 2, 3"),
        (["--scale", "inf"], r"scale must be finite, not inf"),
    ],
)
def test_bad_options_of_a_model(model, image, arguments, text):
    refused(text, "--model", model, "--image", image, *arguments)


def test_files_that_cannot_be_written(monkeypatch, tmp_path):
    def fail(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trirow.options.write_json", fail)
    result = run(*SMALL, "--json", tmp_path / "result.json")
    assert result.exit_code == 2
    assert result.stderr.strip().endswith("result.json: cannot be written: No space left on device")


# The command as a whole


def test_help():
    result = run("--help")
    assert result.exit_code == 0
    for part in ("Examples:", "--shape HxWxC", "--pad t,l,b,r", "Exit status: 0 if every byte"):
        assert part in result.stdout
    assert "\b" not in result.stdout


def test_without_a_command():
    for arguments in ([], ["--help"]):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        for command in ("sim", "configs", "doctor"):
            assert f"  {command} " in result.stdout


def test_version():
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"trirow \d+\.\d+\.\d+\n", result.stdout)


def test_unknown_command():
    result = CliRunner().invoke(main, ["frobnicate"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: No such command 'frobnicate'. Try 'trirow --help'.\n"


def test_without_standalone_mode():
    with pytest.raises(InputError, match="layer 'conv': Output of kernel"):
        main(["sim", "--kernel", "12", "--pad", "0"], standalone_mode=False)


def test_module(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trirow", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("trirow", run_name="__main__")
    assert capsys.readouterr().out.startswith("trirow ")


def test_names_for_scripts():
    layer, features = trirow.random_layer(3, 3, 4, 4, kernel=(1, 1))
    result = trirow.simulate([layer], features, trirow.PRESETS["tiny"], memory="ideal")
    assert result.ok
    for name in trirow.__all__:
        assert getattr(trirow, name) is not None


def test_trace(tmp_path):
    path = tmp_path / "trace.json"
    result = run(*SMALL, "--trace", path)
    assert result.exit_code == 0, result.output
    assert f"Timeline: {path}" in result.stdout
    names = {event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"][1:9:2]}
    assert {"feature reader", "weight reader", "array"} <= names
    assert list(tmp_path.iterdir()) == [path]

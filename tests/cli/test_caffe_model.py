"""`trirow sim` with networks of Caffe."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from trirow.main import main

from ..driver.caffe.kit import MODELS, real, write_net

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"
DIGITS = EXAMPLES / "digits.prototxt"
SEVEN = EXAMPLES / "images" / "digit_7.png"
TEXT = """input: "data" input_shape { dim: 1 dim: 3 dim: 6 dim: 5 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "left" type: "Convolution" bottom: "conv" top: "left"
    convolution_param { num_output: 2 kernel_size: 1 } }
layer { name: "join" type: "Concat" bottom: "left" bottom: "conv" top: "join" }
layer { name: "cut" type: "Slice" bottom: "join" top: "a" top: "b" slice_param { slice_point: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "b" top: "fc"
    inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


def run(*arguments):
    return CliRunner().invoke(main, ["sim", *map(str, arguments)])


def refused(text, *arguments):
    result = run(*arguments)
    assert result.stdout == ""
    assert re.fullmatch(f"Error: {text}", result.stderr.rstrip("\n")), result.stderr
    assert result.exit_code == 2


@pytest.fixture
def net(tmp_path):
    rng = np.random.default_rng(9)
    blobs = {
        "conv": [rng.normal(size=(4, 3, 3, 3)), rng.normal(size=4)],
        "left": [rng.normal(size=(2, 4, 1, 1)), rng.normal(size=2)],
        "fc": [rng.normal(size=(3, 48)), rng.normal(size=3)],
    }
    prototxt, _ = write_net(tmp_path, TEXT, blobs)
    picture = tmp_path / "picture.png"
    Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(picture)
    return prototxt, picture


def test_whole_network(net, tmp_path):
    path = tmp_path / "result.json"
    result = run("--model", net[0], "--image", net[1], "--memory", "ideal", "--json", path)
    assert result.exit_code == 0, result.output
    layers = json.loads(path.read_text())["layers"]
    assert [layer["name"] for layer in layers] == ["conv", "left", "join.0", "join.1", "fc"]
    assert all(layer["match"] for layer in layers)
    # It has two outputs, so none is the class.
    assert "The network says" not in result.stdout


@pytest.mark.parametrize("layer", ["conv", "join.1", "fc"])
def test_one_layer(net, layer):
    """Golden gives it its input, be it channels of another feature map."""
    result = run("--model", net[0], "--image", net[1], "--layer", layer, "--memory", "ideal")
    assert result.exit_code == 0, result.output
    assert re.search(rf"{re.escape(layer)} .* equal", result.stdout)


def test_digits_by_their_caffemodel():
    """The prototxt is beside it."""
    model = DIGITS.with_suffix(".caffemodel")
    result = run("--model", model, "--image", SEVEN, "--layer", "classifier")
    assert result.exit_code == 0, result.output
    assert "all 10 equal" in result.stdout
    assert "class 7" in result.stdout


def test_other_input(net):
    result = run(
        *("--model", net[0], "--image", net[1], "--input-shape", "8x7x3", "--layer", "conv"),
        *("--mean", "127.5", "--scale", "1/128", "--channels", "rgb", "--memory", "ideal"),
    )
    # The inner product is for another size.
    assert result.exit_code == 2
    assert "node 'fc' (InnerProduct): input must have 48 values" in result.stderr


@pytest.mark.slow
def test_real_layer():
    image = MODELS.parent / "images" / "cat.bmp"
    prototxt, _ = real("det1")
    result = run(
        *("--model", prototxt, "--layer", "conv1", "--image", image, "--input-shape", "48x48x3")
    )
    assert result.exit_code == 0, result.output
    assert "all 21,160 equal" in result.stdout


def test_wrong_uses(net, tmp_path):
    prototxt, picture = net
    name = re.escape(str(prototxt))
    use = ("--model", prototxt, "--image", picture)
    refused(
        rf"{name}: layer 'prob' is computed on the host: .* no Softmax", *use, "--layer", "prob"
    )
    refused(rf"{name}: has no layer 'x'; --layer is one of conv, left, .*", *use, "--layer", "x")
    refused(
        rf"{name}: takes 3 channels, and a picture as grey has 1; .*", *use, "--channels", "grey"
    )
    refused(
        r"--weights goes with a \.prototxt\. .*",
        "--model",
        "a.npz",
        "--image",
        "b",
        "--weights",
        "c",
    )
    refused(r"--weights needs --model\. .*", "--weights", "c")
    refused(
        r".*none\.png: cannot be read: .*", "--model", prototxt, "--image", tmp_path / "none.png"
    )


def test_wrong_files(net, tmp_path):
    prototxt, picture = net
    caffemodel = prototxt.with_suffix(".caffemodel")
    content = caffemodel.read_bytes()
    use = ("--model", prototxt, "--image", picture)
    caffemodel.write_bytes(content[: len(content) // 2])
    refused(rf"{re.escape(str(caffemodel))}: .*", *use)
    caffemodel.unlink()
    refused(
        rf"{re.escape(str(prototxt))}: there is no net\.caffemodel beside it; --weights .*", *use
    )
    other = tmp_path / "weights.bin"
    other.write_bytes(content)
    result = run(*use, "--weights", other, "--layer", "left", "--memory", "ideal")
    assert result.exit_code == 0, result.output
    prototxt.write_text("layer {")
    refused(rf"{re.escape(str(prototxt))}: is not a prototxt: .*", *use, "--weights", other)

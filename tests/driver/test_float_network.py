import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import trirow_golden
from trirow_driver.float_network import (
    FloatConv,
    FloatNetwork,
    NetworkFileError,
    load_npz,
    quantise_network,
    save_npz,
)
from trirow_driver.quantise import Quantisation, dequantise, from_range, quantise

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "weights.npz"


def convolve(layer, x):
    top, left, bottom, right = layer.pad
    x = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = sliding_window_view(x, layer.weights.shape[1:3], axis=(1, 2))
    windows = windows[:, :: layer.stride[0], :: layer.stride[1]]
    y = np.einsum("nhwcrs,krsc->nhwk", windows, layer.weights) + layer.bias
    return np.maximum(y, 0) if layer.relu else y


@pytest.fixture
def network():
    rng = np.random.default_rng(2)

    def conv(name, shape, *rest):
        weights = rng.standard_normal(shape).astype(np.float32)
        bias = rng.standard_normal(shape[0]).astype(np.float32)
        return FloatConv(name, weights, bias, *rest)

    return FloatNetwork(
        [
            conv("a", (4, 3, 3, 2), (2, 1), (1, 0, 1, 2), True, (0.0, 6.5)),
            conv("b", (3, 1, 2, 4), (1, 1), (0, 0, 0, 0), False, (-7.0, 5.0)),
        ],
        (-1.0, 2.0),
        (6, 5, 2),
    )


@pytest.fixture
def arrays(network, tmp_path):
    """Return the arrays of a file, to be changed."""
    save_npz(network, tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as file:
        content = dict(file)
    os.unlink(tmp_path / "net.npz")
    return content


def refused(tmp_path, arrays, text):
    path = tmp_path / "net.npz"
    np.savez(path, **arrays)
    with pytest.raises(NetworkFileError, match=f"^{re.escape(f'{path}: {text}')}$"):
        load_npz(path)


def test_saved_network_loads_again(network, tmp_path):
    path = tmp_path / "net.npz"
    save_npz(network, path)
    loaded = load_npz(path)
    assert loaded.input_range == (-1.0, 2.0)
    assert loaded.input_shape == (6, 5, 2)
    for one, two in zip(loaded.layers, network.layers, strict=True):
        np.testing.assert_array_equal(one.weights, two.weights)
        np.testing.assert_array_equal(one.bias, two.bias)
        assert one.weights.dtype == one.bias.dtype == np.float32
        for field in ("name", "stride", "pad", "relu", "output_range"):
            assert getattr(one, field) == getattr(two, field)
    first = path.read_bytes()
    save_npz(loaded, path)
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_input_shape_is_optional(arrays, tmp_path):
    del arrays["input_shape"]
    np.savez(tmp_path / "net.npz", **arrays)
    assert load_npz(tmp_path / "net.npz").input_shape is None


def test_digits():
    network = load_npz(DIGITS)
    assert [layer.name for layer in network.layers] == ["conv1", "conv2", "conv3", "classifier"]
    assert (network.input_range, network.input_shape) == ((0.0, 1.0), (28, 28, 1))
    assert len(quantise_network(network)) == 4


# Quantisation


def test_what_a_layer_gives_is_what_the_next_one_takes(network):
    first, second = quantise_network(network)
    assert first.input == from_range(-1.0, 2.0)
    assert first.output == second.input == from_range(0.0, 6.5)
    assert second.output == from_range(-7.0, 5.0)
    assert (first.low, second.low) == (first.output.zero_point, -128)
    assert (first.name, first.stride, first.pad) == ("a", (2, 1), (1, 0, 1, 2))


def test_quantised_network_is_near_the_real_one(network):
    x = np.random.default_rng(3).uniform(-1, 2, (1, 6, 5, 2)).astype(np.float32)
    real = x
    for layer in network.layers:
        real = convolve(layer, real)
        layer.output_range = (float(real.min()), float(real.max()))
    layers = quantise_network(network)
    values = quantise(x, layers[0].input)
    for layer in layers:
        values = trirow_golden.conv2d_int8(
            values,
            layer.weights,
            layer.bias,
            layer.multiplier,
            stride=layer.stride,
            pad=layer.pad,
            zero_in=layer.input.zero_point,
            zero_out=layer.output.zero_point,
            low=layer.low,
            high=layer.high,
        )
    error = np.abs(dequantise(values, layers[-1].output) - real)
    assert error.max() < 0.02 * np.ptp(real)


def test_layer_that_gives_nothing(network):
    network.layers[0].output_range = (0.0, 0.0)
    assert quantise_network(network)[1].input == Quantisation(1.0, 0)


def test_wrong_ranges(network):
    network.layers[1].output_range = (1.0, -1.0)
    with pytest.raises(ValueError, match=r"^layer 'b': range must not be reversed: 1\.0 \.\. -1"):
        quantise_network(network)
    network.input_range = (0.0, float("nan"))
    with pytest.raises(ValueError, match=r"^the network's input: range must be finite"):
        quantise_network(network)


def test_layer_that_cannot_be_quantised(network):
    network.layers[1].weights[2, 0, 1, 3] = np.inf
    with pytest.raises(ValueError, match=r"^layer 'b': weights of output channel 2 must be finite"):
        quantise_network(network)


# What is wrong with a file


def test_missing_file(tmp_path):
    path = tmp_path / "net.npz"
    with pytest.raises(NetworkFileError, match=f"^{re.escape(str(path))}: cannot be read: No such"):
        load_npz(path)
    with pytest.raises(NetworkFileError, match=r": cannot be read: Is a directory$"):
        load_npz(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut off", b"\x80\x04pickled"])
def test_file_that_is_no_archive(tmp_path, content):
    path = tmp_path / "net.npz"
    path.write_bytes(content)
    with pytest.raises(NetworkFileError, match=r": must be an \.npz archive of numpy$"):
        load_npz(path)


def test_single_array(tmp_path):
    np.save(tmp_path / "net.npy", np.zeros(3))
    with pytest.raises(NetworkFileError, match=r"must be an \.npz archive .*, not a single array$"):
        load_npz(tmp_path / "net.npy")


def test_pickled_array(arrays, tmp_path):
    arrays["a.bias"] = np.array([{}], dtype=object)
    path = tmp_path / "net.npz"
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(NetworkFileError, match=r"array 'a.bias' cannot be read: Object arrays"):
        load_npz(path)


def test_damaged_array(network, tmp_path):
    path = tmp_path / "net.npz"
    save_npz(network, path)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("b.weights.npy")
    content = bytearray(path.read_bytes())
    content[info.header_offset + 30 + len(info.filename) + 40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(NetworkFileError, match=r"array 'b.weights' cannot be read: "):
        load_npz(path)


def test_member_that_is_no_array(network, tmp_path):
    path = tmp_path / "net.npz"
    save_npz(network, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(NetworkFileError, match=r"array 'readme.txt' (belongs to no layer|cannot)"):
        load_npz(path)


@pytest.mark.parametrize(
    "name", ["layers", "input_range", "a.weights", "b.bias", "a.stride", "b.pad", "a.relu"]
)
def test_missing_array(arrays, tmp_path, name):
    del arrays[name]
    refused(tmp_path, arrays, f"array {name!r} is missing")


def test_unknown_array(arrays, tmp_path):
    arrays["c.weights"] = np.zeros(3)
    refused(tmp_path, arrays, "array 'c.weights' belongs to no layer")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("layers", np.array([1, 2]), "must be strings, not int64"),
        ("layers", np.array("a"), "must have shape (any), not ()"),
        ("layers", np.array(["a", "a"]), "must be names, at least one, each once and none empty"),
        ("layers", np.array(["a", ""]), "must be names, at least one, each once and none empty"),
        ("input_range", np.array([1.0, 0.0]), "must not be reversed: 1.0 .. 0.0"),
        ("input_range", np.array([0, 1]), "must be floats, not int64"),
        ("input_range", np.zeros(3), "must have shape (2), not (3,)"),
        ("input_shape", np.array([6, 5, 3]), "must have the 2 channels of layer 'a', not 3"),
        ("input_shape", np.array([6, 0, 2]), "must be at least 1, not (6, 0, 2)"),
        ("a.weights", np.zeros((4, 3, 3)), "must have shape (any, any, any, any), not (4, 3, 3)"),
        (
            "a.weights",
            np.zeros((4, 0, 3, 2)),
            "must have shape (any, any, any, any), not (4, 0, 3, 2)",
        ),
        ("a.weights", np.full((4, 3, 3, 2), np.nan), "must be finite"),
        ("a.weights", np.zeros((4, 3, 3, 2), np.int8), "must be floats, not int8"),
        ("a.bias", np.zeros(5), "must have shape (4), not (5,)"),
        ("a.stride", np.array([1, 0]), "must be at least 1, not (1, 0)"),
        ("a.stride", np.array([1.0, 1.0]), "must be integers, not float64"),
        ("a.pad", np.array([0, 0, -1, 0]), "must be at least 0, not (0, 0, -1, 0)"),
        ("a.pad", np.array([0, 0]), "must have shape (4), not (2,)"),
        ("a.relu", np.array(1), "must be a truth value, not int64"),
        ("a.relu", np.array([True]), "must have shape (), not (1,)"),
        ("b.output_range", np.array([3.0, 1.0]), "must not be reversed: 3.0 .. 1.0"),
        ("b.output_range", np.array([3.0, np.inf]), "must be finite"),
        ("b.weights", np.zeros((3, 1, 2, 5)), "must be for the 4 channels of layer 'a', not 5"),
    ],
)
def test_wrong_array(arrays, tmp_path, name, value, text):
    arrays[name] = value
    refused(tmp_path, arrays, f"array {name!r} {text}")


def test_failed_save_leaves_the_old_file(network, tmp_path, monkeypatch):
    path = tmp_path / "net.npz"
    path.write_bytes(b"old")

    def fail(file, **arrays):
        assert isinstance(file, io.IOBase)
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        save_npz(network, path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"

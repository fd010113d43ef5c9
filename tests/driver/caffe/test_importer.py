"""Networks in every way in which their files are written; the real ones against OpenCV."""

import numpy as np
import pytest

from trirow_driver.caffe import CaffeFileError, load_caffe

from .kit import REAL, opencv, real, write_net

RNG = np.random.default_rng(4)
WEIGHTS = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
BIAS = RNG.normal(size=4).astype(np.float32)
CONV = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
"""
SHAPE = (1, 3, 9, 8)


@pytest.mark.parametrize("name", REAL)
def test_real_networks(name):
    """Every blob that is not written over equals OpenCV's."""
    paths = real(name)
    net = load_caffe(*paths)
    feeds = {
        name: np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
        for name, shape in net.graph.inputs.items()
    }
    # OpenCV knows layers, not blobs; the last layer that writes a blob is asked for it. It does not
    # give what it keeps in a form of its own, or fuses all the same.
    kinds = ("PriorBox", "DetectionOutput", "Split", "Dropout")
    layers = {
        layer.tops[0]: layer.name
        for layer in net.layers
        if layer.type not in kinds and len(layer.tops) == 1
    }
    results = net.graph.compute(feeds, layers)
    fed = {tensor.removesuffix("@"): values for tensor, values in feeds.items()}
    for (tensor, layer), expected in zip(
        layers.items(), opencv(paths, fed, [*layers.values()]), strict=True
    ):
        found = results[tensor]
        assert found.size == expected.size, layer
        error = np.abs(found - expected.reshape(found.shape)).max()
        assert error <= 1e-4 * max(1, np.abs(expected).max()), layer
    assert net.graph.outputs
    for layer, blobs in net.params.items():
        assert blobs, layer


INPUTS = {
    "input_dim": 'input: "data" input_dim: 1 input_dim: 3 input_dim: 9 input_dim: 8',
    "input_shape": 'input: "data" input_shape { dim: 1 dim: 3 dim: 9 dim: 8 }',
    "Input": """layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 1 dim: 3 dim: 9 dim: 8 } } }""",
    "MemoryData": """layer { name: "data" type: "MemoryData" top: "data" top: "label"
        memory_data_param { batch_size: 1 channels: 3 height: 9 width: 8 } }""",
    "DummyData": """layer { name: "data" type: "DummyData" top: "data"
        dummy_data_param { shape { dim: 1 dim: 3 dim: 9 dim: 8 } } }""",
    "old DummyData": """layer { name: "data" type: "DummyData" top: "data"
        dummy_data_param { num: 1 channels: 3 height: 9 width: 8 } }""",
}


@pytest.mark.parametrize("style", INPUTS)
def test_inputs(tmp_path, style):
    paths = write_net(tmp_path, INPUTS[style] + "\n" + CONV, {"conv": [WEIGHTS, BIAS]})
    net = load_caffe(*paths)
    assert net.graph.inputs == {"data": SHAPE}
    assert net.graph.shapes["conv"] == (1, 4, 5, 4)
    assert np.array_equal(net.params["conv"][0].data, WEIGHTS)


def compare(paths, *blobs):
    """Compare blobs with OpenCV's, whose layers have their names; return the network."""
    net = load_caffe(*paths)
    values = RNG.normal(size=SHAPE).astype(np.float32)
    (tensor,) = net.graph.inputs
    results = net.graph.compute({tensor: values}, blobs)
    for name, expected in zip(blobs, opencv(paths, {"data": values}, [*blobs]), strict=True):
        assert np.allclose(results[name], expected.reshape(results[name].shape), atol=1e-4), name
    return net


@pytest.mark.parametrize("options", [{}, {"legacy": True}, {"double": True}])
def test_v1_layers_and_old_blobs(tmp_path, options):
    text = (
        INPUTS["input_dim"]
        + """
        layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv"
            convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 } }
        layers { name: "relu" type: RELU bottom: "conv" top: "conv" }
        layers { name: "fc" type: INNER_PRODUCT bottom: "conv" top: "fc"
            inner_product_param { num_output: 2 } }
        layers { name: "prob" type: SOFTMAX bottom: "fc" top: "prob" }"""
    )
    blobs = {"conv": [WEIGHTS, BIAS], "fc": [RNG.normal(size=(1, 1, 2, 80)), np.ones((1, 1, 1, 2))]}
    net = load_caffe(*write_net(tmp_path, text, blobs, v1=True, **options))
    plain = write_net(
        tmp_path,
        INPUTS["Input"]
        + CONV
        + """
        layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
        layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
            inner_product_param { num_output: 2 } }
        layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }""",
        {"conv": [WEIGHTS, BIAS], "fc": [blobs["fc"][0].reshape(2, 80), np.ones(2)]},
    )
    values = RNG.normal(size=SHAPE).astype(np.float32)
    expected = compare(plain, "prob").graph.compute({"data": values})["prob"]
    assert np.array_equal(net.graph.compute({"data": values})["prob"], expected)


def test_in_place_layers_have_tensors_of_their_own(tmp_path):
    text = (
        INPUTS["input_shape"]
        + CONV
        + """
        layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
        layer { name: "scale" type: "Scale" bottom: "conv" top: "conv"
            scale_param { bias_term: true } }
        layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param {
            negative_slope: 0.1 } }"""
    )
    blobs = {
        "conv": [WEIGHTS, BIAS],
        "bn": [RNG.normal(size=4), RNG.uniform(1, 2, size=4), [2.0]],
        "scale": [RNG.normal(size=4), RNG.normal(size=4)],
    }
    paths = write_net(tmp_path, text, blobs)
    net = load_caffe(*paths)
    assert [node.outputs[0] for node in net.graph.nodes] == [
        "conv@conv", "conv@bn", "conv@scale", "conv"
    ]  # fmt: skip
    values = RNG.normal(size=SHAPE).astype(np.float32)
    result = net.graph.compute({"data": values})["conv"]
    (expected,) = opencv(paths, {"data": values}, ["relu"])
    assert np.allclose(result, expected, atol=1e-4)


def test_input_that_is_written_over(tmp_path):
    text = (
        INPUTS["Input"]
        + """
        layer { name: "p" type: "Power" bottom: "data" top: "data" power_param { scale: 2 } }"""
    )
    net = load_caffe(*write_net(tmp_path, text, {}))
    assert net.graph.inputs == {"data@": SHAPE}
    assert net.graph.outputs == ("data",)


def test_what_is_not_for_use_is_left_out(tmp_path):
    text = (
        INPUTS["Input"]
        + CONV
        + """
        layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" include { phase: TRAIN } }
        layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" exclude { phase: TEST } }
        layer { name: "odd" type: "ReLU" bottom: "conv" top: "odd" include { stage: "deploy" } }
        layer { name: "sig" type: "Sigmoid" bottom: "conv" top: "sig" include { phase: TEST } }
        layer { name: "acc" type: "Accuracy" bottom: "conv" bottom: "label" top: "acc" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "sig" bottom: "label" top: "prob" }"""
    )
    net = load_caffe(*write_net(tmp_path, text, {"conv": [WEIGHTS, BIAS]}))
    assert [node.name for node in net.graph.nodes] == ["conv", "sig", "loss"]
    assert [node.operation.kind for node in net.graph.nodes] == [
        "Convolution", "Sigmoid", "Softmax"
    ]  # fmt: skip
    assert net.graph.outputs == ("prob",)


def test_unknown_fields_and_layers_of_the_caffemodel(tmp_path):
    text = CONV.replace("stride: 2", 'stride: 2 engine: CAFFE weight_filler { type: "xavier" }')
    text = INPUTS["Input"] + text.replace(
        "layer {", "layer { param { lr_mult: 1 } fork_param { x: 1 }"
    )
    blobs = {"gone": [np.ones((1, 2))], "conv": [WEIGHTS, BIAS]}
    compare(write_net(tmp_path, text, blobs), "conv")


def test_sizes_of_rows_and_columns(tmp_path):
    text = (
        INPUTS["Input"]
        + """
        layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
            num_output: 4 kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1 } }
        layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {
            pool: AVE kernel_h: 2 kernel_w: 3 stride_h: 3 stride_w: 2 } }
        layer { name: "max" type: "Pooling" bottom: "conv" top: "max" pooling_param {
            kernel_size: 2 stride: 2 } }
        layer { name: "all" type: "Pooling" bottom: "conv" top: "all" pooling_param {
            pool: AVE global_pooling: true } }"""
    )
    blobs = {"conv": [WEIGHTS[..., :2], BIAS]}
    net = compare(write_net(tmp_path, text, blobs), "conv", "pool", "max", "all")
    assert net.graph.shapes["conv"] == (1, 4, 7, 5)
    assert net.graph.shapes["max"] == (1, 4, 4, 3)


def conv_with(change):
    return INPUTS["Input"] + CONV.replace("num_output: 4", change)


@pytest.mark.parametrize(
    ("text", "blobs", "error"),
    [
        ("layer {", {}, r"net.prototxt: is not a prototxt: "),
        ("", {}, r"net.prototxt: has no layers"),
        (CONV, {}, r"net.prototxt: has no input"),
        ('input: "data"' + CONV, {}, r"net.prototxt: input 'data' has no shape"),
        ('layer { name: "d" type: "Data" top: "data" }' + CONV, {}, r"'d' \(Data\) says no shape"),
        (
            INPUTS["Input"] + CONV,
            {},
            r"net.prototxt: layer 'conv': needs 2 or more trained blobs, and has 0",
        ),
        (
            INPUTS["Input"] + CONV,
            {"conv": [WEIGHTS]},
            r"layer 'conv': needs 2 or more trained blobs, and has 1",
        ),
        (
            INPUTS["Input"] + CONV,
            {"conv": [WEIGHTS, np.ones(5)]},
            r"layer 'conv': blob 1 of shape \(5,\) does not fit \(4,\)",
        ),
        (conv_with("num_output: 5"), {"conv": [WEIGHTS, BIAS]}, "does not fit"),
        (
            INPUTS["Input"] + CONV,
            {"conv": [WEIGHTS[:, :2], BIAS]},
            r"node 'conv' \(Convolution\): input must have 2 channels",
        ),
        (
            conv_with("num_output: 4 group: 3"),
            {"conv": [WEIGHTS, BIAS]},
            r"layer 'conv': group must divide num_output \(4\), not 3",
        ),
        (
            INPUTS["Input"] + CONV.replace("Convolution", "Warp"),
            {},
            r"layer 'conv': type 'Warp' is not known; known are AbsVal, ",
        ),
        (
            INPUTS["Input"] + CONV.replace('bottom: "data"', 'bottom: "dat"'),
            {"conv": [WEIGHTS, BIAS]},
            r"layer 'conv': reads blob 'dat', which no layer before it gives",
        ),
        (
            INPUTS["Input"]
            + 'layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { pool: '
            "STOCHASTIC kernel_size: 2 } }",
            {},
            r"layer 'p': pool must be MAX or AVE",
        ),
        (
            INPUTS["Input"] + 'layer { name: "p" type: "Pooling" bottom: "data" top: "p" }',
            {},
            r"layer 'p': kernel_size is missing",
        ),
    ],
)
def test_errors_are_one_line(tmp_path, text, blobs, error):
    paths = write_net(tmp_path, text, blobs)
    with pytest.raises(CaffeFileError, match=error) as caught:
        load_caffe(*paths)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_foreign_files(tmp_path):
    prototxt, caffemodel = write_net(tmp_path, INPUTS["Input"] + CONV, {"conv": [WEIGHTS, BIAS]})
    with pytest.raises(CaffeFileError, match=r"missing: cannot be read: No such file"):
        load_caffe(tmp_path / "missing")
    with pytest.raises(CaffeFileError, match=r"net.caffemodel: is not text|is not a prototxt"):
        load_caffe(caffemodel, caffemodel)
    with pytest.raises(CaffeFileError, match=r"net.prototxt: is not a protobuf message of Caffe"):
        load_caffe(prototxt, prototxt)
    with pytest.raises(CaffeFileError, match=r"cannot be read: Is a directory"):
        load_caffe(tmp_path)

"""Shapes that operations infer are those of what golden computes, and wrong inputs are refused."""

import numpy as np
import pytest

from trirow_driver.graph import (
    Absolute,
    AveragePool,
    BatchNorm,
    Bias,
    Concat,
    Convolution,
    Crop,
    Deconvolution,
    DetectionOutput,
    Eltwise,
    Flatten,
    Identity,
    InnerProduct,
    Lrn,
    MaxPool,
    Normalize,
    Permute,
    Power,
    Prelu,
    PriorBox,
    Relu,
    Reshape,
    Scale,
    Sigmoid,
    Slice,
    Softmax,
    Tanh,
)

MAP = (2, 6, 9, 7)


def ones(*shape):
    return np.ones(shape, np.float32)


CASES = [
    (Convolution(ones(4, 6, 3, 3)), [MAP]),
    (Convolution(ones(4, 6, 3, 2), ones(4), (2, 1), (1, 0, 2, 1), (2, 3)), [MAP]),
    (Convolution(ones(12, 1, 3, 3), pad=(1, 1, 1, 1), group=6), [MAP]),
    (Convolution(ones(4, 3, 1, 1), group=2), [MAP]),
    (Deconvolution(ones(6, 5, 3, 3), ones(5), (2, 3), (1, 0, 1, 1)), [MAP]),
    (Deconvolution(ones(6, 2, 2, 4), stride=(2, 2), dilation=(1, 2), group=3), [MAP]),
    (InnerProduct(ones(5, 378), ones(5)), [MAP]),
    (InnerProduct(ones(3, 63), axis=2), [MAP]),
    (InnerProduct(ones(3, 7), axis=-1), [MAP]),
    (MaxPool((3, 3), (2, 2)), [MAP]),
    (MaxPool((2, 3), (2, 2), ceil=False), [MAP]),
    (MaxPool((3, 3), (3, 2), (1, 1, 1, 1)), [MAP]),
    (MaxPool(None), [MAP]),
    (AveragePool((3, 2), (2, 2), (1, 1, 1, 1)), [MAP]),
    (AveragePool(None), [MAP]),
    (Relu(), [MAP]),
    (Relu(0.1), [(2, 5)]),
    (Prelu(ones(6)), [MAP]),
    (Prelu(ones(1)), [MAP]),
    (Sigmoid(), [MAP]),
    (Tanh(), [(3,)]),
    (Absolute(), [MAP]),
    (Power(2, 0.5, 3), [MAP]),
    (BatchNorm(ones(6), ones(6)), [MAP]),
    (Scale(ones(6), ones(6)), [MAP]),
    (Scale(ones(9, 7), axis=2), [MAP]),
    (Bias(ones(6)), [MAP]),
    (Eltwise("sum", (1, -2)), [MAP, MAP]),
    (Eltwise("max"), [MAP] * 3),
    (Concat(), [MAP, (2, 1, 9, 7), MAP]),
    (Concat(-1), [(2, 3), (2, 5)]),
    (Slice(3), [MAP]),
    (Slice(3, (1, 4), 2), [MAP]),
    (Crop(2, (1, 2)), [MAP, (1, 1, 4, 5)]),
    (Crop(-1), [MAP, (1, 1, 4, 5)]),
    (Flatten(), [MAP]),
    (Flatten(0, 1), [MAP]),
    (Reshape((0, -1, 3)), [MAP]),
    (Reshape((3, -1), 1, 2), [MAP]),
    (Reshape((1,), -1, 0), [MAP]),
    (Permute((0, 2, 3, 1)), [MAP]),
    (Permute((1,)), [MAP]),
    (Identity(3), [MAP]),
    (Softmax(), [MAP]),
    (Softmax(-1), [(2, 5)]),
    (Lrn(3), [MAP]),
    (Normalize(ones(6), across_spatial=False), [MAP]),
    (PriorBox((10,), (20,), (2, 3)), [MAP, (2, 3, 90, 70)]),
    (PriorBox((10, 30), flip=False, aspect_ratios=(2,), image_size=(40, 50)), [MAP, MAP]),
]


@pytest.mark.parametrize(
    ("operation", "shapes"), CASES, ids=[f"{o.kind}-{n}" for n, (o, _) in enumerate(CASES)]
)
def test_shapes(operation, shapes):
    rng = np.random.default_rng(1)
    inputs = [rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes]
    results = operation.compute(inputs)
    assert operation.infer(shapes) == tuple(result.shape for result in results)
    assert all(result.dtype == np.float32 for result in results)


@pytest.mark.parametrize(("keep_top_k", "most"), [(-1, 63), (5, 10)])
def test_detections_are_at_most_as_many(keep_top_k, most):
    operation = DetectionOutput(3, keep_top_k=keep_top_k, background_label=-1)
    shapes = [(2, 7 * 4), (2, 7 * 3), (1, 2, 7 * 4)]
    ((_, _, rows, seven),) = operation.infer(shapes)
    assert (rows, seven) == (2 * 21 if keep_top_k < 0 else most, 7)
    rng = np.random.default_rng(2)
    inputs = [rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes]
    (result,) = operation.compute(inputs)
    assert 0 < result.shape[2] <= rows


WRONG = [
    (Convolution(ones(4, 5, 3, 3)), [MAP], "5 channels, 5 in each of 1 groups, not 6"),
    (Convolution(ones(4, 6, 3, 3)), [(2, 6)], r"4 axes \(N, C, H, W\), not shape \(2, 6\)"),
    (Convolution(ones(4, 6, 10, 3)), [MAP], "10"),
    (Deconvolution(ones(5, 6, 3, 3)), [MAP], "5 channels, not 6"),
    (InnerProduct(ones(2, 5)), [MAP], "5 values from axis 1 on, not 378"),
    (InnerProduct(ones(2, 5), axis=4), [MAP], "axis must be from -4 to 3"),
    (MaxPool((2, 2)), [(1, 2)], "4 axes"),
    (Prelu(ones(5)), [MAP], "each of the 6 channels, not 5"),
    (BatchNorm(ones(6), ones(4)), [MAP], "variance must have a value for each of the 6"),
    (Scale(ones(5)), [MAP], r"factors must lie along the axes from 1 on of shape"),
    (Bias(ones(6), 3), [MAP], "offsets must lie along"),
    (Eltwise(), [MAP, (1, 6, 9, 7)], "inputs must have one shape"),
    (Eltwise("sum", (1,)), [MAP, MAP], "coefficients must have a value for each of the 2"),
    (Concat(), [MAP, (2, 6, 9, 8)], "must agree but in axis 1"),
    (Concat(), [MAP, (2, 6)], "must agree but in axis 1"),
    (Slice(4), [MAP], "parts must divide the 6 of axis 1, not 4"),
    (Slice(3, (4, 2)), [MAP], "2 ascending positions within the 6 of axis 1"),
    (Crop(), [MAP, (1, 1, 9, 8)], "crop of axis 3 must be within its length 7, not 0 to 8"),
    (Crop(1, (1, 2)), [MAP, MAP], "offsets be none, 1 or 3"),
    (Flatten(2, 1), [MAP], "must not lie before axis 2, not be 1"),
    (Reshape((-1, -1)), [MAP], "shape must fit"),
    (Reshape((5, -1)), [MAP], "shape must fit"),
    (Reshape((0, 0, 0, 0, 0)), [MAP], "shape must fit"),
    (Reshape((1,), 3, 2), [MAP], "num_axes must be -1 or up to 1, not 2"),
    (Permute((0, 0)), [MAP], "different axes"),
    (Softmax(4), [MAP], "axis must be from -4 to 3"),
    (Normalize(ones(5)), [MAP], "6 channels, not 5"),
    (DetectionOutput(2), [(1, 4), (1, 2), (1, 2, 8)], "offsets must be 8 for 2 boxes"),
    (DetectionOutput(2), [(1, 8), (1, 2), (1, 2, 8)], "scores must be 4 for 2 boxes"),
    (DetectionOutput(2), [(1, 8), (1, 4), (1, 8)], r"priors must have the shape \(1, 2, P \* 4\)"),
]


@pytest.mark.parametrize(
    ("operation", "shapes", "text"), WRONG, ids=[f"{o.kind}-{n}" for n, (o, *_) in enumerate(WRONG)]
)
def test_wrong_inputs(operation, shapes, text):
    with pytest.raises(ValueError, match=text):
        operation.infer(shapes)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Convolution(ones(4, 6, 3)), "weights must have four axes"),
        (lambda: Convolution(ones(4, 6, 3, 3), ones(5)), "each of the 4 output channels, not 5"),
        (lambda: Convolution(ones(4, 6, 3, 3), group=3), "group must divide"),
        (lambda: Convolution(ones(4, 6, 3, 3), stride=(0, 1)), "stride must be at least 1"),
        (lambda: Deconvolution(ones(6, 2, 3, 3), ones(2), group=3), "6 output channels, not 2"),
        (lambda: InnerProduct(ones(4)), r"weights must have shape \(K, values\)"),
        (lambda: MaxPool((0, 2)), "kernel must be at least 1"),
        (lambda: AveragePool((2, 2), pad=(0, -1, 0, 0)), "pad must be at least 0"),
        (lambda: BatchNorm(ones(2), -ones(2)), "variance plus eps must be positive"),
        (lambda: Lrn(4), "size must be odd"),
    ],
)
def test_wrong_parameters(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_parameters_are_copies():
    weights = ones(2, 3)
    operation = InnerProduct(weights)
    weights[:] = 7
    assert (operation.weights == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        operation.weights[0] = 2


def test_macs():
    assert Convolution(ones(4, 3, 3, 2), group=2).macs([(2, 6, 9, 7)]) == 2 * 4 * 7 * 6 * 3 * 3 * 2
    assert Deconvolution(ones(6, 5, 3, 3)).macs([MAP]) == 2 * 6 * 9 * 7 * 5 * 9
    assert InnerProduct(ones(5, 378)).macs([MAP]) == 2 * 5 * 378
    assert Relu().macs([MAP]) == 0

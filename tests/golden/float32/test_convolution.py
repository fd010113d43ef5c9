"""Convolution, deconvolution and inner product against OpenCV and against plain loops."""

import numpy as np
import pytest

from trirow_golden.float32 import convolution, deconvolution, inner_product

from .kit import assert_close, opencv, random

# size, channels, filters, group, kernel, stride, pad in y and x, dilation
CASES = [
    ((7, 9), 3, 5, 1, (1, 1), (1, 1), (0, 0), (1, 1)),
    ((7, 9), 4, 6, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((8, 7), 4, 6, 2, (3, 3), (2, 2), (1, 1), (1, 1)),
    ((9, 11), 4, 4, 4, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((9, 11), 4, 4, 4, (3, 3), (2, 2), (1, 1), (1, 1)),
    ((9, 8), 3, 9, 3, (5, 3), (2, 1), (2, 0), (1, 1)),
    ((12, 13), 4, 6, 2, (3, 3), (1, 1), (2, 2), (2, 2)),
    ((12, 13), 6, 6, 6, (3, 3), (1, 1), (2, 2), (2, 2)),
    ((13, 10), 2, 3, 1, (3, 2), (2, 3), (3, 1), (3, 1)),
    ((7, 7), 1, 8, 1, (5, 5), (1, 1), (0, 0), (1, 1)),
    ((6, 5), 8, 4, 4, (6, 5), (1, 1), (0, 0), (1, 1)),
    ((1, 1), 16, 4, 1, (1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 4), 3, 2, 1, (4, 4), (4, 4), (3, 3), (1, 1)),
]


def parameters(filters, group, kernel, stride, pad, dilation, bias=True):
    height, width = kernel
    return f"""convolution_param {{ num_output: {filters} group: {group}
        kernel_h: {height} kernel_w: {width} stride_h: {stride[0]} stride_w: {stride[1]}
        pad_h: {pad[0]} pad_w: {pad[1]} dilation: {dilation[0]} dilation: {dilation[1]}
        bias_term: {str(bias).lower()} }}"""


def convolution_by_hand(x, weights, bias, stride, pad, dilation, group):
    images, _, height, width = x.shape
    filters, group_channels, rows, columns = weights.shape
    out_height = (height + pad[0] + pad[2] - (rows - 1) * dilation[0] - 1) // stride[0] + 1
    out_width = (width + pad[1] + pad[3] - (columns - 1) * dilation[1] - 1) // stride[1] + 1
    y = np.zeros((images, filters, out_height, out_width))
    for n, k, oy, ox in np.ndindex(y.shape):
        y[n, k, oy, ox] = bias[k]
        first = k // (filters // group) * group_channels
        for c, r, s in np.ndindex(group_channels, rows, columns):
            iy = oy * stride[0] + r * dilation[0] - pad[0]
            ix = ox * stride[1] + s * dilation[1] - pad[1]
            if 0 <= iy < height and 0 <= ix < width:
                y[n, k, oy, ox] += float(x[n, first + c, iy, ix]) * float(weights[k, c, r, s])
    return y


def deconvolution_by_hand(x, weights, bias, stride, pad, dilation, group):
    images, channels, height, width = x.shape
    _, group_filters, rows, columns = weights.shape
    out_height = (height - 1) * stride[0] + (rows - 1) * dilation[0] + 1 - pad[0] - pad[2]
    out_width = (width - 1) * stride[1] + (columns - 1) * dilation[1] + 1 - pad[1] - pad[3]
    y = np.zeros((images, group_filters * group, out_height, out_width))
    y += bias[:, np.newaxis, np.newaxis]
    for n, c, iy, ix in np.ndindex(x.shape):
        first = c // (channels // group) * group_filters
        for k, r, s in np.ndindex(group_filters, rows, columns):
            oy = iy * stride[0] + r * dilation[0] - pad[0]
            ox = ix * stride[1] + s * dilation[1] - pad[1]
            if 0 <= oy < out_height and 0 <= ox < out_width:
                y[n, first + k, oy, ox] += float(x[n, c, iy, ix]) * float(weights[c, k, r, s])
    return y


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_convolution(case, bias):
    size, channels, filters, group, kernel, stride, pad, dilation = CASES[case]
    x = random(case, 2, channels, *size)
    weights = random(case, filters, channels // group, *kernel)
    offsets = random(case, filters) if bias else None
    expected = opencv(
        "Convolution",
        x,
        parameters(filters, group, kernel, stride, pad, dilation, bias),
        [weights, offsets] if bias else [weights],
    )
    result = convolution(
        x, weights, offsets, stride=stride, pad=pad * 2, dilation=dilation, group=group
    )
    assert_close(result, expected)


# Caffe pads both sides alike: unequal sides are compared by hand
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 2, 3, 0), (4, 0, 0, 5)])
@pytest.mark.parametrize(("group", "filters"), [(1, 3), (2, 6), (4, 4), (4, 8)])
def test_convolution_by_hand(group, filters, pad):
    x = random(group, 1, 4, 6, 5)
    weights, bias = random(group, filters, 4 // group, 3, 2), random(group, filters)
    place = {"stride": (2, 1), "pad": pad, "dilation": (1, 2), "group": group}
    assert_close(
        convolution(x, weights, bias, **place), convolution_by_hand(x, weights, bias, **place)
    )


# OpenCV ignores the dilation of a Deconvolution, so that even its output is too small. By the
# definition in Caffe, col2im with dilation, the kernel reaches (R - 1) * dilation + 1 pixels.
@pytest.mark.parametrize("case", [i for i, case in enumerate(CASES) if case[-1] == (1, 1)])
def test_deconvolution(case):
    size, channels, filters, group, kernel, stride, pad, dilation = CASES[case]
    x = random(case, 2, channels, *size)
    weights, bias = random(case, channels, filters // group, *kernel), random(case, filters)
    expected = opencv(
        "Deconvolution",
        x,
        parameters(filters, group, kernel, stride, pad, dilation),
        [weights, bias],
    )
    result = deconvolution(x, weights, bias, stride=stride, pad=pad * 2, group=group)
    assert_close(result, expected)


def test_bilinear_upsampling():
    x = random(1, 1, 3, 4, 5)
    triangle = np.array([0.25, 0.75, 0.75, 0.25], np.float32)
    weights = np.tile(np.outer(triangle, triangle), (3, 1, 1, 1))
    settings = parameters(3, 3, (4, 4), (2, 2), (1, 1), (1, 1), bias=False)
    expected = opencv("Deconvolution", x, settings, [weights])
    assert expected.shape == (1, 3, 8, 10)
    assert_close(deconvolution(x, weights, stride=(2, 2), pad=(1, 1, 1, 1), group=3), expected)


@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 2, 0, 3)])
@pytest.mark.parametrize(("group", "filters"), [(1, 3), (2, 6), (4, 4)])
def test_deconvolution_by_hand(group, filters, pad, dilation):
    x = random(group, 2, 4, 3, 4)
    weights, bias = random(group, 4, filters // group, 3, 2), random(group, filters)
    place = {"stride": (2, 3), "pad": pad, "dilation": dilation, "group": group}
    assert_close(
        deconvolution(x, weights, bias, **place), deconvolution_by_hand(x, weights, bias, **place)
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 3, 4, 5), 1), ((2, 3, 4, 5), 2), ((2, 3, 4, 5), -1), ((3, 7), 1)]
)
def test_inner_product(shape, axis, bias):
    x = random(1, *shape)
    weights = random(2, 6, int(np.prod(shape[axis:])))
    offsets = random(3, 6) if bias else None
    settings = (
        f"inner_product_param {{ num_output: 6 axis: {axis} bias_term: {str(bias).lower()} }}"
    )
    expected = opencv("InnerProduct", x, settings, [weights, offsets] if bias else [weights])
    assert_close(inner_product(x, weights, offsets, axis=axis), expected)


def test_arguments_are_kept():
    x, weights = random(1, 1, 2, 3, 3), random(1, 2, 2, 1, 1)
    before = x.copy(), weights.copy()
    for layer in (convolution, deconvolution):
        layer(x, weights)[...] = 0
    assert (x == before[0]).all()
    assert (weights == before[1]).all()


X, W = np.zeros((1, 4, 5, 5), np.float32), np.zeros((6, 2, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("x", "weights", "bias", "group", "text"),
    [
        (X[0], W, None, 2, r"x must be float32 of shape \(N, C, H, W\), not float32 of shape \(4"),
        (X, W[0], None, 2, r"weights must be float32 of shape \(K, C / group, R, S\), not"),
        (X, W[:0], None, 2, r"weights must not have an empty axis, not shape \(0, 2, 3, 3\)"),
        (X, W, None, 0, "group must be at least 1, not 0"),
        (X, W, None, 3, "group must divide the 4 channels of x, not 3"),
        (X, W[:3], None, 2, "group must divide the 3 kernels, not 2"),
        (X, W, None, 1, "weights must have 4 channels, the 4 of x in 1 groups, not 2"),
        (X, W, np.zeros((6, 1), np.float32), 2, r"bias must be float32 of shape \(K,\), not"),
        (X, W, np.zeros(5, np.float32), 2, "bias must have a value for each of the 6 output"),
        (X[:, :, :2], W, None, 2, "Output of kernel 3x3 on input 2x5 .* is empty"),
    ],
)
def test_convolution_wrong(x, weights, bias, group, text):
    with pytest.raises(ValueError, match=text):
        convolution(x, weights, bias, group=group)


def test_convolution_wrong_parameters():
    for name in ("Stride", "Dilation"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1x1, not 0x1"):
            convolution(X, W, group=2, **{name.lower(): (0, 1)})
    with pytest.raises(ValueError, match=r"Padding .* must not be negative"):
        convolution(X, W, group=2, pad=(0, -1, 0, 0))


def test_wrong_type():
    with pytest.raises(TypeError, match=r"x must be float32 .*, not float64"):
        convolution(X.astype(np.float64), W, group=2)
    with pytest.raises(TypeError, match=r"weights must be float32 .*, not int8"):
        deconvolution(X, W.astype(np.int8), group=2)
    with pytest.raises(TypeError, match=r"bias must be float32 .*, not float64"):
        convolution(X, W, np.zeros(6), group=2)
    with pytest.raises(TypeError, match="x must be float32, not float16"):
        inner_product(X.astype(np.float16), W[0, 0])


def test_deconvolution_wrong():
    with pytest.raises(ValueError, match="weights must have a kernel for each of the 4 channels"):
        deconvolution(X, W, group=2)
    with pytest.raises(ValueError, match="bias must have a value for each of the 4 output chan"):
        deconvolution(X, W[:4], np.zeros(2, np.float32), group=2)
    with pytest.raises(ValueError, match=r"Output of transposed kernel 3x3 .* is empty"):
        deconvolution(X, W[:4], pad=(4, 0, 3, 0))


def test_inner_product_wrong():
    weights = np.zeros((3, 25), np.float32)
    with pytest.raises(ValueError, match=r"weights must have 100 columns, one for .*, not 25"):
        inner_product(X, weights)
    with pytest.raises(ValueError, match="axis must be from -4 to 3, not 4"):
        inner_product(X, weights, axis=4)
    with pytest.raises(ValueError, match=r"weights must be float32 of shape \(K, n\), not"):
        inner_product(X, weights[0], axis=2)
    with pytest.raises(ValueError, match="bias must have a value for each of the 3 output"):
        inner_product(X, weights, np.zeros(4, np.float32), axis=2)

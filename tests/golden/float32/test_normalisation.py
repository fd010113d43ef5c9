"""Softmax, LRN and Normalize against OpenCV, LRN against plain loops, too."""

import numpy as np
import pytest

from trirow_golden.float32 import lrn, normalize, softmax

from .kit import assert_close, opencv, random


def lrn_by_hand(x, size, alpha, beta, k, across):
    """Normalise as Caffe defines it, a loop over all values and their neighbours."""
    half, y = size // 2, np.empty(x.shape)
    for n, c, i, j in np.ndindex(x.shape):
        total = 0.0
        for d in range(-half, half + 1):
            if across:
                total += float(x[n, c + d, i, j]) ** 2 if 0 <= c + d < x.shape[1] else 0
                continue
            for e in range(-half, half + 1):
                if 0 <= i + d < x.shape[2] and 0 <= j + e < x.shape[3]:
                    total += float(x[n, c, i + d, j + e]) ** 2
        mean = total / (size if across else size * size)
        y[n, c, i, j] = x[n, c, i, j] / ((k if across else 1) + alpha * mean) ** beta
    return y


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 3, 4, 5), 1), ((2, 3, 4, 5), 3), ((2, 3, 4, 5), -2), ((2, 9), 1)]
)
def test_softmax(shape, axis):
    x = 5 * random(1, *shape)
    assert_close(softmax(x, axis=axis), opencv("Softmax", x, f"softmax_param {{ axis: {axis} }}"))


def test_softmax_of_large_values():
    x = np.array([[3e38, 3e38, -3e38]], np.float32)
    with np.errstate(over="ignore"):
        assert_close(softmax(x), np.array([[0.5, 0.5, 0]]))


@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_lrn(size, region):
    x = 2 * random(size, 2, 6, 5, 7)
    settings = f"""lrn_param {{ local_size: {size} alpha: 0.7 beta: 0.6
        norm_region: {region.upper()} }}"""
    result = lrn(x, size=size, alpha=0.7, beta=0.6, region=region)
    assert_close(result, opencv("LRN", x, settings))


# OpenCV ignores Caffe's parameter k
@pytest.mark.parametrize("region", ["across_channels", "within_channel"])
@pytest.mark.parametrize(("size", "k"), [(3, 1.0), (5, 2.5)])
def test_lrn_by_hand(size, k, region):
    x = 2 * random(size, 2, 4, 3, 6)
    result = lrn(x, size=size, alpha=0.4, beta=0.75, k=k, region=region)
    assert_close(result, lrn_by_hand(x, size, 0.4, 0.75, k, region == "across_channels"))


# OpenCV's default of alpha is ONNX's 0.0001, Caffe's is 1
def test_lrn_defaults():
    x = random(3, 1, 8, 3, 3)
    assert_close(lrn(x), opencv("LRN", x, "lrn_param { alpha: 1 }"))


@pytest.mark.parametrize("eps", [1e-10, 0.5])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("across_spatial", [True, False])
def test_normalize(across_spatial, shared, eps):
    x, factors = random(4, 2, 3, 4, 5), random(5, 1 if shared else 3)
    if across_spatial and not shared:
        # OpenCV takes no factors per channel here
        expected = np.stack([image / np.sqrt((image**2).sum() + eps) for image in x])
        expected *= factors[:, np.newaxis, np.newaxis]
    else:
        settings = f"""norm_param {{ across_spatial: {str(across_spatial).lower()}
            channel_shared: {str(shared).lower()} eps: {eps} }}"""
        expected = opencv("Normalize", x, settings, [factors])
    assert_close(normalize(x, factors, across_spatial=across_spatial, eps=eps), expected)


X, C = np.ones((1, 3, 2, 2), np.float32), np.ones(3, np.float32)


def test_softmax_wrong():
    with pytest.raises(TypeError, match="x must be float32, not float64"):
        softmax(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="axis must be from -4 to 3, not 4"):
        softmax(X, axis=4)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"size": 4}, "size must be odd and at least 1, not 4"),
        ({"size": -1}, "size must be odd and at least 1, not -1"),
        ({"k": 0.0}, r"k must be positive, not 0\.0"),
        ({"region": "all"}, "region must be 'across_channels' or 'within_channel', not 'all'"),
    ],
)
def test_lrn_wrong(parameters, text):
    with pytest.raises(ValueError, match=text):
        lrn(X, **parameters)


def test_normalize_wrong():
    with pytest.raises(ValueError, match="eps must be positive, not 0"):
        normalize(X, C, eps=0)
    with pytest.raises(ValueError, match=r"factors must have .* 3 channels or a single one, not 2"):
        normalize(X, C[:2])


def test_wrong_features():
    for layer in (lrn, lambda x: normalize(x, C)):
        with pytest.raises(ValueError, match=r"x must be float32 of shape \(N, C, H, W\), not"):
            layer(X[0])
        with pytest.raises(TypeError, match=r"x must be float32 .*, not float64"):
            layer(X.astype(np.float64))

"""Whole layers: what they pass on to convolution, requantisation and table."""

import numpy as np
import pytest

from trirow_golden import (
    conv2d_int8,
    conv2d_plain,
    encode_fixed,
    requantise,
    requantise_fixed,
    transposed_conv2d,
    transposed_conv2d_int8,
)

#: Each with the convolution that it is built on, and the parameters of that one alone.
LAYERS = [
    pytest.param(conv2d_int8, conv2d_plain, {"pad": (2, 0, 1, 3)}, id="conv"),
    pytest.param(
        transposed_conv2d_int8,
        transposed_conv2d,
        {"pad": (1, 0, 0, 1), "output_padding": (1, 0)},
        id="transposed",
    ),
]


def operands(rng):
    x = rng.integers(-128, 128, (2, 5, 4, 6), dtype=np.int8)
    weights = rng.integers(-128, 128, (4, 2, 3, 3), dtype=np.int8)
    return x, weights, rng.integers(-50000, 50000, 4, dtype=np.int32)


PLACE = {"stride": (2, 1), "dilation": (2, 1), "groups": 2}
OUTPUT = (-7, -100, 90)  # zero point and clip bounds
OUTPUT_KEYWORDS = {"zero_out": -7, "low": -100, "high": 90}
ZEROS = {"zero_in": 5, "weight_zero_point": -3}


@pytest.mark.parametrize(("layer", "convolution", "own"), LAYERS)
def test_modes(layer, convolution, own):
    print("seed 0")
    rng = np.random.default_rng(0)
    x, weights, bias = operands(rng)
    acc = convolution(x, weights, bias, zero_point=5, weight_zero_point=-3, **PLACE, **own)
    keywords = {**PLACE, **own, **ZEROS, **OUTPUT_KEYWORDS}
    wide = rng.uniform(0.0005, 0.002, 4)
    single = wide.astype(np.float32)
    results = [
        layer(x, weights, bias, single, **keywords),
        layer(x, weights, bias, wide, mode="fixed", **keywords),
        layer(x, weights, bias, single, negative_multiplier=-single / 3, **keywords),
    ]
    expected = [
        requantise(acc, single, *OUTPUT),
        requantise_fixed(acc, *encode_fixed(wide), *OUTPUT),
        requantise(acc, single, *OUTPUT, negative_multiplier=-single / 3),
    ]
    for y, wanted in zip(results, expected, strict=True):
        assert y.dtype == np.int8
        np.testing.assert_array_equal(y, wanted)
    assert len(np.unique(expected[0])) > 50
    assert not np.array_equal(expected[0], expected[2])


@pytest.mark.parametrize(("layer", "convolution", "own"), LAYERS)
@pytest.mark.parametrize("mode", ["float32", "fixed"])
def test_table_follows_the_clip_bounds(layer, convolution, own, mode):
    print("seed 1")
    rng = np.random.default_rng(1)
    multiplier = np.full(4, 0.005, "float32" if mode == "float32" else "float64")
    arguments = (*operands(rng), multiplier)
    keywords = {"mode": mode, **PLACE, **own, **ZEROS, **OUTPUT_KEYWORDS}
    table = rng.integers(-128, 128, 256, dtype=np.int8)
    bare = layer(*arguments, **keywords)
    y = layer(*arguments, table=table, **keywords)
    assert bare.max() == 90
    assert list(y.flat) == [table[int(value) % 256] for value in bare.flat]


@pytest.mark.parametrize("layer", [conv2d_int8, transposed_conv2d_int8])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mode": "double"}, ValueError, "^mode must be 'float32' or 'fixed', not 'double'$"),
        ({"mode": "fixed"}, TypeError, "^multiplier must be float64 in mode 'fixed', not float32$"),
        ({"multiplier": np.ones(4)}, TypeError, "^multiplier must be float32, not float64$"),
        (
            {"multiplier": np.ones(3, np.float32)},
            ValueError,
            r"^multiplier must have the shape of bias, \(4,\), not \(3,\)$",
        ),
        (
            {"negative_multiplier": np.ones(3, np.float32)},
            ValueError,
            "^negative_multiplier must have the shape of multiplier, ",
        ),
        (
            {
                "mode": "fixed",
                "multiplier": np.ones(4),
                "negative_multiplier": np.ones(4, np.float32),
            },
            ValueError,
            "^negative_multiplier must not be given in mode 'fixed'$",
        ),
        ({"table": np.zeros(255, np.int8)}, ValueError, "^table must have 256 entries, not 255$"),
        ({"zero_in": 128}, ValueError, "^zero_point must be from -128 to 127, not 128$"),
        ({"low": 5, "high": 4}, ValueError, "^Clip bounds must satisfy "),
    ],
)
def test_wrong_arguments(layer, change, error, message):
    good = {
        "x": np.zeros((1, 3, 3, 2), np.int8),
        "weights": np.zeros((4, 2, 2, 2), np.int8),
        "bias": np.zeros(4, np.int32),
        "multiplier": np.ones(4, np.float32),
    }
    assert layer(**good).dtype == np.int8
    with pytest.raises(error, match=message):
        layer(**{**good, **change})

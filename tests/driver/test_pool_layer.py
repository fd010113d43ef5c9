import re

import numpy as np
import pytest

from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.quantise import Quantisation

FIELDS = {
    "name": "pool1",
    "kind": "maximum",
    "kernel": (3, 2),
    "stride": (2, 1),
    "pad": (1, 0, 0, 1),
    "input": Quantisation(0.5, -3),
}


def make(**changes):
    return PoolLayer(**{**FIELDS, **changes})


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("kind", "median", "kind must be one of maximum, average, not 'median'"),
        ("kernel", (0, 2), "kernel must be at least 1, not (0, 2)"),
        ("kernel", 3, "kernel must be 2 integers, not 3"),
        ("stride", (1, 0), "stride must be at least 1, not (1, 0)"),
        ("pad", (0, 0, 0), "pad must be 4 integers, not (0, 0, 0)"),
        ("dilation", (1, 1.5), "dilation must be an integer, not 1.5"),
        ("input", None, "input must be a Quantisation, not None"),
        ("low", 5.0, "low must be an integer, not 5.0"),
        ("high", -129, "low and high must be ordered and in -128 .. 127, not -128 and -129"),
    ],
)
def test_wrong_field(field, value, text):
    with pytest.raises(ValueError, match=f"^layer 'pool1': {re.escape(text)}$"):
        make(**{field: value})


def test_quantisation_stays():
    layer = make()
    assert layer.output == layer.result == layer.input
    assert layer.inputs == (layer.input,)
    assert layer.parameter_bytes == 0


def test_zero_point_of_averages():
    assert make(kind="average").zero_point == 0
    assert make(kind="average", count_padding=True).zero_point == -3


def test_output_extents_by_hand():
    # rows: (6 + 1 + 0 - 3) // 2 + 1; columns: (5 + 0 + 1 - 2) + 1
    assert make().output_extents((6, 5, 7)) == (3, 5, 7)
    # With ceil the last window of 3 rows begins at row 3 or 5: (7 + 1 - 3) / 2 is 2.5.
    assert make().output_extents((7, 5, 7))[0] == 3
    assert make(ceil=True).output_extents((7, 5, 7))[0] == 4
    with pytest.raises(ValueError, match=r"^layer 'pool1': "):
        make().output_extents((1, 5, 7))


def windows(layer, x):
    """Yield the position of each output, and the values of its window inside the map."""
    rows, columns, _ = layer.output_extents(x.shape[1:])
    for i in range(rows):
        for j in range(columns):
            inside = []
            for r in range(layer.kernel[0]):
                for s in range(layer.kernel[1]):
                    y = i * layer.stride[0] + r * layer.dilation[0] - layer.pad[0]
                    z = j * layer.stride[1] + s * layer.dilation[1] - layer.pad[1]
                    if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                        inside.append(x[0, y, z].astype(int))
            yield i, j, inside


@pytest.mark.parametrize("kind", ["maximum", "average"])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("pad", [(0, 0, 0, 0), (1, 2, 3, 1)])
def test_golden_against_plain_loops(kind, ceil, pad):
    rng = np.random.default_rng(8)
    x = rng.integers(-128, 128, (1, 8, 7, 3), dtype=np.int8)
    layer = make(kind=kind, ceil=ceil, pad=pad, dilation=(2, 1), low=-90, high=80)
    y = layer.golden(x)
    assert y.shape == (1, *layer.output_extents((8, 7, 3)))
    for i, j, inside in windows(layer, x):
        if kind == "maximum":
            expected = np.max(inside, axis=0) if inside else np.full(3, -128)
        else:
            total = np.sum(inside, axis=0) if inside else np.zeros(3)
            mean = total / max(1, len(inside))
            expected = np.sign(mean) * np.floor(np.abs(mean) + 0.5)
        np.testing.assert_array_equal(y[0, i, j], np.clip(expected, -90, 80))


def test_pools_and_copies_multiply_nothing():
    assert make().macs((8, 7, 3)) == make(kind="average").macs((8, 7, 3), padding=False) == 0
    assert CopyLayer("up", Quantisation(0.5, 7), 3).macs((2, 4, 3)) == 0


# Copies


def test_copy_and_upsampling():
    q = Quantisation(0.5, 7)
    x = np.arange(24, dtype=np.int8).reshape(1, 2, 4, 3)
    copy = CopyLayer("copy", q)
    assert copy.output == q
    assert copy.output_extents((2, 4, 3)) == (2, 4, 3)
    np.testing.assert_array_equal(copy.golden(x), x)
    up = CopyLayer("up", q, 3)
    assert up.output_extents((2, 4, 3)) == (6, 12, 3)
    y = up.golden(x)
    for i in range(6):
        for j in range(12):
            np.testing.assert_array_equal(y[0, i, j], x[0, i // 3, j // 3])


@pytest.mark.parametrize(
    ("factor", "text"),
    [(0, "factor must be at least 1, not 0"), (1.5, "factor must be an integer, not 1.5")],
)
def test_wrong_factor(factor, text):
    with pytest.raises(ValueError, match=f"^layer 'up': {re.escape(text)}$"):
        CopyLayer("up", Quantisation(1.0, 0), factor)

"""Tables of activations."""

import math

import numpy as np
import pytest

from trirow_golden import apply_table, table_of

VALUES = range(-128, 128)


def test_table_is_indexed_by_the_byte():
    print("seed 0")
    table = np.random.default_rng(0).integers(-128, 128, 256, dtype=np.int8)
    x = np.array(VALUES, np.int8).reshape(1, 16, 4, 4)
    result = apply_table(x, table)
    assert result.shape == x.shape
    assert result.dtype == np.int8
    assert list(result.flat) == [table[value % 256] for value in VALUES]


@pytest.mark.parametrize(
    "function",
    [
        lambda v: 1 / (1 + math.exp(-v)),
        lambda v: v * min(max(v + 3, 0), 6) / 6,
        lambda v: v if v > 0 else 0.1 * v,
        math.tanh,
    ],
    ids=["sigmoid", "hard_swish", "leaky_relu", "tanh"],
)
@pytest.mark.parametrize(("zero_in", "zero_out"), [(0, 0), (-128, -128), (13, -5)])
def test_functions(function, zero_in, zero_out):
    scale_in, scale_out = float(np.float32(0.05)), float(np.float32(1 / 64))
    table = table_of(function, 0.05, zero_in, 1 / 64, zero_out)
    assert table.dtype == np.int8
    for value in VALUES:
        exact = round(function(scale_in * (value - zero_in)) / scale_out) + zero_out
        assert table[value % 256] == max(-128, min(127, exact))


def test_identity_and_ties():
    np.testing.assert_array_equal(
        table_of(lambda v: v, 0.3, 7, 0.3, 7), np.arange(256).astype(np.uint8).view(np.int8)
    )
    table = table_of(lambda v: v / 2, 1.0, 0, 1.0, 0)
    assert [int(table[v]) for v in (1, 3, 5, -1, -3)] == [0, 2, 2, 0, -2]


def test_infinities_saturate():
    table = table_of(lambda v: math.copysign(math.inf, v), 1.0, 0, 1.0, 3)
    assert set(table[:128]) == {127}
    assert set(table[128:]) == {-128}
    table = table_of(lambda v: 1e308, 1.0, 0, 1e-3, 3)
    assert set(table) == {127}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_in": 0.0}, "^scale_in must be positive and finite in float32, not 0.0$"),
        ({"scale_out": math.nan}, "^scale_out must be positive and finite in float32, not nan$"),
        ({"zero_in": 128}, "^zero_in must be from -128 to 127, not 128$"),
        ({"zero_out": -129}, "^zero_out must be from -128 to 127, not -129$"),
        ({"function": lambda v: math.nan}, "^function must return a number, not NaN as for 0.0$"),
    ],
)
def test_wrong_tables(change, message):
    good = {"function": abs, "scale_in": 1.0, "zero_in": 0, "scale_out": 1.0, "zero_out": 0}
    table_of(**good)
    with pytest.raises(ValueError, match=message):
        table_of(**{**good, **change})


def test_wrong_operands():
    x, table = np.zeros(3, np.int8), np.zeros(256, np.int8)
    with pytest.raises(TypeError, match=r"^x must be int8, not uint8$"):
        apply_table(x.astype(np.uint8), table)
    with pytest.raises(TypeError, match=r"^table must be int8 of shape \(256,\), not uint8 "):
        apply_table(x, table.astype(np.uint8))
    with pytest.raises(ValueError, match=r"^table must have 256 entries, not 128$"):
        apply_table(x, table[:128])

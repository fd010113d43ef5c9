"""Eltwise against OpenCV."""

import numpy as np
import pytest

from trirow_golden.float32 import eltwise

from .kit import assert_close, opencv, random

CODES = {"sum": "SUM", "product": "PROD", "max": "MAX"}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("operation", CODES)
def test_eltwise(operation, count):
    inputs = [random(seed, 2, 3, 4, 5) for seed in range(count)]
    expected = opencv("Eltwise", inputs, f"eltwise_param {{ operation: {CODES[operation]} }}")
    assert_close(eltwise(inputs, operation=operation), expected)


@pytest.mark.parametrize("coefficients", [(1, -1), (0.5, 2, -3)])
def test_coefficients(coefficients):
    inputs = [random(seed, 2, 3, 4, 5) for seed in range(len(coefficients))]
    factors = " ".join(f"coeff: {factor}" for factor in coefficients)
    expected = opencv("Eltwise", inputs, f"eltwise_param {{ operation: SUM {factors} }}")
    assert_close(eltwise(inputs, coefficients=coefficients), expected)


@pytest.mark.parametrize("operation", CODES)
def test_one_input(operation):
    x = random(1, 2, 3)
    result = eltwise([x], operation=operation)
    assert_close(result, x)
    assert not np.shares_memory(result, x)


A = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize(
    ("inputs", "parameters", "text"),
    [
        ([], {}, "inputs must be at least one array, not none"),
        ([A, A.T], {}, r"inputs\[1\] must have the shape \(1, 2\) of inputs\[0\], not \(2, 1\)"),
        ([A, A], {"operation": "min"}, "operation must be 'sum', 'product' or 'max', not 'min'"),
        ([A, A], {"coefficients": [1]}, "coefficients must be one for each of the 2 inputs, not 1"),
        (
            [A, A],
            {"operation": "max", "coefficients": [1, 1]},
            "operation must be 'sum' with coefficients, not 'max'",
        ),
    ],
)
def test_wrong(inputs, parameters, text):
    with pytest.raises(ValueError, match=text):
        eltwise(inputs, **parameters)


def test_wrong_type():
    with pytest.raises(TypeError, match=r"inputs\[1\] must be float32, not float64"):
        eltwise([A, A.astype(np.float64)])

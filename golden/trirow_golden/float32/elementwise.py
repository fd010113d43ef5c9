"""Combination of arrays of one shape in float32: Caffe's Eltwise layer."""

from collections.abc import Sequence
from functools import reduce
from typing import Literal

import numpy as np

from trirow_golden.float32.checks import FloatArray, check_inputs


def eltwise(
    inputs: Sequence[FloatArray],
    *,
    operation: Literal["sum", "product", "max"] = "sum",
    coefficients: Sequence[float] | None = None,
) -> FloatArray:
    """Add, multiply or take the largest of the inputs, value by value (Caffe's Eltwise).

    Parameters
    ----------
    inputs : sequence of float32 arrays of one shape
        At least one.
    operation : "sum", "product" or "max"
        What becomes of them.
    coefficients : sequence of float, optional
        Factor of each input, for sums only. All are 1 by default.

    Returns
    -------
    float32 array of the shape of an input

    Raises
    ------
    TypeError
        If an input is not float32.
    ValueError
        If there are no inputs, their shapes differ, the operation is none of these, or there are
        coefficients for another operation or not one for each input.
    """
    check_inputs(inputs)
    for index, array in enumerate(inputs):
        if array.shape != inputs[0].shape:
            raise ValueError(
                f"inputs[{index}] must have the shape {inputs[0].shape} of inputs[0], "
                f"not {array.shape}"
            )
    if coefficients is not None and operation != "sum":
        raise ValueError(f"operation must be 'sum' with coefficients, not {operation!r}")
    if coefficients is not None and len(coefficients) != len(inputs):
        raise ValueError(
            f"coefficients must be one for each of the {len(inputs)} inputs, "
            f"not {len(coefficients)}"
        )
    if operation == "sum":
        factors = [1.0] * len(inputs) if coefficients is None else coefficients
        terms = [np.float32(factor) * x for factor, x in zip(factors, inputs, strict=True)]
        return reduce(np.add, terms)
    if operation == "product":
        return reduce(np.multiply, inputs[1:], inputs[0].copy())
    if operation == "max":
        return reduce(np.maximum, inputs[1:], inputs[0].copy())
    raise ValueError(f"operation must be 'sum', 'product' or 'max', not {operation!r}")

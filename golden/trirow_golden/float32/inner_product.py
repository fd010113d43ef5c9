"""Fully connected layer in float32: Caffe's InnerProduct."""

import numpy as np

from trirow_golden.checks import check_array, check_type
from trirow_golden.float32.checks import FloatArray, check_axis, check_bias


def inner_product(
    x: FloatArray, weights: FloatArray, bias: FloatArray | None = None, *, axis: int = 1
) -> FloatArray:
    """Multiply the trailing axes of x, taken as one vector, by a matrix.

    It is Caffe's InnerProduct. With its ``transpose`` the file holds the transposed matrix.

    Parameters
    ----------
    x : float32 array of any shape
        Input; the axes from `axis` on have n values together, in C order.
    weights : float32 array of shape (K, n)
        A row for each output.
    bias : float32 array of shape (K,), optional
        Added to the outputs.
    axis : int
        First axis of the vector; a negative one counts from the end.

    Returns
    -------
    float32 array of shape (..., K)
        K in place of the axes from `axis` on.

    Raises
    ------
    TypeError
        If an array is not float32.
    ValueError
        If an array does not have its shape, or x has no such axis.
    """
    check_type("x", x, np.float32)
    check_array("weights", weights, np.float32, "(K, n)")
    axis = check_axis("axis", axis, x.ndim)
    outputs, inputs = weights.shape
    leading = x.shape[:axis]
    values = int(np.prod(x.shape[axis:]))
    if values != inputs:
        raise ValueError(
            f"weights must have {values} columns, one for each value of x from axis {axis} on, "
            f"not {inputs}"
        )
    check_bias(bias, outputs)
    y: FloatArray = x.reshape(*leading, values) @ weights.T
    return y if bias is None else y + bias

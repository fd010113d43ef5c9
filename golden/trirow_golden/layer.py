"""Whole layers, int8 to int8, as the accelerator runs them."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_table
from trirow_golden.convolution import conv2d
from trirow_golden.fixed import encode_fixed, requantise_fixed
from trirow_golden.lookup import apply_table
from trirow_golden.requantise import requantise
from trirow_golden.transposed import transposed_conv2d

Mode = Literal["float32", "fixed"]


def conv2d_int8(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    multiplier: NDArray[np.float32] | NDArray[np.float64],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    zero_in: int = 0,
    zero_out: int = 0,
    weight_zero_point: int = 0,
    low: int = -128,
    high: int = 127,
    mode: Mode = "float32",
    negative_multiplier: NDArray[np.float32] | None = None,
    table: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """Convolve and requantise.

    In mode "float32" it equals ONNX Runtime's QLinearConv with int8 tensors and XNNPACK, in mode
    "fixed" TFLite's reference kernels and TFLite Micro.

    Parameters
    ----------
    x : int8 array of shape (N, H, W, C)
        Feature map.
    weights : int8 array of shape (K, R, S, C / groups)
        Kernels.
    bias : int32 array of shape (K,)
        Start value of the accumulator.
    multiplier : array of shape (K,), float32 or in mode "fixed" float64
        Ratio of the scales, as from `conv_multiplier` or `conv_multiplier_fixed`.
    stride, dilation : (int, int)
        Step of the window, and of the taps, in y and x.
    pad : (int, int, int, int)
        Padding at the top, left, bottom and right.
    groups : int
        Groups of channels.
    zero_in, zero_out, weight_zero_point : int
        Zero points of the input, the output and the weights, from -128 to 127.
    low, high : int
        Clip bounds, included; -128 <= low <= high <= 127.
    mode : {"float32", "fixed"}
        `requantise`, or `requantise_fixed` with the multipliers of `encode_fixed`.
    negative_multiplier : float32 array of shape (K,), optional
        Multiplier of negative accumulators (PReLU); in mode "float32" only.
    table : int8 array of shape (256,), optional
        What to make of each result in the end, indexed by its byte as for `apply_table`.

    Returns
    -------
    int8 array of shape (N, OH, OW, K)
        Feature map; OH and OW as in `output_size`.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As `conv2d_plain`, `requantise` and `requantise_fixed`.
    """
    _check_behind(bias, multiplier, mode, negative_multiplier, table)
    acc = conv2d(
        x,
        weights,
        bias,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        zero_point=zero_in,
        weight_zero_point=weight_zero_point,
    )
    return _behind(acc, multiplier, zero_out, low, high, mode, negative_multiplier, table)


def transposed_conv2d_int8(
    x: NDArray[np.int8],
    weights: NDArray[np.int8],
    bias: NDArray[np.int32],
    multiplier: NDArray[np.float32] | NDArray[np.float64],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    output_padding: tuple[int, int] = (0, 0),
    zero_in: int = 0,
    zero_out: int = 0,
    weight_zero_point: int = 0,
    low: int = -128,
    high: int = 127,
    mode: Mode = "float32",
    negative_multiplier: NDArray[np.float32] | None = None,
    table: NDArray[np.int8] | None = None,
) -> NDArray[np.int8]:
    """Spread and requantise: `transposed_conv2d` in place of the convolution of `conv2d_int8`.

    Parameters
    ----------
    x, weights, bias, stride, pad, dilation, groups, output_padding
        As for `transposed_conv2d`.
    multiplier, zero_in, zero_out, weight_zero_point, low, high, mode, negative_multiplier, table
        As for `conv2d_int8`.

    Returns
    -------
    int8 array of shape (N, OH, OW, K)
        Feature map; OH and OW as in `transposed_output_size`.

    Raises
    ------
    TypeError, ValueError, OverflowError
        As `transposed_conv2d`, `requantise` and `requantise_fixed`.
    """
    _check_behind(bias, multiplier, mode, negative_multiplier, table)
    acc = transposed_conv2d(
        x,
        weights,
        bias,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        output_padding=output_padding,
        zero_point=zero_in,
        weight_zero_point=weight_zero_point,
    )
    return _behind(acc, multiplier, zero_out, low, high, mode, negative_multiplier, table)


def _check_behind(
    bias: NDArray[np.int32],
    multiplier: NDArray[np.float32] | NDArray[np.float64],
    mode: Mode,
    negative_multiplier: NDArray[np.float32] | None,
    table: NDArray[np.int8] | None,
) -> None:
    """Refuse what cannot follow a convolution before it is computed."""
    if multiplier.shape != bias.shape:
        raise ValueError(
            f"multiplier must have the shape of bias, {bias.shape}, not {multiplier.shape}"
        )
    if mode not in ("float32", "fixed"):
        raise ValueError(f"mode must be 'float32' or 'fixed', not {mode!r}")
    if multiplier.dtype != (np.float32 if mode == "float32" else np.float64):
        wanted = "float32" if mode == "float32" else "float64 in mode 'fixed'"
        raise TypeError(f"multiplier must be {wanted}, not {multiplier.dtype}")
    if negative_multiplier is not None and mode == "fixed":
        raise ValueError("negative_multiplier must not be given in mode 'fixed'")
    if table is not None:
        check_table("table", table, np.int8)


def _behind(
    acc: NDArray[np.int32],
    multiplier: NDArray[np.float32] | NDArray[np.float64],
    zero_out: int,
    low: int,
    high: int,
    mode: Mode,
    negative_multiplier: NDArray[np.float32] | None,
    table: NDArray[np.int8] | None,
) -> NDArray[np.int8]:
    """Requantise accumulators and look the results up."""
    if mode == "fixed":
        y = requantise_fixed(acc, *encode_fixed(multiplier), zero_out, low, high)
    else:
        single = multiplier.astype(np.float32, copy=False)
        y = requantise(acc, single, zero_out, low, high, negative_multiplier)
    return y if table is None else apply_table(y, table)

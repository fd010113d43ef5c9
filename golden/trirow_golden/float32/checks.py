"""Checks of arguments that several float layers share; the errors name the argument."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trirow_golden.checks import check_array, check_type

FloatArray = NDArray[np.float32]


def check_features(name: str, array: FloatArray) -> None:
    """Refuse what is no float32 feature map."""
    check_array(name, array, np.float32, "(N, C, H, W)")


def check_channels(name: str, array: FloatArray) -> None:
    """Refuse what is not float32 or has no axis of channels."""
    check_type(name, array, np.float32)
    if array.ndim < 2:
        raise ValueError(f"{name} must have the axes (N, C, ...), not shape {array.shape}")


def check_per_channel(
    name: str, values: FloatArray, channels: int, *, or_one: bool = False
) -> None:
    """Refuse what is not one float32 for each channel, or, if allowed, a single one."""
    check_array(name, values, np.float32, "(C,)")
    if values.size != channels and not (or_one and values.size == 1):
        one = " or a single one" if or_one else ""
        raise ValueError(
            f"{name} must have a value for each of the {channels} channels{one}, not {values.size}"
        )


def check_kernels(x: FloatArray, weights: FloatArray, group: int, axes: str) -> None:
    """Refuse feature maps, kernels with the given axes, and groups that do not fit together."""
    check_features("x", x)
    check_array("weights", weights, np.float32, axes)
    if 0 in weights.shape:
        raise ValueError(f"weights must not have an empty axis, not shape {weights.shape}")
    if group < 1:
        raise ValueError(f"group must be at least 1, not {group!r}")
    for what, count in (("channels of x", x.shape[1]), ("kernels", weights.shape[0])):
        if count % group:
            raise ValueError(f"group must divide the {count} {what}, not {group!r}")


def check_bias(bias: FloatArray | None, outputs: int) -> None:
    """Refuse a bias that is not one float32 for each output channel."""
    if bias is None:
        return
    check_array("bias", bias, np.float32, "(K,)")
    if bias.size != outputs:
        raise ValueError(
            f"bias must have a value for each of the {outputs} output channels, not {bias.size}"
        )


def check_axis(name: str, axis: int, ndim: int) -> int:
    """Return an axis counted from the front; refuse one that an array of ndim axes lacks."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"{name} must be from {-ndim} to {ndim - 1}, not {axis!r}")
    return axis % ndim


def check_inputs(inputs: Sequence[FloatArray]) -> None:
    """Refuse an empty list, and arrays that are not float32."""
    if not inputs:
        raise ValueError("inputs must be at least one array, not none")
    for index, array in enumerate(inputs):
        check_type(f"inputs[{index}]", array, np.float32)


def check_positive(name: str, value: float) -> None:
    """Refuse a value that is not above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, not {value!r}")

"""Golden model of Trirow: the arithmetic that gateware and driver have to reproduce bit for bit.

Feature maps are NHWC, kernels (K, R, S, C), padding is (top, left, bottom, right). The package
imports numpy only and does no input or output.
"""

from trirow_golden.convolution import accumulator_bound, conv2d, conv2d_plain
from trirow_golden.geometry import output_size
from trirow_golden.layer import conv2d_int8
from trirow_golden.requantise import (
    conv_multiplier,
    encode_multiplier,
    requantise,
    requantise_integer,
)

__all__ = [
    "accumulator_bound",
    "conv2d",
    "conv2d_int8",
    "conv2d_plain",
    "conv_multiplier",
    "encode_multiplier",
    "output_size",
    "requantise",
    "requantise_integer",
]

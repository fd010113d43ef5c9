"""Golden model of Trirow: the arithmetic that gateware and driver have to reproduce bit for bit.

Feature maps are NHWC, kernels (K, R, S, C / groups), padding is (top, left, bottom, right). The
package imports numpy only and does no input or output.
"""

from trirow_golden.arrange import channel_shuffle, upsample_nearest
from trirow_golden.convolution import accumulator_bound, conv2d, conv2d_plain
from trirow_golden.elementwise import (
    Combination,
    add_tflite,
    add_xnnpack,
    combine,
    max_tables,
    multiply,
)
from trirow_golden.fixed import conv_multiplier_fixed, encode_fixed, requantise_fixed
from trirow_golden.geometry import output_size, same_padding, transposed_output_size
from trirow_golden.layer import conv2d_int8, transposed_conv2d_int8
from trirow_golden.lookup import apply_table, table_of
from trirow_golden.pool import (
    average_constants,
    average_pool2d,
    global_average_pool,
    max_pool2d,
    pool_counts,
    sum_pool2d,
)
from trirow_golden.requantise import (
    conv_multiplier,
    encode_multiplier,
    encode_scale,
    requantise,
    requantise_integer,
)
from trirow_golden.transposed import transposed_conv2d

__all__ = [
    "Combination",
    "accumulator_bound",
    "add_tflite",
    "add_xnnpack",
    "apply_table",
    "average_constants",
    "average_pool2d",
    "channel_shuffle",
    "combine",
    "conv2d",
    "conv2d_int8",
    "conv2d_plain",
    "conv_multiplier",
    "conv_multiplier_fixed",
    "encode_fixed",
    "encode_multiplier",
    "encode_scale",
    "global_average_pool",
    "max_pool2d",
    "max_tables",
    "multiply",
    "output_size",
    "pool_counts",
    "requantise",
    "requantise_fixed",
    "requantise_integer",
    "same_padding",
    "sum_pool2d",
    "table_of",
    "transposed_conv2d",
    "transposed_conv2d_int8",
    "transposed_output_size",
    "upsample_nearest",
]

"""Driver of Trirow: blobs, layouts, quantisation, layers and the image for the DDR."""

from trirow_driver.blob import Blob
from trirow_driver.combine_layer import Combine, CombineLayer, MultiplyLayer, combine_scales
from trirow_driver.conv_layer import ConvLayer, quantise_conv, shuffle_layer
from trirow_driver.image import DdrImage, ImageBuilder, ImageError, Region
from trirow_driver.layer import Layer
from trirow_driver.layout import Layout, convert, offset
from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.quantise import (
    Quantisation,
    dequantise,
    from_range,
    quantise,
    quantise_bias,
    quantise_weights,
)

__all__ = [
    "Blob",
    "Combine",
    "CombineLayer",
    "ConvLayer",
    "CopyLayer",
    "DdrImage",
    "ImageBuilder",
    "ImageError",
    "Layer",
    "Layout",
    "MultiplyLayer",
    "PoolLayer",
    "Quantisation",
    "Region",
    "combine_scales",
    "convert",
    "dequantise",
    "from_range",
    "offset",
    "quantise",
    "quantise_bias",
    "quantise_conv",
    "quantise_weights",
    "shuffle_layer",
]

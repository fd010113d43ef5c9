"""Driver of Trirow: blobs, layouts, quantisation, layers and the image for the DDR."""

from trirow_driver.blob import Blob
from trirow_driver.image import DdrImage, ImageBuilder, ImageError, Region
from trirow_driver.layer import ConvLayer, quantise_conv
from trirow_driver.layout import Layout, convert, offset
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
    "ConvLayer",
    "DdrImage",
    "ImageBuilder",
    "ImageError",
    "Layout",
    "Quantisation",
    "Region",
    "convert",
    "dequantise",
    "from_range",
    "offset",
    "quantise",
    "quantise_bias",
    "quantise_conv",
    "quantise_weights",
]

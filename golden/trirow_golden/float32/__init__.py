"""Float reference: the layers of Caffe's vision networks as plain functions on float32 arrays.

Those of the SSD fork for detectors (permute, normalize, prior boxes, detection output) are among
them. What a layer computes follows BVLC's Caffe, or the fork; OpenCV's reader deviates here and
there, as the tests note.

Feature maps are (N, C, H, W), the order of Caffe and ONNX, unlike the NHWC of the int8 functions
around this package; padding is (top, left, bottom, right). The functions compute what a layer does
at inference. Weights, bias, statistics and the like are arrays, everything else is given by name.
No function changes its arguments.
"""

from trirow_golden.float32.activations import absolute, power, prelu, relu, sigmoid, tanh
from trirow_golden.float32.affine import batch_norm, bias, scale
from trirow_golden.float32.arrange import concat, crop, slice_
from trirow_golden.float32.convolution import convolution
from trirow_golden.float32.deconvolution import deconvolution
from trirow_golden.float32.detection import decode_boxes, detection_output, suppress_overlaps
from trirow_golden.float32.elementwise import eltwise
from trirow_golden.float32.inner_product import inner_product
from trirow_golden.float32.normalisation import lrn, normalize, softmax
from trirow_golden.float32.pool import average_pool, max_pool
from trirow_golden.float32.prior_box import prior_box
from trirow_golden.float32.shape import flatten, permute, reshape

__all__ = [
    "absolute",
    "average_pool",
    "batch_norm",
    "bias",
    "concat",
    "convolution",
    "crop",
    "decode_boxes",
    "deconvolution",
    "detection_output",
    "eltwise",
    "flatten",
    "inner_product",
    "lrn",
    "max_pool",
    "normalize",
    "permute",
    "power",
    "prelu",
    "prior_box",
    "relu",
    "reshape",
    "scale",
    "sigmoid",
    "slice_",
    "softmax",
    "suppress_overlaps",
    "tanh",
]

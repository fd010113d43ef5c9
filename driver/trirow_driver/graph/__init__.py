"""Networks as importers make them: operations in float32 with named tensors between them."""

from trirow_driver.graph.arrange import Concat, Crop, Flatten, Permute, Reshape, Slice
from trirow_driver.graph.detection import DetectionOutput, PriorBox
from trirow_driver.graph.fold import fold
from trirow_driver.graph.graph import LARGEST_TENSOR, Graph, GraphError, Node
from trirow_driver.graph.matrix import Convolution, Deconvolution, InnerProduct
from trirow_driver.graph.normalise import Lrn, Normalize, Softmax
from trirow_driver.graph.operation import Identity, Operation
from trirow_driver.graph.pointwise import (
    Absolute,
    BatchNorm,
    Bias,
    Eltwise,
    Power,
    Prelu,
    Relu,
    Scale,
    Sigmoid,
    Tanh,
)
from trirow_driver.graph.pool import AveragePool, MaxPool, Pool

__all__ = [
    "LARGEST_TENSOR",
    "Absolute",
    "AveragePool",
    "BatchNorm",
    "Bias",
    "Concat",
    "Convolution",
    "Crop",
    "Deconvolution",
    "DetectionOutput",
    "Eltwise",
    "Flatten",
    "Graph",
    "GraphError",
    "Identity",
    "InnerProduct",
    "Lrn",
    "MaxPool",
    "Node",
    "Normalize",
    "Operation",
    "Permute",
    "Pool",
    "Power",
    "Prelu",
    "PriorBox",
    "Relu",
    "Reshape",
    "Scale",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Tanh",
    "fold",
]

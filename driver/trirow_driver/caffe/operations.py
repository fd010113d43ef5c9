"""What Caffe's layers are as operations of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.blob import Blob
from trirow_driver.caffe.layers import CaffeLayer
from trirow_driver.graph import (
    Absolute,
    AveragePool,
    BatchNorm,
    Bias,
    Concat,
    Convolution,
    Crop,
    Deconvolution,
    DetectionOutput,
    Eltwise,
    Flatten,
    Identity,
    InnerProduct,
    Lrn,
    MaxPool,
    Normalize,
    Operation,
    Permute,
    Pool,
    Power,
    Prelu,
    PriorBox,
    Relu,
    Reshape,
    Scale,
    Sigmoid,
    Slice,
    Softmax,
    Tanh,
)

__all__ = ["LAYER_TYPES", "operation_of"]

_Floats = npt.NDArray[np.float32]
#: Largest value of a size; what is beyond is a wrong file.
_LARGEST_SIZE = 1 << 20


def operation_of(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    """Return the operation of a layer.

    Parameters
    ----------
    layer : CaffeLayer
    blobs : sequence of Blob
        Its trained values.

    Raises
    ------
    ValueError
        If the type is not one of `LAYER_TYPES`, blobs are missing or do not fit, or a parameter is
        wrong or asks for what is not supported.
    """
    if layer.type not in LAYER_TYPES:
        raise ValueError(f"type {layer.type!r} is not known; known are {', '.join(LAYER_TYPES)}")
    return LAYER_TYPES[layer.type](layer, blobs)


def _blob(blobs: Sequence[Blob], number: int, *shape: int) -> _Floats:
    """Return the values of a blob in a shape, of which one extent may be -1."""
    if number >= len(blobs):
        raise ValueError(f"needs {number + 1} or more trained blobs, and has {len(blobs)}")
    known = int(np.prod([extent for extent in shape if extent != -1]))
    values = blobs[number].data
    if (
        known < 1
        or values.size % known
        or (-1 not in shape and values.size != known)
        or not values.size
    ):
        raise ValueError(f"blob {number} of shape {blobs[number].shape} does not fit {shape}")
    return values.reshape(shape)


def _pair(param: Any, name: str, short: str, default: int | None) -> tuple[int, int]:
    """Return rows and columns of ``kernel_size``, ``stride``, ``pad`` or ``dilation``."""
    rows, columns = f"{short}_h", f"{short}_w"
    fields = param.DESCRIPTOR.fields_by_name
    if rows in fields and (param.HasField(rows) or param.HasField(columns)):
        pair = [getattr(param, rows), getattr(param, columns)]
    else:
        value = getattr(param, name)
        repeated = not isinstance(value, int)
        values = list(value) if repeated else [value] if param.HasField(name) else []
        if not values and default is None:
            raise ValueError(f"{name} is missing")
        pair = [int(v) for v in values] or [int(default or 0)]
    if len(pair) > 2 or max(pair) > _LARGEST_SIZE:
        raise ValueError(f"{name} must be one or two sizes up to {_LARGEST_SIZE}, not {pair}")
    return pair[0], pair[-1]


def _padding(param: Any) -> tuple[int, int, int, int]:
    rows, columns = _pair(param, "pad", "pad", 0)
    return rows, columns, rows, columns


def _matrix(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.convolution_param
    kernel, filters, group = (
        _pair(param, "kernel_size", "kernel", None),
        param.num_output,
        param.group,
    )
    if param.axis != 1:
        raise ValueError(f"axis must be 1, not {param.axis}")
    if not 1 <= group <= filters or filters % group:
        raise ValueError(f"group must divide num_output ({filters}), not {group}")
    bias = _blob(blobs, 1, filters) if param.bias_term else None
    options: dict[str, Any] = {
        "stride": _pair(param, "stride", "stride", 1),
        "pad": _padding(param),
        "dilation": _pair(param, "dilation", "dilation", 1),
        "group": group,
    }
    if layer.type == "Deconvolution":
        return Deconvolution(_blob(blobs, 0, -1, filters // group, *kernel), bias, **options)
    return Convolution(_blob(blobs, 0, filters, -1, *kernel), bias, **options)


def _inner_product(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.inner_product_param
    filters = param.num_output
    weights = _blob(blobs, 0, -1, filters).T if param.transpose else _blob(blobs, 0, filters, -1)
    bias = _blob(blobs, 1, filters) if param.bias_term else None
    return InnerProduct(weights, bias, param.axis)


def _pool(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.pooling_param
    if param.pool not in (0, 1):
        raise ValueError("pool must be MAX or AVE, not STOCHASTIC")
    kind: type[Pool] = AveragePool if param.pool else MaxPool
    if param.global_pooling:
        return kind(None)
    kernel, ceil = _pair(param, "kernel_size", "kernel", None), bool(param.round_mode == 0)
    return kind(kernel, _pair(param, "stride", "stride", 1), _padding(param), ceil)


def _batch_norm(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    (factor,) = _blob(blobs, 2, 1)
    # The sums of a training that has only begun, or none.
    share = np.float32(0 if factor == 0 else 1 / factor)
    eps = layer.message.batch_norm_param.eps
    return BatchNorm(_blob(blobs, 0, -1) * share, _blob(blobs, 1, -1) * share, eps)


def _along(blobs: Sequence[Blob], number: int, num_axes: int) -> _Floats:
    """Return values that lie along axes; old files have axes of one in front."""
    values = _blob(blobs, number, -1)
    shape = blobs[number].shape
    return values if num_axes == 1 else values.reshape(shape)


def _scale(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.scale_param
    if len(layer.bottoms) > 1:
        raise ValueError("factors from a second bottom are not supported")
    offsets = _along(blobs, 1, param.num_axes) if param.bias_term else None
    return Scale(_along(blobs, 0, param.num_axes), offsets, param.axis)


def _bias(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.bias_param
    if len(layer.bottoms) > 1:
        raise ValueError("offsets from a second bottom are not supported")
    return Bias(_along(blobs, 0, param.num_axes), param.axis)


def _eltwise(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.eltwise_param
    kinds = ("product", "sum", "max")
    return Eltwise(kinds[param.operation], tuple(param.coeff) or None)  # type: ignore[arg-type]


def _concat(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.concat_param
    return Concat(param.concat_dim if param.HasField("concat_dim") else param.axis)


def _slice(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.slice_param
    axis = param.slice_dim if param.HasField("slice_dim") else param.axis
    return Slice(len(layer.tops), tuple(param.slice_point), axis)


def _lrn(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.lrn_param
    region = ("across_channels", "within_channel")[param.norm_region]
    if param.local_size > _LARGEST_SIZE:
        raise ValueError(f"local_size must be up to {_LARGEST_SIZE}, not {param.local_size}")
    size, k = param.local_size, param.k
    return Lrn(size, param.alpha, param.beta, k, region)  # type: ignore[arg-type]


def _reshape(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.reshape_param
    return Reshape(tuple(param.shape.dim), param.axis, param.num_axes)


def _normalize(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.norm_param
    factors = _blob(blobs, 0, 1) if param.channel_shared else _blob(blobs, 0, -1)
    return Normalize(factors, param.across_spatial, param.eps)


def _prior_box(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.prior_box_param
    step = None
    if param.step or param.step_h or param.step_w:
        step = (param.step_h or param.step, param.step_w or param.step)
    size = (param.img_h or param.img_size, param.img_w or param.img_size)
    return PriorBox(
        tuple(param.min_size),
        tuple(param.max_size),
        tuple(param.aspect_ratio),
        param.flip,
        param.clip,
        tuple(param.variance) or (0.1,),
        step,
        param.offset,
        size if min(size) else None,
    )


def _detection_output(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    param = layer.message.detection_output_param
    codes = {1: "corner", 2: "center_size"}
    if param.code_type not in codes:
        raise ValueError("code_type must be CORNER or CENTER_SIZE, not CORNER_SIZE")
    nms = param.nms_param
    return DetectionOutput(
        param.num_classes,
        param.share_location,
        param.background_label_id,
        codes[param.code_type],  # type: ignore[arg-type]
        param.variance_encoded_in_target,
        param.confidence_threshold if param.HasField("confidence_threshold") else -np.inf,
        nms.nms_threshold,
        nms.eta,
        nms.top_k if nms.HasField("top_k") else -1,
        param.keep_top_k,
    )


def _simple(make: Callable[[Any], Operation]) -> Callable[[CaffeLayer, Sequence[Blob]], Operation]:
    """Return the function of a layer type whose operation follows from the message alone."""
    return lambda layer, blobs: make(layer.message)


def _identity(layer: CaffeLayer, blobs: Sequence[Blob]) -> Operation:
    return Identity(len(layer.tops))


#: By the type of the layer.
LAYER_TYPES: dict[str, Callable[[CaffeLayer, Sequence[Blob]], Operation]] = {
    "AbsVal": _simple(lambda m: Absolute()),
    "BatchNorm": _batch_norm,
    "Bias": _bias,
    "Concat": _concat,
    "Convolution": _matrix,
    "ConvolutionDepthwise": _matrix,
    "Crop": _simple(lambda m: Crop(m.crop_param.axis, tuple(m.crop_param.offset))),
    "Deconvolution": _matrix,
    "DepthwiseConvolution": _matrix,
    "DetectionOutput": _detection_output,
    "Dropout": _identity,
    "Eltwise": _eltwise,
    "Flatten": _simple(lambda m: Flatten(m.flatten_param.axis, m.flatten_param.end_axis)),
    "InnerProduct": _inner_product,
    "LRN": _lrn,
    "Normalize": _normalize,
    "PReLU": lambda layer, blobs: Prelu(_blob(blobs, 0, -1)),
    "Permute": _simple(lambda m: Permute(tuple(m.permute_param.order))),
    "Pooling": _pool,
    "Power": _simple(
        lambda m: Power(m.power_param.power, m.power_param.scale, m.power_param.shift)
    ),
    "PriorBox": _prior_box,
    "ReLU": _simple(lambda m: Relu(m.relu_param.negative_slope)),
    "Reshape": _reshape,
    "Scale": _scale,
    "Sigmoid": _simple(lambda m: Sigmoid()),
    "Slice": _slice,
    "Softmax": _simple(lambda m: Softmax(m.softmax_param.axis)),
    "Split": _identity,
    "TanH": _simple(lambda m: Tanh()),
}

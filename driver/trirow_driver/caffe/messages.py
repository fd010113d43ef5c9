"""Caffe's protobuf messages, built at run time.

Numbers, types and defaults are those of BVLC's ``caffe.proto``, for detectors (from 202 on) of
the SSD fork. Packages with generated messages do not work with protobuf 4 and later.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["V1_TYPES", "message"]

#: Types of V1 layers by number: their names in a prototxt, and what V2 calls them.
V1_TYPES = {
    1: ("ACCURACY", "Accuracy"),
    3: ("CONCAT", "Concat"),
    4: ("CONVOLUTION", "Convolution"),
    5: ("DATA", "Data"),
    6: ("DROPOUT", "Dropout"),
    8: ("FLATTEN", "Flatten"),
    14: ("INNER_PRODUCT", "InnerProduct"),
    15: ("LRN", "LRN"),
    17: ("POOLING", "Pooling"),
    18: ("RELU", "ReLU"),
    19: ("SIGMOID", "Sigmoid"),
    20: ("SOFTMAX", "Softmax"),
    21: ("SOFTMAX_LOSS", "SoftmaxWithLoss"),
    22: ("SPLIT", "Split"),
    23: ("TANH", "TanH"),
    25: ("ELTWISE", "Eltwise"),
    26: ("POWER", "Power"),
    29: ("MEMORY_DATA", "MemoryData"),
    32: ("DUMMY_DATA", "DummyData"),
    33: ("SLICE", "Slice"),
    35: ("ABSVAL", "AbsVal"),
    39: ("DECONVOLUTION", "Deconvolution"),
}
#: Values of enumerations, by the name of the type.
_ENUMS: dict[str, dict[str, int]] = {
    "Phase": {"TRAIN": 0, "TEST": 1},
    "PoolMethod": {"MAX": 0, "AVE": 1, "STOCHASTIC": 2},
    "RoundMode": {"CEIL": 0, "FLOOR": 1},
    "EltwiseOp": {"PROD": 0, "SUM": 1, "MAX": 2},
    "NormRegion": {"ACROSS_CHANNELS": 0, "WITHIN_CHANNEL": 1},
    "CodeType": {"CORNER": 1, "CENTER_SIZE": 2, "CORNER_SIZE": 3},
    "V1Type": {"NONE": 0, **{name: number for number, (name, _) in V1_TYPES.items()}},
}
#: Fields of each message: name, number, type and whether there are several ("*"), and a default.
_FIELDS: dict[str, str] = {
    "BlobShape": "dim 1 int64*",
    "BlobProto": """num 1 int32; channels 2 int32; height 3 int32; width 4 int32; data 5 float*;
        diff 6 float*; shape 7 BlobShape; double_data 8 double*; double_diff 9 double*;
        raw_data_type 10 int32; raw_data 12 bytes""",
    "NetStateRule": """phase 1 Phase; min_level 2 int32; max_level 3 int32; stage 4 string*;
        not_stage 5 string*""",
    "NetParameter": """name 1 string; layers 2 V1LayerParameter*; input 3 string*;
        input_dim 4 int32*; input_shape 8 BlobShape*; layer 100 LayerParameter*""",
    "LayerParameter": """name 1 string; type 2 string; bottom 3 string*; top 4 string*;
        blobs 7 BlobProto*; include 8 NetStateRule*; exclude 9 NetStateRule*; phase 10 Phase;
        concat_param 104 ConcatParameter; convolution_param 106 ConvolutionParameter;
        dummy_data_param 109 DummyDataParameter; eltwise_param 110 EltwiseParameter;
        inner_product_param 117 InnerProductParameter; lrn_param 118 LRNParameter;
        memory_data_param 119 MemoryDataParameter; pooling_param 121 PoolingParameter;
        power_param 122 PowerParameter; relu_param 123 ReLUParameter;
        softmax_param 125 SoftmaxParameter; slice_param 126 SliceParameter;
        prelu_param 131 PReLUParameter; reshape_param 133 ReshapeParameter;
        flatten_param 135 FlattenParameter; batch_norm_param 139 BatchNormParameter;
        bias_param 141 BiasParameter; scale_param 142 ScaleParameter;
        input_param 143 InputParameter; crop_param 144 CropParameter;
        permute_param 202 PermuteParameter; prior_box_param 203 PriorBoxParameter;
        detection_output_param 204 DetectionOutputParameter; norm_param 206 NormalizeParameter""",
    "V1LayerParameter": """bottom 2 string*; top 3 string*; name 4 string; type 5 V1Type;
        blobs 6 BlobProto*; concat_param 9 ConcatParameter;
        convolution_param 10 ConvolutionParameter; inner_product_param 17 InnerProductParameter;
        lrn_param 18 LRNParameter; pooling_param 19 PoolingParameter;
        power_param 21 PowerParameter; eltwise_param 24 EltwiseParameter;
        memory_data_param 22 MemoryDataParameter; dummy_data_param 26 DummyDataParameter;
        relu_param 30 ReLUParameter; slice_param 31 SliceParameter; include 32 NetStateRule*;
        exclude 33 NetStateRule*; softmax_param 39 SoftmaxParameter""",
    "ConcatParameter": "concat_dim 1 uint32 =1; axis 2 int32 =1",
    "ConvolutionParameter": """num_output 1 uint32; bias_term 2 bool =true; pad 3 uint32*;
        kernel_size 4 uint32*; group 5 uint32 =1; stride 6 uint32*; pad_h 9 uint32 =0;
        pad_w 10 uint32 =0; kernel_h 11 uint32; kernel_w 12 uint32; stride_h 13 uint32;
        stride_w 14 uint32; axis 16 int32 =1; dilation 18 uint32*""",
    "DummyDataParameter": """shape 6 BlobShape*; num 2 uint32*; channels 3 uint32*;
        height 4 uint32*; width 5 uint32*""",
    "EltwiseParameter": "operation 1 EltwiseOp =SUM; coeff 2 float*",
    "InnerProductParameter": """num_output 1 uint32; bias_term 2 bool =true; axis 5 int32 =1;
        transpose 6 bool =false""",
    "LRNParameter": """local_size 1 uint32 =5; alpha 2 float =1; beta 3 float =0.75;
        norm_region 4 NormRegion =ACROSS_CHANNELS; k 5 float =1""",
    "MemoryDataParameter": """batch_size 1 uint32; channels 2 uint32; height 3 uint32;
        width 4 uint32""",
    "PoolingParameter": """pool 1 PoolMethod =MAX; kernel_size 2 uint32; stride 3 uint32 =1;
        pad 4 uint32 =0; kernel_h 5 uint32; kernel_w 6 uint32; stride_h 7 uint32;
        stride_w 8 uint32; pad_h 9 uint32 =0; pad_w 10 uint32 =0; global_pooling 12 bool =false;
        round_mode 13 RoundMode =CEIL""",
    "PowerParameter": "power 1 float =1; scale 2 float =1; shift 3 float =0",
    "ReLUParameter": "negative_slope 1 float =0",
    "SoftmaxParameter": "axis 2 int32 =1",
    "SliceParameter": "slice_dim 1 uint32 =1; slice_point 2 uint32*; axis 3 int32 =1",
    "PReLUParameter": "channel_shared 2 bool =false",
    "ReshapeParameter": "shape 1 BlobShape; axis 2 int32 =0; num_axes 3 int32 =-1",
    "FlattenParameter": "axis 1 int32 =1; end_axis 2 int32 =-1",
    "BatchNormParameter": """use_global_stats 1 bool; moving_average_fraction 2 float =0.999;
        eps 3 float =1e-5""",
    "BiasParameter": "axis 1 int32 =1; num_axes 2 int32 =1",
    "ScaleParameter": "axis 1 int32 =1; num_axes 2 int32 =1; bias_term 4 bool =false",
    "InputParameter": "shape 1 BlobShape*",
    "CropParameter": "axis 1 int32 =2; offset 2 uint32*",
    "PermuteParameter": "order 1 uint32*",
    "PriorBoxParameter": """min_size 1 float*; max_size 2 float*; aspect_ratio 3 float*;
        flip 4 bool =true; clip 5 bool =false; variance 6 float*; img_size 7 uint32;
        img_h 8 uint32; img_w 9 uint32; step 10 float; step_h 11 float; step_w 12 float;
        offset 13 float =0.5""",
    "NonMaximumSuppressionParameter": "nms_threshold 1 float =0.3; top_k 2 int32; eta 3 float =1",
    "DetectionOutputParameter": """num_classes 1 uint32; share_location 2 bool =true;
        background_label_id 3 int32 =0; nms_param 4 NonMaximumSuppressionParameter;
        code_type 6 CodeType =CORNER; variance_encoded_in_target 8 bool =false;
        keep_top_k 7 int32 =-1; confidence_threshold 9 float""",
    "NormalizeParameter": """across_spatial 1 bool =true; channel_shared 3 bool =true;
        eps 4 float =1e-10""",
}
_PACKAGE = "caffe"


@cache
def message(name: str) -> Any:
    """Return the class of a message, such as ``NetParameter``."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """Return a pool of its own, so that other definitions of the same messages do not matter."""
    file = descriptor_pb2.FileDescriptorProto(name="trirow_caffe.proto", package=_PACKAGE)
    for name, text in _FIELDS.items():
        entry = file.message_type.add(name=name)
        for field in text.split(";"):
            _add_field(entry, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(entry: Any, name: str, number: str, kind: str, default: str | None = None) -> None:
    """Add a field to a message, and the enumeration that it is of."""
    fields = descriptor_pb2.FieldDescriptorProto
    field = entry.field.add(name=name, number=int(number))
    field.label = fields.LABEL_REPEATED if kind.endswith("*") else fields.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in _ENUMS:
        # In the message, since the names of its values hold for all that is around it.
        field.type, field.type_name = fields.TYPE_ENUM, f".{_PACKAGE}.{entry.name}.{kind}"
        enum = entry.enum_type.add(name=kind)
        for value, place in _ENUMS[kind].items():
            enum.value.add(name=value, number=place)
    elif kind in _FIELDS:
        field.type, field.type_name = fields.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(fields, f"TYPE_{kind.upper()}")
        if field.label == fields.LABEL_REPEATED and kind not in ("string", "bytes"):
            field.options.packed = name in ("data", "diff", "double_data", "double_diff", "dim")
    if default is not None:
        field.default_value = default.removeprefix("=")

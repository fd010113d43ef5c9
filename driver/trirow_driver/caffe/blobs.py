"""Blobs in Caffe's messages."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.blob import MAX_AXES, Blob
from trirow_driver.caffe.messages import message

__all__ = ["blob_from_proto", "blob_to_proto"]

#: Number of float16 among the types of ``raw_data``.
_FLOAT16 = 2
_LEGACY = ("num", "channels", "height", "width")


def blob_from_proto(proto: Any) -> Blob:
    """Return the blob of a message.

    Values are in ``data``, ``double_data``, or as float16 in ``raw_data``; the shape is in
    ``shape``, or in the four fields of old files. The gradient is read if it is there.

    Parameters
    ----------
    proto : BlobProto

    Raises
    ------
    ValueError
        If shape and number of values do not agree, or the blob is beyond `Blob`'s limits.
    """
    if proto.HasField("shape"):
        shape = tuple(proto.shape.dim)
    elif any(proto.HasField(name) for name in _LEGACY):
        shape = tuple(getattr(proto, name) for name in _LEGACY)
    else:
        shape = (len(_values(proto, "data")),)
    if len(shape) > MAX_AXES or min(shape, default=0) < 0:
        raise ValueError(f"shape must be up to {MAX_AXES} extents of 0 or more, not {shape[:8]}")
    values, gradient = _values(proto, "data"), _values(proto, "diff")
    for name, found in (("data", values), ("diff", gradient)):
        # Before anything is allocated: what is there is the measure, not what the shape says.
        if len(found) != prod(shape) and (name == "data" or len(found)):
            raise ValueError(
                f"blob of shape {shape[:8]} must not have {len(found)} values of {name}"
            )
    blob = Blob(shape)
    blob.data[...] = np.asarray(values, np.float32).reshape(shape)
    if len(gradient):
        blob.diff[...] = np.asarray(gradient, np.float32).reshape(shape)
    return blob


def _values(proto: Any, name: str) -> npt.NDArray[Any]:
    doubles = getattr(proto, f"double_{name}")
    if len(doubles):
        return np.asarray(doubles, np.float64)
    if name == "data" and proto.raw_data:
        if proto.raw_data_type != _FLOAT16 or len(proto.raw_data) % 2:
            raise ValueError(f"raw_data must be float16, not type {proto.raw_data_type}")
        return np.frombuffer(proto.raw_data, "<f2")
    return np.asarray(getattr(proto, name), np.float32)


def blob_to_proto(
    blob: Blob, *, legacy: bool = False, double: bool = False, diff: bool = False
) -> Any:
    """Return the message of a blob.

    Parameters
    ----------
    blob : Blob
    legacy : bool
        Write the shape in the four fields of old files; up to four axes.
    double : bool
        Write float64.
    diff : bool
        Write the gradient, too.

    Returns
    -------
    BlobProto

    Raises
    ------
    ValueError
        If `legacy` is asked for more than four axes.
    """
    proto = message("BlobProto")()
    if legacy:
        if blob.num_axes > len(_LEGACY):
            raise ValueError(f"a legacy shape has four axes, not {blob.num_axes}")
        shape = (1,) * (len(_LEGACY) - blob.num_axes) + blob.shape
        for name, extent in zip(_LEGACY, shape, strict=True):
            setattr(proto, name, extent)
    else:
        proto.shape.SetInParent()
        proto.shape.dim.extend(blob.shape)
    prefix = "double_" if double else ""
    getattr(proto, f"{prefix}data").extend(blob.data.ravel().tolist())
    if diff:
        getattr(proto, f"{prefix}diff").extend(blob.diff.ravel().tolist())
    return proto

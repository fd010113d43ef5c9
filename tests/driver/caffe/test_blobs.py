"""Blobs in protobuf, of which the bytes are encoded by hand too."""

import struct

import numpy as np
import pytest

from trirow_driver.blob import Blob
from trirow_driver.caffe import (
    CaffeFileError,
    blob_from_proto,
    blob_to_proto,
    message,
    read_mean,
    write_mean,
)

SIX = np.arange(6, dtype=np.float32) - 2.5


def make(shape=(2, 3)):
    blob = Blob(shape)
    blob.data[...] = SIX.reshape(shape)
    blob.diff[...] = -2 * SIX.reshape(shape)
    return blob


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("diff", [False, True])
def test_round_trip(legacy, double, diff):
    proto = blob_to_proto(make(), legacy=legacy, double=double, diff=diff)
    again = blob_from_proto(type(proto).FromString(proto.SerializeToString()))
    assert again.shape == ((1, 1, 2, 3) if legacy else (2, 3))
    assert np.array_equal(again.data.ravel(), SIX)
    assert np.array_equal(again.diff.ravel(), -2 * SIX if diff else 0 * SIX)


def test_bytes_by_hand():
    """Field numbers and packing as ``caffe.proto`` has them."""
    values = struct.pack("<6f", *SIX)
    shape = b"\x3a\x04\x0a\x02\x02\x03"  # shape 7, dim 1 packed
    assert blob_to_proto(make()).SerializeToString() == b"\x2a\x18" + values + shape
    unpacked = b"".join(b"\x2d" + values[k : k + 4] for k in range(0, 24, 4))
    old = b"\x08\x01\x10\x01\x18\x02\x20\x03"  # num 1, channels 1, height 2, width 3
    for content, expected in (
        (unpacked + b"\x3a\x04\x08\x02\x08\x03", (2, 3)),
        (b"\x2a\x18" + values + old, (1, 1, 2, 3)),
        (b"\x42\x30" + struct.pack("<6d", *SIX) + shape, (2, 3)),
        (b"\x50\x02\x62\x0c" + struct.pack("<6e", *SIX) + shape, (2, 3)),
        (b"\x2a\x18" + values, (6,)),
    ):
        blob = blob_from_proto(message("BlobProto").FromString(content))
        assert blob.shape == expected
        assert np.array_equal(blob.data.ravel(), SIX)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p: p.shape.dim.append(2), r"shape \(2, 3, 2\) must not have 6 values of data"),
        (lambda p: p.data.append(1), "must not have 7 values of data"),
        (lambda p: p.diff.append(1), "must not have 1 values of diff"),
        (lambda p: p.shape.dim.append(-1), "extents of 0 or more"),
        (lambda p: p.shape.dim.extend([1] * 40), "up to 32 extents"),
        (lambda p: p.shape.dim.append(1 << 60), "must not have 6 values"),
    ],
)
def test_wrong_blobs(change, text):
    proto = blob_to_proto(make())
    change(proto)
    with pytest.raises(ValueError, match=text):
        blob_from_proto(proto)


def test_wrong_raw_data():
    proto = message("BlobProto")(raw_data=b"1234", raw_data_type=0)
    with pytest.raises(ValueError, match="raw_data must be float16, not type 0"):
        blob_from_proto(proto)


def test_legacy_shapes_have_four_axes():
    with pytest.raises(ValueError, match="a legacy shape has four axes, not 5"):
        blob_to_proto(make((1, 1, 1, 2, 3)), legacy=True)


def test_mean_file(tmp_path):
    path = tmp_path / "mean.binaryproto"
    write_mean(path, make((1, 2, 3)))
    assert read_mean(path).shape == (1, 1, 2, 3)
    assert np.array_equal(read_mean(path).data.ravel(), SIX)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CaffeFileError, match=r"mean\.binaryproto: "):
        read_mean(path)
    path.write_bytes(b"")
    with pytest.raises(CaffeFileError, match=r"mean\.binaryproto: has no values"):
        read_mean(path)
    with pytest.raises(CaffeFileError, match=r"none: cannot be read: No such file"):
        read_mean(tmp_path / "none")

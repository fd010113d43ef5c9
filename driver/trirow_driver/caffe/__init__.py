"""Networks of Caffe: prototxt, caffemodel and mean files. Needs protobuf (``trirow[caffe]``)."""

from trirow_driver.caffe.blobs import blob_from_proto, blob_to_proto
from trirow_driver.caffe.exporter import to_caffe
from trirow_driver.caffe.files import (
    CaffeFileError,
    read_caffemodel,
    read_mean,
    read_prototxt,
    write_caffemodel,
    write_mean,
    write_prototxt,
)
from trirow_driver.caffe.importer import CaffeNet, load_caffe
from trirow_driver.caffe.messages import message

__all__ = [
    "CaffeFileError",
    "CaffeNet",
    "blob_from_proto",
    "blob_to_proto",
    "load_caffe",
    "message",
    "read_caffemodel",
    "read_mean",
    "read_prototxt",
    "to_caffe",
    "write_caffemodel",
    "write_mean",
    "write_prototxt",
]

"""Small networks in files, and the real ones."""

from pathlib import Path

import numpy as np
import pytest

from trirow_driver.blob import Blob
from trirow_driver.caffe import blob_to_proto, message

from ...opencv import read_net

MODELS = Path(__file__).parents[3] / ".." / "shared" / "models" / "caffe"
#: Prototxt and caffemodel of each.
REAL = {
    "lenet": ("lenet/lenet.prototxt", "lenet/lenet_iter_10000.caffemodel"),
    **{
        name: (f"{folder}/{name}.prototxt", f"{folder}/{name}.caffemodel")
        for folder, names in {
            "mtcnn": ("det1", "det2", "det3"),
            "ultralight": ("slim-320",),
            "wechat": ("detect", "sr"),
        }.items()
        for name in names
    },
}


def real(name):
    """Return the files of a real network; skip where they are missing."""
    paths = [MODELS / file for file in REAL[name]]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{paths[0]} is not there")
    return paths


def proto_of(values, **options):
    """Return the message of a blob with values."""
    blob = Blob(np.shape(values))
    blob.data[...] = values
    return blob_to_proto(blob, **options)


def write_net(folder, text, blobs, *, v1=False, **options):
    """Write a prototxt, and a caffemodel with the blobs of layers by name; return their paths."""
    prototxt, caffemodel = folder / "net.prototxt", folder / "net.caffemodel"
    prototxt.write_text(text)
    net = message("NetParameter")()
    for name, arrays in blobs.items():
        layer = (net.layers if v1 else net.layer).add(name=name)
        if v1:
            layer.type = 4  # a convolution, whichever
        for values in arrays:
            layer.blobs.append(proto_of(values, **options))
    if not blobs:
        net.layer.add(name="none")
    caffemodel.write_bytes(net.SerializeToString())
    return prototxt, caffemodel


def opencv(paths, feeds, blobs):
    """Return blobs of a network as OpenCV computes them."""
    net = read_net(*map(str, paths))
    # Fused layers have no output of their own.
    net.enableFusion(False)
    for name, values in feeds.items():
        net.setInput(values, name)
    return [np.array(result) for result in net.forward(blobs)]

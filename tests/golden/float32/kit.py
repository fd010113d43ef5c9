"""Caffe nets for OpenCV's reader: prototxt from text, caffemodel in protobuf's wire format.

A net here has one layer, or a few that are given as text. OpenCV takes structure and parameters
from the prototxt and only the blobs from the caffemodel, so that is all its layers contain.
"""

import numpy as np

from ...opencv import read_net

# field numbers of caffe.proto
_NET_LAYER, _LAYER_NAME, _LAYER_TYPE, _LAYER_BLOBS = 100, 1, 2, 7
_BLOB_DATA, _BLOB_SHAPE, _SHAPE_DIM = 5, 7, 1


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + _varint(rest)


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of wire type 2: a message, a string or packed numbers."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _blob(array) -> bytes:
    shape = _field(_SHAPE_DIM, b"".join(_varint(size) for size in array.shape))
    return _field(_BLOB_SHAPE, shape) + _field(_BLOB_DATA, array.astype("<f4").tobytes())


def caffemodel(blobs: dict) -> bytes:
    """Return a NetParameter with the blobs of layers, given as {(name, type): arrays}."""
    return b"".join(
        _field(
            _NET_LAYER,
            _field(_LAYER_NAME, name.encode())
            + _field(_LAYER_TYPE, kind.encode())
            + b"".join(_field(_LAYER_BLOBS, _blob(array)) for array in arrays),
        )
        for (name, kind), arrays in blobs.items()
    )


def run(layers: str, inputs: list, blobs: dict | None = None, last: str = "y0") -> list:
    """Run a net by OpenCV, with inputs ``x0``, ``x1``, ..., and return the last layer's outputs."""
    names = [f"x{index}" for index in range(len(inputs))]
    text = ""
    for name, array in zip(names, inputs, strict=True):
        dims = " ".join(f"dim: {size}" for size in array.shape)
        text += f'input: "{name}" input_shape {{ {dims} }}\n'
    model = np.frombuffer(caffemodel(blobs or {}), np.uint8)
    net = read_net(np.frombuffer((text + layers).encode(), np.uint8), model)
    for name, array in zip(names, inputs, strict=True):
        net.setInput(array, name)
    (results,) = net.forwardAndRetrieve([last])
    return [array.copy() for array in results]


def opencv(kind: str, inputs, parameters: str = "", weights=(), tops: int = 1):
    """Run a net of one layer; return its output, or a list of them if it has several tops."""
    inputs = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    bottoms = " ".join(f'bottom: "x{index}"' for index in range(len(inputs)))
    ends = " ".join(f'top: "y{index}"' for index in range(tops))
    # OpenCV finds some layers by their own name, others by their top's: both are y0
    layer = f'layer {{ name: "y0" type: "{kind}" {bottoms} {ends} {parameters} }}'
    results = run(layer, inputs, {("y0", kind): list(weights)})
    return results[0] if tops == 1 else results


def random(seed: int, *shape: int):
    """Return normal float32 values; the seed is printed, which pytest shows if a test fails."""
    print(f"seed {seed}, shape {shape}")
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def assert_close(result, expected, tolerance: float = 1e-4) -> None:
    """Compare shapes and values; the result must be float32."""
    assert result.dtype == np.float32
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)

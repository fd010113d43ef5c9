"""Read prototxt, caffemodel and mean files, which may be anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from trirow_driver.blob import Blob
from trirow_driver.caffe.blobs import blob_from_proto, blob_to_proto
from trirow_driver.caffe.messages import message
from trirow_driver.files import replacing

__all__ = [
    "CaffeFileError",
    "named",
    "read_caffemodel",
    "read_mean",
    "read_prototxt",
    "write_caffemodel",
    "write_mean",
    "write_prototxt",
]

_PathLike = str | os.PathLike[str]


class CaffeFileError(ValueError):
    """A file of Caffe is wrong; the message is one line that names the file, and layer or field."""


def read_prototxt(path: _PathLike) -> Any:
    """Read the text of a network.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    NetParameter
        Fields that are not known, as forks of Caffe have them, are left out.

    Raises
    ------
    CaffeFileError
        If the file cannot be read, or is not the text of a network.
    """
    with named(path):
        text = Path(path).read_text(encoding="utf-8")
        net = text_format.Parse(text, message("NetParameter")(), allow_unknown_field=True)
        if not net.layer and not net.layers:
            raise ValueError("has no layers")
    return net


def read_caffemodel(path: _PathLike) -> Any:
    """Read a trained network.

    Returns
    -------
    NetParameter
        With the blobs of its layers.

    Raises
    ------
    CaffeFileError
        If the file cannot be read, or is not a network.
    """
    with named(path):
        net = message("NetParameter").FromString(Path(path).read_bytes())
        if not net.layer and not net.layers:
            raise ValueError("has no layers")
    return net


def read_mean(path: _PathLike) -> Blob:
    """Read a mean image (binaryproto).

    Returns
    -------
    Blob
        Of shape (C, H, W), or with axes in front.

    Raises
    ------
    CaffeFileError
        If the file cannot be read, or is not a blob with values.
    """
    with named(path):
        blob = blob_from_proto(message("BlobProto").FromString(Path(path).read_bytes()))
        if not blob.count():
            raise ValueError("has no values")
    return blob


def write_prototxt(path: _PathLike, net: Any) -> None:
    """Write the text of a network, without blobs; the file appears whole or not at all."""
    text = message("NetParameter")()
    text.CopyFrom(net)
    for layer in (*text.layer, *text.layers):
        layer.ClearField("blobs")
    _write(path, text_format.MessageToString(text).encode("utf-8"))


def write_caffemodel(path: _PathLike, net: Any) -> None:
    """Write a network with its blobs; the file appears whole or not at all."""
    _write(path, net.SerializeToString(deterministic=True))


def write_mean(path: _PathLike, blob: Blob) -> None:
    """Write a mean image (binaryproto); the file appears whole or not at all."""
    _write(path, blob_to_proto(blob, legacy=True).SerializeToString(deterministic=True))


def _write(path: _PathLike, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def named(path: _PathLike, layer: str | None = None) -> Iterator[None]:
    """Turn whatever reading a file can end with into one line that names the file, and the layer.

    Raises
    ------
    CaffeFileError
    """
    place = f"{path}: " + ("" if layer is None else f"layer {layer!r}: ")
    try:
        yield
    except OSError as error:
        raise CaffeFileError(f"{place}cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CaffeFileError(f"{place}is not text") from error
    except text_format.ParseError as error:
        raise CaffeFileError(f"{place}is not a prototxt: {_line(error)}") from error
    except DecodeError as error:
        raise CaffeFileError(f"{place}is not a protobuf message of Caffe") from error
    except (ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise CaffeFileError(f"{place}{_line(error)}") from error


def _line(error: BaseException) -> str:
    """Return the text of an error as one line that can be printed."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(c if c.isprintable() else "?" for c in text)[:200]

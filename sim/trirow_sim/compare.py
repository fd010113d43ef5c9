"""Compare the memory after a run with what golden says it holds, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from trirow_driver.image import DdrImage, Region

__all__ = [
    "Comparison",
    "Expected",
    "LayerComparison",
    "Mismatch",
    "Stray",
    "compare",
    "compare_output",
]

_Int8 = npt.NDArray[np.int8]
_Array = TypeVar("_Array", npt.NDArray[np.int8], npt.NDArray[np.bool_])


@dataclass(frozen=True, eq=False)
class Expected:
    """What a layer has to write.

    Parameters
    ----------
    layer : str
        Name of the layer.
    region : str
        Name of the region that it writes.
    first : int
        First channel of the region that it writes.
    output : int8 array of shape (N, H, W, K)
        What golden computes, for K channels of the region.
    """

    layer: str
    region: str
    first: int
    output: _Int8

    def part(self, region: Region, flat: _Array) -> _Array:
        """Return the bytes of the region that the output takes, in its shape.

        Raises
        ------
        ValueError
            If the output does not fit the region.
        """
        images, channels, rows, columns = region.shape or (0, 0, 0, 0)
        end = self.first + self.output.shape[3]
        if self.output.shape[:3] != (images, rows, columns) or not end <= channels:
            raise ValueError(
                f"layer {self.layer!r}: output of shape {self.output.shape} does not fit region "
                f"{region.name!r} of {images}x{rows}x{columns}x{channels}"
            )
        return flat.reshape(images, rows, columns, channels)[..., self.first : end]


@dataclass(frozen=True)
class Mismatch:
    """An output byte that is not what golden says: image n, row y, column x, channel k."""

    layer: str
    n: int
    y: int
    x: int
    k: int
    got: int
    expected: int

    def __str__(self) -> str:
        image = f"image {self.n}, " if self.n else ""
        return (
            f"layer {self.layer!r}: {image}row {self.y}, column {self.x}, channel {self.k} is "
            f"{self.got}, golden has {self.expected}"
        )


@dataclass(frozen=True)
class Stray:
    """A byte that is no layer's output and changed all the same.

    Parameters
    ----------
    address : int
        Where it is, as the bus has it.
    region : str or None
        Name of the region that it belongs to; None between regions.
    got, before : int
        Its value after and before the run, 0 .. 255.
    """

    address: int
    region: str | None
    got: int
    before: int

    def __str__(self) -> str:
        place = "between the regions" if self.region is None else f"in region {self.region!r}"
        return (
            f"address {self.address:#x} {place} is {self.got}, but was {self.before} and is not "
            f"an output"
        )


@dataclass(frozen=True)
class LayerComparison:
    """How a layer's output compares.

    Parameters
    ----------
    layer : str
        Name of the layer.
    outputs, mismatches : int
        Bytes compared, and those that differ.
    first : Mismatch or None
        The first one that differs, in the order of addresses.
    """

    layer: str
    outputs: int
    mismatches: int
    first: Mismatch | None

    @property
    def match(self) -> bool:
        """Whether every byte is equal."""
        return self.mismatches == 0


@dataclass(frozen=True)
class Comparison:
    """How the memory after a run compares.

    Parameters
    ----------
    layers : tuple of LayerComparison
        In the order in which they were given.
    strays : int
        Bytes outside the outputs that changed.
    first_stray : Stray or None
        The one with the lowest address.
    """

    layers: tuple[LayerComparison, ...]
    strays: int
    first_stray: Stray | None

    @property
    def match(self) -> bool:
        """Whether all outputs are equal and nothing else changed."""
        return self.strays == 0 and all(layer.match for layer in self.layers)

    @property
    def mismatches(self) -> int:
        """Output bytes that differ, of all layers."""
        return sum(layer.mismatches for layer in self.layers)

    def lines(self) -> list[str]:
        """Say what is wrong, one line for each layer and one for stray bytes; empty on a match."""
        lines = [
            f"{layer.mismatches} of {layer.outputs} outputs differ, the first: {layer.first}"
            for layer in self.layers
            if not layer.match
        ]
        if self.strays:
            lines.append(f"{self.strays} stray bytes, the first: {self.first_stray}")
        return lines


def compare(
    image: DdrImage,
    before: bytes | bytearray,
    after: bytes | bytearray,
    expected: Sequence[Expected],
) -> Comparison:
    """Compare every byte of a memory that was loaded with an image and then computed on.

    Parameters
    ----------
    image : DdrImage
        Says what lies where.
    before, after : bytes
        The memory from the image's base on, before and after the run.
    expected : sequence of Expected
        The outputs. Every byte that belongs to none must be what it was before, but for regions of
        kind ``sums``, which hold intermediate results.

    Raises
    ------
    ValueError
        If the memory, or an output and its region, differ in size.
    """
    size = len(image.data)
    for name, memory in (("before", before), ("after", after)):
        if len(memory) != size:
            raise ValueError(f"{name} must be the {size} bytes of the image, not {len(memory)}")
    was, now = np.frombuffer(before, np.uint8), np.frombuffer(after, np.uint8)
    changed = was != now
    layers = []
    for item in expected:
        region = image.region(item.region)
        place = slice(region.offset, region.offset + region.size)
        got = item.part(region, now[place].view(np.int8))
        layers.append(compare_output(item.layer, got, item.output))
        item.part(region, changed[place])[:] = False
    for region in image.regions:
        if region.kind == "sums":
            changed[region.offset : region.offset + region.size] = False
    strays = np.flatnonzero(changed)
    first = _stray(image, int(strays[0]), was, now) if strays.size else None
    return Comparison(tuple(layers), int(strays.size), first)


def compare_output(layer: str, got: _Int8, expected: _Int8) -> LayerComparison:
    """Compare an output with golden's.

    Parameters
    ----------
    layer : str
        Name of the layer.
    got, expected : int8 array of shape (N, H, W, K)
    """
    wrong = np.argwhere(got != expected)
    first = None
    if len(wrong):
        n, y, x, k = (int(index) for index in wrong[0])
        first = Mismatch(layer, n, y, x, k, int(got[n, y, x, k]), int(expected[n, y, x, k]))
    return LayerComparison(layer, expected.size, len(wrong), first)


def _stray(
    image: DdrImage, offset: int, was: npt.NDArray[np.uint8], now: npt.NDArray[np.uint8]
) -> Stray:
    region = next(
        (r.name for r in image.regions if r.offset <= offset < r.offset + r.size),
        None,
    )
    return Stray(image.base + offset, region, int(now[offset]), int(was[offset]))

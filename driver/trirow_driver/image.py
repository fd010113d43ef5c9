"""The image that is loaded into the accelerator's DDR, and the manifest that describes it."""

import hashlib
import json
import math
import operator
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn

from trirow_driver.layout import Layout

__all__ = ["FORMAT_VERSION", "KINDS", "DdrImage", "ImageBuilder", "ImageError", "Region"]

FORMAT_VERSION = 1
"""Version of the manifest that is written, and the only one that is read."""

KINDS = ("descriptors", "weights", "blob", "sums")
"""What a region can hold."""

_MANIFEST_FIELDS = ("version", "configuration", "base", "alignment", "sha256", "regions")
_REGION_FIELDS = ("name", "kind", "offset", "size")
_BLOB_FIELDS = ("shape", "layout", "scale", "zero_point")


class ImageError(ValueError):
    """An image or its manifest is not consistent; the message is one line that says where."""


@dataclass(frozen=True)
class Region:
    """Part of an image that holds one thing.

    Parameters
    ----------
    name : str
        Name, unique in its image; not empty.
    kind : str
        One of `KINDS`.
    offset : int
        First byte, from the start of the image; at least 0.
    size : int
        Number of bytes, at least 1, and for a blob at least one for each element.
    shape : (int, int, int, int), optional
        Extents (N, C, H, W) of a blob, each at least 1, whatever its layout.
    layout : Layout, optional
        Order of a blob's elements in memory. Goes with `shape`.
    scale : float, optional
        Scale of a blob's values; finite and above 0.
    zero_point : int, optional
        Value of a blob that stands for 0, -128 .. 127. Goes with `scale`.

    Raises
    ------
    ImageError
        If a field is not as above. The message names the region and the field.
    """

    name: str
    kind: str
    offset: int
    size: int
    shape: tuple[int, int, int, int] | None = None
    layout: Layout | None = None
    scale: float | None = None
    zero_point: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ImageError(f"region {self.name!r}: name must be a string that is not empty")
        if self.kind not in KINDS:
            self._refuse("kind", f"one of {', '.join(KINDS)}")
        self._integer("offset", 0)
        self._integer("size", 1)
        if self.kind != "blob":
            for field in _BLOB_FIELDS:
                if getattr(self, field) is not None:
                    self._refuse(field, f"absent in a region of kind {self.kind}")
        for field, other in (("shape", "layout"), ("scale", "zero_point")):
            if (getattr(self, field) is None) != (getattr(self, other) is None):
                raise ImageError(f"region {self.name!r}: {field} and {other} must come together")
        if self.shape is not None:
            self._check_shape(self.shape)
        if self.scale is not None:
            if isinstance(self.scale, bool) or not isinstance(self.scale, Real):
                self._refuse("scale", "a number")
            try:
                scale = float(self.scale)
            except OverflowError:
                scale = math.inf
            if not 0 < scale < math.inf:
                self._refuse("scale", "finite and above 0")
            object.__setattr__(self, "scale", scale)
            self._integer("zero_point", -128, 127)

    def _check_shape(self, given: Iterable[int]) -> None:
        try:
            shape = tuple(_index(extent) for extent in given)
        except TypeError:
            self._refuse("shape", "four integers")
        if len(shape) != 4 or min(shape) < 1:
            self._refuse("shape", "four integers of at least 1")
        object.__setattr__(self, "shape", shape)
        if not isinstance(self.layout, Layout):
            self._refuse("layout", f"one of {', '.join(layout.name for layout in Layout)}")
        if math.prod(shape) > self.size:
            self._refuse("size", f"at least {math.prod(shape)}, one byte for each element of shape")

    def _integer(self, field: str, least: int, most: int | None = None) -> None:
        try:
            value = _index(getattr(self, field))
        except TypeError:
            self._refuse(field, "an integer")
        if value < least or (most is not None and value > most):
            self._refuse(field, f"at least {least}" if most is None else f"in {least} .. {most}")
        object.__setattr__(self, field, value)

    def _refuse(self, field: str, wanted: str) -> NoReturn:
        value = getattr(self, field)
        raise ImageError(f"region {self.name!r}: {field} must be {wanted}, not {value!r}")


@dataclass(frozen=True)
class DdrImage:
    """Contents of the DDR for a run: a binary for one base address, and what lies where in it.

    Parameters
    ----------
    configuration : dict
        What the image was made for, as a JSON object. It is kept as JSON has it (tuples as lists).
    base : int
        Address of the first byte, a multiple of `alignment`.
    data : bytes or bytearray
        The binary.
    regions : tuple of Region
        Regions with unique names, each inside the binary, aligned, and apart from the others.
    alignment : int
        Power of two, in bytes.

    Raises
    ------
    ImageError
        If a field is not as above. The message names the region and the field.
    """

    configuration: Mapping[str, Any]
    base: int
    data: bytes | bytearray
    regions: tuple[Region, ...]
    alignment: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "configuration", _json_object(self.configuration))
        object.__setattr__(self, "regions", tuple(self.regions))
        base, alignment = _addressing(self.base, self.alignment, "alignment")
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "alignment", alignment)
        names: set[str] = set()
        for region in self.regions:
            if region.name in names:
                raise ImageError(f"region {region.name!r}: name must be unique")
            names.add(region.name)
            if region.offset % self.alignment:
                raise ImageError(
                    f"region {region.name!r}: offset must be a multiple of the alignment "
                    f"{self.alignment}, not {region.offset}"
                )
            if region.offset + region.size > len(self.data):
                raise ImageError(
                    f"region {region.name!r}: offset {region.offset} and size {region.size} "
                    f"lead beyond the {len(self.data)} bytes of the binary"
                )
        ordered = sorted(self.regions, key=lambda region: region.offset)
        for before, after in pairwise(ordered):
            if before.offset + before.size > after.offset:
                raise ImageError(
                    f"region {after.name!r}: offset {after.offset} overlaps region "
                    f"{before.name!r}, which ends at {before.offset + before.size}"
                )

    def region(self, name: str) -> Region:
        """Return a region by its name; ImageError if there is none."""
        return _find(self.regions, name)

    def address(self, name: str) -> int:
        """Return the address of a region's first byte; ImageError if there is no such region."""
        return self.base + self.region(name).offset

    def read(self, name: str) -> bytes:
        """Return the bytes of a region; ImageError if there is no such region."""
        region = self.region(name)
        return bytes(self.data[region.offset : region.offset + region.size])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the binary at `path` and the manifest at `path` with `.json` appended.

        Equal images give equal files. Both are written under other names in the same folder and
        then renamed; if that fails, the files that were there before are there still.

        Raises
        ------
        OSError
            If the files cannot be written.
        """
        binary, manifest = _paths(path)
        old_manifest = manifest.read_bytes() if manifest.exists() else None
        new_binary, new_manifest = (
            file.with_name(f".{file.name}.{secrets.token_hex(8)}.tmp")
            for file in (binary, manifest)
        )
        try:
            _write(new_binary, self.data)
            _write(new_manifest, self._manifest())
            os.replace(new_manifest, manifest)
            try:
                os.replace(new_binary, binary)
            except BaseException:
                if old_manifest is None:
                    manifest.unlink()
                else:
                    _write(new_manifest, old_manifest)
                    os.replace(new_manifest, manifest)
                raise
        finally:
            new_binary.unlink(missing_ok=True)
            new_manifest.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "DdrImage":
        """Read what `save` has written, and check all of it.

        Raises
        ------
        ImageError
            If a file cannot be read, or anything in it is wrong. The message names the file.
        """
        binary, manifest = _paths(path)
        data, text = _read(binary), _read(manifest)
        try:
            content = _parse(text)
            image = cls(
                content["configuration"],
                content["base"],
                data,
                tuple(_region(entry, i) for i, entry in enumerate(content["regions"])),
                content["alignment"],
            )
        except ImageError as error:
            raise ImageError(f"{manifest}: {error}") from error
        digest = hashlib.sha256(data).hexdigest()
        if content["sha256"] != digest:
            raise ImageError(
                f"{binary}: sha256 of the binary is {digest}, "
                f"but the manifest has {content['sha256']!r}"
            )
        return image

    def _manifest(self) -> bytes:
        content = {
            "version": FORMAT_VERSION,
            "configuration": self.configuration,
            "base": self.base,
            "alignment": self.alignment,
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "regions": [_entry(region) for region in self.regions],
        }
        return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


class ImageBuilder:
    """Lays out regions one behind the other, each at the next aligned address; gaps are zero.

    Parameters
    ----------
    bus_bytes : int
        Width of the memory bus in bytes, a power of two.
    base : int
        Address of the first byte, a multiple of the alignment.
    alignment : int, optional
        Power of two, at least `bus_bytes`, which is the default.

    Raises
    ------
    ImageError
        If a parameter is not as above.
    """

    def __init__(self, bus_bytes: int, base: int = 0, *, alignment: int | None = None) -> None:
        alignment = bus_bytes if alignment is None else alignment
        _addressing(0, bus_bytes, "bus_bytes")
        self._base, self._alignment = _addressing(base, alignment, "alignment")
        if alignment < bus_bytes:
            raise ImageError(f"alignment must be at least bus_bytes {bus_bytes}, not {alignment}")
        self._data = bytearray()
        self._regions: dict[str, Region] = {}

    def add(
        self,
        name: str,
        kind: str,
        data: bytes | None = None,
        size: int | None = None,
        *,
        shape: tuple[int, int, int, int] | None = None,
        layout: Layout | None = None,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Region:
        """Append a region.

        Parameters
        ----------
        name, kind, shape, layout, scale, zero_point
            As for `Region`.
        data : bytes, optional
            First bytes of the region; the others are zero.
        size : int, optional
            Number of bytes, at least that of `data`, which is the default.

        Raises
        ------
        ImageError
            If the name is taken, both `data` and `size` are missing, `data` is longer than
            `size`, or `Region` refuses a field.
        """
        if name in self._regions:
            raise ImageError(f"region {name!r}: name must be unique")
        if data is None and size is None:
            raise ImageError(f"region {name!r}: data or size must be given")
        offset = self._aligned(len(self._data))
        size = len(data or b"") if size is None else size
        region = Region(name, kind, offset, size, shape, layout, scale, zero_point)
        self._check_fit(region, data or b"")
        self._data.extend(bytes(offset + region.size - len(self._data)))
        self._regions[name] = region
        self.fill(name, data or b"")
        return region

    def fill(self, name: str, data: bytes) -> None:
        """Overwrite the first bytes of a region, as for descriptors that need later addresses.

        Raises
        ------
        ImageError
            If there is no such region, or `data` is longer than it.
        """
        region = self._find(name)
        self._check_fit(region, data)
        self._data[region.offset : region.offset + len(data)] = data

    def address(self, name: str) -> int:
        """Return the address of a region's first byte; ImageError if there is no such region."""
        return self._base + self._find(name).offset

    def build(self, configuration: Mapping[str, Any]) -> DdrImage:
        """Return the image, its size rounded up to the alignment so that whole beats can be read.

        Parameters
        ----------
        configuration : dict
            As for `DdrImage`.
        """
        data = bytes(self._data).ljust(self._aligned(len(self._data)), b"\0")
        return DdrImage(
            configuration, self._base, data, tuple(self._regions.values()), self._alignment
        )

    def _find(self, name: str) -> Region:
        try:
            return self._regions[name]
        except KeyError:
            raise ImageError(f"region {name!r} is not in the image") from None

    def _aligned(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment

    def _check_fit(self, region: Region, data: bytes) -> None:
        if len(data) > region.size:
            raise ImageError(
                f"region {region.name!r}: size must be at least that of the data, {len(data)}, "
                f"not {region.size}"
            )


def _index(value: Any) -> int:
    """Return an integer; TypeError for anything else, a truth value included."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _addressing(base: Any, alignment: Any, name: str) -> tuple[int, int]:
    """Return base and alignment, the latter called `name`, after checking them."""
    for field, value in ((name, alignment), ("base", base)):
        try:
            _index(value)
        except TypeError:
            raise ImageError(f"{field} must be an integer, not {value!r}") from None
    if alignment < 1 or alignment & (alignment - 1):
        raise ImageError(f"{name} must be a power of two, not {alignment}")
    if base < 0 or base % alignment:
        raise ImageError(f"base must be a multiple of {alignment}, not {base}")
    return _index(base), _index(alignment)


def _json_object(configuration: Any) -> dict[str, Any]:
    if not isinstance(configuration, Mapping):
        raise ImageError(f"configuration must be an object, not {configuration!r}")
    try:
        text = json.dumps(dict(configuration), allow_nan=False, sort_keys=True)
        content: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ImageError(f"configuration must be JSON: {error}") from None
    return content


def _find(regions: Iterable[Region], name: str) -> Region:
    for region in regions:
        if region.name == name:
            return region
    raise ImageError(f"region {name!r} is not in the image")


def _entry(region: Region) -> dict[str, Any]:
    """Return a region as the manifest has it."""
    entry = {field: getattr(region, field) for field in _REGION_FIELDS + _BLOB_FIELDS}
    entry["layout"] = region.layout and region.layout.name
    return {field: value for field, value in entry.items() if value is not None}


def _region(entry: Any, index: int) -> Region:
    """Return the region of one entry of the manifest."""
    label = (
        f"region {entry['name']!r}"
        if isinstance(entry, dict) and "name" in entry
        else f"region {index}"
    )
    _check_fields(entry, label + ": ", _REGION_FIELDS, _BLOB_FIELDS)
    for field in _BLOB_FIELDS:
        if field in entry and entry[field] is None:
            raise ImageError(f"{label}: {field} must not be null")
    if "layout" in entry:
        names = [layout.name for layout in Layout]
        if entry["layout"] not in names:
            raise ImageError(
                f"{label}: layout must be one of {', '.join(names)}, not {entry['layout']!r}"
            )
        entry = entry | {"layout": Layout[entry["layout"]]}
    return Region(**entry)


def _check_fields(
    entry: Any, label: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    if not isinstance(entry, dict):
        raise ImageError(f"{label}must be an object, not {entry!r}")
    for field in required:
        if field not in entry:
            raise ImageError(f"{label}field {field!r} is missing")
    for field in entry:
        if field not in required + optional:
            raise ImageError(f"{label}field {field!r} is unknown")


def _parse(text: bytes) -> dict[str, Any]:
    """Return the manifest after checking its version and the names of its fields."""
    try:
        content: Any = json.loads(text, object_pairs_hook=_no_duplicates)
    except ImageError:
        raise
    except (ValueError, RecursionError) as error:
        raise ImageError(f"manifest must be JSON: {error}") from None
    if not isinstance(content, dict):
        raise ImageError(f"manifest must be an object, not {type(content).__name__}")
    version = content.get("version", FORMAT_VERSION)
    if type(version) is not int or version != FORMAT_VERSION:
        raise ImageError(f"version must be {FORMAT_VERSION}, not {version!r}")
    _check_fields(content, "", _MANIFEST_FIELDS)
    if not isinstance(content["regions"], list):
        raise ImageError(f"regions must be a list, not {content['regions']!r}")
    return content


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ImageError(f"manifest has a field twice among {[name for name, _ in pairs]}")
    return content


def _paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Return the paths of the binary and of its manifest."""
    binary = Path(path)
    return binary, binary.with_name(binary.name + ".json")


def _write(path: Path, content: bytes | bytearray) -> None:
    with open(path, "xb") as file:
        file.write(content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror}") from error

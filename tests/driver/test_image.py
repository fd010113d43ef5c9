import hashlib
import json
import math
import os
import re

import numpy as np
import pytest

from trirow_driver.image import DdrImage, ImageBuilder, ImageError, Region
from trirow_driver.layout import Layout

CONFIGURATION = {"name": "tiny", "in_lanes": 4, "buffers": [3072, 4096]}
BLOB = {"shape": (1, 3, 2, 4), "layout": Layout.NHWC, "scale": 0.5, "zero_point": -3}


def example() -> DdrImage:
    builder = ImageBuilder(4, 0x1000)
    builder.add("run", "descriptors", bytes(range(1, 7)))
    builder.add("conv1", "weights", b"\x11" * 9)
    builder.add("input", "blob", size=24, **BLOB)
    builder.add("partial", "sums", b"\x22" * 3, 5)
    return builder.build(CONFIGURATION)


def error(text):
    return pytest.raises(ImageError, match=f"^{re.escape(text)}$")


# Builder


def test_layout_of_regions():
    image = example()
    assert [(r.name, r.kind, r.offset, r.size) for r in image.regions] == [
        ("run", "descriptors", 0, 6),
        ("conv1", "weights", 8, 9),
        ("input", "blob", 20, 24),
        ("partial", "sums", 44, 5),
    ]
    assert image.base == 0x1000
    assert image.alignment == 4
    assert image.data == (
        b"\x01\x02\x03\x04\x05\x06\0\0" + b"\x11" * 9 + bytes(3 + 24) + b"\x22" * 3 + bytes(5)
    )


def test_add_returns_the_region():
    builder = ImageBuilder(16)
    region = builder.add("a", "blob", b"x" * 30, **BLOB)
    assert region == Region("a", "blob", 0, 30, (1, 3, 2, 4), Layout.NHWC, 0.5, -3)


def test_addresses():
    builder = ImageBuilder(4, 0x40)
    builder.add("a", "sums", b"1")
    builder.add("b", "sums", b"2")
    image = builder.build({})
    assert builder.address("a") == image.address("a") == 0x40
    assert builder.address("b") == image.address("b") == 0x44
    assert image.region("b").offset == 4
    assert image.read("b") == b"2"
    for use in (builder.address, image.address, image.region, image.read):
        with error("region 'c' is not in the image"):
            use("c")


@pytest.mark.parametrize("alignment", [16, 4096])
def test_alignment(alignment):
    builder = ImageBuilder(16, alignment, alignment=alignment)
    offsets = [builder.add(name, "sums", b"1" * 17).offset for name in "abc"]
    step = alignment * math.ceil(17 / alignment)
    assert offsets == [0, step, 2 * step]
    assert len(builder.build({}).data) == 3 * step


def test_fill():
    builder = ImageBuilder(4)
    builder.add("a", "descriptors", size=3)
    builder.add("b", "sums", b"\xff\xff")
    builder.fill("a", b"\x01\x02")
    assert builder.build({}).data == b"\x01\x02\0\0\xff\xff\0\0"
    with error("region 'a': size must be at least that of the data, 4, not 3"):
        builder.fill("a", b"1234")
    with error("region 'c' is not in the image"):
        builder.fill("c", b"")
    assert builder.build({}).data == b"\x01\x02\0\0\xff\xff\0\0"


def test_image_does_not_follow_the_builder():
    builder = ImageBuilder(4)
    builder.add("a", "sums", b"1")
    image = builder.build({})
    builder.add("b", "sums", b"2")
    builder.fill("a", b"3")
    assert len(image.regions) == 1
    assert image.data == b"1\0\0\0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"bus_bytes": 3}, "bus_bytes must be a power of two, not 3"),
        ({"bus_bytes": 0}, "bus_bytes must be a power of two, not 0"),
        ({"bus_bytes": 4.0}, "bus_bytes must be an integer, not 4.0"),
        ({"bus_bytes": 4, "base": 6}, "base must be a multiple of 4, not 6"),
        ({"bus_bytes": 4, "base": -4}, "base must be a multiple of 4, not -4"),
        ({"bus_bytes": 4, "base": None}, "base must be an integer, not None"),
        ({"bus_bytes": 4, "alignment": 2}, "alignment must be at least bus_bytes 4, not 2"),
        ({"bus_bytes": 4, "alignment": 12}, "alignment must be a power of two, not 12"),
        ({"bus_bytes": 4, "base": 4, "alignment": 8}, "base must be a multiple of 8, not 4"),
    ],
)
def test_wrong_builder(arguments, text):
    with error(text):
        ImageBuilder(**arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a", "sums"), "region 'a': data or size must be given"),
        (("a", "sums", b""), "region 'a': size must be at least 1, not 0"),
        (
            ("a", "sums", b"123", 2),
            "region 'a': size must be at least that of the data, 3, not 2",
        ),
        (("taken", "sums", b"1"), "region 'taken': name must be unique"),
    ],
)
def test_wrong_addition_changes_nothing(arguments, text):
    builder = ImageBuilder(4)
    builder.add("taken", "sums", b"1")
    before = builder.build({})
    with error(text):
        builder.add(*arguments)
    assert builder.build({}) == before


# Region


def region(**changes):
    return Region(**{"name": "r", "kind": "blob", "offset": 0, "size": 24, **BLOB, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "region '': name must be a string that is not empty"),
        ({"name": 3}, "region 3: name must be a string that is not empty"),
        ({"kind": "bias"}, "kind must be one of descriptors, weights, blob, sums, not 'bias'"),
        ({"offset": -1}, "offset must be at least 0, not -1"),
        ({"offset": True}, "offset must be an integer, not True"),
        ({"size": 0}, "size must be at least 1, not 0"),
        ({"size": "24"}, "size must be an integer, not '24'"),
        ({"size": 23}, "size must be at least 24, one byte for each element of shape, not 23"),
        ({"kind": "sums"}, "shape must be absent in a region of kind sums, not (1, 3, 2, 4)"),
        ({"shape": None}, "shape and layout must come together"),
        ({"layout": None}, "shape and layout must come together"),
        ({"scale": None}, "scale and zero_point must come together"),
        ({"zero_point": None}, "scale and zero_point must come together"),
        ({"shape": (3, 2, 4)}, "shape must be four integers of at least 1, not (3, 2, 4)"),
        ({"shape": (1, 0, 2, 4)}, "shape must be four integers of at least 1, not (1, 0, 2, 4)"),
        ({"shape": (1, 3, 2, 4.0)}, "shape must be four integers, not (1, 3, 2, 4.0)"),
        ({"layout": "NHWC"}, "layout must be one of NCHW, NHWC, CHWN, not 'NHWC'"),
        ({"scale": 0}, "scale must be finite and above 0, not 0"),
        ({"scale": math.inf}, "scale must be finite and above 0, not inf"),
        ({"scale": math.nan}, "scale must be finite and above 0, not nan"),
        ({"scale": "1"}, "scale must be a number, not '1'"),
        ({"scale": True}, "scale must be a number, not True"),
        ({"zero_point": 128}, "zero_point must be in -128 .. 127, not 128"),
        ({"zero_point": 0.5}, "zero_point must be an integer, not 0.5"),
    ],
)
def test_wrong_region(changes, text):
    with error(text if text.startswith("region") else f"region 'r': {text}"):
        region(**changes)


def test_blob_fields_may_be_left_out():
    assert region(scale=None, zero_point=None).scale is None
    assert region(shape=None, layout=None).shape is None


def test_numbers_of_numpy_are_taken():
    taken = region(scale=np.float32(0.5), zero_point=np.int8(-3), shape=np.array([1, 3, 2, 4]))
    assert taken == region()
    assert type(taken.scale) is float
    assert type(taken.shape[0]) is int


def test_addresses_of_numpy_can_be_saved(tmp_path):
    made = ImageBuilder(np.int64(4), np.int64(64)).build({})
    made.save(tmp_path / "a")
    assert DdrImage.load(tmp_path / "a") == made


# Image


def image(*regions, data=bytes(64), **changes):
    fields = {"configuration": {}, "base": 0, "alignment": 8, **changes}
    return DdrImage(data=data, regions=regions, **fields)


def sums(name, offset, size):
    return Region(name, "sums", offset, size)


def test_regions_may_touch_and_come_in_any_order():
    image(sums("b", 8, 56), sums("a", 0, 8))


@pytest.mark.parametrize(
    ("regions", "text"),
    [
        ([("a", 0, 8), ("a", 8, 8)], "region 'a': name must be unique"),
        ([("a", 4, 8)], "region 'a': offset must be a multiple of the alignment 8, not 4"),
        (
            [("a", 56, 9)],
            "region 'a': offset 56 and size 9 lead beyond the 64 bytes of the binary",
        ),
        (
            [("b", 8, 8), ("a", 0, 9)],
            "region 'b': offset 8 overlaps region 'a', which ends at 9",
        ),
        (
            [("a", 0, 8), ("b", 8, 30), ("c", 16, 1)],
            "region 'c': offset 16 overlaps region 'b', which ends at 38",
        ),
        ([("a", 0, 8), ("b", 0, 8)], "region 'b': offset 0 overlaps region 'a', which ends at 8"),
    ],
)
def test_wrong_regions(regions, text):
    with error(text):
        image(*(sums(*fields) for fields in regions))


def test_wrong_configuration():
    with error("configuration must be an object, not 'tiny'"):
        image(configuration="tiny")
    with pytest.raises(ImageError, match=r"^configuration must be JSON: .*set"):
        image(configuration={"a": {1}})
    with pytest.raises(ImageError, match=r"^configuration must be JSON: "):
        image(configuration={"a": math.nan})


def test_configuration_is_a_copy_as_json_has_it():
    configuration = {"lanes": (4, 4)}
    made = image(configuration=configuration)
    configuration["lanes"] = None
    assert made.configuration == {"lanes": [4, 4]}


# Files


def test_saved_image_is_loaded_again(tmp_path):
    example().save(tmp_path / "net.bin")
    assert sorted(os.listdir(tmp_path)) == ["net.bin", "net.bin.json"]
    assert (tmp_path / "net.bin").read_bytes() == example().data
    assert DdrImage.load(tmp_path / "net.bin") == example()
    assert DdrImage.load(str(tmp_path / "net.bin")) == example()


def test_manifest(tmp_path):
    example().save(tmp_path / "net.bin")
    manifest = json.loads((tmp_path / "net.bin.json").read_text())
    assert manifest == {
        "version": 1,
        "configuration": CONFIGURATION,
        "base": 4096,
        "alignment": 4,
        "sha256": hashlib.sha256(example().data).hexdigest(),
        "regions": [
            {"name": "run", "kind": "descriptors", "offset": 0, "size": 6},
            {"name": "conv1", "kind": "weights", "offset": 8, "size": 9},
            {
                "name": "input",
                "kind": "blob",
                "offset": 20,
                "size": 24,
                "shape": [1, 3, 2, 4],
                "layout": "NHWC",
                "scale": 0.5,
                "zero_point": -3,
            },
            {"name": "partial", "kind": "sums", "offset": 44, "size": 5},
        ],
    }


def test_equal_images_give_equal_files(tmp_path):
    first = example()
    reordered = dict(reversed(CONFIGURATION.items()))
    second = DdrImage(reordered, first.base, bytearray(first.data), first.regions, 4)
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_save_replaces_an_older_image(tmp_path):
    image(sums("old", 0, 8)).save(tmp_path / "net.bin")
    example().save(tmp_path / "net.bin")
    assert DdrImage.load(tmp_path / "net.bin") == example()
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("failing", [1, 2])
def test_save_that_fails_to_rename(tmp_path, monkeypatch, older, failing):
    old = image(sums("old", 0, 8))
    if older:
        old.save(tmp_path / "net.bin")
    replace, calls = os.replace, []

    def broken(source, target):
        calls.append(target)
        if len(calls) == failing:
            raise OSError("no space")
        replace(source, target)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="no space"):
        example().save(tmp_path / "net.bin")
    if older:
        assert sorted(os.listdir(tmp_path)) == ["net.bin", "net.bin.json"]
        assert DdrImage.load(tmp_path / "net.bin") == old
    else:
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["net.bin", "net.bin.json"])
def test_save_onto_a_folder(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match=r"net\.bin"):
        example().save(tmp_path / "net.bin")
    assert os.listdir(tmp_path) == [name]


def test_save_into_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        example().save(tmp_path / "none" / "net.bin")


@pytest.mark.parametrize("name", ["net.bin", "net.bin.json"])
def test_load_without_one_of_the_files(tmp_path, name):
    example().save(tmp_path / "net.bin")
    (tmp_path / name).unlink()
    with error(f"{tmp_path / name}: cannot be read: No such file or directory"):
        DdrImage.load(tmp_path / "net.bin")


@pytest.mark.parametrize("place", [0, 30, 51])
def test_load_of_a_changed_binary(tmp_path, place):
    example().save(tmp_path / "net.bin")
    data = bytearray(example().data)
    data[place] ^= 1
    (tmp_path / "net.bin").write_bytes(data)
    was, now = (hashlib.sha256(content).hexdigest() for content in (example().data, data))
    path = tmp_path / "net.bin"
    with error(f"{path}: sha256 of the binary is {now}, but the manifest has '{was}'"):
        DdrImage.load(path)


def test_load_of_a_truncated_binary(tmp_path):
    example().save(tmp_path / "net.bin")
    (tmp_path / "net.bin").write_bytes(example().data[:40])
    text = "region 'input': offset 20 and size 24 lead beyond the 40 bytes of the binary"
    with error(f"{tmp_path / 'net.bin.json'}: {text}"):
        DdrImage.load(tmp_path / "net.bin")


def load_with(tmp_path, change):
    """Save the example, let `change` edit its manifest, and load it."""
    example().save(tmp_path / "net.bin")
    file = tmp_path / "net.bin.json"
    manifest = json.loads(file.read_text())
    changed = change(manifest)
    file.write_text(json.dumps(manifest if changed is None else changed))
    return DdrImage.load(tmp_path / "net.bin")


FIELDS = [
    ("version", 2, "version must be 1, not 2"),
    ("version", True, "version must be 1, not True"),
    ("version", "1", "version must be 1, not '1'"),
    ("configuration", [1], "configuration must be an object, not [1]"),
    ("configuration", None, "configuration must be an object, not None"),
    ("configuration", {"a": math.nan}, "configuration must be JSON: "),
    ("base", 4098, "base must be a multiple of 4, not 4098"),
    ("base", -4, "base must be a multiple of 4, not -4"),
    ("base", "0", "base must be an integer, not '0'"),
    ("base", 4096.0, "base must be an integer, not 4096.0"),
    ("alignment", 3, "alignment must be a power of two, not 3"),
    ("alignment", None, "alignment must be an integer, not None"),
    ("alignment", 16, "region 'conv1': offset must be a multiple of the alignment 16, not 8"),
    ("regions", {}, "regions must be a list, not {}"),
    ("regions", [7], "region 0: must be an object, not 7"),
    ("regions", [{"kind": "sums"}], "region 0: field 'name' is missing"),
]


@pytest.mark.parametrize(("field", "value", "text"), FIELDS)
def test_load_with_a_wrong_field(tmp_path, field, value, text):
    with pytest.raises(ImageError) as caught:
        load_with(tmp_path, lambda manifest: manifest.update({field: value}))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'net.bin.json'}: {text}")
    assert "\n" not in message


@pytest.mark.parametrize("value", ["0" * 64, "", None, 5, ["a"]])
def test_load_with_a_wrong_digest(tmp_path, value):
    digest = hashlib.sha256(example().data).hexdigest()
    text = f"sha256 of the binary is {digest}, but the manifest has {value!r}"
    with error(f"{tmp_path / 'net.bin'}: {text}"):
        load_with(tmp_path, lambda manifest: manifest.update(sha256=value))


REGION_FIELDS = [
    (0, "name", "conv1", "region 'conv1': name must be unique"),
    (0, "name", ["x"], "region ['x']: name must be a string that is not empty"),
    (0, "kind", "code", "region 'run': kind must be one of descriptors, weights, blob, sums, no"),
    (0, "kind", None, "region 'run': kind must be one of descriptors, weights, blob, sums, not "),
    (0, "offset", 2, "region 'run': offset must be a multiple of the alignment 4, not 2"),
    (0, "offset", 8, "region 'conv1': offset 8 overlaps region 'run', which ends at 14"),
    (0, "offset", -4, "region 'run': offset must be at least 0, not -4"),
    (0, "offset", 0.0, "region 'run': offset must be an integer, not 0.0"),
    (0, "size", 9, "region 'conv1': offset 8 overlaps region 'run', which ends at 9"),
    (0, "size", 10**9, "region 'run': offset 0 and size 1000000000 lead beyond the 52 bytes of "),
    (0, "size", False, "region 'run': size must be an integer, not False"),
    (0, "scale", 0.5, "region 'run': scale must be absent in a region of kind descriptors, not 0"),
    (2, "kind", "weights", "region 'input': shape must be absent in a region of kind weights, no"),
    (2, "shape", [1, 3, 2, 5], "region 'input': size must be at least 30, one byte for each"),
    (2, "shape", [24], "region 'input': shape must be four integers of at least 1, not [24]"),
    (2, "shape", "1324", "region 'input': shape must be four integers, not '1324'"),
    (2, "shape", 24, "region 'input': shape must be four integers, not 24"),
    (2, "shape", None, "region 'input': shape must not be null"),
    (2, "layout", "HWCN", "region 'input': layout must be one of NCHW, NHWC, CHWN, not 'HWCN'"),
    (2, "layout", ["NHWC"], "region 'input': layout must be one of NCHW, NHWC, CHWN, not ['NHW"),
    (2, "layout", None, "region 'input': layout must not be null"),
    (2, "scale", -0.5, "region 'input': scale must be finite and above 0, not -0.5"),
    (2, "scale", 10**400, "region 'input': scale must be finite and above 0, not 1000"),
    (2, "scale", math.nan, "region 'input': scale must be finite and above 0, not nan"),
    (2, "scale", "0.5", "region 'input': scale must be a number, not '0.5'"),
    (2, "scale", None, "region 'input': scale must not be null"),
    (2, "zero_point", -129, "region 'input': zero_point must be in -128 .. 127, not -129"),
    (2, "zero_point", 0.5, "region 'input': zero_point must be an integer, not 0.5"),
    (2, "zero_point", None, "region 'input': zero_point must not be null"),
]


@pytest.mark.parametrize(("index", "field", "value", "text"), REGION_FIELDS)
def test_load_with_a_wrong_field_of_a_region(tmp_path, index, field, value, text):
    with pytest.raises(ImageError) as caught:
        load_with(tmp_path, lambda manifest: manifest["regions"][index].update({field: value}))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'net.bin.json'}: {text}")
    assert "\n" not in message


@pytest.mark.parametrize(
    "field", ["version", "configuration", "base", "alignment", "sha256", "regions"]
)
def test_load_with_a_missing_field(tmp_path, field):
    with error(f"{tmp_path / 'net.bin.json'}: field '{field}' is missing"):
        load_with(tmp_path, lambda manifest: manifest.pop(field) and None)


@pytest.mark.parametrize("field", ["kind", "offset", "size"])
def test_load_with_a_missing_field_of_a_region(tmp_path, field):
    with error(f"{tmp_path / 'net.bin.json'}: region 'input': field '{field}' is missing"):
        load_with(tmp_path, lambda manifest: manifest["regions"][2].pop(field) and None)


@pytest.mark.parametrize(
    ("field", "pair"),
    [
        ("shape", "shape and layout"),
        ("layout", "shape and layout"),
        ("scale", "scale and zero_point"),
        ("zero_point", "scale and zero_point"),
    ],
)
def test_load_with_half_a_pair_of_blob_fields(tmp_path, field, pair):
    with error(f"{tmp_path / 'net.bin.json'}: region 'input': {pair} must come together"):
        load_with(tmp_path, lambda manifest: manifest["regions"][2].pop(field) and None)


def test_load_with_an_unknown_field(tmp_path):
    with error(f"{tmp_path / 'net.bin.json'}: field 'date' is unknown"):
        load_with(tmp_path, lambda manifest: manifest.update(date=1))
    with error(f"{tmp_path / 'net.bin.json'}: region 'run': field 'date' is unknown"):
        load_with(tmp_path, lambda manifest: manifest["regions"][0].update(date=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "manifest must be JSON: "),
        (b"{", "manifest must be JSON: "),
        (b"\xff\xfe\xff", "manifest must be JSON: "),
        (b"[" * 100000, "manifest must be JSON: "),
        (b"[]", "manifest must be an object, not list"),
        (b'{"version": 1, "version": 1}', "manifest has a field twice among ['version', 'versi"),
    ],
)
def test_load_of_something_else(tmp_path, text, message):
    example().save(tmp_path / "net.bin")
    (tmp_path / "net.bin.json").write_bytes(text)
    with pytest.raises(ImageError) as caught:
        DdrImage.load(tmp_path / "net.bin")
    assert str(caught.value).startswith(f"{tmp_path / 'net.bin.json'}: {message}")
    assert "\n" not in str(caught.value)

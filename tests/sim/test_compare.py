import numpy as np
import pytest

from trirow_driver.image import ImageBuilder
from trirow_sim.compare import Expected, compare

BASE = 0x1000


@pytest.fixture
def image():
    builder = ImageBuilder(16, BASE)
    builder.add("input", "blob", bytes(range(20)))
    builder.add("blob.a", "blob", size=24)
    builder.add("blob.b", "blob", size=6)
    return builder.build({})


@pytest.fixture
def expected():
    rng = np.random.default_rng(1)
    return [
        Expected("a", "blob.a", rng.integers(-128, 128, (1, 2, 3, 4), dtype=np.int8)),
        Expected("b", "blob.b", rng.integers(-128, 128, (1, 1, 2, 3), dtype=np.int8)),
    ]


def computed(image, expected):
    """Return the memory after a run without a mistake."""
    memory = bytearray(image.data)
    for item in expected:
        region = image.region(item.region)
        memory[region.offset : region.offset + region.size] = item.output.tobytes()
    return memory


def test_match(image, expected):
    result = compare(image, image.data, computed(image, expected), expected)
    assert result.match
    assert (result.mismatches, result.strays, result.first_stray) == (0, 0, None)
    assert [(layer.layer, layer.outputs, layer.first) for layer in result.layers] == [
        ("a", 24, None),
        ("b", 6, None),
    ]
    assert result.lines() == []


def test_mismatches_are_counted_and_the_first_one_named(image, expected):
    memory = computed(image, expected)
    offset = image.region("blob.a").offset
    for index in (23, 18):  # row 1, column 1, channel 2 is 18
        memory[offset + index] ^= 0x80
    result = compare(image, image.data, memory, expected)
    assert not result.match
    assert (result.mismatches, result.strays) == (2, 0)
    first = result.layers[0].first
    assert (first.layer, first.y, first.x, first.k) == ("a", 1, 1, 2)
    assert first.expected == expected[0].output[0, 1, 1, 2]
    assert first.got == np.int8(first.expected) ^ np.int8(-128)
    assert result.layers[1].match
    assert result.lines() == [
        f"2 of 24 outputs differ, the first: layer 'a': row 1, column 1, channel 2 is {first.got}, "
        f"golden has {first.expected}"
    ]


def test_every_output_byte_is_compared(image, expected):
    good = computed(image, expected)
    for item in expected:
        region = image.region(item.region)
        for index in range(region.size):
            memory = bytearray(good)
            memory[region.offset + index] ^= 1
            result = compare(image, image.data, memory, expected)
            assert (result.mismatches, result.strays) == (1, 0)
            first = next(layer.first for layer in result.layers if layer.first)
            where = np.unravel_index(index, item.output.shape)[1:]
            assert (first.layer, first.y, first.x, first.k) == (item.layer, *where)


def test_every_other_byte_is_compared(image, expected):
    good = computed(image, expected)
    names = {range(20): "input", range(20, 32): None, range(56, 64): None, range(70, 80): None}
    assert len(image.data) == 80
    for indices, name in names.items():
        for index in indices:
            memory = bytearray(good)
            memory[index] ^= 0xFF
            result = compare(image, image.data, memory, expected)
            assert not result.match
            assert (result.mismatches, result.strays) == (0, 1)
            stray = result.first_stray
            assert (stray.address, stray.region) == (BASE + index, name)
            assert (stray.before, stray.got) == (image.data[index], image.data[index] ^ 0xFF)


def test_strays_are_told_in_a_line(image, expected):
    memory = computed(image, expected)
    memory[3] = 77
    memory[30] = 1
    result = compare(image, image.data, memory, expected)
    assert result.strays == 2
    assert result.lines() == [
        "2 stray bytes, the first: address 0x1003 in region 'input' is 77, but was 3 and is not an "
        "output"
    ]
    memory[3] = 3
    result = compare(image, image.data, memory, expected)
    assert "address 0x101e between the regions is 1" in result.lines()[0]


def test_wrong_sizes(image, expected):
    with pytest.raises(ValueError, match=r"^after must be the 80 bytes of the image, not 3$"):
        compare(image, image.data, b"abc", expected)
    with pytest.raises(ValueError, match=r"^before must be the 80 bytes"):
        compare(image, b"", image.data, expected)
    wrong = [Expected("a", "blob.a", np.zeros((1, 1, 1, 4), np.int8))]
    text = "^layer 'a': output must be the 24 bytes of region 'blob.a', not 4$"
    with pytest.raises(ValueError, match=text):
        compare(image, image.data, image.data, wrong)

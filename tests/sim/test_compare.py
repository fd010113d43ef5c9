import numpy as np
import pytest

from trirow_driver.image import ImageBuilder
from trirow_driver.layout import Layout
from trirow_sim.compare import Expected, compare

BASE = 0x1000


@pytest.fixture
def image():
    builder = ImageBuilder(16, BASE)
    builder.add("input", "blob", bytes(range(20)))
    builder.add("blob.a", "blob", size=24, shape=(1, 4, 2, 3), layout=Layout.NHWC)
    builder.add("blob.b", "blob", size=6, shape=(1, 3, 1, 2), layout=Layout.NHWC)
    return builder.build({})


@pytest.fixture
def expected():
    rng = np.random.default_rng(1)
    return [
        Expected("a", "blob.a", 0, rng.integers(-128, 128, (1, 2, 3, 4), dtype=np.int8)),
        Expected("b", "blob.b", 0, rng.integers(-128, 128, (1, 1, 2, 3), dtype=np.int8)),
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
    for shape, first in (((1, 1, 1, 4), 0), ((2, 2, 3, 4), 0), ((1, 2, 3, 2), 3)):
        wrong = [Expected("a", "blob.a", first, np.zeros(shape, np.int8))]
        text = r"^layer 'a': output of shape \(.*\) does not fit region 'blob.a' of 1x2x3x4$"
        with pytest.raises(ValueError, match=text):
            compare(image, image.data, image.data, wrong)


def test_layers_that_share_a_region():
    builder = ImageBuilder(16, BASE)
    builder.add("blob.both", "blob", size=2 * 2 * 3 * 5, shape=(2, 5, 2, 3), layout=Layout.NHWC)
    image = builder.build({})
    region = image.region("blob.both")
    rng = np.random.default_rng(2)
    whole = rng.integers(-128, 128, (2, 2, 3, 5), dtype=np.int8)
    memory = bytearray(image.data)
    memory[region.offset : region.offset + region.size] = whole.tobytes()
    parts = [
        Expected("left", "blob.both", 0, whole[..., :2]),
        Expected("right", "blob.both", 2, whole[..., 2:]),
    ]
    assert compare(image, image.data, memory, parts).match
    # Image 1, row 0, column 2, channel 3: the second channel of the part on the right.
    memory[region.offset + ((1 * 2 + 0) * 3 + 2) * 5 + 3] ^= 1
    result = compare(image, image.data, memory, parts)
    assert [layer.mismatches for layer in result.layers] == [0, 1]
    first = result.layers[1].first
    assert (first.n, first.y, first.x, first.k) == (1, 0, 2, 1)
    assert "layer 'right': image 1, row 0, column 2, channel 1 is " in result.lines()[0]
    # What no layer writes must not change, also between channels that are written.
    result = compare(image, image.data, memory, parts[:1])
    assert (result.mismatches, result.strays) == (0, np.count_nonzero(whole[..., 2:]))


def test_sums_may_change(expected):
    builder = ImageBuilder(16, BASE)
    builder.add("sums.a", "sums", size=8)
    builder.add("weights.a.0", "weights", size=8)
    image = builder.build({})
    memory = bytearray(image.data)
    memory[image.region("sums.a").offset + 3] ^= 5
    assert compare(image, image.data, memory, []).match
    memory[image.region("weights.a.0").offset + 3] ^= 5
    result = compare(image, image.data, memory, [])
    assert (result.strays, result.first_stray.region) == (1, "weights.a.0")

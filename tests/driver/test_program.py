import numpy as np
import pytest

from trirow_driver.layer import ConvLayer
from trirow_driver.passes import chunk_bytes
from trirow_driver.program import pack_layers
from trirow_driver.quantise import Quantisation
from trirow_driver.tiling import UnsupportedError
from trirow_hw.config import PRESETS
from trirow_hw.descriptor import DESCRIPTOR_BYTES, unpack_descriptor

TINY = PRESETS["tiny"]


def make(name, weights, stride=(1, 1), pad=(0, 0, 0, 0), zero_in=0, zero_out=0):
    rng = np.random.default_rng(len(name))
    filters = weights[0]
    return ConvLayer(
        name,
        rng.integers(-128, 128, weights, dtype=np.int8),
        rng.integers(-1000, 1000, filters, dtype=np.int32),
        rng.uniform(1e-3, 1e-2, filters).astype(np.float32),
        stride,
        pad,
        Quantisation(1.0, zero_in),
        Quantisation(1.0, zero_out),
    )


def features(height, width, channels, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(-128, 128, (1, height, width, channels), dtype=np.int8)


def two_layers():
    """Two layers, each of several chunks on `tiny`."""
    return [
        make("first", (40, 3, 3, 20), pad=(1, 1, 1, 1), zero_out=7),
        make("second", (30, 3, 3, 40), zero_in=7, zero_out=-1),
    ]


def test_image_of_two_layers():
    layers, x = two_layers(), features(5, 6, 20)
    program = pack_layers(layers, x, TINY, base=0x8000)
    image = program.image
    first, second = program.steps
    assert first.passes > 1
    assert second.passes > 1
    assert (first.in_shape, first.out_shape) == ((5, 6, 20), (5, 6, 40))
    assert (second.in_shape, second.out_shape) == ((5, 6, 40), (3, 4, 30))
    assert (first.source, first.target) == ("input", "blob.first")
    assert (second.source, second.target) == ("blob.first", "blob.second")
    assert image.read("input") == x.tobytes()
    assert image.base == 0x8000
    for step in program.steps:
        for k, chunk in enumerate(step.tiling.chunks):
            expected = chunk_bytes(step.layer, chunk, TINY)
            assert image.read(f"weights.{step.layer.name}.{k}") == expected
    blob = image.region("blob.second")
    assert (blob.shape, blob.zero_point) == ((1, 30, 3, 4), -1)
    assert blob.size == 3 * 4 * 30


def test_chain_of_descriptors():
    """In order, each knows the next; only the first pass of the second layer waits."""
    program = pack_layers(two_layers(), features(5, 6, 20), TINY, base=0x8000)
    image = program.image
    at, raw = image.address("descriptors"), image.read("descriptors")
    found = [
        unpack_descriptor(raw[k : k + DESCRIPTOR_BYTES])
        for k in range(0, len(raw), DESCRIPTOR_BYTES)
    ]
    passes = [(step, k) for step in program.steps for k in range(step.passes)]
    assert len(found) == len(passes)
    for index, (fields, (step, k)) in enumerate(zip(found, passes, strict=True)):
        last = index == len(found) - 1
        chunk = step.tiling.chunks[k]
        assert fields["last"] == last
        assert fields["next"] == (0 if last else at + (index + 1) * DESCRIPTOR_BYTES)
        assert fields["wait"] == (step.layer.name == "second" and k == 0)
        assert fields["in_address"] == image.address(step.source)
        assert fields["out_address"] == image.address(step.target) + chunk.first
        assert fields["weight_address"] == image.address(f"weights.{step.layer.name}.{k}")


@pytest.mark.parametrize("base", [0, 0x8000, 0xF80])
def test_no_descriptor_crosses_4_kb(base):
    """It is read in one burst."""
    program = pack_layers(two_layers(), features(5, 6, 20), TINY, base=base)
    at = program.image.address("descriptors")
    for k in range(sum(step.passes for step in program.steps)):
        begin = at + k * DESCRIPTOR_BYTES
        assert begin // 4096 == (begin + DESCRIPTOR_BYTES - 1) // 4096


def test_packing_is_reproducible():
    x = features(5, 6, 20)
    one, two = (pack_layers(two_layers(), x, TINY).image for _ in range(2))
    assert one.data == two.data
    assert one.regions == two.regions
    other = pack_layers(two_layers(), features(5, 6, 20, seed=2), TINY).image
    assert other.regions == one.regions
    assert other.data != one.data


@pytest.mark.parametrize("seed", range(12))
def test_numbers_of_a_step_against_brute_force(seed):
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(3, 9, 2))
    rows, columns = (int(n) for n in rng.integers(1, 5, 2))
    stride = tuple(int(n) for n in rng.integers(1, 5, 2))
    pad = tuple(int(n) for n in rng.integers(0, 6, 4))
    if height + pad[0] + pad[2] < rows or width + pad[1] + pad[3] < columns:
        pad = (2, 2, 2, 2)
    layer = make("conv", (5, rows, columns, 3), stride, pad)
    step = pack_layers([layer], features(height, width, 3), TINY).steps[0]
    macs = useful = 0
    for y in range(step.out_shape[0]):
        for x in range(step.out_shape[1]):
            for r in range(rows):
                for s in range(columns):
                    macs += 5 * 3
                    row, column = y * stride[0] + r - pad[0], x * stride[1] + s - pad[1]
                    useful += 5 * 3 * (0 <= row < height and 0 <= column < width)
    assert (step.macs, step.macs_useful) == (macs, useful)
    outputs = step.out_shape[0] * step.out_shape[1] * 5
    assert step.bytes_ideal == height * width * 3 + 5 * rows * columns * 3 + 5 * 8 + outputs


# Refusals


def refused(layers, x, text, error=ValueError, **options):
    with pytest.raises(error) as refusal:
        pack_layers(layers, x, TINY, **options)
    assert str(refusal.value) == text


def test_no_layer():
    refused([], features(3, 3, 1), "a program needs at least one layer")


def test_wrong_features():
    layer = make("conv", (1, 1, 1, 1))
    text = "features must be int8 of shape (1, H, W, C), not {} of shape {}"
    wrong = features(3, 3, 1).astype(np.uint8)
    refused([layer], wrong, text.format("uint8", (1, 3, 3, 1)))
    refused([layer], features(3, 3, 1)[0], text.format("int8", (3, 3, 1)))
    two = np.concatenate([features(3, 3, 1)] * 2)
    refused([layer], two, text.format("int8", (2, 3, 3, 1)))


def test_channels_that_do_not_match():
    text = "layer 'conv': its weights are for 3 channels, its feature map has 4"
    refused([make("conv", (1, 1, 1, 3))], features(3, 3, 4), text)


def test_quantisation_that_does_not_match():
    layers = [make("a", (3, 1, 1, 2), zero_out=4), make("b", (1, 1, 1, 3), zero_in=5)]
    text = (
        "layer 'b': its input has Quantisation(scale=1.0, zero_point=5), the layer before gives "
        "Quantisation(scale=1.0, zero_point=4)"
    )
    refused(layers, features(3, 3, 2), text)


def test_names_must_be_unique():
    layers = [make("same", (3, 1, 1, 3)), make("same", (3, 1, 1, 3))]
    with pytest.raises(ValueError, match="same"):
        pack_layers(layers, features(3, 3, 3), TINY)


def test_layer_that_the_configuration_cannot_compute():
    layers = [make("a", (3, 1, 1, 2)), make("big", (1, 12, 1, 3))]
    text = "layer 'big': kernel 12x1 is larger than 11x11"
    refused(layers, features(20, 3, 2), text, UnsupportedError)


def test_image_beyond_32_bits():
    layer = make("conv", (1, 1, 1, 1))
    size = len(pack_layers([layer], features(3, 3, 1), TINY).image.data)
    base = (1 << 32) - size
    text = f"an image of {size} bytes at {base:#x} is beyond 32 bits"
    refused([layer], features(3, 3, 1), text, base=base)

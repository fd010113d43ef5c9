import re

import numpy as np
import pytest

from trirow_driver.combine_layer import Combine, CombineLayer, combine_scales
from trirow_driver.lowering import UnsupportedError
from trirow_driver.passes import chunk_bytes
from trirow_driver.pool_layer import CopyLayer, PoolLayer
from trirow_driver.program import INPUT, Node, Slice, chain, pack, pack_layers
from trirow_driver.quantise import Quantisation
from trirow_hw.config import PRESETS
from trirow_hw.descriptor import DESCRIPTOR_BYTES, unpack_descriptor

from .kit import conv

TINY = PRESETS["tiny"]
Q = Quantisation(1.0, 0)


def make(name, weights, stride=(1, 1), pad=(0, 0, 0, 0), zero_in=0, zero_out=0, **fields):
    return conv(weights, stride, pad, name, zero_in, zero_out, **fields)


def features(height, width, channels, seed=1, batch=1):
    rng = np.random.default_rng(seed)
    return rng.integers(-128, 128, (batch, height, width, channels), dtype=np.int8)


def two_layers():
    """Two layers, each of several chunks on `tiny`."""
    return [
        make("first", (40, 3, 3, 20), pad=(1, 1, 1, 1), zero_out=7),
        make("second", (30, 3, 3, 40), zero_in=7, zero_out=-1),
    ]


def adding(name="sum"):
    return CombineLayer(name, Q, Combine("add", combine_scales("add", Q, Q, Q), Q, Q))


def descriptors(image):
    raw = image.read("descriptors")
    return [
        unpack_descriptor(raw[k : k + DESCRIPTOR_BYTES])
        for k in range(0, len(raw), DESCRIPTOR_BYTES)
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
    assert program.place("input") == ("input", 0)
    assert program.place("second") == ("blob.second", 0)
    assert image.read("input") == x.tobytes()
    assert image.base == 0x8000
    for step in program.steps:
        for k, one in enumerate(step.tiling.passes):
            if one.load:
                expected = chunk_bytes(one.operation, TINY)
                assert image.read(f"weights.{step.layer.name}.{k}") == expected
    blob = image.region("blob.second")
    assert (blob.shape, blob.zero_point) == ((1, 30, 3, 4), -1)
    assert blob.size == 3 * 4 * 30


def test_chain_of_descriptors():
    """In order, each knows the next; only the first pass of the second layer waits."""
    program = pack_layers(two_layers(), features(5, 6, 20), TINY, base=0x8000)
    image = program.image
    at, found = image.address("descriptors"), descriptors(image)
    passes = [(step, k) for step in program.steps for k in range(step.passes)]
    assert len(found) == len(passes)
    weights = 0
    for index, (fields, (step, k)) in enumerate(zip(found, passes, strict=True)):
        last = index == len(found) - 1
        one, name = step.tiling.passes[k], step.layer.name
        source = image.address("input" if name == "first" else "blob.first")
        assert fields["last"] == last
        assert fields["next"] == (0 if last else at + (index + 1) * DESCRIPTOR_BYTES)
        assert fields["wait"] == (name == "second" and k == 0)
        assert fields["in_address"] == source + one.operation.source.address
        target = image.address(f"blob.{name}")
        assert fields["out_address"] == target + one.operation.target.address
        if one.load:
            weights = image.address(f"weights.{name}.{k}")
        assert fields["weight_address"] == weights


@pytest.mark.parametrize("base", [0, 0x8000, 0xF00])
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
    batch = int(rng.integers(1, 4))
    step = pack_layers([layer], features(height, width, 3, batch=batch), TINY).steps[0]
    macs = useful = 0
    for y in range(step.out_shape[0]):
        for x in range(step.out_shape[1]):
            for r in range(rows):
                for s in range(columns):
                    macs += 5 * 3
                    row, column = y * stride[0] + r - pad[0], x * stride[1] + s - pad[1]
                    useful += 5 * 3 * (0 <= row < height and 0 <= column < width)
    assert (step.macs, step.macs_useful) == (batch * macs, batch * useful)
    outputs = step.out_shape[0] * step.out_shape[1] * 5
    parameters = 5 * rows * columns * 3 + 5 * 8
    assert step.bytes_ideal == batch * (height * width * 3 + outputs) + parameters


# Graphs


def test_chain_names_second_feature_maps():
    nodes = chain([make("a", (3, 1, 1, 3)), adding()])
    assert [(node.inputs, node.output) for node in nodes] == [
        (("input",), "a"),
        (("a", "second.sum"), "sum"),
    ]


def test_residual_block_waits_for_both_operands():
    nodes = [
        Node(make("a", (3, 1, 1, 3)), (INPUT,), "a"),
        Node(make("b", (3, 1, 1, 3)), (INPUT,), "b"),
        Node(adding(), ("a", "b"), "sum"),
    ]
    program = pack(nodes, {INPUT: features(3, 3, 3)}, TINY)
    a, b, total = descriptors(program.image)
    assert [fields["wait"] for fields in (a, b, total)] == [0, 0, 1]
    assert [fields["second_wait"] for fields in (a, b, total)] == [0, 0, 1]
    assert total["in_address"] == program.image.address("blob.a")
    assert total["second_address"] == program.image.address("blob.b")


def test_second_operand_that_is_there_is_not_waited_for():
    nodes = [
        Node(make("a", (3, 1, 1, 3)), (INPUT,), "a"),
        Node(adding(), (INPUT, "a"), "sum"),
        Node(adding("more"), ("sum", INPUT), "more"),
    ]
    found = descriptors(pack(nodes, {INPUT: features(3, 3, 3)}, TINY).image)
    assert [fields["wait"] for fields in found] == [0, 0, 1]
    assert [fields["second_wait"] for fields in found] == [0, 1, 0]


def test_slices_have_no_memory_of_their_own():
    nodes = [
        Node(CopyLayer("copy", Q), (INPUT,), "left"),
        Node(make("a", (4, 1, 1, 3)), (INPUT,), "right"),
        Node(CopyLayer("cut", Q), ("middle",), "cut"),
    ]
    slices = {
        "left": Slice("both", 0, 3),
        "right": Slice("both", 3, 4),
        "middle": Slice("both", 2, 2),
    }
    program = pack(nodes, {INPUT: features(2, 2, 3)}, TINY, slices=slices)
    image = program.image
    assert image.region("blob.both").shape == (1, 7, 2, 2)
    assert program.place("right") == ("blob.both", 3)
    left, right, cut = descriptors(image)
    both = image.address("blob.both")
    assert (left["out_address"], left["out_span"], left["out_gap"]) == (both, 3, 4)
    assert (right["out_address"], right["out_span"], right["out_gap"]) == (both + 3, 4, 3)
    assert (cut["in_address"], cut["in_span"], cut["in_gap"], cut["wait"]) == (both + 2, 2, 5, 1)
    assert {region.name for region in image.regions if region.kind == "blob"} == {
        "input",
        "blob.both",
        "blob.cut",
    }


def test_images_share_weights_and_follow_each_other():
    program = pack_layers([make("a", (3, 1, 1, 3))], features(2, 2, 3, batch=3), TINY)
    found = descriptors(program.image)
    assert [fields["load_weights"] for fields in found] == [1, 0, 0]
    assert [fields["keep_weights"] for fields in found] == [1, 1, 0]
    first = found[0]
    for image, fields in enumerate(found):
        assert fields["in_address"] == first["in_address"] + 12 * image
        assert fields["out_address"] == first["out_address"] + 12 * image
    assert program.image.region("blob.a").shape == (3, 3, 2, 2)


def test_sums_have_a_region_if_there_are_any():
    program = pack_layers([make("a", (3, 3, 3, 120))], features(17, 17, 120), TINY)
    assert program.image.region("sums.a").size == 15 * 15 * 3 * 4
    assert program.image.region("sums.a").kind == "sums"
    for channels in (20, 2000):  # of one part, and of two whose sums stay on chip
        program = pack_layers([make("a", (3, 1, 1, channels))], features(2, 1, channels), TINY)
        assert "sums" not in {region.kind for region in program.image.regions}


# Refusals


def refused(layers, x, text, error=ValueError, **options):
    with pytest.raises(error) as refusal:
        pack_layers(layers, x, TINY, **options)
    assert str(refusal.value) == text


def test_no_layer():
    refused([], features(3, 3, 1), "a program needs at least one layer")


def test_wrong_features():
    layer = make("conv", (1, 1, 1, 1))
    text = "feature map 'input' must be int8 of shape (N, H, W, C), not {} of shape {}"
    wrong = features(3, 3, 1).astype(np.uint8)
    refused([layer], wrong, text.format("uint8", (1, 3, 3, 1)))
    refused([layer], features(3, 3, 1)[0], text.format("int8", (3, 3, 1)))
    refused([layer], features(3, 0, 1), text.format("int8", (1, 3, 0, 1)))


def test_channels_that_do_not_match():
    text = "layer 'conv': its weights are for 3 channels, its feature map has 4"
    refused([make("conv", (1, 1, 1, 3))], features(3, 3, 4), text)


def test_quantisation_that_does_not_match():
    layers = [make("a", (3, 1, 1, 2), zero_out=4), make("b", (1, 1, 1, 3), zero_in=5)]
    text = (
        "layer 'b': its input 'a' has Quantisation(scale=1.0, zero_point=4), the layer takes "
        "Quantisation(scale=1.0, zero_point=5)"
    )
    refused(layers, features(3, 3, 2), text)


def test_names_must_be_unique():
    layers = [make("same", (3, 1, 1, 3)), make("same", (3, 1, 1, 3))]
    text = "layer 'same': its output 'same' is there already"
    refused(layers, features(3, 3, 3), text)


def test_layer_that_the_configuration_cannot_compute():
    layers = [make("a", (3, 1, 1, 2)), make("b", (1, 1, 1, 3), weight_zero_point=1)]
    text = "layer 'b': weights with a zero point (1) need weight_bits 9, configuration 'tiny' has 8"
    refused(layers, features(3, 3, 2), text, UnsupportedError)


def test_image_beyond_32_bits():
    layer = make("conv", (1, 1, 1, 1))
    size = len(pack_layers([layer], features(3, 3, 1), TINY).image.data)
    base = (1 << 32) - size
    text = f"an image of {size} bytes at {base:#x} is beyond 32 bits"
    refused([layer], features(3, 3, 1), text, base=base)


def refused_graph(nodes, maps, text, slices=None):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        pack(nodes, maps, TINY, slices=slices)


def test_wrong_graphs():
    layer, maps = make("a", (3, 1, 1, 3)), {INPUT: features(3, 3, 3)}
    refused_graph([Node(layer, ("x",), "a")], maps, "layer 'a': nothing gives its input 'x'")
    refused_graph(
        [Node(layer, (INPUT, INPUT), "a")], maps, "layer 'a': it takes 1 feature maps, not 2"
    )
    refused_graph(
        [Node(adding(), (INPUT, "x"), "sum")],
        maps | {"x": features(3, 2, 3)},
        "layer 'sum': its second feature map must have the extents of its output, 3x3x3, not 3x2x3",
    )
    refused_graph(
        [Node(layer, (INPUT,), "a")],
        maps | {"x": features(3, 3, 3, batch=2)},
        "feature maps must have one number of images, not [1, 2]",
    )
    refused_graph(
        [Node(layer, (INPUT,), INPUT)], maps, "layer 'a': its output 'input' is there already"
    )
    refused_graph(
        [Node(PoolLayer("p", "maximum", (4, 1), (1, 1), (0,) * 4, Q), (INPUT,), "p")],
        maps,
        "layer 'p': Output of kernel 4x1 on input 3x3 with padding (0, 0, 0, 0) is empty: "
        "the padded input is only 3x3",
    )


def test_wrong_slices():
    layer, maps = make("a", (3, 1, 1, 3)), {INPUT: features(3, 3, 3)}
    copy = Node(CopyLayer("copy", Q), ("part",), "copy")
    refused_graph(
        [copy],
        maps,
        "slice 'part': channels 1 to 4 are not in 'input', which has 3",
        {"part": Slice(INPUT, 1, 3)},
    )
    refused_graph(
        [copy],
        maps,
        "slice 'part': 'more' is a slice itself",
        {"part": Slice("more", 0, 1), "more": Slice(INPUT, 0, 1)},
    )
    refused_graph(
        [Node(layer, (INPUT,), "part")],
        maps,
        "layer 'a': its output 3x3x3 does not fit slice 'part' of 3x3x4",
        {"part": Slice("whole", 0, 4)},
    )
    refused_graph(
        [copy],
        maps | {"part": features(3, 3, 1)},
        "feature map 'part' is declared as a slice: it has no memory",
        {"part": Slice(INPUT, 0, 1)},
    )

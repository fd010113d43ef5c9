"""The descriptor: bytes and fields, ranges, the check, and the layout that the gateware sees."""

import random

import pytest

from trirow_hw.descriptor import (
    CHECK,
    DESCRIPTOR_BYTES,
    FIELDS,
    OP_DENSE,
    VERSION,
    Descriptor,
    pack_descriptor,
    unpack_descriptor,
)

FILLED_IN = {"version", "check"}
GIVEN = [name for name, _, _ in FIELDS if name not in FILLED_IN]
SHAPES = {name: shape for name, shape, _ in FIELDS}
# Bytes of the fields in memory, in their order. The layout is fixed as long as the version is.
LAYOUT = """
version:1 op:1 check:2 next:4 last:1 wait:1 load_weights:1 keep_weights:1 in_address:4 in_bytes:4
in_first:4 in_span:4 in_gap:4 in_line:4 in_turn:4 rows:2 row_words:2 row_pitch:2 row_tail:1
zero_in:1 row_bytes:4 in_rows:2 in_columns:2 out_rows:2 out_columns:2 kernel_rows:1 kernel_columns:1
stride_rows:1 stride_columns:1 top:2 first_column:2 first_word:2 first_wrapped:2 first_byte:1
step_byte:1 step_words:2 step_wrapped:2 run_words:2 run_tail:1 top_bank:1 tap_words:2 step_weights:2
clipped_words:2 tap_byte:1 columns:1 last_columns:1 spacing:1 wide:1 chunk_tail:1 groups:2
group_lanes:1 last_lanes:1 group_words:2 chunk_steps:2 chunk_run:2 table_bytes:2 zero_weight:1
table:1 weight_address:4 weight_bytes:4 group_bytes:4 out_address:4 out_bytes:4 out_span:4 out_gap:4
out_line:4 out_turn:4 second_address:4 second_bytes:4 second_span:4 second_gap:4 second_line:4
second_turn:4 second_wait:1 combine:1 sum_left:1 sum_right:1 sum_mantissa:4 sum_zero:1 sum_low:1
sum_high:1 partial_in:1 partial_out:1 fixed:1 prelu:1 zero_out:1 low:1 high:1
"""
SIGNED = {
    *("zero_in", "top", "first_column", "first_word", "zero_weight"),
    *("sum_zero", "sum_low", "sum_high", "zero_out", "low", "high"),
}


def bounds(name):
    width = SHAPES[name].width
    low = -(1 << width - 1) if name in SIGNED else 0
    return low, low + (1 << width) - 1


def random_fields(seed):
    generator = random.Random(seed)
    return {name: generator.randint(*bounds(name)) for name in GIVEN}


def fold(raw):
    check = 0
    for k in range(0, len(raw), 2):
        check ^= int.from_bytes(raw[k : k + 2], "little")
    return check


def test_layout_in_memory():
    offset = 0
    for entry in LAYOUT.split():
        name, size = entry.split(":")
        field = Descriptor[name]
        assert (field.offset, field.width) == (8 * offset, 8 * int(size)), name
        assert offset % min(int(size), 4) == 0, name
        offset += int(size)
    assert offset * 8 == Descriptor.size <= 8 * DESCRIPTOR_BYTES
    assert [name for name, _ in Descriptor] == [entry.split(":")[0] for entry in LAYOUT.split()]
    assert {name for name, shape in SHAPES.items() if shape.signed} == SIGNED


@pytest.mark.parametrize("seed", range(20))
def test_round_trip(seed):
    values = random_fields(seed)
    raw = pack_descriptor(values)
    assert len(raw) == DESCRIPTOR_BYTES
    assert fold(raw) == CHECK
    fields = unpack_descriptor(raw)
    assert {name: fields[name] for name in GIVEN} == values
    assert fields["version"] == VERSION
    assert raw == pack_descriptor(values)
    assert not any(raw[Descriptor.size // 8 :])


@pytest.mark.parametrize("seed", range(5))
def test_the_gateware_sees_the_same_fields(seed):
    values = random_fields(seed)
    raw = pack_descriptor(values)
    word = int.from_bytes(raw, "little") & ((1 << Descriptor.size) - 1)
    seen = Descriptor.from_bits(word)
    assert {name: seen[name] for name in GIVEN} == values
    assert seen["version"] == VERSION


@pytest.mark.parametrize("name", GIVEN)
def test_bits_of_each_field(name):
    """Only the bits of the field and of the check depend on it, and all of those do."""
    zero = dict.fromkeys(GIVEN, 0)
    low, high = bounds(name)
    all_ones = -1 if name in SIGNED else high
    words = [
        int.from_bytes(pack_descriptor({**zero, name: value}), "little") for value in (0, all_ones)
    ]
    field, check = Descriptor[name], Descriptor["check"]
    checks = ((1 << check.width) - 1) << check.offset
    assert (words[0] ^ words[1]) & ~checks == ((1 << field.width) - 1) << field.offset
    for value in (low, high):
        assert unpack_descriptor(pack_descriptor({**zero, name: value}))[name] == value


@pytest.mark.parametrize("name", GIVEN)
def test_range_of_each_field(name):
    values = random_fields(0)
    low, high = bounds(name)
    for value in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"^descriptor field '{name}' ") as error:
            pack_descriptor({**values, name: value})
        assert str(error.value).endswith(f"must be from {low} to {high}, not {value}")


@pytest.mark.parametrize("name", GIVEN)
def test_missing_field(name):
    values = random_fields(0)
    del values[name]
    with pytest.raises(ValueError, match=f"^descriptor field '{name}' is missing$"):
        pack_descriptor(values)


def test_unknown_fields():
    with pytest.raises(ValueError, match=r"^unknown descriptor fields: height, width$"):
        pack_descriptor({**random_fields(0), "width": 1, "height": 2})


@pytest.mark.parametrize("seed", range(3))
def test_every_flipped_bit_is_detected(seed):
    raw = pack_descriptor(random_fields(seed))
    for bit in range(8 * DESCRIPTOR_BYTES):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^the descriptor's check does not match its bytes$"):
            unpack_descriptor(bytes(flipped))


@pytest.mark.parametrize("size", [0, 128, 255, 257])
def test_wrong_size(size):
    with pytest.raises(ValueError, match=f"^a descriptor has 256 bytes, not {size}$"):
        unpack_descriptor(bytes(size))


def test_memory_that_was_never_written_is_refused():
    for byte in (0x00, 0xFF):
        with pytest.raises(ValueError, match="check"):
            unpack_descriptor(bytes([byte]) * DESCRIPTOR_BYTES)


def test_a_given_check_is_not_taken_for_another():
    """Fields as they are unpacked have a check; packed again, they are the same or are refused."""
    values = {**random_fields(1), "op": OP_DENSE}
    raw = pack_descriptor(values)
    try:
        again = pack_descriptor(unpack_descriptor(raw))
    except ValueError as error:
        assert "check" in str(error)  # noqa: PT017
    else:
        assert again == raw

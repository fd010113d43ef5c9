"""Configurations: the presets of the design, derived sizes, and what is refused."""

import pytest

from trirow_hw.config import (
    BURST_BYTES,
    CONSTANT_BYTES,
    CONSTANT_GROUPS,
    MAX_KERNEL,
    MAX_LEFT_SHIFT,
    MAX_STRIDE,
    PRESETS,
    REQUANTISE_MODES,
    TABLE_ENTRIES,
    TABLE_ENTRY_BYTES,
    WIDE_CONSTANT_BYTES,
    Config,
)

KIB = 1024
# Lanes in and out, requantisers, KiB of line and weight buffer, bytes of the bus.
TABLE = {
    "tiny": (4, 4, 1, 3, 4, 4),
    "odd": (3, 5, 2, 4.5, 6, 4),
    "up5k": (2, 2, 1, 6, 4, 2),
    "ecp5-25f": (4, 6, 1, 24, 24, 4),
    "ecp5-85f": (8, 16, 2, 72, 128, 8),
    "m256": (16, 16, 8, 96, 1024, 16),
    "edgeboard": (64, 96, 32, 512, 4096, 64),
}


def test_limits():
    assert (BURST_BYTES, CONSTANT_GROUPS) == (512, 64)
    assert (CONSTANT_BYTES, WIDE_CONSTANT_BYTES) == (8, 12)
    assert (MAX_KERNEL, MAX_STRIDE, MAX_LEFT_SHIFT) == (255, 255, 9)
    assert (TABLE_ENTRIES, TABLE_ENTRY_BYTES) == (256, 4)
    assert REQUANTISE_MODES == ("float32", "fixed")


def test_presets_have_their_names():
    assert list(PRESETS) == list(TABLE)
    assert all(config.name == name for name, config in PRESETS.items())


@pytest.mark.parametrize("name", TABLE)
def test_preset(name):
    config = PRESETS[name]
    assert (
        config.in_lanes,
        config.out_lanes,
        config.post_lanes,
        config.line_buffer_bytes / KIB,
        config.weight_buffer_bytes / KIB,
        config.bus_bytes,
    ) == TABLE[name]
    assert config.weight_bits == 8
    assert config.requantise_modes == ("float32", "fixed")
    assert config.description


@pytest.mark.parametrize("name", TABLE)
def test_derived_sizes(name):
    config = PRESETS[name]
    in_lanes, out_lanes, post_lanes, line, weight, bus = TABLE[name]
    assert config.multipliers == in_lanes * out_lanes
    # Three banks, each of an even number of words, as many as fit.
    bank_bytes = config.line_bank_words * in_lanes
    assert config.line_bank_words % 2 == 0
    assert 3 * bank_bytes <= line * KIB < 3 * (bank_bytes + 2 * in_lanes)
    # As many words in each lane as fit.
    assert 0 <= weight * KIB - config.weight_words * in_lanes * out_lanes < in_lanes * out_lanes
    assert (config.stages - 1) * post_lanes < out_lanes <= config.stages * post_lanes
    assert config.burst_beats * bus == 512


@pytest.mark.parametrize(
    ("name", "bank_words", "weight_words", "stages", "beats", "rows", "channels"),
    [
        ("tiny", 256, 256, 4, 128, 3, 4),
        ("odd", 512, 409, 3, 128, 3, 3),
        ("up5k", 1024, 1024, 2, 256, 2, 2),
        ("ecp5-25f", 2048, 1024, 6, 128, 3, 4),
        ("ecp5-85f", 3072, 1024, 8, 64, 3, 8),
        ("m256", 2048, 4096, 2, 32, 3, 16),
        ("edgeboard", 2730, 682, 3, 8, 3, 64),
    ],
)
def test_derived_sizes_in_numbers(name, bank_words, weight_words, stages, beats, rows, channels):
    config = PRESETS[name]
    assert config.line_bank_words == bank_words
    assert config.weight_words == weight_words
    assert config.stages == stages
    assert config.burst_beats == beats
    assert (config.tap_rows, config.depthwise_lanes) == (rows, channels)


@pytest.mark.parametrize(
    ("in_lanes", "out_lanes", "rows", "channels"),
    [(2, 1, 2, 1), (2, 5, 2, 2), (3, 2, 3, 2), (8, 4, 3, 4), (4, 8, 3, 4)],
)
def test_lanes_of_depthwise_passes(in_lanes, out_lanes, rows, channels):
    """A tap takes a row of each bank as far as there are multipliers; a lane takes a channel."""
    config = PRESETS["tiny"].override(in_lanes=in_lanes, out_lanes=out_lanes)
    assert (config.tap_rows, config.depthwise_lanes) == (rows, channels)


def test_configurations_are_frozen_and_compare_by_value():
    config = PRESETS["tiny"]
    with pytest.raises(AttributeError):
        config.in_lanes = 8
    assert config.override() == config
    assert config.override(in_lanes=8) != config
    assert hash(config.override()) == hash(config)


def test_override_checks_and_derives_again():
    config = PRESETS["tiny"]
    assert config.line_bank_words == 256  # a derived size that is kept
    wider = config.override(in_lanes=8, bus_bytes=16)
    assert (wider.name, wider.in_lanes, wider.bus_bytes) == ("tiny", 8, 16)
    assert wider.line_bank_words == 128
    assert wider.weight_words == 128
    assert config.in_lanes == 4


@pytest.mark.parametrize("field", ["lanes", "name", "description", "tap_rows"])
def test_override_of_an_unknown_field(field):
    known = (
        "in_lanes, out_lanes, post_lanes, line_buffer_bytes, weight_buffer_bytes, bus_bytes, "
        "weight_bits, requantise_modes"
    )
    with pytest.raises(ValueError, match=r"^unknown field") as error:
        PRESETS["tiny"].override(**{field: 4})
    assert str(error.value) == f"unknown field {field!r} of a configuration; known: {known}"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"in_lanes": 1}, "in_lanes must be an integer from 2 to 64, not 1"),
        ({"in_lanes": 65}, "in_lanes must be an integer from 2 to 64, not 65"),
        ({"in_lanes": 4.0}, "in_lanes must be an integer from 2 to 64, not 4.0"),
        ({"in_lanes": "4"}, "in_lanes must be an integer from 2 to 64, not '4'"),
        ({"out_lanes": 0}, "out_lanes must be an integer from 1 to 128, not 0"),
        ({"out_lanes": 129}, "out_lanes must be an integer from 1 to 128, not 129"),
        ({"out_lanes": None}, "out_lanes must be an integer from 1 to 128, not None"),
        (
            {"out_lanes": 128, "weight_buffer_bytes": 8192},
            "out_lanes / post_lanes must be at most 64, not 128",
        ),
        ({"post_lanes": 0}, "post_lanes must be an integer from 1 to 4, not 0"),
        ({"post_lanes": 5}, "post_lanes must be an integer from 1 to 4, not 5"),
        (
            {"out_lanes": 8, "post_lanes": 5},
            "post_lanes must be an integer from 1 to 4, not 5",  # the bus takes 4
        ),
        ({"bus_bytes": 1}, "bus_bytes must be an integer from 2 to 128, not 1"),
        ({"bus_bytes": 256}, "bus_bytes must be an integer from 2 to 128, not 256"),
        ({"bus_bytes": 12}, "bus_bytes must be a power of two, not 12"),
        ({"line_buffer_bytes": 95}, "line_buffer_bytes must be an integer from 96 to 16777216"),
        (
            {"line_buffer_bytes": (1 << 24) + 1},
            "line_buffer_bytes must be an integer from 96 to 16777216, not 16777217",
        ),
        (
            {"weight_buffer_bytes": 255},
            "weight_buffer_bytes must be an integer from 256 to 67108864, not 255",
        ),
        (
            {"weight_buffer_bytes": (1 << 26) + 1},
            "weight_buffer_bytes must be an integer from 256 to 67108864, not 67108865",
        ),
        ({"weight_bits": 7}, "weight_bits must be an integer from 8 to 9, not 7"),
        ({"weight_bits": 10}, "weight_bits must be an integer from 8 to 9, not 10"),
        ({"weight_bits": 8.0}, "weight_bits must be an integer from 8 to 9, not 8.0"),
        (
            {"line_buffer_bytes": 3 * 65536 * 4},
            "line_bank_words must be at most 65535, not 65536",
        ),
        (
            {"weight_buffer_bytes": 65536 * 16},
            "weight_words must be at most 65535, not 65536",
        ),
    ],
)
def test_validation(values, text):
    with pytest.raises(ValueError, match="must be") as error:
        PRESETS["tiny"].override(**values)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("modes", [("float32",), ("fixed",), ("float32", "fixed")])
def test_requantise_modes(modes):
    config = PRESETS["tiny"].override(requantise_modes=modes)
    assert config.requantise_modes == modes
    assert config == Config(
        "tiny", 4, 4, 1, 3 * KIB, 4 * KIB, 4, requantise_modes=modes, description="tests"
    )
    assert config.to_dict()["requantise_modes"] == list(modes)


@pytest.mark.parametrize("modes", [["fixed", "float32"], ("fixed", "float32"), ["float32"]])
def test_requantise_modes_in_any_order(modes):
    """The same modes are the same configuration, which stays hashable."""
    config = PRESETS["tiny"].override(requantise_modes=modes)
    assert config.requantise_modes == tuple(mode for mode in REQUANTISE_MODES if mode in modes)
    assert hash(config) == hash(config.override())
    assert (config == PRESETS["tiny"]) == (len(modes) == 2)


@pytest.mark.parametrize(
    "modes",
    [
        *((), ("int8",), ("float32", "int8"), ("fixed", "fixed"), "fixed", "", None, 8, (8,)),
        *((("fixed",),), (["fixed"],)),
    ],
)
def test_wrong_requantise_modes(modes):
    with pytest.raises(ValueError, match=r"^requantise_modes must be some of ") as error:
        PRESETS["tiny"].override(requantise_modes=modes)
    text = f"requantise_modes must be some of float32, fixed, not {modes!r}"
    assert str(error.value) == text


@pytest.mark.parametrize("value", [0, -4, None, "4", 4.0])
def test_the_bus_is_named_when_it_is_wrong(value):
    """The upper bound of another field depends on the bus, which must not hide its name."""
    with pytest.raises(ValueError, match=r"^bus_bytes must be an integer from 2 to 128"):
        PRESETS["tiny"].override(bus_bytes=value)


@pytest.mark.parametrize(
    "values",
    [
        {"in_lanes": 2},
        {"in_lanes": 64, "line_buffer_bytes": 1536},
        {"out_lanes": 1, "post_lanes": 1},
        {"out_lanes": 128, "post_lanes": 2, "weight_buffer_bytes": 8192},
        {"post_lanes": 4},
        {"bus_bytes": 2},
        {"bus_bytes": 128},
        {"weight_bits": 9},
        {"line_buffer_bytes": 96},
        {"weight_buffer_bytes": 256},
        {"line_buffer_bytes": 3 * 65534 * 4},
        {"weight_buffer_bytes": 65535 * 16},
    ],
)
def test_ends_of_the_ranges(values):
    config = PRESETS["tiny"].override(**values)
    assert all(getattr(config, name) == value for name, value in values.items())


def test_to_dict():
    assert PRESETS["odd"].to_dict() == {
        "name": "odd",
        "in_lanes": 3,
        "out_lanes": 5,
        "post_lanes": 2,
        "line_buffer_bytes": 4608,
        "weight_buffer_bytes": 6144,
        "bus_bytes": 4,
        "weight_bits": 8,
        "requantise_modes": ["float32", "fixed"],
    }

"""Operations at their edges, each by name, against golden under a memory that answers at random."""

from dataclasses import replace

import numpy as np
import pytest

from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import INPUT, chain, pack
from trirow_golden import same_padding
from trirow_hw.config import PRESETS
from trirow_sim.case import Case
from trirow_sim.simulate import simulate_graph

from ..fuzz import SMALL, Setting, check

TINY, ODD = Setting("tiny", {}), Setting("odd", {})
SETTINGS = {"tiny": TINY, "odd": ODD, "small": SMALL}
ALL_SIDES = (1, 1, 1, 1)


def same(*shape):
    """Return a depthwise convolution, 3x3, stride 2, that is padded as TensorFlow does."""
    pad = same_padding(shape[:2], (3, 3), (2, 2))
    return Case("depthwise", shape, stride=(2, 2), pad=pad)


CASES = {
    "depthwise, stride 2, SAME, even": same(8, 6, 6),
    "depthwise, stride 2, SAME, odd": same(7, 9, 6),
    "depthwise of one channel": Case("depthwise", (5, 6, 1), pad=ALL_SIDES),
    "depthwise of 13 channels": Case("depthwise", (4, 5, 13), pad=ALL_SIDES),
    "depthwise with multiplier": Case("depthwise", (4, 3, 5), multiplier=3, mode="fixed"),
    "depthwise kernel of 5 rows and 2 columns": Case(
        "depthwise", (7, 5, 9), kernel=(5, 2), pad=(2, 0, 2, 1)
    ),
    "dilation larger than the input": Case(
        "conv", (3, 4, 3), 5, (3, 2), pad=(6, 7, 6, 7), dilation=(6, 7)
    ),
    "dilated depthwise": Case("depthwise", (7, 6, 5), pad=(4, 3, 4, 3), dilation=(4, 3)),
    "padding larger than the kernel": Case("conv", (4, 3, 3), 6, (2, 3), (1, 2), (5, 4, 6, 7)),
    "max pool with windows in the padding": Case(
        "maxpool", (3, 2, 5), kernel=(2, 2), pad=(3, 3, 4, 4)
    ),
    "average pool with windows in the padding": Case(
        "avgpool", (3, 2, 5), kernel=(2, 2), pad=(3, 3, 4, 4), count_padding=True
    ),
    "max pool, windows that are not whole": Case(
        "maxpool", (6, 7, 6), kernel=(3, 2), stride=(2, 3), ceil=True
    ),
    "dilated max pool": Case("maxpool", (7, 7, 3), kernel=(3, 3), dilation=(2, 3)),
    "average pool, padding left out": Case(
        "avgpool", (5, 6, 7), kernel=(3, 3), stride=(2, 2), pad=ALL_SIDES, ceil=True
    ),
    "global average pool": Case("avgpool", (6, 5, 9), kernel=(6, 5)),
    "add": Case("add", (4, 5, 7)),
    "add with extreme scales": Case("add", (4, 5, 7), extreme=True, mode="fixed"),
    "maximum of two maps": Case("maximum", (5, 3, 6)),
    "maximum with extreme scales": Case("maximum", (5, 3, 6), extreme=True),
    "groups narrower than the lanes": Case("conv", (4, 4, 12), 12, pad=ALL_SIDES, groups=6),
    "groups of one channel, two filters each": Case("conv", (4, 4, 3), 6, groups=3),
    "shuffle": Case("shuffle", (3, 4, 12), groups=4),
    "batch of a convolution": Case("conv", (4, 3, 5), 6, batch=3, pad=ALL_SIDES),
    "batch of a depthwise convolution": Case("depthwise", (5, 3, 7), batch=3),
    "batch of a sum": Case("add", (3, 2, 5), batch=4),
    "residual": Case("conv", (4, 5, 6), 9, pad=ALL_SIDES, residual=True),
    "residual, fixed, clipped": Case(
        "conv", (4, 5, 6), 9, (1, 1), residual=True, mode="fixed", activation="relu6"
    ),
    "residual behind a table": Case("depthwise", (5, 4, 6), residual=True, activation="leaky"),
    "residual behind sums kept on chip": Case("conv", (3, 4, 40), 5, residual=True, pad=ALL_SIDES),
    "residual behind sums in memory": Case("conv", (8, 9, 40), 5, residual=True, pad=ALL_SIDES),
    "sums kept on chip, three images": Case("fc", (2, 3, 50), 11, batch=3),
    "prelu": Case("conv", (4, 5, 6), 13, activation="prelu"),
    "prelu, depthwise": Case("depthwise", (4, 5, 14), activation="prelu"),
    "leaky relu": Case("conv", (4, 5, 3), 6, activation="leaky"),
    "sigmoid, fixed": Case("conv", (4, 5, 3), 6, activation="sigmoid", mode="fixed"),
    "hard swish, fully connected": Case("fc", (2, 2, 5), 11, activation="hardswish"),
    "concatenation": Case("concat", (4, 3, 5), 6),
    "slice": Case("slice", (4, 3, 9), 4),
    "upsampling": Case("upsample", (3, 4, 5), factor=3),
    "transposed convolution": Case(
        "transposed", (4, 3, 5), 6, stride=(2, 3), pad=ALL_SIDES, output_padding=(1, 2)
    ),
    "transposed, stride larger than the kernel": Case(
        "transposed", (3, 2, 4), 3, (2, 1), (3, 4), mode="fixed"
    ),
    "transposed, dilated, in groups": Case(
        "transposed", (3, 3, 6), 4, (2, 3), (2, 2), dilation=(2, 3), groups=2
    ),
    "fully connected, larger than the weight buffer": Case("fc", (4, 4, 16), 40),
    "stale weights in columns that are not used": Case(
        "conv", (3, 1, 5), 5, (3, 2), pad=(0, 0, 0, 2)
    ),
}

#: Cases that take a second or two in pysim.
QUICK = [
    "depthwise of one channel",
    "slice",
    "stale weights in columns that are not used",
]


def verify(case, setting, engine="compiled", name=""):
    wrong = check(case, setting.config, "random", engine)
    assert wrong is None, f"{name}: {wrong}\nrepeat with: {setting.command(case, 'random', engine)}"


def passes(case, setting):
    """Return the passes of a case."""
    nodes, features, slices = case.build()
    program = pack(nodes, features, setting.config, slices=slices)
    return [one for step in program.steps for one in step.tiling.passes]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_named(compiled_cache, name, setting):
    verify(CASES[name], SETTINGS[setting], name=name)


@pytest.mark.parametrize("name", QUICK)
def test_named_in_pysim(name):
    verify(CASES[name], TINY, "pysim", name)


def test_what_the_cases_are():
    """They are at the edges that their names say."""
    (node,), *_ = CASES["prelu"].build()
    assert (node.layer.negative_multiplier < 0).any()
    (node,), *_ = CASES["fully connected, larger than the weight buffer"].build()
    buffers = [setting.config.weight_buffer_bytes for setting in SETTINGS.values()]
    assert node.layer.weights.size > max(buffers)
    assert any(one.partial_out for one in passes(CASES["residual behind sums in memory"], SMALL))
    for name in ("residual behind sums kept on chip", "sums kept on chip, three images"):
        assert any(one.kept_out for one in passes(CASES[name], SMALL))
        assert not any(one.partial_out for one in passes(CASES[name], SMALL))


# Cuts


def strips(case, setting):
    """Return the output columns of the strips of a case."""
    return {one.operation.target.columns for one in passes(case, setting)}


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("op", ["depthwise", "maxpool", "avgpool"])
def test_strip_boundary_at_every_column(compiled_cache, op, stride):
    """A column fills so much of the line buffer that there is no room for a second one."""
    case = Case(
        op, (4, 7, 64), None, (3, 1), (1, stride), mode="fixed" if op == "depthwise" else "float32"
    )
    assert strips(case, SMALL) == {1}
    verify(case, SMALL)


@pytest.mark.parametrize("stride", [1, 2])
def test_strip_boundary_at_every_column_of_a_convolution(stride):
    setting = Setting("tiny", {"line_buffer_bytes": 288})
    case = Case("conv", (2, 4, 32), 3, (2, 3), (1, stride), (0, 1, 0, 1))
    assert strips(case, setting) == {1}
    verify(case, setting, "pysim")


@pytest.mark.parametrize("words", [2, 3, 5])
@pytest.mark.parametrize("mode", ["float32", "fixed"])
def test_cut_along_channels_at_every_word(compiled_cache, words, mode):
    """The weight buffer holds a word of channels of the kernel and no more."""
    lanes = SMALL.config.in_lanes
    case = Case("conv", (4, 5, words * lanes), 6, (4, 4), pad=ALL_SIDES, mode=mode)
    assert SMALL.config.weight_words == 4 * 4
    found = [one.operation.source for one in passes(case, SMALL)]
    assert {view.channels for view in found} == {lanes}
    assert {view.address for view in found} == {lanes * k for k in range(words)}
    verify(case, SMALL)
    verify(replace(case, residual=True, activation="leaky"), SMALL)


@pytest.mark.parametrize("zero", [-128, -7, 127])
@pytest.mark.parametrize("op", ["conv", "depthwise", "fc", "transposed"])
def test_zero_point_of_weights(compiled_cache, op, zero):
    case = Case(op, (4, 5, 6), pad=ALL_SIDES, weight_zero_point=zero, mode="fixed")
    verify(case, SMALL)
    with pytest.raises(UnsupportedError, match="need weight_bits 9"):
        check(case, TINY.config, "random")


# Several layers, and modes


@pytest.mark.parametrize("setting", SETTINGS)
def test_modes_alternate_in_a_chain(compiled_cache, setting):
    """The requantisers change their mode from pass to pass, with tables and sums between."""
    cases = [
        Case("conv", (5, 6, 4), 7, (3, 3), pad=ALL_SIDES, mode="fixed"),
        Case("depthwise", (5, 6, 7), mode="float32", pad=ALL_SIDES, activation="leaky"),
        Case("conv", (5, 6, 7), 5, (1, 1), mode="fixed", activation="sigmoid"),
        Case("conv", (5, 6, 5), 6, (1, 1), mode="float32", activation="prelu"),
        Case("conv", (5, 6, 6), 3, (2, 2), mode="fixed", residual=True),
        Case("conv", (4, 5, 3), 4, (1, 1), mode="float32"),
    ]
    layers, features = [], {}
    for number, case in enumerate(cases):
        (node,), inputs, _ = replace(case, seed=number + 1).build()
        layer = replace(node.layer, name=f"layer{number}")
        if layers:
            layer = replace(layer, input=layers[-1].result)
        layers.append(layer)
        features |= {f"second.{layer.name}": inputs["second"]} if case.residual else {}
        features |= {INPUT: inputs[INPUT]} if number == 0 else {}
    config = SETTINGS[setting].config
    result = simulate_graph(
        chain(layers), features, config, memory="random", seed=4, engine="compiled"
    )
    assert result.ok, result.comparison.lines()


@pytest.mark.parametrize("mode", ["float32", "fixed"])
def test_one_requantisation_mode_left_out(mode):
    setting = Setting("tiny", {"requantise_modes": (mode,)})
    verify(Case("conv", (3, 4, 5), 6, mode=mode, seed=2), setting, "pysim")
    verify(Case("maxpool", (4, 4, 5), kernel=(2, 2), seed=2), setting, "pysim")
    other = "fixed" if mode == "float32" else "float32"
    with pytest.raises(UnsupportedError, match=other):
        check(Case("conv", (3, 4, 5), 6, mode=other), setting.config, "random", "pysim")
    if mode == "float32":
        with pytest.raises(UnsupportedError, match="fixed"):
            check(Case("add", (3, 4, 5)), setting.config, "random", "pysim")


def test_mismatch_is_noticed(monkeypatch, compiled_cache):
    """These tests can fail: one output of golden is wrong."""
    case = CASES["concatenation"]
    layer = type(case.build()[0][1].layer)
    golden = layer.golden

    def wrong(self, *inputs):
        output = np.array(golden(self, *inputs))
        output[0, -1, -1, -1] ^= 1
        return output

    monkeypatch.setattr(layer, "golden", wrong)
    with pytest.raises(AssertionError, match=r"1 of 72 outputs differ(.|\n)*repeat with: trirow"):
        verify(case, TINY)
    assert PRESETS["tiny"] == TINY.config

"""What the options of `trirow sim` make of a layer, and what they refuse."""

import dataclasses
import random
import re
import shlex

import numpy as np
import pytest
from click.testing import CliRunner

from trirow.layer_options import LAYER_OPTIONS, layer_case
from trirow.main import main
from trirow.sim import sim
from trirow_driver.conv_layer import ConvLayer
from trirow_sim.case import OPERATIONS, OPTIONS_OF
from trirow_sim.random_case import random_case

SHAPES = "; change --shape, --kernel or --pad"
MODES = r"; add --set requantise_modes=float32\+fixed"
TRY = r" Try 'trirow sim --help'\."


def refused(text, *arguments):
    """Check that a command fails with one line and status 2, and nothing else."""
    result = CliRunner().invoke(main, ["sim", *arguments])
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert re.fullmatch(f"Error: {text}", result.stderr.rstrip("\n")), result.stderr
    assert result.exit_code == 2


def parsed(arguments):
    """Return the layer that options describe."""
    with sim.make_context("sim", [str(word) for word in arguments]) as context:
        values = {name: context.params[name] for name in (*LAYER_OPTIONS, "seed")}
        return layer_case(context, values)


def test_padding_keeps_the_size():
    for kernel, size, pad in (
        ("3x3", (3, 3), (1, 1, 1, 1)),
        ("1x4", (1, 4), (0, 1, 0, 2)),
        ("5", (5, 5), (2, 2, 2, 2)),
    ):
        case = parsed(["--kernel", kernel])
        assert (case.kernel, case.pad, case.out) == (size, pad, 8)
    assert parsed(["--kernel", "3", "--dilation", "1x4"]).pad == (1, 4, 1, 4)
    case = parsed(["--pad", "2", "--stride", "3", "--seed", "9"])
    assert (case.kernel, case.stride, case.pad, case.seed) == ((3, 3), (3, 3), (2, 2, 2, 2), 9)


def test_defaults_of_pools():
    case = parsed(["--op", "maxpool"])
    assert (case.kernel, case.stride, case.pad) == ((2, 2), (2, 2), (0, 0, 0, 0))
    case = parsed(["--op", "avgpool", "--kernel", "3x1", "--stride", "1"])
    assert (case.kernel, case.stride, case.pad) == ((3, 1), (1, 1), (0, 0, 0, 0))


@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_padding_of_tensorflow(size, kernel, stride):
    """The output has the input's size divided by the stride, or times it if transposed."""
    shape = ["--shape", f"{size}x{size}x4", "--pad", "same", "--kernel", kernel, "--stride", stride]
    for op in ("conv", "maxpool", "transposed"):
        case = parsed(["--op", op, *shape])
        (node,) = case.build()[0]
        extents = node.layer.output_extents(case.shape)[:2]
        assert extents == (
            (size * stride,) * 2 if op == "transposed" else (-(-size // stride),) * 2
        )
        top, left, bottom, right = case.pad
        assert (top, left) in ((bottom, right), (bottom - 1, right - 1))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        # Options that are for other operations.
        ("--op add --kernel 3", rf"--kernel is for --op conv, .*avgpool, not add\.{TRY}"),
        ("--op fc --stride 1", rf"--stride is for --op conv, .*, not fc\.{TRY}"),
        ("--op depthwise --out 8", rf"--out is for --op conv, .*, not depthwise\.{TRY}"),
        ("--op depthwise --groups 2", rf"--groups is for --op conv, .*, not depthwise\.{TRY}"),
        ("--multiplier 2", rf"--multiplier is for --op depthwise, not conv\.{TRY}"),
        ("--output-padding 1", rf"--output-padding is for --op transposed, not conv\.{TRY}"),
        ("--op fc --dilation 2", rf"--dilation is for .*avgpool, not fc\.{TRY}"),
        ("--op maxpool --mode fixed", rf"--mode is for .*, not maxpool\.{TRY}"),
        ("--op maxpool --activation relu", rf"--activation is for .*, not maxpool\.{TRY}"),
        ("--op add --residual", rf"--residual is for .*, not add\.{TRY}"),
        ("--op concat --weight-zero-point 1", rf"--weight-zero-point is for .*, not concat\.{TRY}"),
        ("--ceil", rf"--ceil is for --op maxpool, avgpool, not conv\.{TRY}"),
        ("--op maxpool --count-padding", rf"--count-padding is for --op avgpool, not max.*{TRY}"),
        ("--factor 2", rf"--factor is for --op upsample, not conv\.{TRY}"),
        ("--extreme", rf"--extreme is for --op add, maximum, not conv\.{TRY}"),
        # Options that contradict each other.
        (
            "--shape 4x4x9 --groups 2 --out 4",
            rf"--groups 2 must divide the 9 channels of --shape\.{TRY}",
        ),
        ("--shape 4x4x9 --groups 3", rf"--groups 3 must divide the 8 channels of --out\.{TRY}"),
        ("--op shuffle --groups 3", rf"--groups 3 must divide the 8 channels of --shape\.{TRY}"),
        ("--op slice --out 9", rf"--out 9 is more than the 8 channels of --shape; .*{TRY}"),
        (
            "--activation prelu --mode fixed",
            rf"--activation prelu takes --mode float32, not fixed\.{TRY}",
        ),
        ("--op add --extreme", rf"--extreme takes --mode fixed: XNNPACK, .*{TRY}"),
        (
            "--op transposed --stride 2 --output-padding 2",
            rf"--output-padding must be less than --stride, or else than --dilation\.{TRY}",
        ),
        # Layers without an output, and too large ones.
        ("--shape 2x2x2 --pad 0", rf"layer 'conv': Output of kernel 3x3 .* is empty: .*{SHAPES}"),
        ("--kernel 9 --pad 0", rf"layer 'conv': Output of kernel 9x9 .* is empty: .*{SHAPES}"),
        ("--op maxpool --kernel 9", rf"layer 'maxpool': Output .* is empty: .*{SHAPES}"),
        ("--op avgpool --shape 1x8x2", rf"layer 'avgpool': Output .* is empty: .*{SHAPES}"),
        ("--op transposed --pad 9", rf"layer 'transposed': Output .* is empty: .*{SHAPES}"),
        (
            "--shape 99999x99999x9",
            r"layer 'conv': a layer of [0-9,]+ bytes is beyond 32-bit addresses; choose a .*",
        ),
        (
            "--op upsample --shape 999x999x9 --factor 64",
            r"layer 'upsample': an output of 36,790,308,864 bytes is beyond 32-bit addresses; "
            "choose a smaller layer",
        ),
        # What the configuration lacks.
        (
            "--weight-zero-point 3",
            r"layer 'conv': weights with a zero point \(3\) need weight_bits 9, .* has 8; "
            "add --set weight_bits=9",
        ),
        (
            "--mode fixed --set requantise_modes=float32",
            rf"layer 'conv': requantisation mode fixed is not built into .*{MODES}",
        ),
        ("--set requantise_modes=fixed", rf"layer 'conv': requantisation mode float32 .*{MODES}"),
        (
            "--op avgpool --set requantise_modes=float32",
            rf"layer 'avgpool': average pools need requantisation mode fixed, .*{MODES}",
        ),
        (
            "--op maximum --set requantise_modes=float32",
            rf"layer 'maximum': combining two feature maps needs .*{MODES}",
        ),
        (
            "--residual --set requantise_modes=float32",
            rf"layer 'conv': combining two feature maps needs .*{MODES}",
        ),
        ("--set requantise_modes=rough", r"Invalid value for '--set': requantise_modes must be .*"),
        # What the host computes.
        (
            "--op multiply --vcd x.vcd",
            r"no layer runs on the accelerator: there are no waveforms .*",
        ),
        ("--op multiply --trace x", r"no layer runs on the accelerator: there are no waveforms .*"),
    ],
)
def test_options_that_make_no_sense(arguments, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(text, *arguments.split())
    assert list(tmp_path.iterdir()) == []


def used(case):
    """Return the fields of a case that count for its operation."""
    return {
        field.name: getattr(case, field.name)
        for field in dataclasses.fields(case)
        if case.op in OPTIONS_OF.get(field.name, OPERATIONS)
    }


@pytest.mark.parametrize("bits", [8, 9])
def test_command_of_a_case_gives_the_case(bits):
    generator = random.Random(bits)
    for number in range(150):
        case = random_case(generator, weight_bits=bits)
        words = shlex.split(case.command())
        again = parsed(words[2:])
        assert used(again) == used(case), f"case {number} of seed {bits}: {words}"
        for one, other in zip(built(again), built(case), strict=True):
            np.testing.assert_array_equal(one, other, f"case {number} of seed {bits}: {words}")


def built(case):
    """Return the arrays of the feature maps and layers of a case."""
    nodes, features, _ = case.build()
    arrays = list(features.values())
    for node in nodes:
        if isinstance(node.layer, ConvLayer):
            arrays += [node.layer.weights, node.layer.bias, node.layer.multiplier]
            arrays += [node.layer.table] if node.layer.table is not None else []
        combine = getattr(node.layer, "combine", None)
        if combine is not None:
            arrays += [combine.scales.first, combine.scales.second]
    return arrays

"""Options of `trirow sim` that describe a layer of random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

import trirow_golden
from trirow.options import Pad, Pair, Shape, add_options
from trirow_sim.case import ACTIVATIONS, OPERATIONS, OPTIONS_OF, Case

__all__ = ["LAYER_OPTIONS", "layer_case", "layer_options"]

_OPTIONS = [
    click.option(
        "--op",
        type=click.Choice(OPERATIONS),
        default="conv",
        show_default=True,
        help="Random layer: its operation.",
    ),
    click.option(
        "--shape",
        type=Shape(),
        metavar="HxWxC",
        default="8x8x8",
        show_default=True,
        help="Random layer: rows, columns and channels of the feature map.",
    ),
    click.option(
        "--out",
        type=click.IntRange(1),
        metavar="K",
        show_default="8, of a slice half of the input's",
        help="Random layer: output channels; of a concatenation those that are put to the input's.",
    ),
    click.option(
        "--kernel",
        type=Pair("RxS"),
        metavar="RxS",
        show_default="3x3, of pools 2x2",
        help="Random layer: rows and columns of the kernel.",
    ),
    click.option(
        "--stride",
        type=Pair("N or YxX"),
        metavar="N|YxX",
        show_default="1, of pools the kernel",
        help="Random layer: steps in rows and columns; of a transposed convolution in its output.",
    ),
    click.option(
        "--pad",
        type=Pad(),
        metavar="t,l,b,r",
        show_default="half the kernel, of pools 0",
        help="Random layer: padding at the top, left, bottom and right; or one number for all "
        "sides; or 'same', as TensorFlow has it. Half the kernel keeps the size at stride 1.",
    ),
    click.option(
        "--dilation",
        type=Pair("N or YxX"),
        metavar="N|YxX",
        default="1",
        show_default=True,
        help="Random layer: distance of the kernel's taps in rows and columns.",
    ),
    click.option(
        "--groups",
        type=click.IntRange(1),
        metavar="N",
        default=1,
        show_default=True,
        help="Random layer: groups of channels that are convolved apart, or shuffled.",
    ),
    click.option(
        "--multiplier",
        type=click.IntRange(1),
        metavar="N",
        default=1,
        show_default=True,
        help="Random layer: outputs of each channel of a depthwise convolution.",
    ),
    click.option(
        "--output-padding",
        type=Pair("N or YxX", least=0),
        metavar="N|YxX",
        default="0",
        show_default=True,
        help="Random layer: rows and columns added to a transposed convolution.",
    ),
    click.option(
        "--batch",
        type=click.IntRange(1),
        metavar="N",
        default=1,
        show_default=True,
        help="Random layer: images.",
    ),
    click.option(
        "--mode",
        type=click.Choice(["float32", "fixed"]),
        default="float32",
        show_default=True,
        help="Random layer: requantisation as in ONNX Runtime and XNNPACK, or as in TensorFlow "
        "Lite's reference kernels.",
    ),
    click.option(
        "--activation",
        type=click.Choice(ACTIVATIONS),
        default="none",
        show_default=True,
        help="Random layer: what follows a convolution. 'leaky', 'sigmoid' and 'hardswish' are "
        "tables, 'prelu' has a slope for each channel and takes --mode float32.",
    ),
    click.option(
        "--residual",
        is_flag=True,
        help="Random layer: add a second feature map to the output of a convolution.",
    ),
    click.option(
        "--weight-zero-point",
        type=click.IntRange(-128, 127),
        metavar="N",
        default=0,
        show_default=True,
        help="Random layer: zero point of the weights. Takes --set weight_bits=9.",
    ),
    click.option(
        "--ceil",
        is_flag=True,
        help="Random layer: a pool's last window counts too if it is not whole.",
    ),
    click.option(
        "--count-padding",
        is_flag=True,
        help="Random layer: an average pool counts padding.",
    ),
    click.option(
        "--factor",
        type=click.IntRange(1, 64),
        metavar="N",
        default=2,
        show_default=True,
        help="Random layer: rows and columns that upsampling makes of a pixel.",
    ),
    click.option(
        "--extreme",
        is_flag=True,
        help="Random layer: operands of a sum or maximum with scales that differ by a million. A "
        "sum takes --mode fixed.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        metavar="N",
        default=1,
        show_default=True,
        help="Of the random layer, and of the memory model 'random'. The same seed gives the same "
        "run.",
    ),
]

#: Names of the options that describe a random layer and nothing else.
LAYER_OPTIONS = ("op", "shape", "batch", *OPTIONS_OF)

layer_options = add_options(_OPTIONS)


def layer_case(ctx: click.Context, values: Mapping[str, Any]) -> Case:
    """Return the layer that the options describe.

    Parameters
    ----------
    ctx : click.Context
        Knows which options were given.
    values : mapping
        Values of `LAYER_OPTIONS` and of ``seed``, by name.

    Raises
    ------
    click.UsageError
        If an option is not for the operation, or options contradict each other.
    """
    op: str = values["op"]
    for name, users in OPTIONS_OF.items():
        if op not in users and _given(ctx, name):
            raise click.UsageError(f"{_option(name)} is for --op {', '.join(users)}, not {op}.")
    fields = dict(values)
    pools = op in ("maxpool", "avgpool")
    if fields["kernel"] is None:
        fields["kernel"] = (2, 2) if pools else (3, 3)
    if fields["stride"] is None:
        fields["stride"] = fields["kernel"] if pools else (1, 1)
    if fields["out"] is None and op in ("conv", "transposed", "fc", "concat"):
        fields["out"] = 8
    if fields["pad"] == "same":
        fields |= _same(fields, more=op == "transposed" and not _given(ctx, "output_padding"))
    elif fields["pad"] is None:
        spans = zip(fields["kernel"], fields["dilation"], strict=True)
        rows, columns = (0 if pools else (extent - 1) * apart for extent, apart in spans)
        fields["pad"] = (rows // 2, columns // 2, rows - rows // 2, columns - columns // 2)
    case = Case(**fields)
    _check(case)
    return case


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _same(fields: Mapping[str, Any], more: bool) -> dict[str, Any]:
    """Return the padding that TensorFlow calls SAME.

    That of a transposed convolution makes the output the input's size times the stride; a kernel
    smaller than the stride needs rows and columns of output padding for it, where there may be
    some (``more``).
    """
    kernel, stride, dilation = (fields[name] for name in ("kernel", "stride", "dilation"))
    rows, columns = fields["shape"][:2]
    if fields["op"] != "transposed":
        size = rows, columns
        return {"pad": trirow_golden.same_padding(size, kernel, stride, dilation)}
    size = rows * stride[0], columns * stride[1]
    changed: dict[str, Any] = {"pad": trirow_golden.same_padding(size, kernel, stride, dilation)}
    if more:
        spans = [(extent - 1) * apart + 1 for extent, apart in zip(kernel, dilation, strict=True)]
        changed["output_padding"] = tuple(
            max(0, step - span) for step, span in zip(stride, spans, strict=True)
        )
    return changed


def _check(case: Case) -> None:
    """Refuse options that contradict each other."""
    channels = case.shape[2]
    if "groups" in _used(case):
        for option, number in (("--shape", channels), ("--out", case.out)):
            if number is not None and number % case.groups:
                raise click.UsageError(
                    f"--groups {case.groups} must divide the {number} channels of {option}."
                )
    if case.op == "slice" and case.out is not None and case.out > channels:
        raise click.UsageError(
            f"--out {case.out} is more than the {channels} channels of --shape; a slice takes "
            "some of them."
        )
    if case.activation == "prelu" and case.mode == "fixed":
        raise click.UsageError("--activation prelu takes --mode float32, not fixed.")
    if case.op == "add" and case.extreme and case.mode == "float32":
        raise click.UsageError(
            "--extreme takes --mode fixed: XNNPACK, which --mode float32 follows, refuses a sum "
            "of such scales."
        )
    if case.op == "transposed":
        room = [max(pair) for pair in zip(case.stride, case.dilation, strict=True)]
        if any(more >= most for more, most in zip(case.output_padding, room, strict=True)):
            raise click.UsageError(
                "--output-padding must be less than --stride, or else than --dilation."
            )


def _used(case: Case) -> set[str]:
    """Return the names of the options that are for the operation of a case."""
    return {name for name, users in OPTIONS_OF.items() if case.op in users}

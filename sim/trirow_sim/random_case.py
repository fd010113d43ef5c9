"""Draw cases of any operation with all its parameters, for fuzzing."""

from __future__ import annotations

import random
from dataclasses import replace

from trirow_sim.case import ACTIVATIONS, OPERATIONS, OPTIONS_OF, Case

__all__ = ["random_case"]

#: What the accelerator computes.
_RTL = [op for op in OPERATIONS if op != "multiply"]


def random_case(generator: random.Random, *, taps: int = 20_000, weight_bits: int = 8) -> Case:
    """Return a case that has an output, with at most about ``taps`` values under its windows.

    Kernels are mostly small and now and then as large as or larger than the feature map; strides,
    dilations and padding are drawn for each side, padding also larger than the kernel; now and then
    rows are long. Weights have a zero point if ``weight_bits`` is 9.
    """
    while True:
        case = _draw(generator)
        if weight_bits > 8 and case.op in OPTIONS_OF["weight_zero_point"]:
            case = replace(case, weight_zero_point=generator.randint(-128, 127))
        try:
            nodes, _, _ = case.build()
            layer = nodes[-1].layer
            rows, columns, channels = layer.output_extents(case.shape)
        except ValueError:
            continue
        windows = case.op in OPTIONS_OF["kernel"]
        area = case.kernel[0] * case.kernel[1] if windows else 1
        total = max(rows * columns * channels * area, layer.macs(case.shape))
        if case.batch * total <= taps:
            return case


def _draw(generator: random.Random) -> Case:
    def side(most: int) -> int:
        return generator.choice([1, 1, 2, 3, generator.randint(1, most)])

    op = generator.choice([*_RTL, "conv", "conv", "depthwise", "depthwise"])
    extent = generator.choice([3, 6, 9, 14])
    wide = generator.choice([extent, extent, extent, 300])
    groups = generator.choice([1, 1, 1, 2, 3, 4])
    channels = groups * generator.choice([1, 2, 3, 4, 5, 8, 13])
    case = Case(
        op=op,
        shape=(generator.randint(1, extent), generator.randint(1, wide), channels),
        out=None if op == "depthwise" else groups * generator.randint(1, 9),
        kernel=(side(7), side(7)),
        seed=generator.randrange(1 << 31),
        mode=generator.choice(["float32", "fixed"]),
        batch=generator.choice([1, 1, 1, 2, 3]),
    )
    if op in ("maxpool", "avgpool", "add", "maximum", "upsample", "shuffle"):
        case = replace(case, out=None)
    if op == "slice":
        case = replace(case, out=generator.randint(1, channels))
    if op in ("conv", "depthwise", "transposed", "maxpool", "avgpool"):
        case = replace(
            case,
            stride=(side(5), side(5)),
            pad=_pad(generator),
        )
    if op in ("conv", "depthwise", "transposed", "maxpool", "avgpool"):
        case = replace(case, dilation=(side(4), side(4)))
    if op in ("conv", "transposed", "shuffle"):
        case = replace(case, groups=groups)
    if op == "depthwise":
        case = replace(case, multiplier=generator.choice([1, 1, 1, 2, 5]))
    if op == "transposed":
        case = replace(case, output_padding=(generator.randint(0, 1), generator.randint(0, 1)))
    if op in ("conv", "depthwise", "transposed", "fc"):
        activation = generator.choice(["none", *ACTIVATIONS])
        if activation == "prelu":
            case = replace(case, mode="float32")
        case = replace(case, activation=activation, residual=generator.random() < 0.2)
    if op in ("maxpool", "avgpool"):
        case = replace(case, ceil=generator.random() < 0.4)
    if op == "avgpool":
        case = replace(case, count_padding=generator.random() < 0.4)
    if op in ("add", "maximum"):
        case = replace(case, extreme=generator.random() < 0.1)
    if op == "upsample":
        case = replace(case, factor=generator.choice([1, 2, 2, 3]))
    return case


def _pad(generator: random.Random) -> tuple[int, int, int, int]:
    most = generator.choice([0, 1, 2, 3, 8])
    top, left, bottom, right = (generator.randint(0, most) for _ in range(4))
    return top, left, bottom, right

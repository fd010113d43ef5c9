"""Helpers of the unit tests: payloads as integers, and spans of memory.

Payloads travel as plain integers, which is much faster than setting a field at a time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data

from trirow_sim.stream_kit import run, span_beats

__all__ = [
    "add_lines",
    "address_beats",
    "feed",
    "make_spans",
    "pack",
    "span_addresses",
    "unpack",
]


def feed(dut: Any, inputs: Any, words: Sequence[int], output: Any, *, after: int) -> list[int]:
    """Set ``inputs`` to a word each cycle and return ``output`` as it is in every cycle.

    Parameters
    ----------
    dut : Component
    inputs, output : Value or View
    words : sequence of int
    after : int
        Cycles that are simulated beyond the words, with the last of them.
    """
    outputs: list[int] = []
    target, result = Value.cast(inputs), Value.cast(output)

    async def testbench(ctx: Any) -> None:
        sample = ctx.tick().sample(result)
        for word in words:
            ctx.set(target, word)
            outputs.append((await sample)[-1])
        for _ in range(after):
            outputs.append((await sample)[-1])

    run(dut, testbench, max_cycles=len(words) + after + 2)
    return outputs


def pack(layout: data.Layout, values: Any) -> int:
    """Return a payload as an integer; fields that are left out are 0.

    Raises
    ------
    ValueError
        If a value does not fit its field.
    KeyError
        If there is no such field.
    """
    word = 0
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    for key, value in items:
        field = layout[key]
        if isinstance(field.shape, data.Layout):
            value = pack(field.shape, value)
        elif not _fits(value, field.shape, field.width):
            raise ValueError(f"{key!r} does not hold {value}")
        word |= (int(value) & ((1 << field.width) - 1)) << field.offset
    return word


def unpack(layout: data.Layout, word: int) -> Any:
    """Return an integer as a dictionary of its fields, or as a list for an array."""
    values = {}
    for key, field in layout:
        value = word >> field.offset & ((1 << field.width) - 1)
        if isinstance(field.shape, data.Layout):
            values[key] = unpack(field.shape, value)
        else:
            negative = _signed(field.shape) and value >> field.width - 1
            values[key] = value - (1 << field.width) if negative else value
    return list(values.values()) if isinstance(layout, data.ArrayLayout) else values


def _signed(shape: Any) -> bool:
    return bool(getattr(shape, "signed", False))


def _fits(value: int, shape: Any, width: int) -> bool:
    low = -(1 << width - 1) if _signed(shape) else 0
    return low <= value < low + (1 << width)


def make_spans(
    address: int,
    total: int,
    *,
    first: int | None = None,
    span: int | None = None,
    gap: int = 0,
    line: int | None = None,
    turn: int = 0xA5A5_A5A5,
) -> dict[str, int]:
    """Return the fields of `trirow_hw.spans.Spans`: a single span and a single line by default.

    ``turn`` may be negative. Where there is no second line it is nothing that works.
    """
    span = total if span is None else span
    return {
        "address": address,
        "total": total,
        "first": min(total, span) if first is None else first,
        "span": span,
        "gap": gap,
        "line": total if line is None else line,
        "turn": turn & 0xFFFF_FFFF,
    }


def add_lines(generator: random.Random, spans: Mapping[str, int]) -> dict[str, int]:
    """Return the spans as a single line, or cut into lines.

    A single line may be longer than the spans. Lines begin behind the one before, or go back: as
    far as to its first byte, which is then covered again.
    """
    single = make_spans(**{**spans, "line": spans["total"] + generator.choice([0, 0, 1, 1 << 30])})
    if generator.random() < 0.4:
        return single
    span, count = spans["span"], generator.choice([1, 1, 2, 3, 5])
    back = count * span + (count - 1) * spans["gap"]
    turns = [0, 1, spans["gap"], generator.randint(0, 600), -1, -back, -generator.randint(1, back)]
    cut = {"first": min(span, spans["total"]), "line": count * span}
    return make_spans(**{**spans, **cut, "turn": generator.choice(turns)})


def span_addresses(spans: Mapping[str, int]) -> list[range]:
    """Return the addresses of the bytes of each span; see `trirow_hw.spans.Spans`."""
    pieces: list[range] = []
    address, covered, length = spans["address"], 0, spans["first"]
    while covered < spans["total"]:
        length = min(length, spans["total"] - covered)
        pieces.append(range(address, address + length))
        covered += length
        jump = spans["gap"] if covered % spans["line"] else spans["turn"]
        address = (address + length + jump) % (1 << 32)
        length = spans["span"]
    return pieces


def address_beats(spans: Mapping[str, int], bus_bytes: int) -> list[tuple[int, int, int]]:
    """Return the beats that cover spans of any number of lines, as `span_beats` does of one."""
    return [
        beat
        for piece in span_addresses(spans)
        for beat in span_beats(make_spans(piece.start, len(piece)), bus_bytes)
    ]

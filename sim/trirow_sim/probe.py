"""What the units of the accelerator do or wait for in a cycle, as expressions of its signals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value

from trirow_hw.accelerator import Accelerator
from trirow_hw.errors import Unit

__all__ = [
    "DETAIL_BITS",
    "TRACKS",
    "TRACK_BITS",
    "State",
    "detail_value",
    "running_value",
    "track_values",
    "what_waits",
]

TRACKS = ("feature reader", "weight reader", "array", "writer")
"""Names of the tracks, in the order of their values."""

#: Bits of a track's value: the state, and from bit 3 on the index of the pass.
TRACK_BITS = 19
#: Bits of the details that only `what_waits` looks at; the compiled engine takes up to 64.
DETAIL_BITS = 40 + TRACK_BITS


class State(IntEnum):
    """What a unit does in a cycle."""

    IDLE = 0
    #: A beat is taken from or by the bus; in the array a tap is issued.
    ACTIVE = 1
    #: A reader waits for an answer, the writer for the end of a burst.
    MEMORY = 2
    #: The feature reader waits for places in the line buffer, the array for room behind it.
    ROOM = 3
    #: Earlier outputs have to land first.
    DEPENDENCY = 4
    #: The array waits for features.
    FEATURES = 5
    #: The array waits for weights.
    WEIGHTS = 6


# Bits of the details; the client at the head of the read channel, the passes landed, the pass in
# the array, and the second reader as if it had a track, follow.
_READ_ADDRESS, _READ, _WRITE_ADDRESS, _WRITE_DATA, _NO_PIXEL, _REQUESTS = range(6)
_HEAD, _LANDED, _ARRAY, _SECOND = 6, 8, 24, 40


def running_value(accelerator: Accelerator) -> Value:
    """Return the bit that is up in each cycle that the counter ``cycles`` counts."""
    return ~accelerator.supervisor.units_reset


def track_values(accelerator: Accelerator) -> tuple[Value, ...]:
    """Return the value of each track, `TRACK_BITS` wide; all 0 for an idle unit.

    Parameters
    ----------
    accelerator : Accelerator
    """
    writes, bus = accelerator.write_port, accelerator.memory
    features, issuer = accelerator.features, accelerator.issuer
    feature_track = _first(
        *_reads(accelerator, Unit.FEATURES, features),
        (features.waits, State.DEPENDENCY, features.loading),
        (features.full, State.ROOM, features.loading),
    )
    weight_track = _first(*_reads(accelerator, Unit.WEIGHTS, accelerator.weights))
    array_track = _first(
        (issuer.issued, State.ACTIVE, issuer.active),
        (issuer.stall.features & features.waits, State.DEPENDENCY, issuer.active),
        (issuer.stall.features, State.FEATURES, issuer.active),
        (issuer.stall.weights, State.WEIGHTS, issuer.active),
        (issuer.stall.output, State.ROOM, issuer.active),
    )
    write_track = _first(
        (bus.wvalid & bus.wready, State.ACTIVE, writes.oldest),
        (writes.waits, State.MEMORY, writes.oldest),
    )
    return feature_track, weight_track, array_track, write_track


def _reads(
    accelerator: Accelerator, unit: Unit, reader: Any
) -> tuple[tuple[Value, State, Value], ...]:
    """Return the cases in which a reader takes beats, or waits for some."""
    port, bus = accelerator.read_port, accelerator.memory
    mine = port.waits & (port.head == unit.value)
    index = Mux(mine, port.head_index, reader.request.payload.index)
    return (
        (bus.rvalid & bus.rready & mine, State.ACTIVE, index),
        (port.on_the_way[unit.value] | reader.request.valid, State.MEMORY, index),
    )


def detail_value(accelerator: Accelerator) -> Value:
    """Return what `what_waits` needs besides the tracks, `DETAIL_BITS` wide.

    Parameters
    ----------
    accelerator : Accelerator
    """
    port, bus, issuer = accelerator.read_port, accelerator.memory, accelerator.issuer
    second = accelerator.second
    return Cat(
        bus.arvalid & ~bus.arready,
        port.waits,
        bus.awvalid & ~bus.awready,
        bus.wvalid & ~bus.wready,
        issuer.waits,
        accelerator.sequencer.request.valid,
        port.head,
        accelerator.supervisor.passes_landed,
        issuer.active,
        _first(
            *_reads(accelerator, Unit.SECOND, second),
            (second.waits, State.DEPENDENCY, Const(0, 16)),
        ),
    )


def what_waits(tracks: Sequence[int], detail: int) -> str:
    """Return a line that says of each unit what it waits for; passes count from 0.

    Parameters
    ----------
    tracks : sequence of int
        The tracks' values in the cycle in question.
    detail : int
        The details in that cycle.
    """

    def flag(bit: int) -> bool:
        return bool(detail >> bit & 1)

    head = detail >> _HEAD & 3 if flag(_READ) else None
    values = (*tracks, detail >> _SECOND & (1 << TRACK_BITS) - 1)
    (reads, loaded), (weighs, weighed), (array, active), (writes, written), (adds, added) = (
        (State(track & 7), track >> 3) for track in values
    )
    parts = []
    if flag(_READ_ADDRESS):
        parts.append("the memory takes no read address")
    if flag(_WRITE_ADDRESS):
        parts.append("the memory takes no write address")
    if flag(_WRITE_DATA):
        parts.append("the memory takes no write data")
    if head == Unit.SEQUENCER:
        parts.append("sequencer waits for the memory to answer a read of a descriptor")
    elif flag(_REQUESTS):
        parts.append("sequencer waits for its turn to read a descriptor")

    def reader(unit: Unit, state: State, index: int) -> str:
        if state is State.ACTIVE:
            return f"takes beats of pass {index}"
        if state is State.DEPENDENCY:
            landed = detail >> _LANDED & 0xFFFF
            if unit is Unit.SECOND:  # which pass it is for, the unit does not say
                return f"waits for the outputs of pass {landed} to land"
            return f"waits for the outputs of pass {landed} to land before it reads pass {index}"
        if state is State.ROOM:
            return f"waits for places in the line buffer for pass {index}"
        if state is State.MEMORY and head == unit:
            return f"waits for the memory to answer a read of pass {index}"
        if state is State.MEMORY:
            return f"waits for its turn to read pass {index}"
        return "idle"

    parts.append(f"feature reader {reader(Unit.FEATURES, reads, loaded)}")
    parts.append(f"weight reader {reader(Unit.WEIGHTS, weighs, weighed)}")
    if adds is not State.IDLE:  # most passes have no second operand
        parts.append(f"second reader {reader(Unit.SECOND, adds, added)}")
    waiting = detail >> _ARRAY & 0xFFFF
    doing = {
        State.IDLE: f"waits for pixels of pass {waiting}" if flag(_NO_PIXEL) else "idle",
        State.ACTIVE: f"takes taps of pass {active}",
        State.DEPENDENCY: f"waits for features of pass {active} that are not computed yet",
        State.FEATURES: f"waits for features of pass {active}",
        State.WEIGHTS: f"waits for weights of pass {active}",
        State.ROOM: f"waits for room for results of pass {active}",
    }
    parts.append(f"array {doing[array]}")
    ending = {
        State.IDLE: "idle",
        State.ACTIVE: f"sends beats of pass {written}",
        State.MEMORY: f"waits for the memory to end a write of pass {written}",
    }
    parts.append(f"writer {ending[writes]}")
    return "; ".join(parts)


def _first(*cases: tuple[Value, State, Value]) -> Value:
    """Return state and pass of the first case whose condition holds, else 0."""
    value: Value = Const(0, TRACK_BITS)
    for condition, state, index in reversed(cases):
        value = Mux(condition, Cat(Const(state.value, 3), index), value)
    return value

"""Timeline of a run: what each unit does in each cycle, and its file in Chrome's trace format."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trirow_sim.files import replacing
from trirow_sim.probe import TRACKS, State, what_waits

__all__ = ["TRACKS", "Slice", "State", "Timeline", "what_waits", "write_chrome_trace"]

_ARRAY = "array"
#: Names of the states in a trace, by track.
_NAMES = {
    "feature reader": {
        State.ACTIVE: "features of pass {}",
        State.MEMORY: "waits for memory",
        State.ROOM: "waits for places",
        State.DEPENDENCY: "waits for earlier outputs",
    },
    "weight reader": {
        State.ACTIVE: "weights of pass {}",
        State.MEMORY: "waits for memory",
    },
    _ARRAY: {
        State.ACTIVE: "pass {}",
        State.FEATURES: "stall: features",
        State.WEIGHTS: "stall: weights",
        State.ROOM: "stall: output",
        State.DEPENDENCY: "stall: dependency",
    },
    "writer": {
        State.ACTIVE: "outputs of pass {}",
        State.MEMORY: "waits for memory",
    },
}


@dataclass(frozen=True)
class Slice:
    """Adjacent cycles in which a unit is in one state.

    Parameters
    ----------
    start, cycles : int
        First cycle and number of cycles.
    state : State
    index : int
        Index of the pass; 0 if idle.
    """

    start: int
    cycles: int
    state: State
    index: int

    @property
    def end(self) -> int:
        """Cycle after the last one."""
        return self.start + self.cycles


class Timeline:
    """The states of the units, cycle by cycle, as runs of equal ones.

    Cycle 0 is the first that the counter ``cycles`` counts. Several runs follow each other without
    a gap. Two timelines are equal if every unit does the same in every cycle.

    Parameters
    ----------
    gap : int
        Shortest pause that divides the activity of a pass in `merged`, in cycles, at least 1.

    Raises
    ------
    ValueError
        If `gap` is below 1.
    """

    def __init__(self, *, gap: int = 16) -> None:
        if gap < 1:
            raise ValueError(f"gap must be at least 1, not {gap!r}")
        self._gap = gap
        self._cycles = 0
        self._changes: dict[str, list[tuple[int, int]]] = {track: [] for track in TRACKS}
        self._last = [-1] * len(TRACKS)

    @property
    def gap(self) -> int:
        """Shortest pause that divides the activity of a pass."""
        return self._gap

    @property
    def cycles(self) -> int:
        """Cycles so far."""
        return self._cycles

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timeline):
            return NotImplemented
        return self._cycles == other._cycles and self._changes == other._changes

    __hash__ = None  # type: ignore[assignment]

    def step(self, values: Sequence[int]) -> None:
        """Append a cycle.

        Parameters
        ----------
        values : sequence of int
            For each track its state, and from bit 3 on the index of the pass.
        """
        for number, value in enumerate(values):
            if value != self._last[number]:
                self._change(number, self._cycles, value)
        self._cycles += 1

    def extend(self, changes: Iterable[tuple[int, int, int]], cycles: int) -> None:
        """Append cycles.

        Parameters
        ----------
        changes : iterable of (int, int, int)
            First cycle, counted from the first that is appended, number of the track, and value
            from then on, in the order of the cycles; in the first cycle one of each track.
        cycles : int
            How many are appended.
        """
        for start, number, value in changes:
            if value != self._last[number]:
                self._change(number, self._cycles + start, value)
        self._cycles += cycles

    def slices(self, track: str) -> list[Slice]:
        """Return what a unit does, without gaps, every cycle in its slice.

        Parameters
        ----------
        track : str
            One of `TRACKS`.
        """
        changes = self._changes[track]
        ends = [*(start for start, _ in changes), self._cycles][1:]
        return [
            Slice(start, end - start, State(value & 7), value >> 3)
            for (start, value), end in zip(changes, ends, strict=True)
        ]

    def merged(self, track: str) -> list[Slice]:
        """Return the activity of a unit pass by pass, and the longer waits between.

        A pause shorter than `gap` between activity of the same pass counts as activity. Slices of
        waits are those outside of it; idle cycles have none.

        Parameters
        ----------
        track : str
            One of `TRACKS`.
        """
        merged: list[Slice] = []
        waits: list[Slice] = []
        last: Slice | None = None
        for one in self.slices(track):
            if one.state is not State.ACTIVE:
                if one.state is not State.IDLE:
                    waits.append(one)
                continue
            if last and last.index == one.index and one.start - last.end < self._gap:
                one = Slice(last.start, one.end - last.start, State.ACTIVE, one.index)
            else:
                merged += [last, *waits] if last else waits
            waits = []
            last = one
        return merged + ([last, *waits] if last else waits)

    def stalls(self) -> list[Slice]:
        """Return every cycle in which the array waits, with its cause."""
        running = (State.IDLE, State.ACTIVE)
        return [one for one in self.slices(_ARRAY) if one.state not in running]

    def _change(self, number: int, cycle: int, value: int) -> None:
        self._changes[TRACKS[number]].append((cycle, value))
        self._last[number] = value


def write_chrome_trace(path: str | os.PathLike[str], timeline: Timeline, clock_mhz: float) -> None:
    """Write a timeline in the Chrome trace event format, for Perfetto or chrome://tracing.

    The file appears whole or not at all. Times are rounded to nanoseconds; each slice also has its
    first cycle and its cycles. The array has two rows: its passes, and its stalls.

    Parameters
    ----------
    path : path
    timeline : Timeline
    clock_mhz : float
        Clock that turns cycles into time.

    Raises
    ------
    ValueError
        If the clock is not finite and above 0.
    OSError
        If the file cannot be written.
    """
    if not 0 < clock_mhz < float("inf"):
        raise ValueError(f"clock_mhz must be finite and above 0, not {clock_mhz!r}")
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns",\n')
        file.write(f'"otherData": {json.dumps({"clock_mhz": clock_mhz})},\n"traceEvents": [\n')
        file.write(",\n".join(map(json.dumps, _events(timeline, clock_mhz))))
        file.write("\n]}\n")


def _events(timeline: Timeline, clock_mhz: float) -> Iterator[dict[str, object]]:
    """Give the events of a trace: the names of the rows first."""
    rows = []
    for track in TRACKS:
        slices = timeline.merged(track)
        if track == _ARRAY:
            rows.append((track, track, [one for one in slices if one.state is State.ACTIVE]))
            rows.append(("array stalls", track, timeline.stalls()))
        else:
            rows.append((track, track, slices))
    yield _metadata("process_name", 0, name="trirow")
    for thread, (name, _, _) in enumerate(rows, 1):
        yield _metadata("thread_name", thread, name=name)
        yield _metadata("thread_sort_index", thread, sort_index=thread)

    def nanoseconds(cycle: int) -> int:
        return round(cycle * 1000 / clock_mhz)

    for thread, (_, track, slices) in enumerate(rows, 1):
        for one in slices:
            begin = nanoseconds(one.start)
            yield {
                "name": _NAMES[track][one.state].format(one.index),
                "cat": track,
                "ph": "X",
                "pid": 1,
                "tid": thread,
                "ts": begin / 1000,
                "dur": (nanoseconds(one.end) - begin) / 1000,
                "args": {"cycle": one.start, "cycles": one.cycles, "pass": one.index},
            }


def _metadata(kind: str, thread: int, **args: object) -> dict[str, object]:
    return {"name": kind, "ph": "M", "pid": 1, "tid": thread, "args": args}

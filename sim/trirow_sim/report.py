"""What a run took, for machines (JSON) and for people (a table)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

__all__ = ["KEYS", "STALLS", "LayerReport", "NetworkReport"]

#: Keys of a layer in JSON, in this order. A network has them too, and two more.
KEYS = (
    "name",
    "match",
    "mismatches",
    "outputs",
    "cycles",
    "macs",
    "multipliers",
    "utilisation",
    "bytes_read",
    "bytes_written",
    "macs_useful",
    "bytes_ideal",
    "stalls",
    "place",
    "engine",
    "config",
    "memory",
    "seconds",
    "cycles_per_second",
)

#: Causes of the cycles in which the array waits.
STALLS = ("features", "weights", "output", "dependency")


@dataclass(frozen=True)
class LayerReport:
    """One layer of a run.

    Parameters
    ----------
    name : str
        Name of the layer.
    match : bool
        Whether every output byte is what golden has.
    mismatches, outputs : int
        Output bytes that differ, and all of them.
    cycles : int
        Clock cycles from the completion of the layer before (of the first layer: from the start of
        the run) to its own.
    macs, macs_useful : int
        Multiplications with and without those that take padding.
    multipliers : int
        Multipliers of the array.
    bytes_read, bytes_written : int
        Beats on the bus in those cycles, times the width of the bus.
    bytes_ideal : int
        Each byte of input, weights, constants and output once.
    stalls : dict
        Cycles in which the array waited, by cause: `STALLS`.
    place : str
        Where it was computed: ``rtl``, or ``host``; there nothing is counted, and all numbers of
        cycles, multiplications and bytes are 0.
    engine, config, memory : str
        Simulator, configuration and memory model.
    seconds : float
        Time that the simulation of these cycles took.
    in_shape, out_shape : (int, int, int)
        Feature map and output (H, W, C), for the table.
    kernel : (int, int) or None
        Rows and columns, for the table; None if the layer has none.
    stride : (int, int)
        Rows and columns, for the table.
    batch : int
        Images, for the table.
    """

    name: str
    match: bool
    mismatches: int
    outputs: int
    cycles: int
    macs: int
    macs_useful: int
    multipliers: int
    bytes_read: int
    bytes_written: int
    bytes_ideal: int
    stalls: Mapping[str, int]
    engine: str
    config: str
    memory: str
    seconds: float
    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]
    kernel: tuple[int, int] | None = None
    stride: tuple[int, int] = (1, 1)
    place: str = "rtl"
    batch: int = 1

    @property
    def utilisation(self) -> float:
        """Multiplications per cycle and multiplier; skipped padding can take it above 1."""
        return _ratio(self.macs, self.cycles * self.multipliers)

    @property
    def cycles_per_second(self) -> float:
        """Cycles that were simulated in a second."""
        return _ratio(self.cycles, self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the layer for JSON."""
        return {key: getattr(self, key) for key in KEYS} | {"stalls": dict(self.stalls)}


@dataclass(frozen=True)
class NetworkReport:
    """A run of one or more layers.

    Parameters
    ----------
    layers : tuple of LayerReport
        In order, all of the same run.
    clock_mhz : float
        Clock that `milliseconds` is for.
    name : str
        Name of the network.
    strays : int
        Bytes outside the outputs that changed; with any, the network does not match.

    Raises
    ------
    ValueError
        If there is no layer, or the clock is not above 0.
    """

    layers: tuple[LayerReport, ...]
    clock_mhz: float = 100.0
    name: str = "network"
    strays: int = 0

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("a report needs at least one layer")
        if not 0 < self.clock_mhz < float("inf"):
            raise ValueError(f"clock_mhz must be finite and above 0, not {self.clock_mhz!r}")

    @property
    def match(self) -> bool:
        """Whether all layers match and no other byte changed."""
        return self.strays == 0 and all(layer.match for layer in self.layers)

    @property
    def cycles(self) -> int:
        """Clock cycles of all layers."""
        return self._sum("cycles")

    @property
    def milliseconds(self) -> float:
        """Time of the run at `clock_mhz`."""
        return self.cycles / self.clock_mhz / 1000

    @property
    def utilisation(self) -> float:
        """Multiplications per cycle and multiplier."""
        return _ratio(self._sum("macs"), self.cycles * self.layers[0].multipliers)

    def to_dict(self) -> dict[str, Any]:
        """Return layers and network for JSON: ``{"layers": [...], "network": {...}}``."""
        seconds = sum(layer.seconds for layer in self.layers)
        network: dict[str, Any] = {
            "name": self.name,
            "match": self.match,
            "multipliers": self.layers[0].multipliers,
            "utilisation": self.utilisation,
            "stalls": {
                cause: sum(layer.stalls[cause] for layer in self.layers) for cause in STALLS
            },
            **{key: self._common(key) for key in ("place", "engine", "config", "memory")},
            "seconds": seconds,
            "cycles_per_second": _ratio(self.cycles, seconds),
        }
        network = {key: network[key] if key in network else self._sum(key) for key in KEYS}
        network |= {"clock_mhz": self.clock_mhz, "milliseconds": self.milliseconds}
        return {"layers": [layer.to_dict() for layer in self.layers], "network": network}

    def table(self) -> Table:
        """Return the layers as a table for people."""
        table = Table(
            box=box.SIMPLE_HEAD,
            show_footer=len(self.layers) > 1,
            pad_edge=False,
            collapse_padding=True,
        )
        # On a narrow terminal names and shapes are folded, and numbers stay whole.
        cycles = f"{self.cycles:,}"
        table.add_column("layer", "all layers", overflow="fold")
        table.add_column("input", overflow="fold")
        table.add_column("output", overflow="fold")
        table.add_column("kernel", overflow="fold")
        table.add_column("cycles", cycles, justify="right", min_width=max(6, len(cycles)))
        table.add_column("utilisation", f"{self.utilisation:.1%}", justify="right", min_width=11)
        table.add_column("against golden", self._verdict(), min_width=15, no_wrap=True)
        for layer in self.layers:
            stride = "" if layer.stride == (1, 1) else f" stride {_stride(layer.stride)}"
            images = "" if layer.batch == 1 else f"{layer.batch} x "
            table.add_row(
                Text(layer.name),
                images + _by(layer.in_shape),
                images + _by(layer.out_shape),
                _by(layer.kernel) + stride if layer.kernel else "",
                f"{layer.cycles:,}",
                f"{layer.utilisation:.1%}" if layer.place == "rtl" and layer.macs else "",
                _agreement(layer.mismatches, layer.outputs)
                if layer.place == "rtl" or layer.mismatches
                else "on the host",
            )
        return table

    def lines(self) -> list[str]:
        """Return what the table does not show, as sentences for people."""
        hosted = [repr(layer.name) for layer in self.layers if layer.place == "host"]
        runs = "Layer {} runs" if len(hosted) == 1 else "Layers {} run"
        host = [
            f"{runs.format(', '.join(hosted))} on the host, computed as golden does and not "
            "counted: the accelerator has no multiplier for two feature maps."
        ]
        if len(hosted) == len(self.layers):
            return host
        return self._accelerator_lines() + (host if hosted else [])

    def _accelerator_lines(self) -> list[str]:
        first = self.layers[0]
        network = self.to_dict()["network"]
        moved = network["bytes_read"] + network["bytes_written"]
        waits = ", ".join(
            f"for {_WAITS[cause]} in {cycles:,} cycles"
            for cause, cycles in network["stalls"].items()
            if cycles
        )
        lines = [
            f"{self.cycles:,} clock cycles take {self.milliseconds:.3f} ms at "
            f"{self.clock_mhz:g} MHz (configuration {first.config}, {first.multipliers} "
            f"multipliers; memory model {first.memory}).",
            f"The multipliers waited {waits}." if waits else "The multipliers never waited.",
            f"{network['bytes_read']:,} bytes were read and {network['bytes_written']:,} written: "
            f"{_ratio(moved, network['bytes_ideal']):.2f} times the least possible.",
        ]
        if any(layer.utilisation > 1 for layer in self.layers):
            lines.append(
                "Utilisation can exceed 100 %: multiplications with padding count, but are skipped."
            )
        return lines

    def _sum(self, key: str) -> int:
        return sum(getattr(layer, key) for layer in self.layers)

    def _common(self, key: str) -> str:
        """Return what all layers have, or each value once."""
        return "+".join(dict.fromkeys(getattr(layer, key) for layer in self.layers))

    def _verdict(self) -> str:
        mismatches = self._sum("mismatches")
        outputs = sum(layer.outputs for layer in self.layers if layer.place == "rtl")
        return _agreement(mismatches, outputs) if outputs or mismatches else ""


_WAITS = {
    "features": "features",
    "weights": "weights",
    "output": "room for outputs",
    "dependency": "the layer before",
}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _by(extents: Sequence[int]) -> str:
    return "x".join(str(extent) for extent in extents)


def _stride(stride: tuple[int, int]) -> str:
    return str(stride[0]) if stride[0] == stride[1] else _by(stride)


def _agreement(mismatches: int, outputs: int) -> str:
    if mismatches:
        return f"[bold red]{mismatches:,} of {outputs:,} differ[/]"
    return f"[green]all {outputs:,} equal[/]"

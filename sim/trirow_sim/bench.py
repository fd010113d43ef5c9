"""Simulate the layers of a table, each by itself on random data, and sum them up by network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from trirow_driver.conv_layer import ConvLayer
from trirow_driver.lowering import UnsupportedError
from trirow_driver.program import INPUT
from trirow_hw.config import Config
from trirow_sim.case import Case
from trirow_sim.layer_table import Row, read_rows
from trirow_sim.parallel import run_all
from trirow_sim.report import KEYS, STALLS, LayerReport, NetworkReport
from trirow_sim.simulate import simulate

__all__ = ["Bench", "Row", "RowResult", "read_rows"]


@dataclass(frozen=True)
class RowResult:
    """What came out of a row: a report, or why there is none.

    Parameters
    ----------
    row : Row
    report : LayerReport or None
        Of a layer that was simulated; its `match` is False also if a byte changed that is no
        output.
    unsupported : str
        Why the layer was not simulated.
    error : str
        What ended the simulation, or the first mismatch.
    """

    row: Row
    report: LayerReport | None = None
    unsupported: str = ""
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: the layer matched, or is not supported."""
        return not self.error


@dataclass(frozen=True)
class Bench:
    """What the layers of a table are simulated with.

    The data of a layer depend on `seed` and on which row of the table it is, and on nothing else.

    Parameters
    ----------
    config : Config
    memory : str
        Memory model, one of `trirow_sim.memory.MEMORY_MODELS`.
    engine : str
        Simulator, as `trirow_sim.simulate.simulate` takes it.
    seed : int
        At least 0.
    """

    config: Config
    memory: str = "ddr"
    engine: str = "auto"
    seed: int = 1

    def run(
        self,
        rows: Sequence[Row],
        *,
        jobs: int = 1,
        scheduler: str | None = None,
        on_result: Callable[[RowResult], None] | None = None,
    ) -> list[RowResult]:
        """Simulate rows; whatever happens to one, there is a result of each, in order.

        Parameters
        ----------
        rows : sequence of Row
        jobs, scheduler
            Where the work is done; see `trirow_sim.parallel.run_all`, also for what is raised.
        on_result : callable, optional
            Called with each result as it comes.
        """
        results = {
            row.index: RowResult(row, unsupported=row.unsupported)
            for row in rows
            if row.unsupported
        }
        wanted = [row for row in rows if not row.unsupported]
        if on_result is not None:
            for result in results.values():
                on_result(result)

        def keep(index: int, outcome: tuple[LayerReport, str] | Exception) -> None:
            row = wanted[index]
            results[row.index] = _result(row, outcome)
            if on_result is not None:
                on_result(results[row.index])

        run_all(partial(_simulate, self), wanted, jobs=jobs, scheduler=scheduler, on_result=keep)
        return [results[row.index] for row in rows]

    def networks(self, results: Sequence[RowResult], clock_mhz: float) -> list[dict[str, Any]]:
        """Return an entry for JSON of each network, in the order in which they appear.

        It has ``name``, ``layers`` (those that were simulated), ``unsupported`` and ``failed`` (the
        others, with name, line and why), and the sums over the layers. It matches if there are
        layers, all of them match and none failed.

        Parameters
        ----------
        results : sequence of RowResult
        clock_mhz : float
            Clock for ``milliseconds``.
        """
        names = dict.fromkeys(result.row.net for result in results)
        return [
            self._network(name, [r for r in results if r.row.net == name], clock_mhz)
            for name in names
        ]

    def _network(self, name: str, results: list[RowResult], clock_mhz: float) -> dict[str, Any]:
        reports = tuple(result.report for result in results if result.report is not None)
        layers: list[dict[str, Any]] = []
        sums = dict.fromkeys(KEYS, 0) | {
            "match": False,
            "multipliers": self.config.multipliers,
            "utilisation": 0.0,
            "stalls": dict.fromkeys(STALLS, 0),
            "place": "rtl",
            "engine": self.engine,
            "config": self.config.name,
            "memory": self.memory,
            "seconds": 0.0,
            "cycles_per_second": 0.0,
            "clock_mhz": clock_mhz,
            "milliseconds": 0.0,
        }
        if reports:
            content = NetworkReport(reports, clock_mhz, name).to_dict()
            layers, sums = content["layers"], content["network"]
            sums["match"] = all(result.ok for result in results)
        return {
            "name": name,
            "layers": layers,
            "unsupported": [
                {"name": r.row.layer, "line": r.row.line, "reason": r.unsupported}
                for r in results
                if r.unsupported
            ],
            "failed": [
                {"name": r.row.layer, "line": r.row.line, "error": r.error}
                for r in results
                if r.error and r.report is None
            ],
            **{key: value for key, value in sums.items() if key != "name"},
        }


def random_layer(row: Row, seed: int) -> tuple[ConvLayer, npt.NDArray[np.int8]]:
    """Return the layer of a row and its feature map, of random numbers."""
    case = Case(
        "conv",
        row.in_shape,
        row.out_shape[2],
        row.kernel,
        row.stride,
        row.pad,
        (row.dilation, row.dilation),
        row.groups,
        seed=seed,
    )
    nodes, features, _ = case.build()
    layer = nodes[0].layer
    assert isinstance(layer, ConvLayer)
    return replace(layer, name=row.layer), features[INPUT]


def _simulate(bench: Bench, row: Row) -> tuple[LayerReport, str]:
    """Return the report of a row, and the first mismatch or an empty text."""
    seed = int(np.random.SeedSequence((bench.seed, row.index)).generate_state(1)[0])
    layer, features = random_layer(row, seed)
    run = simulate(
        [layer],
        features,
        bench.config,
        memory=bench.memory,
        seed=seed,
        engine=bench.engine,
    )
    return replace(run.report.layers[0], match=run.ok), "; ".join(run.comparison.lines())


def _result(row: Row, outcome: tuple[LayerReport, str] | Exception) -> RowResult:
    if isinstance(outcome, Exception):
        text = " ".join(str(outcome).split()).removeprefix(f"layer {row.layer!r}: ")
        text = text or type(outcome).__name__
        if isinstance(outcome, UnsupportedError):
            return RowResult(row, unsupported=text)
        return RowResult(row, error=text)
    report, mismatch = outcome
    return RowResult(row, report, error=mismatch)

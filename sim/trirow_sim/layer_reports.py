"""Reports of the layers of a run, from counters and comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from trirow_driver.program import Node, Program, Step
from trirow_hw.config import Config
from trirow_sim.compare import LayerComparison
from trirow_sim.job import Landing, RunResult
from trirow_sim.report import STALLS, LayerReport

__all__ = ["accelerator_reports", "host_report"]


def accelerator_reports(
    program: Program,
    result: RunResult,
    comparisons: Sequence[LayerComparison],
    config: Config,
    **context: Any,
) -> list[LayerReport]:
    """Return a report of each layer, with the counters from one completion to the next.

    Parameters
    ----------
    program : Program
    result : RunResult
        How its run ended, without an error.
    comparisons : sequence of LayerComparison
        One of each layer.
    config : Config
    context : str
        ``engine`` and ``memory``.
    """
    last = np.cumsum([step.passes for step in program.steps]) - 1
    moments = [
        Landing(dict.fromkeys(result.counters, 0), 0.0),
        *(result.landed[k] for k in last[:-1]),
        Landing(result.counters, result.seconds),
    ]
    return [
        _report(step, begin, end, comparison, config, context)
        for step, (begin, end), comparison in zip(
            program.steps, pairwise(moments), comparisons, strict=True
        )
    ]


def _report(
    step: Step,
    begin: Landing,
    end: Landing,
    comparison: LayerComparison,
    config: Config,
    context: dict[str, Any],
) -> LayerReport:
    counts = {name: end.counters[name] - begin.counters[name] for name in end.counters}
    return LayerReport(
        macs=step.macs,
        macs_useful=step.macs_useful,
        cycles=counts["cycles"],
        bytes_read=counts["beats_read"] * config.bus_bytes,
        bytes_written=counts["beats_written"] * config.bus_bytes,
        bytes_ideal=step.bytes_ideal,
        stalls={cause: counts[f"stall_{cause}"] for cause in STALLS},
        seconds=end.seconds - begin.seconds,
        in_shape=step.in_shape,
        out_shape=step.out_shape,
        batch=step.batch,
        **_common(step.node, comparison, config),
        **context,
    )


def host_report(
    node: Node,
    in_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    comparison: LayerComparison,
    config: Config,
    **context: Any,
) -> LayerReport:
    """Return the report of a layer that the host computes, of which nothing is counted.

    Parameters
    ----------
    node : Node
    in_shape, out_shape : (int, int, int, int)
        First feature map (N, H, W, C) and output.
    comparison : LayerComparison
    config : Config
        Of the accelerator that it does not run on.
    context : str
        ``engine`` and ``memory``.
    """
    batch, *extents = in_shape
    _, *outputs = out_shape
    return LayerReport(
        macs=0,
        macs_useful=0,
        cycles=0,
        bytes_read=0,
        bytes_written=0,
        bytes_ideal=0,
        stalls=dict.fromkeys(STALLS, 0),
        seconds=0.0,
        in_shape=(extents[0], extents[1], extents[2]),
        out_shape=(outputs[0], outputs[1], outputs[2]),
        batch=batch,
        place="host",
        **_common(node, comparison, config),
        **context,
    )


def _common(node: Node, comparison: LayerComparison, config: Config) -> dict[str, Any]:
    return {
        "name": node.layer.name,
        "match": comparison.match,
        "mismatches": comparison.mismatches,
        "outputs": comparison.outputs,
        "multipliers": config.multipliers,
        "config": config.name,
        "kernel": getattr(node.layer, "kernel", None),
        "stride": getattr(node.layer, "stride", (1, 1)),
    }

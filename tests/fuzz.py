"""Run random layers in the compiled engine for some time; the target `fuzz` of the Makefile.

Case ``k`` of a seed is the same layer on the same configuration and memory model, whatever the
number of processes, and however long a run lasts.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from trirow_driver.lowering import UnsupportedError
from trirow_hw.config import PRESETS, Config
from trirow_sim.case import Case
from trirow_sim.compiled import ToolchainError, build_library
from trirow_sim.random_case import random_case
from trirow_sim.simulate import RunError, simulate_graph

__all__ = ["SMALL", "Setting", "check"]

#: Cases that a process runs before it reports.
_BLOCK = 8


@dataclass(frozen=True)
class Setting:
    """A configuration as `trirow sim` is told of it: a preset, and fields that are replaced."""

    preset: str
    fields: Mapping[str, object]

    @property
    def config(self) -> Config:
        """The configuration."""
        return PRESETS[self.preset].override(**self.fields)

    def command(self, case: Case, memory: str, engine: str = "compiled") -> str:
        """Return the command that runs a case on it; the case's seed is the memory's too."""
        line = case.command(config=self.preset, memory=memory, engine=engine)
        for field, value in self.fields.items():
            text = "+".join(value) if isinstance(value, tuple) else value
            line += f" --set {field}={text}"
        return line


#: So small that filters and rows are cut, with weights of 9 bits.
SMALL = Setting("tiny", {"line_buffer_bytes": 288, "weight_buffer_bytes": 256, "weight_bits": 9})
SETTINGS = [
    Setting("tiny", {}),
    Setting("odd", {}),
    SMALL,
    Setting("up5k", {}),
    # Also small with more lanes for taps than for filters, and one requantisation mode.
    Setting(
        "odd",
        {
            "in_lanes": 6,
            "out_lanes": 3,
            "line_buffer_bytes": 400,
            "weight_buffer_bytes": 300,
            "requantise_modes": ("fixed",),
        },
    ),
    Setting("ecp5-25f", {}),
]
MEMORIES = ["random", "random", "random", "ideal", "ddr", "sdram16"]


def check(case: Case, config: Config, memory: str, engine: str = "compiled") -> str | None:
    """Run a case against golden; return what is wrong, None if nothing is.

    Raises
    ------
    UnsupportedError
        If the configuration cannot compute the layer.
    """
    nodes, features, slices = case.build()
    options = {"slices": slices, "memory": memory, "seed": case.seed, "engine": engine}
    try:
        result = simulate_graph(nodes, features, config, **options)
    except RunError as error:
        return str(error)
    return None if result.ok else "; ".join(result.comparison.lines())


def draw(seed: int, number: int) -> tuple[Case, Setting, str]:
    """Return a case, and what it is run on."""
    generator = random.Random(f"{seed}/{number}")
    setting, memory = generator.choice(SETTINGS), generator.choice(MEMORIES)
    case = random_case(generator, weight_bits=setting.config.weight_bits)
    return case, setting, memory


def run_block(seed: int, first: int) -> tuple[int, int, str]:
    """Run cases one after the other; return those that ran, those refused, and what is wrong."""
    run = refused = 0
    for number in range(first, first + _BLOCK):
        case, setting, memory = draw(seed, number)
        try:
            wrong = check(case, setting.config, memory)
        except UnsupportedError:
            refused += 1
            continue
        except Exception as error:  # whatever breaks is found, with the case that breaks it
            wrong = f"{type(error).__name__}: {error}"
        run += 1
        if wrong is not None:
            again = setting.command(case, memory)
            return run, refused, f"seed {seed}, case {number}: {wrong}\nagain: {again}"
    return run, refused, ""


@click.command()
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--first", type=click.IntRange(0), default=0, help="Number of the first case.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; by default one for each core.")
def main(seconds: float, seed: int, first: int, jobs: int | None) -> None:
    """Run random layers against golden until the time is over; exit 1 at a mismatch.

    Engines that have to be built first do not count for the time.
    """
    console = Console(stderr=True)
    try:
        for setting in SETTINGS:
            with console.status(f"building the engine of {setting.preset} {dict(setting.fields)}"):
                build_library(setting.config)
    except ToolchainError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    began = time.monotonic()

    def blocks() -> Iterator[object]:
        number = first
        while time.monotonic() - began < seconds:
            yield delayed(run_block)(seed, number)
            number += _BLOCK

    run = refused = 0
    pool = Parallel(
        n_jobs=jobs or os.cpu_count() or 1,
        batch_size=1,
        pre_dispatch="2*n_jobs",
        return_as="generator",
    )
    columns = (SpinnerColumn(), TextColumn("{task.fields[run]} cases"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, run=0)
        failure = ""
        for more_run, more_refused, wrong in pool(blocks()):
            run, refused, failure = run + more_run, refused + more_refused, failure or wrong
            bar.update(task, run=run)
            if failure:
                seconds = 0  # what has begun is still waited for
    if failure:
        print(failure)
    print(
        f"{run} cases of seed {seed} {'ran' if failure else 'equal golden'}, {refused} were "
        f"refused, in {time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()

"""`trirow bench`: the layers of a table in RTL against golden."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trirow.options import (
    FailedRun,
    InputError,
    configuration,
    console,
    json_option,
    parallel_options,
    save_json,
    simulation_options,
)
from trirow_hw.config import Config
from trirow_sim.bench import Bench, Row, RowResult, read_rows
from trirow_sim.compiled import ToolchainError
from trirow_sim.engines import choose_engine
from trirow_sim.parallel import ClusterError, MissingPackage

__all__ = ["bench"]


@click.command(
    epilog="""\b
The table is a CSV file with these columns, and any others:
  net,layer,op,in_c,in_h,in_w,out_c,out_h,out_w,kh,kw,stride,pad,dilation,group

\b
Examples:
  trirow bench layers.csv --net resnet50 --config m256 --jobs 2
  trirow bench layers.csv --net vgg16 --layer conv3_1 --json result.json
""",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.csv")
@click.option("--net", "nets", metavar="NAME", multiple=True, help="Only this network; repeatable.")
@click.option(
    "--layer", "layers", metavar="NAME", multiple=True, help="Only layers of this name; repeatable."
)
@simulation_options
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=1,
    show_default=True,
    help="Of the random data. With its place in the table it gives the data of a layer, which do "
    "not depend on what else is simulated.",
)
@parallel_options("")
@json_option("cycles, bytes and matches of each layer and network")
def bench(
    file: Path,
    nets: Sequence[str],
    layers: Sequence[str],
    config_name: str,
    overrides: Sequence[tuple[str, Any]],
    memory: str,
    engine: str,
    seed: int,
    jobs: int | None,
    scheduler: str | None,
    clock_mhz: float,
    json_file: Path | None,
) -> None:
    """Simulate the layers of a table, and compare every byte with golden.

    Each layer is run by itself on random data, from memory to memory. Layers that Trirow does not
    support, or that do not fit the configuration, are listed with the reason; what happens to one
    layer does not end the others.

    \b
    Exit status: 0 if every supported layer matched, 1 if one did not or its run failed,
    2 on bad usage or input.
    """  # noqa: D301
    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs and --scheduler do not go together.")
    config = configuration(config_name, overrides)
    rows = _chosen(file, nets, layers)
    if engine == "compiled" and scheduler is None:
        _check_toolchain(config)
    work = Bench(config, memory, engine, seed)
    try:
        with _progress(rows) as progress:
            results = work.run(rows, jobs=jobs or 1, scheduler=scheduler, on_result=progress)
    except (ClusterError, MissingPackage) as error:
        raise InputError(str(error)) from error
    networks = work.networks(results, clock_mhz)
    _show(networks, results, work)
    if json_file is not None:
        save_json(json_file, {"networks": networks})
    wrong = [result for result in results if not result.ok]
    if wrong:
        supported = sum(not result.unsupported for result in results)
        raise FailedRun(
            f"{len(wrong)} of {supported} layers did not match, the first: {_sentence(wrong[0])}"
        )


def _check_toolchain(config: Config) -> None:
    """Refuse the compiled engine where it cannot be built, rather than fail at every layer."""
    try:
        choose_engine("compiled", config, 0)
    except ToolchainError as error:
        raise InputError(str(error)) from error


def _chosen(file: Path, nets: Sequence[str], layers: Sequence[str]) -> list[Row]:
    """Return the rows of a table that were asked for."""
    try:
        rows = read_rows(file)
    except ValueError as error:
        raise InputError(str(error)) from error
    names = dict.fromkeys(row.net for row in rows)
    for name in nets:
        if name not in names:
            raise InputError(f"{file}: has no network {name!r}; --net is one of {', '.join(names)}")
    rows = [row for row in rows if not nets or row.net in nets]
    for name in layers:
        if all(row.layer != name for row in rows):
            where = f" in {', '.join(nets)}" if nets else ""
            raise InputError(f"{file}: has no layer {name!r}{where}")
    return [row for row in rows if not layers or row.layer in layers]


@contextmanager
def _progress(rows: Sequence[Row]) -> Iterator[Callable[[RowResult], None] | None]:
    """Give what shows the progress of the rows on a terminal, and None elsewhere.

    The bar and the time left go by multiplications, since layers differ by far.
    """
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.fields[done]} of {task.fields[layers]} layers"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.description}", markup=False),
    )
    supported = [row for row in rows if not row.unsupported]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        total = sum(row.macs for row in supported)
        task = bar.add_task("", total=total, done=0, layers=len(supported))
        done = 0

        def show(result: RowResult) -> None:
            nonlocal done
            if result.row.unsupported:
                return
            done += 1
            last = f"{result.row.net} {result.row.layer}"
            bar.update(task, advance=result.row.macs, done=done, description=last)

        yield show


def _show(networks: Sequence[dict[str, Any]], results: Sequence[RowResult], work: Bench) -> None:
    """Print a table of each network, and what is wrong."""
    out = console()
    for network in networks:
        out.print(_table(network, [r for r in results if r.row.net == network["name"]]))
    config = work.config
    out.print(
        f"Configuration {config.name}, {config.multipliers} multipliers; memory model "
        f"{work.memory}. Each layer was run by itself on random data.",
        soft_wrap=True,
    )
    for result in results:
        if not result.ok:
            out.print(_sentence(result), markup=False, soft_wrap=True)
    matched = sum(result.report is not None and result.ok for result in results)
    unsupported = sum(bool(result.unsupported) for result in results)
    out.print(
        f"{matched} layers match golden, {len(results) - matched - unsupported} do not, "
        f"{unsupported} are not supported."
    )


def _table(network: dict[str, Any], results: Sequence[RowResult]) -> Table:
    time = f"{network['milliseconds']:,.3f} ms at {network['clock_mhz']:g} MHz"
    simulated = "1 layer" if len(network["layers"]) == 1 else f"{len(network['layers'])} layers"
    table = Table(
        title=Text(f"{network['name']}: {simulated} simulated, {time}"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_footer=True,
        pad_edge=False,
    )
    cycles, utilisation, traffic = _numbers(network)
    table.add_column("layer", "all layers", overflow="fold")
    for header in ("input", "output", "kernel"):
        table.add_column(header, no_wrap=True)
    table.add_column("cycles", cycles, justify="right", no_wrap=True)
    table.add_column("utilisation", utilisation, justify="right", no_wrap=True)
    table.add_column("bytes / ideal", traffic, justify="right", no_wrap=True)
    table.add_column("against golden", _agreement(network, network["failed"]), overflow="fold")
    for result in results:
        row = result.row
        shapes = ["", "", ""]
        if row.op == "conv":
            stride = "" if row.stride == (1, 1) else f" stride {row.stride[0]}"
            groups = f" groups {row.groups}" if row.groups > 1 else ""
            dilation = f" dilation {row.dilation}" if row.dilation > 1 else ""
            kernel = _by(row.kernel) + stride + dilation + groups
            shapes = [_by(row.in_shape), _by(row.out_shape), kernel]
        if result.report is not None:
            entry = result.report.to_dict()
            numbers, verdict = _numbers(entry), _agreement(entry, [])
        else:
            numbers = ("", "", "")
            verdict = (
                Text(f"not supported: {result.unsupported}", "yellow")
                if result.unsupported
                else Text(f"failed: {result.error}", "bold red")
            )
        table.add_row(Text(row.layer), *shapes, *numbers, verdict)
    return table


def _numbers(entry: dict[str, Any]) -> tuple[str, str, str]:
    """Return cycles, utilisation and traffic of a layer or network."""
    if not entry["cycles"]:
        return "0", "", ""
    traffic = (entry["bytes_read"] + entry["bytes_written"]) / entry["bytes_ideal"]
    return f"{entry['cycles']:,}", f"{entry['utilisation']:.1%}", f"{traffic:.2f}"


def _agreement(entry: dict[str, Any], failed: Sequence[object]) -> Text:
    """Return what the comparison of a layer or network says."""
    if entry["mismatches"]:
        return Text(f"{entry['mismatches']:,} of {entry['outputs']:,} differ", "bold red")
    if failed:
        return Text(f"{len(failed)} failed", "bold red")
    if not entry["outputs"]:
        return Text("")
    if not entry["match"]:
        return Text("other bytes changed", "bold red")
    return Text(f"all {entry['outputs']:,} equal", "green")


def _by(extents: Sequence[int]) -> str:
    return "x".join(str(extent) for extent in extents)


def _sentence(result: RowResult) -> str:
    return f"{result.row.net} {result.row.layer} (line {result.row.line}): {result.error}"

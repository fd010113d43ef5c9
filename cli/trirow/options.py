"""What the commands share: types of their parameters, errors of one line, output."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console

from trirow_hw.boards.board import BOARDS, Board
from trirow_hw.config import PRESETS, Config
from trirow_sim.engines import ENGINES
from trirow_sim.files import write_json
from trirow_sim.memory import MEMORY_MODELS

__all__ = [
    "Assignment",
    "FailedRun",
    "InputError",
    "Numbers",
    "OutputFile",
    "Pad",
    "Pair",
    "Ratio",
    "Shape",
    "add_options",
    "board_options",
    "configuration",
    "configuration_options",
    "console",
    "json_option",
    "parallel_options",
    "require_supported",
    "save_json",
    "simulation_options",
]

#: Columns of tables that go to a file or a pipe.
_WIDTH = 110

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # no generic type before Click 8.4
    _ParamType = click.ParamType

_Command = TypeVar("_Command", bound=Callable[..., Any])


class InputError(click.ClickException):
    """Bad input: a file, a layer or a field that cannot be used. Exit status 2."""

    exit_code = 2


class FailedRun(click.ClickException):
    """A run that ended in an error or does not match. Exit status 1."""

    exit_code = 1


def _integers(text: str, separator: str) -> list[int] | None:
    """Return the integers of a text, at least 0; None if it is something else."""
    parts = text.strip().lower().split(separator)
    if all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        return [int(part) for part in parts]
    return None


class Shape(_ParamType):
    """``HxWxC``, each at least 1."""

    name = "HxWxC"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int]:
        """Return (H, W, C)."""
        extents = _integers(value, "x")
        if extents is None or len(extents) != 3 or min(extents) < 1:
            self.fail(
                f"{value!r} is not rows x columns x channels, each at least 1, such as 28x28x3",
                param,
                ctx,
            )
        height, width, channels = extents
        return height, width, channels


class Pair(_ParamType):
    """Two integers with an x between them, or one for both.

    Parameters
    ----------
    name : str
        What help texts call it.
    least : int
        Smallest integer.
    """

    def __init__(self, name: str, least: int = 1) -> None:
        self.name = name
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (rows, columns)."""
        numbers = _integers(value, "x")
        if numbers is None or len(numbers) > 2 or min(numbers) < self._least:
            self.fail(
                f"{value!r} is not rows x columns, each at least {self._least}, such as 3x3, nor "
                f"one number for both",
                param,
                ctx,
            )
        return numbers[0], numbers[-1]


class Pad(_ParamType):
    """``t,l,b,r``, each at least 0, or one number for all sides, or ``same``."""

    name = "t,l,b,r"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int, int, int] | str:
        """Return (top, left, bottom, right), or ``same``."""
        if value.strip().lower() == "same":
            return "same"
        numbers = _integers(value, ",")
        if numbers is None or len(numbers) not in (1, 4):
            self.fail(
                f"{value!r} is not top,left,bottom,right, each at least 0, such as 1,1,1,1, nor "
                f"one number for all sides, nor 'same'",
                param,
                ctx,
            )
        top, left, bottom, right = numbers if len(numbers) == 4 else numbers * 4
        return top, left, bottom, right


class Assignment(_ParamType):
    """``FIELD=VALUE`` with an integer, or for requantise_modes with names."""

    name = "FIELD=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | tuple[str, ...]]:
        """Return (field, value)."""
        modes = re.fullmatch(r"\s*requantise_modes\s*=\s*([a-z0-9+]+)\s*", value)
        if modes is not None:
            return "requantise_modes", tuple(modes[1].split("+"))
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(-?[0-9]{1,9})\s*", value)
        if match is None:
            self.fail(f"{value!r} is not a field and an integer, such as bus_bytes=8", param, ctx)
        return match[1], int(match[2])


class CycleRange(_ParamType):
    """First and last cycle, such as ``1000-2000``."""

    name = "FIRST-LAST"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return (first, last)."""
        match = re.fullmatch(r"\s*([0-9]{1,15})\s*-\s*([0-9]{1,15})\s*", value)
        if match is None or int(match[1]) > int(match[2]):
            self.fail(f"{value!r} is not a range of cycles, such as 1000-2000", param, ctx)
        return int(match[1]), int(match[2])


class Ratio(_ParamType):
    """A number such as ``0.5``, or a quotient such as ``1/255``."""

    name = "NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            above, _, below = value.partition("/")
            return float(above) / float(below or 1)
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number such as 0.5 or 1/255", param, ctx)


class Numbers(_ParamType):
    """One number, or several with commas between them."""

    name = "NUMBER[,NUMBER...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers."""
        try:
            return tuple(float(number) for number in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a number, nor numbers such as 104,117,123", param, ctx)


class OutputFile(_ParamType):
    """A file that will be written, checked before the work begins."""

    name = "FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path."""
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} is a folder; name a file in it", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"the folder {path.parent} of {path.name!r} does not exist", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"the folder {path.parent} cannot be written to", param, ctx)
        return path


def configuration(name: str, overrides: Sequence[tuple[str, Any]]) -> Config:
    """Return a configuration with some fields replaced, as ``--config`` and ``--set`` say."""
    try:
        return PRESETS[name].override(**dict(overrides))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--set'") from error


def configuration_options(command: _Command) -> _Command:
    """Add the options that say which configuration."""
    options = [
        click.option(
            "--config",
            "config_name",
            type=click.Choice(list(PRESETS)),
            default="tiny",
            show_default=True,
            metavar="NAME",
            help="Size of the accelerator; `trirow configs` lists them.",
        ),
        click.option(
            "--set",
            "overrides",
            type=Assignment(),
            multiple=True,
            help="Replace one field of the configuration, such as bus_bytes=8 or "
            "requantise_modes=float32+fixed. Can be repeated.",
        ),
    ]
    return add_options(options)(command)


def simulation_options(command: _Command) -> _Command:
    """Add the options that say on what to simulate: configuration, memory, engine, clock."""
    options = [
        configuration_options,
        click.option(
            "--memory",
            type=click.Choice(list(MEMORY_MODELS)),
            default="ddr",
            show_default=True,
            help="Model of the memory that the accelerator reads and writes.",
        ),
        click.option(
            "--engine",
            type=click.Choice(ENGINES),
            default="auto",
            show_default=True,
            help="Simulator. pysim needs no compiler and does about a thousand cycles a second; "
            "compiled does half a million and more, after a build of less than a minute that is "
            "kept; netlist is what Yosys makes of the accelerator for ECP5, after a build of some "
            "minutes. auto takes pysim for small jobs.",
        ),
        click.option(
            "--clock-mhz",
            type=Ratio(),
            metavar="MHZ",
            default="100",
            show_default=True,
            callback=_sane_clock,
            help="Clock for which milliseconds are given.",
        ),
    ]
    return add_options(options)(command)


def add_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options to a command, in their order."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _sane_clock(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not 0.001 <= value <= 1e6:
        raise click.BadParameter("must be from 0.001 to 1000000", ctx, param)
    return value


def board_options(command: _Command) -> _Command:
    """Add the options that say on which board to run, and where it is."""
    options = [
        click.option(
            "--board",
            "board_name",
            type=click.Choice(list(BOARDS)),
            metavar="NAME",
            help="Run on this board instead; `trirow boards` lists them. Its bitstream must be "
            "loaded. Needs --port.",
        ),
        click.option(
            "--port",
            metavar="PORT",
            help="Serial port of the board, such as /dev/ttyUSB0; or `simulated`, for the whole "
            "board in the compiled simulator.",
        ),
        click.option(
            "--baud",
            type=click.IntRange(1),
            metavar="N",
            help="Bits a second of the port, if the board was built for another speed.",
        ),
        click.option(
            "--sdram", metavar="CHIP", help="SDRAM on the board, if it comes with several."
        ),
    ]
    return add_options(options)(command)


def require_supported(board: Board, chip: str | None) -> None:
    """Refuse a board that cannot be run on, and a chip that it does not come with."""
    if not board.supported:
        raise InputError(f"board {board.name} is not supported: {board.note}")
    if chip is not None and chip not in board.chips:
        raise InputError(
            f"board {board.name} comes with {' or '.join(board.chips)}, not with {chip!r}"
        )


def parallel_options(text: str) -> Callable[[_Command], _Command]:
    """Return the options ``--jobs`` and ``--scheduler``; the text ends their help."""

    def decorate(command: _Command) -> _Command:
        command = click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Simulate layers on the workers of the Dask cluster whose scheduler is here, such "
            "as tcp://10.0.0.1:8786. Trirow has to be installed there, and one thread a worker is "
            f"best. Needs trirow[cluster].{text}",
        )(command)
        return click.option(
            "--jobs",
            type=click.IntRange(1),
            metavar="N",
            help=f"Simulate up to N layers at the same time, each in a process of its own.{text}",
        )(command)

    return decorate


def json_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--json``; the text says what is written."""
    return click.option(
        "--json",
        "json_file",
        type=OutputFile(),
        metavar="FILE",
        help=f"Also write {text} to this file, as JSON; it is replaced whole.",
    )


def save_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of JSON; InputError if that fails."""
    try:
        write_json(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def console() -> Console:
    """Return the console for tables, which is wide enough for them if it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)

"""The `trirow` command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from trirow.bench import bench
from trirow.boards import boards
from trirow.configs import configs
from trirow.doctor import doctor
from trirow.export import export
from trirow.sim import sim
from trirow.synth import synth

__all__ = ["main"]


class _OneLineErrors(click.Group):
    """A group of commands whose errors are one line each."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; in standalone mode leave with its exit status."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            with _cleaning_up():
                status = super().main(args, prog_name, complete_var, False, **extra)
        except click.ClickException as error:
            _leave(_line(error), error.exit_code)
        except click.Abort:
            _leave("interrupted", 130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _cleaning_up() -> Iterator[None]:
    """Let SIGTERM end the block like an exception, so that it removes its temporary files."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _line(error: click.ClickException) -> str:
    """Return the message of an error as one line, with what to do where it does not say."""
    text = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and not isinstance(error, click.BadParameter):
        command = error.ctx.command_path if error.ctx is not None else "trirow"
        return f"{text}{'' if text.endswith(('.', '?')) else '.'} Try '{command} --help'."
    return text


def _leave(text: str, status: int) -> NoReturn:
    click.echo(f"Error: {text}", err=True)
    sys.exit(status)


@click.group(
    "trirow",
    cls=_OneLineErrors,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="trirow", prog_name="trirow", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Trirow, an open INT8 convolution accelerator for FPGAs.

    The accelerator is gateware; these commands run it in simulation, clock cycle by clock cycle,
    and compare every byte that it writes with a plain numpy model.

    \b
    Begin with:
      trirow sim        one small layer, in a few seconds
      trirow bench      the layers of whole networks, from a table
      trirow configs    the sizes that the accelerator comes in
      trirow boards     the boards that it is built for
      trirow synth      a bitstream for one of them
      trirow export     the core as Verilog, with its registers and a C driver
      trirow doctor     the tools that this machine has

    \b
    Exit status: 0 if everything matched, 1 on a mismatch or a failed run,
    2 on bad usage or input.
    """  # noqa: D301
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (sim, bench, configs, boards, synth, export, doctor):
    main.add_command(_command)

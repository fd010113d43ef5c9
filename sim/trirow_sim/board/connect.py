"""Reach a board: a real one at a serial port, or a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trirow_driver.device import Device, DeviceError, SerialDevice
from trirow_hw.boards.board import Board
from trirow_hw.boards.top import BAUD
from trirow_hw.config import Config
from trirow_hw.sdram.chips import CHIPS
from trirow_sim.board.build import BoardDesign
from trirow_sim.board.simulated import SimulatedBoard

__all__ = ["SIMULATED", "SIMULATED_TIMEOUT", "ConnectError", "connected", "simulated_design"]

#: Port that stands for a board in the simulator.
SIMULATED = "simulated"
#: Seconds in which a simulated board answers, on a busy machine.
SIMULATED_TIMEOUT = 60.0


class ConnectError(DeviceError):
    """The board cannot be reached, or is not the one that is wanted; one line that says why."""


def simulated_design(
    board: Board, *, chip: str | None = None, clock_mhz: float | None = None, baud: int = BAUD
) -> BoardDesign:
    """Return what is on a board, for the simulator.

    Parameters
    ----------
    board : Board
        With an SDRAM.
    chip : str, optional
        Name of the chip, if it is not the first of the board's.
    clock_mhz : float, optional
        Instead of the board's clock.
    baud : int
        Bits a second.
    """
    clock_hz = round((clock_mhz or board.clock_mhz) * 1e6)
    return BoardDesign(board.config, CHIPS[chip or board.chips[0]], clock_hz, baud)


@contextmanager
def connected(
    port: str,
    config: Config,
    *,
    baud: int = BAUD,
    design: BoardDesign | None = None,
    building: Callable[[str], None] | None = None,
) -> Iterator[Device]:
    """Connect to a board.

    Parameters
    ----------
    port : str
        Serial port, or any URL that pyserial knows.
    config : Config
        What its accelerator must be.
    baud : int
        Bits a second.
    design : BoardDesign, optional
        Start a simulated board of this design instead, whatever the port is called.
    building : callable, optional
        Called with a few words at each step when the simulator is built.

    Raises
    ------
    ConnectError
        If it cannot be reached, or is another one; the text names the field that differs.
    SimulatedBoardError
        At the end, if the simulated board broke a rule.
    ToolchainError, ValueError
        If the simulated board cannot be built.
    """
    if design is None:
        with _opened(port, config, baud) as device:
            yield device
        return
    with (
        SimulatedBoard(design, building=building) as board,
        _opened(board.port, config, design.baud, timeout=SIMULATED_TIMEOUT) as device,
    ):
        yield device


def _opened(port: str, config: Config, baud: int, **options: float) -> SerialDevice:
    try:
        return SerialDevice(port, baud, configuration=config.to_dict(), **options)
    except DeviceError as error:
        raise ConnectError(str(error)) from error

"""Bytes over a serial port, with pyserial."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from trirow_driver.device.device import DeviceError

__all__ = ["SerialLine"]


class SerialLine:
    """A serial port, 8 data bits, no parity, one stop bit, no flow control.

    Parameters
    ----------
    port : str
        Name of the port, path of a pseudo-terminal, or any URL that pyserial knows.
    baud : int
        Bits a second.
    timeout : float
        Seconds after which a port that takes no bytes counts as dead.

    Raises
    ------
    DeviceError
        If pyserial is not installed, or the port cannot be opened; later, if it is gone.
    """

    def __init__(self, port: str, baud: int, *, timeout: float) -> None:
        self.name = port
        try:
            import serial
        except ModuleNotFoundError:
            raise DeviceError(
                f"{port}: serial ports need pyserial; pip install 'trirow[serial]'"
            ) from None
        try:
            self._port: Any = serial.serial_for_url(
                port, baudrate=baud, timeout=timeout, write_timeout=timeout
            )
            # What an earlier program left unread.
            self._port.reset_input_buffer()
        except (OSError, ValueError) as error:
            raise DeviceError(
                f"{port}: cannot be opened: {_reason(error)}; check the name of the port and "
                f"your permission to use it"
            ) from None
        # FTDI's chips hold back a few bytes for 16 ms, unless told otherwise. Not every port can.
        with contextlib.suppress(AttributeError, NotImplementedError, OSError, ValueError):
            self._port.set_low_latency_mode(True)

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        try:
            self._port.write(data)
        except OSError as error:
            raise self._gone(error) from None

    def receive(self, seconds: float) -> bytes:
        """Return what has come; wait for at most so long if nothing has."""
        try:
            self._port.timeout = seconds
            return bytes(self._port.read(max(1, self._port.in_waiting)))
        except OSError as error:
            raise self._gone(error) from None

    def close(self) -> None:
        """Close the port."""
        self._port.close()

    def _gone(self, error: OSError) -> DeviceError:
        return DeviceError(f"{self.name}: {_reason(error)}; check that the board is connected")


def _reason(error: Exception) -> str:
    """Return what an error says as one line."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else " ".join(str(error).split())

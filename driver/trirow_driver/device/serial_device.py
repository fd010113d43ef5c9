"""An accelerator on a board at the other end of a serial line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trirow_driver.device.configuration import check_configuration
from trirow_driver.device.frames import Identity, Request
from trirow_driver.device.link import Link
from trirow_driver.device.serial_line import SerialLine
from trirow_hw.bridge.protocol import Kind
from trirow_hw.registers import REGISTERS

__all__ = ["SerialDevice"]

_ADDRESSES = 1 << 32
_WORD_BYTES = 4


class SerialDevice:
    """A `Device` behind the host bridge of a board, ``docs/host-link.md``.

    Many requests are under way at a time, so the line is busy nearly always: 97 % of its bytes are
    data. Lost and wrong bytes cost time only.

    Parameters
    ----------
    port : str
        Name of a serial port, path of a pseudo-terminal, or any URL that pyserial knows.
    baud : int
        Bits a second, as the board was built for.
    timeout : float
        Seconds without an answer after which requests are sent again. A board that is gone is
        reported after 10 times that. Should be longer for a board that is simulated.
    configuration : mapping, optional
        Parameters that the accelerator must have, such as ``configuration`` of an image.

    Attributes
    ----------
    identity : Identity
        What the board's bridge says of itself.
    repeated : int
        Frames that had to be sent again so far.

    Raises
    ------
    DeviceError
        If the board cannot be reached, or is not what is wanted: one line with the port and what
        to do. Every method may raise it.
    """

    def __init__(
        self,
        port: str,
        baud: int = 3_000_000,
        timeout: float = 0.5,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self._line = SerialLine(port, baud, timeout=max(timeout, 1.0))
        try:
            self._link = Link(self._line, timeout=timeout)
            if configuration is not None:
                check_configuration(self, configuration)
        except BaseException:
            self._line.close()
            raise

    @property
    def name(self) -> str:
        """The port."""
        return self._line.name

    @property
    def identity(self) -> Identity:
        """What the board's bridge says of itself."""
        return self._link.identity

    @property
    def repeated(self) -> int:
        """Frames that had to be sent again so far."""
        return self._link.repeated

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes of the memory from ``address`` on."""
        requests = (
            Request(Kind.READ, start, length) for start, length in self._pieces(address, size)
        )
        return b"".join(self._link.execute(requests))

    def write(self, address: int, data: bytes) -> None:
        """Store bytes in the memory from ``address`` on; they are there when it returns."""
        view = memoryview(data).cast("B")
        requests = (
            Request(Kind.WRITE, start, length, bytes(view[start - address :][:length]))
            for start, length in self._pieces(address, len(view))
        )
        for _ in self._link.execute(requests):
            pass

    def read_register(self, name: str) -> int:
        """Return a register, one of `trirow_hw.registers.REGISTERS`."""
        request = Request(Kind.REGISTER_READ, REGISTERS[name].offset, _WORD_BYTES)
        (data,) = self._link.execute([request])
        return int.from_bytes(data, "little")

    def write_register(self, name: str, value: int) -> None:
        """Write a register, exactly once."""
        data = value.to_bytes(_WORD_BYTES, "little")
        request = Request(Kind.REGISTER_WRITE, REGISTERS[name].offset, _WORD_BYTES, data)
        for _ in self._link.execute([request]):
            pass

    def close(self) -> None:
        """Close the port. No call may follow."""
        self._line.close()

    def __enter__(self) -> SerialDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pieces(self, address: int, size: int) -> Iterator[tuple[int, int]]:
        """Cut a range where the address is a multiple of what a request may carry."""
        if address < 0 or size < 0 or address + size > _ADDRESSES:
            raise ValueError(f"{size} bytes at {address:#x} are not within 32 bits of address")
        limit = self._link.identity.max_data
        return _cut(address, address + size, limit)


def _cut(address: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    while address < end:
        length = min(end - address, limit - address % limit)
        yield address, length
        address += length

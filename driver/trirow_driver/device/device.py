"""What every way to an accelerator in hardware offers."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Device", "DeviceError"]


class DeviceError(Exception):
    """The hardware does not answer, or not as it should; one line that says what to do."""


class Device(Protocol):
    """An accelerator with its memory. All methods raise `DeviceError` if the hardware fails."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def read(self, address: int, size: int) -> bytes:
        """Return ``size`` bytes of the memory from ``address`` on."""

    def write(self, address: int, data: bytes) -> None:
        """Store bytes in the memory from ``address`` on; they are there when it returns."""

    def read_register(self, name: str) -> int:
        """Return a register, one of `trirow_hw.registers.REGISTERS`."""

    def write_register(self, name: str, value: int) -> None:
        """Write a register, exactly once."""

    def close(self) -> None:
        """Release the hardware. No call may follow."""

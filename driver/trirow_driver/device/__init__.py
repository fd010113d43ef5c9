"""Trirow in hardware, as the host sees it: memory, registers, runs."""

from trirow_driver.device.device import Device, DeviceError
from trirow_driver.device.run import DeviceRun, run
from trirow_driver.device.serial_device import SerialDevice

__all__ = ["Device", "DeviceError", "DeviceRun", "SerialDevice", "run"]

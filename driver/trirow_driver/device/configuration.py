"""Whether an accelerator is the one that an image was packed for, from its registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trirow_driver.device.device import Device, DeviceError
from trirow_hw.registers import ID, VERSION

__all__ = ["check_configuration", "read_configuration"]

#: Parameters that the registers tell: register, lowest bit, number of bits.
_FIELDS = {
    "in_lanes": ("lanes", 0, 8),
    "out_lanes": ("lanes", 8, 8),
    "post_lanes": ("lanes", 16, 8),
    "line_buffer_bytes": ("line_buffer_bytes", 0, 32),
    "weight_buffer_bytes": ("weight_buffer_bytes", 0, 32),
    "bus_bytes": ("bus_bytes", 0, 8),
    "weight_bits": ("bus_bytes", 8, 8),
}


def read_configuration(device: Device) -> dict[str, int]:
    """Return the parameters that the registers tell, named as in `trirow_hw.config.Config`.

    Raises
    ------
    DeviceError
        If there is no accelerator, or its registers are of another version.
    """
    found = device.read_register("id")
    if found != ID:
        raise DeviceError(
            f"{device.name}: register id is {found:#010x}, not {ID:#010x}: no Trirow is there; "
            "check the port"
        )
    version = device.read_register("version")
    if version >> 16 != VERSION >> 16 or version & 0xFFFF < VERSION & 0xFFFF:
        raise DeviceError(
            f"{device.name}: the board's register map has version {_version(version)}, "
            f"not {_version(VERSION)}; load a bitstream of this version of Trirow"
        )
    words = {name: device.read_register(name) for name, _, _ in _FIELDS.values()}
    return {
        field: words[name] >> low & ((1 << bits) - 1)
        for field, (name, low, bits) in _FIELDS.items()
    }


def check_configuration(device: Device, expected: Mapping[str, Any]) -> None:
    """Check that the accelerator is what an image was packed for.

    Parameters
    ----------
    device : Device
    expected : mapping
        Parameters by name, such as ``configuration`` of the image; those that the registers do not
        tell are left out.

    Raises
    ------
    DeviceError
        If it is not; the text names the first parameter that differs.
    """
    for field, value in read_configuration(device).items():
        if field in expected and expected[field] != value:
            raise DeviceError(
                f"{device.name}: board has {field} {value}, image wants {expected[field]}; "
                "pack the image for this board's configuration, or load the other bitstream"
            )


def _version(word: int) -> str:
    return f"{word >> 16}.{word & 0xFFFF}"

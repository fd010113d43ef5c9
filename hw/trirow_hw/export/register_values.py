"""What software has to know of the registers beside `REGISTERS`: bits, values, error meanings."""

from __future__ import annotations

from ..config import Config
from ..errors import ErrorCode, Unit
from ..registers import ID, REGISTERS, VERSION

__all__ = ["BITS", "ERROR_MEANINGS", "UNIT_MEANINGS", "describe", "reset_values"]

#: Bits by the register that has them, and their positions.
BITS: dict[str, dict[str, int]] = {
    "control": {"start": 0, "reset": 1, "interrupt_enable": 8},
    "status": {"busy": 0, "done": 1, "error": 2, "interrupt": 3},
}

ERROR_MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.NONE: "no error",
    ErrorCode.DESCRIPTOR: "version, operation, check or a field of a descriptor is wrong",
    ErrorCode.WINDOW: "an address outside `base` .. `limit`",
    ErrorCode.READ_RESPONSE: "AXI error response to a read",
    ErrorCode.WRITE_RESPONSE: "AXI error response to a write",
    ErrorCode.WATCHDOG: "no progress for `watchdog` cycles; the unit is the one that is stuck",
}

UNIT_MEANINGS: dict[Unit, str] = {
    Unit.SEQUENCER: "descriptors",
    Unit.FEATURES: "feature map",
    Unit.SECOND: "second feature map, or int32 sums of an earlier pass",
    Unit.WEIGHTS: "tables, constants and weights",
    Unit.ARRAY: "array, and all that has no number of its own",
    Unit.WRITER: "outputs",
}


def describe(config: Config) -> str:
    """Return a configuration's name and parameters as a line."""
    parameters = {**config.to_dict(), "requantise_modes": "+".join(config.requantise_modes)}
    name = parameters.pop("name")
    return f"{name} ({', '.join(f'{field}={value}' for field, value in parameters.items())})"


def reset_values(config: Config) -> dict[str, int]:
    """Return what each register of a configuration reads as after reset, by name."""
    constants = {
        "id": ID,
        "version": VERSION,
        "lanes": config.in_lanes | config.out_lanes << 8 | config.post_lanes << 16,
        "line_buffer_bytes": config.line_buffer_bytes,
        "weight_buffer_bytes": config.weight_buffer_bytes,
        "bus_bytes": config.bus_bytes | config.weight_bits << 8,
    }
    return {name: constants.get(name, register.init) for name, register in REGISTERS.items()}

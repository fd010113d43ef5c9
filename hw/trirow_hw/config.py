"""Parameters of the accelerator, and the presets that `trirow configs` lists."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

__all__ = [
    "BANKS",
    "BURST_BYTES",
    "CONSTANT_BYTES",
    "CONSTANT_GROUPS",
    "MAX_KERNEL",
    "MAX_LEFT_SHIFT",
    "MAX_STRIDE",
    "PRESETS",
    "REQUANTISE_MODES",
    "SECOND_QUEUE",
    "TABLE_ENTRIES",
    "TABLE_ENTRY_BYTES",
    "WIDE_CONSTANT_BYTES",
    "Config",
]

#: Longest AXI burst, in bytes. Bursts are cut where the address is a multiple of it, so that none
#: crosses a 4 KB boundary.
BURST_BYTES = 512
#: Bytes of the constants of one output channel: bias (4), scale (4).
CONSTANT_BYTES = 8
#: The same with a second scale (4), as mode ``fixed`` and PReLU need it.
WIDE_CONSTANT_BYTES = 12
#: Entries of a table, one for each int8 value, and bytes of an entry.
TABLE_ENTRIES = 256
TABLE_ENTRY_BYTES = 4
#: Largest left shift of a scale of mode ``fixed``: with more, all sums but 0 saturate.
MAX_LEFT_SHIFT = 9
#: Largest kernel, in rows and in columns.
MAX_KERNEL = 255
#: Largest stride in either direction.
MAX_STRIDE = 255
#: Requantisation modes that can be built in.
REQUANTISE_MODES = ("float32", "fixed")
#: Lane groups whose constants are on chip at once.
CONSTANT_GROUPS = 64
#: Most columns of lanes: the results of a lane group wait in one queue.
MAX_STAGES = 64
#: Columns of the second operand that wait for the array, or of int32 sums that are kept on chip: as
#: many as a block RAM of 16 bits has.
SECOND_QUEUE = 256
#: Banks of the line buffer: one for each row of a 3-row kernel.
BANKS = 3

KIB = 1024


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True)
class Config:
    """One accelerator's parameters.

    Parameters
    ----------
    name : str
        Name of the preset, or of the preset that it was made from.
    in_lanes : int
        Bytes of a feature map that each lane multiplies in a cycle, 2 to 64.
    out_lanes : int
        Output channels computed at once (the lanes of a lane group), 1 to 128.
    post_lanes : int
        Requantisers: output values per cycle. At most ``out_lanes`` and ``bus_bytes``.
    line_buffer_bytes : int
        Size of the line buffer, three banks together.
    weight_buffer_bytes : int
        Size of the weight buffer, all lanes together.
    bus_bytes : int
        Width of the AXI4 data bus in bytes: 2, 4, 8, ... 128.
    weight_bits : int
        Width of a weight in the array, 8 or 9. With 9 the zero point of weights is subtracted.
    requantise_modes : tuple of str
        Requantisation modes built in: ``"float32"``, ``"fixed"`` or both. Sums of two feature maps
        and average pools need ``"fixed"``.
    description : str
        What the preset is for.

    Raises
    ------
    ValueError
        If a parameter is out of range; the text names the field and the range.
    """

    name: str
    in_lanes: int
    out_lanes: int
    post_lanes: int
    line_buffer_bytes: int
    weight_buffer_bytes: int
    bus_bytes: int
    weight_bits: int = 8
    requantise_modes: tuple[str, ...] = REQUANTISE_MODES
    description: str = ""

    def __post_init__(self) -> None:
        self._check_range("in_lanes", 2, 64)
        self._check_range("out_lanes", 1, 128)
        self._check_range("bus_bytes", 2, 128)
        self._check_range("post_lanes", 1, min(self.out_lanes, self.bus_bytes))
        if not _is_power_of_two(self.bus_bytes):
            raise ValueError(f"bus_bytes must be a power of two, not {self.bus_bytes}")
        if self.stages > MAX_STAGES:
            raise ValueError(
                f"out_lanes / post_lanes must be at most {MAX_STAGES}, not {self.stages}"
            )
        # Two words for the run at any byte offset, two for the one that is loaded meanwhile.
        self._check_range("line_buffer_bytes", 3 * 8 * self.in_lanes, 1 << 24)
        self._check_range("weight_buffer_bytes", 16 * self.multipliers, 1 << 26)
        self._check_range("weight_bits", 8, 9)
        self._check_modes()
        for field in ("line_bank_words", "weight_words"):
            if getattr(self, field) > 0xFFFF:
                raise ValueError(f"{field} must be at most 65535, not {getattr(self, field)}")

    def _check_range(self, field: str, low: int, high: int) -> None:
        value = getattr(self, field)
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{field} must be an integer from {low} to {high}, not {value!r}")

    def _check_modes(self) -> None:
        """Bring the modes into their order, so that equal configurations compare equal."""
        given: object = self.requantise_modes
        known = isinstance(given, (tuple, list)) and all(mode in REQUANTISE_MODES for mode in given)
        if not known or not given or len(set(given)) < len(given):
            raise ValueError(
                f"requantise_modes must be some of {', '.join(REQUANTISE_MODES)}, not {given!r}"
            )
        modes = tuple(mode for mode in REQUANTISE_MODES if mode in given)
        object.__setattr__(self, "requantise_modes", modes)

    @property
    def multipliers(self) -> int:
        """Multipliers of the MAC array."""
        return self.in_lanes * self.out_lanes

    @property
    def tap_rows(self) -> int:
        """Kernel rows that depthwise convolutions and pools take in one cycle."""
        return min(BANKS, self.in_lanes)

    @property
    def depthwise_lanes(self) -> int:
        """Channels that depthwise convolutions and pools compute at once."""
        return min(self.in_lanes, self.out_lanes)

    @cached_property
    def line_bank_words(self) -> int:
        """Words of ``in_lanes`` bytes in one of the three banks; even."""
        return self.line_buffer_bytes // (BANKS * 2 * self.in_lanes) * 2

    @cached_property
    def weight_words(self) -> int:
        """Words of ``in_lanes`` weights in the memory of each lane."""
        return self.weight_buffer_bytes // self.multipliers

    @property
    def stages(self) -> int:
        """Columns of ``post_lanes`` lanes that the array is built of; the last may be narrower."""
        return -(-self.out_lanes // self.post_lanes)

    @property
    def burst_beats(self) -> int:
        """Beats of the longest burst."""
        return max(1, BURST_BYTES // self.bus_bytes)

    def override(self, **values: Any) -> Config:
        """Return a copy with some fields replaced, checked like any other.

        Raises
        ------
        ValueError
            If a field does not exist or its value is out of range.
        """
        known = [field.name for field in fields(self) if field.type != "str"]
        for field in values:
            if field not in known:
                raise ValueError(
                    f"unknown field {field!r} of a configuration; known: {', '.join(known)}"
                )
        return replace(self, **values)

    def to_dict(self) -> dict[str, object]:
        """Return the parameters as a dictionary for JSON, without the description."""
        values = asdict(self)
        del values["description"]
        values["requantise_modes"] = list(self.requantise_modes)
        return values


_PRESETS = [
    Config("tiny", 4, 4, 1, 3 * KIB, 4 * KIB, 4, description="tests"),
    Config("odd", 3, 5, 2, 4608, 6 * KIB, 4, description="tests: nothing is a power of two"),
    Config("up5k", 2, 2, 1, 6 * KIB, 4 * KIB, 2, description="iCE40UP5K"),
    Config("ecp5-25f", 4, 6, 1, 24 * KIB, 24 * KIB, 4, description="Lattice ECP5-25F"),
    Config("ecp5-85f", 8, 16, 2, 72 * KIB, 128 * KIB, 8, description="Lattice ECP5-85F"),
    Config("m256", 16, 16, 8, 96 * KIB, 1024 * KIB, 16, description="Zynq-7045 class"),
    Config("edgeboard", 64, 96, 32, 512 * KIB, 4096 * KIB, 64, description="EdgeBoard class"),
]

#: The presets by name.
PRESETS: dict[str, Config] = {config.name: config for config in _PRESETS}

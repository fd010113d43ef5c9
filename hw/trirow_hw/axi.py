"""AXI4 and AXI4-Lite signatures (Arm IHI 0022, AMBA AXI and ACE Protocol Specification)."""

from __future__ import annotations

from enum import IntEnum

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["AXI4", "AXI4Lite", "Burst", "Response"]


class Burst(IntEnum):
    """Burst type, table A3-3. Only INCR is used."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Response(IntEnum):
    """Response code, table A3-4."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class AXI4(wiring.Signature):
    """AXI4 as its manager drives it, without user signals; one ID, so IDs are left out.

    Parameters
    ----------
    data_bytes : int
        Width of the data bus in bytes, a power of two from 1 to 128.
    address_bits : int
        Width of an address.
    """

    def __init__(self, *, data_bytes: int, address_bits: int = 32):
        self._data_bytes = data_bytes
        request = {"addr": address_bits, "len": 8, "size": 3, "burst": 2, "cache": 4, "prot": 3}
        members = {}
        for channel in ("aw", "ar"):
            members |= {f"{channel}{name}": Out(width) for name, width in request.items()}
            members |= {f"{channel}valid": Out(1), f"{channel}ready": In(1)}
        super().__init__(
            members
            | {
                "wdata": Out(8 * data_bytes),
                "wstrb": Out(data_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "rdata": In(8 * data_bytes),
                "rresp": In(2),
                "rlast": In(1),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

    @property
    def data_bytes(self) -> int:
        """Width of the data bus in bytes."""
        return self._data_bytes


class AXI4Lite(wiring.Signature):
    """AXI4-Lite with 32-bit data as its manager drives it.

    Parameters
    ----------
    address_bits : int
        Width of an address.
    """

    def __init__(self, *, address_bits: int):
        super().__init__(
            {
                "awaddr": Out(address_bits),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_bits),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

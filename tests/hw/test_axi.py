"""Signatures of the buses: members, widths and directions by the AMBA specification."""

import pytest
from amaranth.lib.wiring import In, Out

from trirow_hw.axi import AXI4, AXI4Lite, Burst, Response


def members(signature):
    return {name: (member.flow, member.shape) for name, member in signature.members.items()}


@pytest.mark.parametrize("data_bytes", [1, 2, 4, 8, 64, 128])
@pytest.mark.parametrize("address_bits", [12, 32, 40])
def test_axi4(data_bytes, address_bits):
    expected = {}
    for channel in ("aw", "ar"):
        expected |= {
            f"{channel}addr": (Out, address_bits),
            f"{channel}len": (Out, 8),
            f"{channel}size": (Out, 3),
            f"{channel}burst": (Out, 2),
            f"{channel}cache": (Out, 4),
            f"{channel}prot": (Out, 3),
            f"{channel}valid": (Out, 1),
            f"{channel}ready": (In, 1),
        }
    expected |= {
        "wdata": (Out, 8 * data_bytes),
        "wstrb": (Out, data_bytes),
        "wlast": (Out, 1),
        "wvalid": (Out, 1),
        "wready": (In, 1),
        "bresp": (In, 2),
        "bvalid": (In, 1),
        "bready": (Out, 1),
        "rdata": (In, 8 * data_bytes),
        "rresp": (In, 2),
        "rlast": (In, 1),
        "rvalid": (In, 1),
        "rready": (Out, 1),
    }
    signature = AXI4(data_bytes=data_bytes, address_bits=address_bits)
    assert members(signature) == expected
    assert signature.data_bytes == data_bytes


def test_axi4_has_32_bit_addresses_unless_told():
    assert members(AXI4(data_bytes=4))["araddr"] == (Out, 32)


@pytest.mark.parametrize("address_bits", [8, 12])
def test_axi4_lite(address_bits):
    expected = {}
    for channel in ("aw", "ar"):
        expected |= {
            f"{channel}addr": (Out, address_bits),
            f"{channel}prot": (Out, 3),
            f"{channel}valid": (Out, 1),
            f"{channel}ready": (In, 1),
        }
    expected |= {
        "wdata": (Out, 32),
        "wstrb": (Out, 4),
        "wvalid": (Out, 1),
        "wready": (In, 1),
        "bresp": (In, 2),
        "bvalid": (In, 1),
        "bready": (Out, 1),
        "rdata": (In, 32),
        "rresp": (In, 2),
        "rvalid": (In, 1),
        "rready": (Out, 1),
    }
    assert members(AXI4Lite(address_bits=address_bits)) == expected


def test_codes():
    assert [code.name for code in sorted(Response)] == ["OKAY", "EXOKAY", "SLVERR", "DECERR"]
    assert [code.name for code in sorted(Burst)] == ["FIXED", "INCR", "WRAP"]

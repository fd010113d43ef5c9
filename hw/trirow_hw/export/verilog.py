"""The accelerator as plain Verilog with the port names that other tools expect."""

from __future__ import annotations

from amaranth.back import verilog
from amaranth.hdl import ClockDomain, Module, Signal

from ..accelerator import Accelerator
from ..block_memory import BLOCK_MEMORY_CELL, BLOCK_MEMORY_SOURCE
from ..config import Config

__all__ = ["TIED", "TOP", "UNUSED", "core_verilog"]

#: Name of the top module.
TOP = "trirow"
#: Outputs of the memory bus that are always 0, and their widths: one ID, no locked access, no
#: quality of service. Interconnects and bus models want to see them.
TIED = {
    "awid": 1,
    "awlock": 1,
    "awqos": 4,
    "arid": 1,
    "arlock": 1,
    "arqos": 4,
}
#: Inputs of the memory bus that nothing looks at, and their widths.
UNUSED = {"bid": 1, "rid": 1}


class _AnyDevice:
    """No device in particular; memories become a module, for Verilog lists a memory's contents."""

    block_memory_cell = BLOCK_MEMORY_CELL


def core_verilog(config: Config) -> str:
    """Return the accelerator as Verilog-2001 without vendor primitives.

    Ports are ``aclk``; ``aresetn``, synchronous and active low; ``m_axi_<signal>``, the memory bus
    (AXI4, the core is the manager); ``s_axi_<signal>``, the registers (AXI4-Lite); ``interrupt``, a
    level. `TIED` and `UNUSED` are signals of the memory bus beyond those that the core needs.
    The same text for the same parameters and the same tools.

    Parameters
    ----------
    config : Config

    Raises
    ------
    amaranth.back.verilog.YosysError
        If no Yosys is found or it fails.
    """
    verilog.find_yosys(lambda version: True)  # without one, fail before the long elaboration
    accelerator = Accelerator(config=config)
    m = Module()
    m.submodules.core = accelerator
    m.domains.sync = domain = ClockDomain()
    own = {name: Signal(name=name, attrs=attrs) for name, attrs in _vivado_attributes().items()}
    m.d.comb += [
        domain.clk.eq(own["aclk"]),
        domain.rst.eq(~own["aresetn"]),
        own["interrupt"].eq(accelerator.interrupt),
    ]
    ports = dict(own)
    for prefix, bus in (("m_axi", accelerator.memory), ("s_axi", accelerator.control)):
        for name in bus.signature.members:
            ports[f"{prefix}_{name}"] = getattr(bus, name)
    for name, width in (TIED | UNUSED).items():
        ports[f"m_axi_{name}"] = Signal(width, name=f"m_axi_{name}")
    m.d.comb += [ports[f"m_axi_{name}"].eq(0) for name in TIED]
    text = verilog.convert(
        m,
        name=TOP,
        platform=_AnyDevice(),
        ports={name: (signal, None) for name, signal in ports.items()},
        emit_src=False,
        strip_internal_attrs=True,
    )
    return text + BLOCK_MEMORY_SOURCE.read_text(encoding="utf-8")


def _vivado_attributes() -> dict[str, dict[str, str]]:
    """Return what tells Vivado the kinds of ports that are part of no bus (UG994)."""
    kinds = {
        "aclk": ("clock:1.0 aclk CLK", "ASSOCIATED_BUSIF m_axi:s_axi, ASSOCIATED_RESET aresetn"),
        "aresetn": ("reset:1.0 aresetn RST", "POLARITY ACTIVE_LOW"),
        "interrupt": ("interrupt:1.0 interrupt INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    }
    return {
        name: {
            "X_INTERFACE_INFO": f"xilinx.com:signal:{kind}",
            "X_INTERFACE_PARAMETER": f"XIL_INTERFACENAME {name}, {parameter}",
        }
        for name, (kind, parameter) in kinds.items()
    }

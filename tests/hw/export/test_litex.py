"""A LiteX SoC with the core elaborates: instance, bus, region, interrupt."""

import re
import warnings

import pytest

from trirow_hw.config import PRESETS
from trirow_hw.export import register_header

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # LiteX's own
    pytest.importorskip("migen", reason="migen is not installed")
    pytest.importorskip("litex", reason="litex is not installed")
    from litex.build.generic_platform import Pins
    from litex.build.sim import SimPlatform
    from litex.gen import ClockDomain, LiteXModule
    from litex.soc.integration.soc_core import SoCCore

    from trirow_hw.export.litex import Trirow, add_trirow

pytestmark = pytest.mark.filterwarnings("ignore")  # migen's and LiteX's


@pytest.fixture
def exported(tmp_path):
    """A folder of `trirow export`, as far as LiteX looks at it."""

    def write(config):
        (tmp_path / "trirow.v").write_text("module trirow(); endmodule\n")
        (tmp_path / "trirow_registers.h").write_text(register_header(config))
        return tmp_path

    return write


def make_soc(folder, standard, width, irq=True, **options):
    platform = SimPlatform("SIM", [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1))])
    soc = SoCCore(
        platform,
        50_000_000,
        cpu_type=None,
        with_uart=False,
        with_timer=False,
        integrated_sram_size=4096,
        bus_standard=standard,
        bus_data_width=width,
    )
    soc.crg = LiteXModule()
    soc.crg.cd_sys = ClockDomain()
    if irq:
        soc.irq.enable()
    return soc, add_trirow(soc, folder, **options)


@pytest.mark.parametrize(
    ("standard", "width"), [("wishbone", 32), ("axi-lite", 32), ("axi", 32), ("axi", 64)]
)
def test_soc(exported, ports, standard, width):
    config = PRESETS["tiny"]
    soc, _ = make_soc(exported(config), standard, width, origin=0x9000_0000)
    soc.finalize()
    text = soc.platform.get_verilog(soc).main_source
    instance = re.search(r"^trirow \w+\s?\((.*?)^\);", text, re.M | re.S)
    connected = dict(re.findall(r"\.(\w+)\s*\((.+?)\),?$", instance[1], re.M))
    assert set(connected) == set(ports)
    assert all(expression.strip() for expression in connected.values())
    region = soc.bus.regions["trirow"]
    assert (region.origin, region.size, region.cached) == (0x9000_0000, 256, False)
    assert "trirow" in soc.bus.masters
    assert "trirow" in soc.bus.slaves
    assert "trirow" in soc.irq.locs
    assert any(str(source[0]).endswith("trirow.v") for source in soc.platform.sources)


@pytest.mark.parametrize("name", ["tiny", "m256"])
def test_widths_and_directions(exported, ports, name):
    config = PRESETS[name]
    platform = SimPlatform("SIM", [("sys_clk", 0, Pins(1))])
    core = Trirow(platform, exported(config))
    assert core.bus.data_width == 8 * config.bus_bytes
    instance = next(iter(core.get_fragment().specials))
    found = {item.name: (type(item).__name__.lower(), len(item.expr)) for item in instance.items}
    if name == "tiny":
        assert found == ports
    assert found["m_axi_wdata"] == ("output", 8 * config.bus_bytes)
    assert found["m_axi_wstrb"] == ("output", config.bus_bytes)
    assert found["m_axi_rdata"] == ("input", 8 * config.bus_bytes)


def test_without_interrupts_and_with_a_free_address(exported):
    soc, _ = make_soc(exported(PRESETS["tiny"]), "wishbone", 32, irq=False, name="accelerator")
    soc.mem_map["csr"] = 0xF000_0000  # where CPUs have it; without one it is at 0, as is the core
    soc.finalize()
    region = soc.bus.regions["accelerator"]
    sram = soc.bus.regions["sram"]
    assert region.origin + region.size <= sram.origin or region.origin >= sram.origin + sram.size
    assert not soc.irq.locs


def test_wrong_folders(tmp_path):
    platform = SimPlatform("SIM", [("sys_clk", 0, Pins(1))])
    with pytest.raises(ValueError, match=r"has no trirow\.v: `trirow export"):
        Trirow(platform, tmp_path)
    (tmp_path / "trirow.v").write_text("")
    with pytest.raises(ValueError, match=r"trirow_registers\.h: No such file"):
        Trirow(platform, tmp_path)
    (tmp_path / "trirow_registers.h").write_text("")
    with pytest.raises(ValueError, match="does not say how wide the bus is"):
        Trirow(platform, tmp_path)

"""The accelerator after synthesis for ECP5, as netlist of primitives, in simulation."""

from trirow_sim.netlist.build import build_netlist, netlist_cells
from trirow_sim.netlist.engine import NetlistEngine

__all__ = ["NetlistEngine", "build_netlist", "netlist_cells"]

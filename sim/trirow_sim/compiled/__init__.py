"""The compiled engine: the same accelerator through Verilator, with the memory models in C++."""

from trirow_sim.compiled.build import build_library, is_built
from trirow_sim.compiled.engine import CompiledEngine
from trirow_sim.compiled.toolchain import ToolchainError, find_toolchain

__all__ = ["CompiledEngine", "ToolchainError", "build_library", "find_toolchain", "is_built"]

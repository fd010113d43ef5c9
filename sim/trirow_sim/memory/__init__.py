"""AXI4 memory models, each defined to the cycle; ``docs/memory-models.md`` describes them."""

from types import MappingProxyType

from trirow_sim.memory.ddr import DdrMemory
from trirow_sim.memory.faults import FaultyMemory
from trirow_sim.memory.ideal import IdealMemory
from trirow_sim.memory.model import MAX_QUEUED, MemoryModel, QueuedMemory
from trirow_sim.memory.nngen import NngenMemory
from trirow_sim.memory.random import RandomMemory
from trirow_sim.memory.sdram16 import Sdram16Memory
from trirow_sim.memory.storage import Memory

__all__ = [
    "MAX_QUEUED",
    "MEMORY_MODELS",
    "DdrMemory",
    "FaultyMemory",
    "IdealMemory",
    "Memory",
    "MemoryModel",
    "NngenMemory",
    "RandomMemory",
    "Sdram16Memory",
    "make_memory",
]

_MODELS: dict[str, type[QueuedMemory]] = {
    "ideal": IdealMemory,
    "ddr": DdrMemory,
    "sdram16": Sdram16Memory,
    "nngen": NngenMemory,
    "random": RandomMemory,
}

MEMORY_MODELS = MappingProxyType({name: model.summary for name, model in _MODELS.items()})
"""One line about each model, by name."""


def make_memory(name: str, memory: Memory, bus_bytes: int, seed: int = 1) -> MemoryModel:
    """Make a memory model.

    Parameters
    ----------
    name : str
        One of `MEMORY_MODELS`.
    memory : Memory
        The bytes behind it.
    bus_bytes : int
        Width of the data bus in bytes.
    seed : int
        For `random`; the others have no use for it.

    Returns
    -------
    MemoryModel
        In its first cycle.

    Raises
    ------
    ValueError
        If there is no such model, or a parameter is out of range.
    """
    if name not in _MODELS:
        raise ValueError(f"memory must be one of {', '.join(_MODELS)}, not {name!r}")
    if name == "random":
        return RandomMemory(memory, bus_bytes, seed=seed)
    return _MODELS[name](memory, bus_bytes)

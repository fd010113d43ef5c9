"""The C++ memory models and checker against their Python originals, cycle by cycle."""

import ctypes
import os
import random
import re
import runpy
import shlex
import shutil
import struct
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest

import trirow_sim
from trirow_sim.axi import AxiChecker, AxiMaster, AxiSlave, AxiViolation
from trirow_sim.memory import MEMORY_MODELS, Memory, make_memory
from trirow_sim.testing_axi import ScriptedMaster

SOURCES = Path(trirow_sim.__file__).with_name("compiled")
VIOLATIONS = runpy.run_path(str(Path(__file__).with_name("test_axi.py")))["VIOLATIONS"]

# Records of models_abi.cpp.
MASTER = struct.Struct("=BQHBBBBQHBBB128sQQBB")
SLAVE = struct.Struct("=BB128sBBBBBB")

WORD = (1 << 64) - 1

# A memory that neither begins nor ends at a multiple of any bus.
BASE, SIZE = 0x1F24, 0x4321

CYCLES = 5_000
# How busy the master is, with the seed of `random`; CYCLES for each, model and width.
TRAFFIC = {"busy": 1, "stalls": 0, "blocked": 0xFFFF_FFFF, "sparse": 12345}


def pack_master(m):
    return MASTER.pack(
        m.arvalid,
        m.araddr,
        m.arlen,
        m.arsize,
        m.arburst,
        m.rready,
        m.awvalid,
        m.awaddr,
        m.awlen,
        m.awsize,
        m.awburst,
        m.wvalid,
        m.wdata.to_bytes(128, "little"),
        m.wstrb & WORD,
        m.wstrb >> 64,
        m.wlast,
        m.bready,
    )


def pack_slave(s):
    return SLAVE.pack(
        s.arready,
        s.rvalid,
        s.rdata.to_bytes(128, "little"),
        s.rresp,
        s.rlast,
        s.awready,
        s.wready,
        s.bvalid,
        s.bresp,
    )


class Library:
    """The C interface of models_abi.cpp."""

    def __init__(self, path):
        u64, size, text, handle = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
        lib = ctypes.CDLL(str(path))
        for name, result, *parameters in (
            ("error", text),
            ("model_create", handle, text, handle, u64, u64, ctypes.c_uint, ctypes.c_uint32),
            ("model_destroy", None, handle),
            ("model_run", None, handle, text, handle, size),
            ("checker_create", handle, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint),
            ("checker_destroy", None, handle),
            ("checker_run", ctypes.c_int, handle, text, text, size),
            ("checker_state", None, handle, ctypes.POINTER(u64)),
        ):
            function = getattr(lib, f"trirow_{name}")
            function.restype, function.argtypes = result, parameters
            setattr(self, name, function)

    def fail(self):
        raise ValueError(self.error().decode())


class CompiledMemory:
    """A C++ model on a copy of the bytes of `memory`."""

    def __init__(self, lib, name, memory, bus_bytes, seed=1):
        self._lib = lib
        self._bytes = (ctypes.c_uint8 * memory.size).from_buffer_copy(memory.data)
        self._model = lib.model_create(
            name.encode(), ctypes.addressof(self._bytes), memory.size, memory.base, bus_bytes, seed
        )
        if not self._model:
            lib.fail()

    def __del__(self):
        self._lib.model_destroy(self._model)

    @property
    def data(self):
        return bytes(self._bytes)

    def run(self, masters):
        """Step a cycle for each record; return the slave's records."""
        count = len(masters) // MASTER.size
        slaves = ctypes.create_string_buffer(count * SLAVE.size)
        self._lib.model_run(self._model, masters, slaves, count)
        return slaves.raw


class CompiledChecker:
    def __init__(self, lib, bus_bytes, max_burst_bytes=512, max_outstanding=16):
        self._lib = lib
        self._checker = lib.checker_create(bus_bytes, max_burst_bytes, max_outstanding)
        if not self._checker:
            lib.fail()

    def __del__(self):
        self._lib.checker_destroy(self._checker)

    def run(self, masters, slaves):
        """Check the cycles of the records; return the violation in words, or None."""
        count = len(masters) // MASTER.size
        if self._lib.checker_run(self._checker, masters, slaves, count):
            return self._lib.error().decode()
        return None

    @property
    def state(self):
        state = (ctypes.c_uint64 * 6)()
        self._lib.checker_state(self._checker, state)
        return tuple(state)


def state(checker):
    """Return of a Python checker what `CompiledChecker.state` returns."""
    return (
        checker.cycle,
        checker.read_bursts,
        checker.read_beats,
        checker.write_bursts,
        checker.write_beats,
        checker.idle,
    )


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    candidates = [shlex.split(os.environ.get("CXX", "")), ["c++"], ["g++"]]
    compiler = next((c for c in candidates if c and shutil.which(c[0])), None)
    if compiler is None:
        pytest.skip("no C++ compiler: neither $CXX nor c++ nor g++")
    path = tmp_path_factory.mktemp("compiled") / "models.so"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, SOURCES / "models_abi.cpp", "-o", path], check=True)
    return Library(path)


def scripted(kind, bus_bytes, dice, beats_wanted):
    """Return a master with legal reads and writes of about `beats_wanted` beats each."""
    chance = dice.random
    ready = {
        "busy": {},
        "stalls": {
            "r_ready": lambda cycle: chance() < 0.6,
            "w_valid": lambda cycle: chance() < 0.6,
            "b_ready": lambda cycle: chance() < 0.5,
        },
        "blocked": {
            "r_ready": lambda cycle: cycle % 400 > 250,
            "w_valid": lambda cycle: cycle % 290 > 60,
            "b_ready": lambda cycle: cycle % 700 > 500,
        },
        "sparse": {"b_ready": lambda cycle: chance() < 0.2},
    }[kind]
    gap = {"busy": 4, "stalls": 20, "blocked": 12, "sparse": 150}[kind]
    master = ScriptedMaster(bus_bytes, **ready)
    full = (1 << bus_bytes) - 1
    longest = min(512 // bus_bytes, 256)

    def burst():
        beats = dice.choice(
            (1, longest, dice.randint(1, longest), dice.randint(1, min(8, longest)))
        )
        page = dice.choice((0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0xFFFF_F000))
        return page + bus_bytes * dice.randint(0, 4096 // bus_bytes - beats), beats

    at, left = 0, beats_wanted
    while left > 0:
        addr, beats = burst()
        master.read(addr, beats, at=at)
        left -= beats
        at += dice.randrange(gap)
    at, left = 0, beats_wanted
    while left > 0:
        addr, beats = burst()
        strobes = [full] * beats
        if chance() < 0.6:
            for i in range(0, beats, dice.randint(1, 4)):
                strobes[i] &= dice.choice((0, dice.getrandbits(bus_bytes), full << 1, full >> 1))
        data_at = max(0, at + dice.randint(-5, 40))
        master.write(
            addr, dice.randbytes(beats * bus_bytes), strobes=strobes, at=at, data_at=data_at
        )
        left -= beats
        at += dice.randrange(gap)
    return master


def record(name, memory, bus_bytes, kind, *, cycles=CYCLES):
    """Run a Python model; return what both sides drove in each cycle, and the checker."""
    dice = random.Random(f"{name} {bus_bytes} {kind}")
    memory.data[:] = dice.randbytes(memory.size)
    before = bytes(memory.data)
    model = make_memory(name, memory, bus_bytes, TRAFFIC[kind])
    slowness = max(1, bus_bytes // 4) if name == "sdram16" else 1
    master = scripted(kind, bus_bytes, dice, cycles // slowness)
    checker = AxiChecker(bus_bytes)
    masters, slaves = [], []
    for cycle in range(cycles):
        driven = master.drive(cycle)
        checker.check(driven, model.slave)
        slaves.append(replace(model.slave))
        masters.append(seen := master.observe(cycle, model.slave))
        model.step(seen)
    return before, masters, slaves, checker


@pytest.mark.parametrize("bus_bytes", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("name", MEMORY_MODELS)
def test_model(lib, name, bus_bytes):
    for kind, seed in TRAFFIC.items():
        memory = Memory(SIZE, base=BASE)
        before, masters, slaves, checker = record(name, memory, bus_bytes, kind)
        assert min(checker.read_beats, checker.write_beats) > (40 if name == "sdram16" else 100)
        if kind == "blocked":  # both queues were full
            assert {s.arready for s in slaves} == {s.awready for s in slaves} == {0, 1}
        assert {s.rresp for s in slaves} == {s.bresp for s in slaves} == {0, 3}

        start = Memory(SIZE, base=BASE)
        start.data[:] = before
        compiled = CompiledMemory(lib, name, start, bus_bytes, seed)
        driven = b"".join(map(pack_master, masters))
        answers = compiled.run(driven)
        for cycle, (expected, answer) in enumerate(
            zip(slaves, SLAVE.iter_unpack(answers), strict=True)
        ):
            assert (kind, cycle, answer) == (kind, cycle, SLAVE.unpack(pack_slave(expected)))
        assert compiled.data == bytes(memory.data) != before

        compiled_checker = CompiledChecker(lib, bus_bytes)
        assert compiled_checker.run(driven, answers) is None
        assert compiled_checker.state == state(checker)


def check_both(lib, bus_bytes, masters, slaves):
    """Check cycles with both checkers until one complains; return the violation in words."""
    checker, compiled = AxiChecker(bus_bytes), CompiledChecker(lib, bus_bytes)
    message = None
    try:
        for master, slave in zip(masters, slaves, strict=True):
            checker.check(master, slave)
    except AxiViolation as violation:
        message = str(violation)
    driven = b"".join(map(pack_master, masters))
    answers = b"".join(map(pack_slave, slaves))
    assert compiled.run(driven, answers) == message
    assert compiled.state[0] == checker.cycle
    if message is None:
        assert compiled.state == state(checker)
    return message


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation(lib, name):
    cycles, message = VIOLATIONS[name]
    masters = [AxiMaster(**master) for master, _ in cycles]
    slaves = [AxiSlave(**slave) for _, slave in cycles]
    assert check_both(lib, 4, masters, slaves) == message


@pytest.mark.parametrize("bus_bytes", [16, 64, 128])
def test_one_bit_wrong(lib, bus_bytes):
    """Of legal traffic a bit is flipped in one cycle."""
    dice = random.Random(bus_bytes)
    memory = Memory(SIZE, base=BASE)
    _, masters, slaves, _ = record("random", memory, bus_bytes, "stalls", cycles=600)
    widths = {"addr": 32, "len": 9, "size": 3, "burst": 2, "resp": 2, "strb": bus_bytes}
    widths["data"] = 8 * bus_bytes
    kinds = set()
    for field in [*fields(AxiMaster), *fields(AxiSlave)]:
        width = next((w for suffix, w in widths.items() if field.name.endswith(suffix)), 1)
        for _ in range(40):
            side = slaves if hasattr(AxiSlave, field.name) else masters
            cycle = dice.randrange(len(side))
            before = side[cycle]
            value = getattr(before, field.name) ^ 1 << dice.randrange(width)
            side[cycle] = replace(before, **{field.name: value})
            message = check_both(lib, bus_bytes, masters, slaves)
            side[cycle] = before
            kinds.add(message and re.sub(r"0x[0-9a-f]+|\d+", "", message))
    assert None in kinds
    assert len(kinds) > 20
    assert check_both(lib, bus_bytes, masters, slaves) is None


def test_checker_limits(lib):
    checker = CompiledChecker(lib, 4, max_burst_bytes=1024, max_outstanding=1)
    master = AxiMaster(arvalid=1, araddr=0xC00, arlen=255, arsize=2)
    cycle = pack_master(master), pack_slave(AxiSlave(arready=1))
    assert checker.run(*cycle) is None
    assert checker.run(*cycle) == "cycle 1: AR: 2 bursts outstanding, at most 1 allowed"


@pytest.mark.parametrize("bus_bytes", [1, 128])
def test_other_widths(lib, bus_bytes):
    memory = Memory(SIZE, base=BASE)
    before, masters, slaves, _ = record("random", memory, bus_bytes, "stalls")
    start = Memory(SIZE, base=BASE)
    start.data[:] = before
    compiled = CompiledMemory(lib, "random", start, bus_bytes, TRAFFIC["stalls"])
    answers = compiled.run(b"".join(map(pack_master, masters)))
    assert answers == b"".join(map(pack_slave, slaves))
    assert compiled.data == bytes(memory.data)


@pytest.mark.parametrize(
    ("name", "bus_bytes"), [("sram", 4), ("ideal", 6), ("random", 256), ("ddr", 0), ("sdram16", 1)]
)
def test_wrong_parameters(lib, name, bus_bytes):
    memory = Memory(64)
    with pytest.raises(ValueError, match="must be") as expected:
        make_memory(name, memory, bus_bytes)
    with pytest.raises(ValueError, match=f"^{re.escape(str(expected.value))}$"):
        CompiledMemory(lib, name, memory, bus_bytes)


def test_wrong_bus_bytes_of_checker(lib):
    with pytest.raises(ValueError, match=r"^bus_bytes must be a power of two .* not 3$"):
        CompiledChecker(lib, 3)

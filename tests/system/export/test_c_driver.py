"""The C driver runs layers on the simulated core: bytes, errors, interrupt, counters."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from trirow_hw.registers import REGISTERS
from trirow_sim.case import Case
from trirow_sim.compiled import CompiledEngine, ToolchainError, find_toolchain
from trirow_sim.memory import Memory

from ..kit import BASE, MEMORY_BYTES, ODD, TINY, lay_out
from . import c_driver
from .c_driver import CDriver, Job, SimulatedBus

#: More polls than a layer here takes; each is some cycles.
MANY = 100_000

if shutil.which("cc") is None:
    pytest.skip("there is no C compiler", allow_module_level=True)


class Machine:
    """The driver, a core and its memory."""

    def __init__(self, folder, config, model="random"):
        self.config = config
        self.storage = Memory(MEMORY_BYTES, base=BASE)
        self.engine = CompiledEngine(config, self.storage, model, seed=5)
        self.bus = SimulatedBus(self.engine)
        self.driver = CDriver(folder, config, self.bus.read, self.bus.write)
        assert self.driver.open() == c_driver.OK


@pytest.fixture
def machine(request, tmp_path):
    try:
        find_toolchain()
    except ToolchainError as error:
        pytest.skip(str(error))
    machine = Machine(tmp_path, getattr(request, "param", TINY))
    yield machine
    machine.engine.close()


def layer(config=TINY, seed=3):
    case = Case("conv", (7, 6, 5), 6, (3, 3), pad=(1, 1, 1, 1), seed=seed)
    nodes, features, slices = case.build()
    return lay_out(nodes, features, config, seed, slices=slices)


def job(setup, **changes):
    fields = {
        "descriptor": setup.job.descriptor,
        "base": setup.job.base,
        "limit": setup.job.limit,
        "watchdog": 2000,
        "interrupt": 0,
    }
    return Job(**{**fields, **changes})


@pytest.mark.parametrize("machine", [TINY, ODD], ids=["tiny", "odd"], indirect=True)
def test_layers(machine):
    driver = machine.driver
    for seed in (3, 4):
        setup = layer(machine.config, seed)
        driver.load(machine.storage.data, setup.before)
        assert driver.start(job(setup)) == c_driver.OK
        assert driver.wait(MANY) == c_driver.OK
        assert bytes(machine.storage.data) == setup.after, f"seed {seed}"
        counters = driver.counters()
        outputs = sum(output.size for _, output in setup.outputs.values())
        assert counters["beats_written"] * machine.config.bus_bytes >= outputs
        assert counters["cycles"] > counters["busy"] > 0
        assert driver.passes() == len(setup.descriptors)


def test_interrupt(machine):
    driver, setup = machine.driver, layer()
    driver.load(machine.storage.data, setup.before)
    assert driver.start(job(setup, interrupt=1)) == c_driver.OK
    assert machine.bus.until_interrupt(50_000)
    assert driver.wait(1) == c_driver.OK
    assert bytes(machine.storage.data) == setup.after
    assert machine.bus.until_interrupt(10)
    driver.acknowledge()
    assert not machine.bus.until_interrupt(100)
    # Without it the run ends as quietly.
    assert driver.start(job(setup)) == c_driver.OK
    assert not machine.bus.until_interrupt(50_000)
    assert driver.wait(1) == c_driver.OK


def test_wait_is_bounded(machine):
    driver, setup = machine.driver, layer()
    driver.load(machine.storage.data, setup.before)
    assert driver.wait(MANY) == c_driver.IDLE
    assert driver.start(job(setup)) == c_driver.OK
    assert driver.start(job(setup)) == c_driver.BUSY
    before = machine.bus.accesses
    assert driver.wait(3) == c_driver.TIMEOUT
    assert machine.bus.accesses == before + 3
    assert driver.wait(0) == c_driver.TIMEOUT
    assert driver.wait(MANY) == c_driver.OK
    assert bytes(machine.storage.data) == setup.after


def test_stop(machine):
    driver, setup = machine.driver, layer()
    driver.load(machine.storage.data, setup.before)
    assert driver.start(job(setup)) == c_driver.OK
    assert driver.wait(20) == c_driver.TIMEOUT
    assert driver.stop(MANY) == c_driver.OK
    assert driver.wait(1) == c_driver.IDLE
    driver.load(machine.storage.data, setup.before)
    assert driver.start(job(setup)) == c_driver.OK
    assert driver.wait(MANY) == c_driver.OK
    assert bytes(machine.storage.data) == setup.after


def test_failures(machine):
    driver, setup = machine.driver, layer()
    driver.load(machine.storage.data, setup.before)
    machine.storage.data[setup.job.descriptor - BASE] ^= 1
    assert driver.start(job(setup)) == c_driver.OK
    assert driver.wait(MANY) == c_driver.FAILED
    assert driver.failure() == ("DESCRIPTOR", "SEQUENCER", 0)

    driver.load(machine.storage.data, setup.before)
    limit = min(at for at, _ in setup.outputs.values())
    assert driver.start(job(setup, limit=limit)) == c_driver.OK
    assert driver.wait(MANY) == c_driver.FAILED
    assert driver.failure() == ("WINDOW", "WRITER", 0)

    driver.load(machine.storage.data, setup.before)
    assert driver.start(job(setup)) == c_driver.OK
    assert driver.wait(MANY) == c_driver.OK
    assert driver.failure() == ("NONE", "SEQUENCER", 0)
    assert bytes(machine.storage.data) == setup.after


def test_bad_jobs_are_not_started(machine):
    driver, setup = machine.driver, layer()
    at = setup.job.descriptor
    for changes in (
        {"descriptor": at + 4},
        {"base": at + 256},
        {"limit": at + 255},
        {"limit": 0, "base": 0},
    ):
        before = machine.bus.accesses
        assert driver.start(job(setup, **changes)) == c_driver.BAD_JOB, changes
        assert machine.bus.accesses == before


def test_names(machine):
    assert machine.driver.name("error", 5) == "WATCHDOG"
    assert machine.driver.name("unit", 5) == "WRITER"
    for kind in ("error", "unit"):
        assert machine.driver.name(kind, 6) == machine.driver.name(kind, 255) == "UNKNOWN"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("id", 0xFFFF_FFFF, c_driver.NO_CORE),
        ("version", 0x0001_0002, c_driver.WRONG_VERSION),
        ("version", 0x0000_0003, c_driver.OK),
        ("lanes", 0x0001_0408, c_driver.WRONG_CONFIG),
        ("line_buffer_bytes", 4608, c_driver.WRONG_CONFIG),
        ("weight_buffer_bytes", 6144, c_driver.WRONG_CONFIG),
        ("bus_bytes", 0x0808, c_driver.WRONG_CONFIG),
    ],
)
def test_other_cores(tmp_path, name, value, status):
    values = {
        "id": int.from_bytes(b"TRIW", "little"),
        "version": 2,
        "lanes": 0x0001_0404,
        "line_buffer_bytes": 3072,
        "weight_buffer_bytes": 4096,
        "bus_bytes": 0x0804,
    }
    offsets = {REGISTERS[key].offset: number for key, number in {**values, name: value}.items()}

    def read(address):
        return offsets[address - c_driver.REGISTERS_AT]

    def write(address, value):
        raise AssertionError("nothing is written")

    assert CDriver(tmp_path, TINY, read, write).open() == status


def test_plain_registers(tmp_path):
    """Without hooks the registers are memory: there the driver finds what was put there."""
    c_driver.write_sources(tmp_path, TINY)
    library = tmp_path / "libplain.so"
    command = ["cc", *c_driver.STRICT, "-O2", "-fPIC", "-shared", "-ffreestanding"]
    command += [str(tmp_path / "trirow.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    registers = (ctypes.c_uint32 * 64)()
    core = c_driver.Core()
    functions = ctypes.CDLL(str(library))
    at = ctypes.c_void_p(ctypes.addressof(registers))
    assert functions.trirow_open(ctypes.byref(core), at) == c_driver.NO_CORE
    registers[REGISTERS["id"].offset // 4] = int.from_bytes(b"TRIW", "little")
    assert functions.trirow_open(ctypes.byref(core), at) == c_driver.WRONG_CONFIG
    start = Job(0x1000, 0x1000, 0x2000, 77, 1)
    assert functions.trirow_start(ctypes.byref(core), ctypes.byref(start)) == c_driver.OK
    names = ("descriptor", "base", "limit", "watchdog", "control")
    values = [registers[REGISTERS[name].offset // 4] for name in names]
    assert values == [0x1000, 0x1000, 0x2000, 77, 0x101]


def test_example_of_the_documentation(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "export.md"
    example = re.search(r"^```c\n(.*?)^```", page.read_text(), re.M | re.S)[1]
    c_driver.write_sources(tmp_path, TINY)
    (tmp_path / "example.c").write_text(example)
    command = ["cc", *c_driver.STRICT, "-c", str(tmp_path / "example.c"), "-o"]
    subprocess.run([*command, str(tmp_path / "example.o")], check=True)


def test_needs_no_library(tmp_path):
    c_driver.write_sources(tmp_path, TINY)
    linked = tmp_path / "alone.so"
    command = ["cc", "-std=c99", "-O3", "-fPIC", "-ffreestanding", "-fno-stack-protector"]
    command += ["-nostdlib", "-shared", "-Wl,-z,defs", str(tmp_path / "trirow.c"), "-o"]
    subprocess.run([*command, str(linked)], check=True)

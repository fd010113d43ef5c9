"""The C driver, compiled for this machine, with a simulated core behind its registers."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import trirow_driver
from trirow_hw.config import Config
from trirow_hw.export import register_header
from trirow_hw.supervisor import COUNTERS
from trirow_sim.compiled import CompiledEngine

DRIVER = Path(trirow_driver.__file__).parent / "c"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion")
#: Where the registers are.
REGISTERS_AT = 0x4000_0000

#: In the order of the header.
OK, NO_CORE, WRONG_VERSION, WRONG_CONFIG, BAD_JOB, BUSY, TIMEOUT, FAILED, IDLE = range(9)

_U32 = ctypes.c_uint32
_READ = ctypes.CFUNCTYPE(_U32, _U32)
_WRITE = ctypes.CFUNCTYPE(None, _U32, _U32)


class Core(ctypes.Structure):
    _fields_ = (("registers", ctypes.c_void_p),)


class Job(ctypes.Structure):
    _fields_ = (
        *((name, _U32) for name in ("descriptor", "base", "limit", "watchdog")),
        ("interrupt", ctypes.c_int),
    )


class Failure(ctypes.Structure):
    _fields_ = (("code", _U32), ("unit", _U32), ("pass_", _U32))


class Counters(ctypes.Structure):
    _fields_ = tuple((name, _U32) for name in COUNTERS)


class CDriver:
    """The driver's functions; `read` and `write` stand for the bus to the registers."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        read: Callable[[int], int],
        write: Callable[[int, int], None],
    ) -> None:
        library = ctypes.CDLL(str(_compile(folder, config)))
        self._callbacks = _READ(read), _WRITE(write)
        for name, callback in zip(("read", "write"), self._callbacks, strict=True):
            ctypes.c_void_p.in_dll(library, f"simulated_{name}").value = ctypes.cast(
                callback, ctypes.c_void_p
            ).value
        self._library = library
        library.trirow_get_failure.restype = Failure
        library.trirow_get_counters.restype = Counters
        library.trirow_passes.restype = _U32
        library.trirow_acknowledge.restype = None
        library.trirow_load.restype = None
        for name in ("error", "unit"):
            getattr(library, f"trirow_{name}_name").restype = ctypes.c_char_p
        self.core = Core()

    def open(self) -> int:
        at = ctypes.c_void_p(REGISTERS_AT)
        return self._library.trirow_open(ctypes.byref(self.core), at)

    def load(self, memory: bytearray, image: bytes) -> None:
        target = (ctypes.c_uint8 * len(memory)).from_buffer(memory)
        self._library.trirow_load(target, image, ctypes.c_size_t(len(image)))

    def start(self, job: Job) -> int:
        return self._call("start", ctypes.byref(job))

    def wait(self, polls: int) -> int:
        return self._call("wait", _U32(polls))

    def stop(self, polls: int) -> int:
        return self._call("stop", _U32(polls))

    def acknowledge(self) -> None:
        self._call("acknowledge")

    def failure(self) -> tuple[str, str, int]:
        failure = self._call("get_failure")
        return self.name("error", failure.code), self.name("unit", failure.unit), failure.pass_

    def counters(self) -> dict[str, int]:
        counters = self._call("get_counters")
        return {name: getattr(counters, name) for name in COUNTERS}

    def passes(self) -> int:
        return self._call("passes")

    def name(self, kind: str, number: int) -> str:
        return getattr(self._library, f"trirow_{kind}_name")(_U32(number)).decode()

    def _call(self, name: str, *arguments: object) -> object:
        return getattr(self._library, f"trirow_{name}")(ctypes.byref(self.core), *arguments)


class SimulatedBus:
    """Access to the registers of a compiled engine, by address."""

    def __init__(self, engine: CompiledEngine) -> None:
        self._engine = engine
        self.accesses = 0

    def read(self, address: int) -> int:
        value = _U32()
        self._access("read", address, ctypes.byref(value))
        return value.value

    def write(self, address: int, value: int) -> None:
        self._access("write", address, value)

    def until_interrupt(self, cycles: int) -> bool:
        """Let cycles pass until the interrupt is up; False if it did not come."""
        found = ctypes.c_int()
        assert not self._engine._library.trirow_run(
            self._engine._handle, cycles, ctypes.byref(found)
        )
        return bool(found.value)

    def _access(self, kind: str, address: int, value: object) -> None:
        assert 0 <= address - REGISTERS_AT < 256
        self.accesses += 1
        function = getattr(self._engine._library, f"trirow_{kind}")
        assert not function(self._engine._handle, address - REGISTERS_AT, value)


def write_sources(folder: Path, config: Config) -> None:
    """Put the driver and its generated header into a folder."""
    for path in DRIVER.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "trirow_registers.h").write_text(register_header(config))


def _compile(folder: Path, config: Config) -> Path:
    write_sources(folder, config)
    (folder / "simulated.c").write_text(
        '#include "trirow.h"\n'
        "uint32_t (*simulated_read)(uint32_t address);\n"
        "void (*simulated_write)(uint32_t address, uint32_t value);\n"
    )
    header = Path(__file__).with_name("simulated_io.h")
    library = folder / "libdriver.so"
    command = ["cc", *STRICT, "-O2", "-fPIC", "-shared", f'-DTRIROW_IO_HEADER="{header}"']
    command += [f"{folder}/trirow.c", f"{folder}/simulated.c", "-o", str(library)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"{shlex.join(command)}\n{result.stderr}"
    return library

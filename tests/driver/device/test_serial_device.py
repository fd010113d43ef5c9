"""The device behind a pseudo-terminal, and a line that loses bytes."""

import contextlib
import os
import random
import sys
import time

import pytest

from trirow_driver.device import DeviceError, SerialDevice
from trirow_hw.config import PRESETS
from trirow_hw.registers import REGISTERS
from trirow_sim.bridge_model import BridgeModel, Noise, on_terminal
from trirow_sim.memory import Memory

pytest.importorskip("serial", reason="pyserial is not installed")

BASE = 0x1000


def registers(preset="tiny", **changes):
    """Return what the registers of an accelerator read as, by offset; see docs/registers.md."""
    c = PRESETS[preset]
    words = {
        "id": 0x57495254,
        "version": 2,
        "lanes": c.in_lanes | c.out_lanes << 8 | c.post_lanes << 16,
        "line_buffer_bytes": c.line_buffer_bytes,
        "weight_buffer_bytes": c.weight_buffer_bytes,
        "bus_bytes": c.bus_bytes | c.weight_bits << 8,
    }
    return {REGISTERS[name].offset: value for name, value in (words | changes).items()}


@contextlib.contextmanager
def board(preset="tiny", *, rate=0.0, seed=0, model=None, **device):
    """Give a device and its board."""
    model = model or BridgeModel(Memory(1 << 20, base=BASE), registers(preset))
    lines = [Noise(seed + k, rate).through for k in range(2)]
    with on_terminal(model, to_board=lines[0], to_host=lines[1]) as port:
        with SerialDevice(port, **{"timeout": 0.1} | device) as opened:
            yield opened, model


def test_memory_and_registers():
    data = random.Random(1).randbytes(70_000)
    with board(timeout=2.0) as (device, model):
        device.write(BASE + 5, data)
        assert model._memory.read(BASE, 70_010) == bytes(5) + data + bytes(5)
        assert device.read(BASE + 5, 70_000) == data
        assert device.read(BASE, 0) == b""
        device.write(BASE, b"")
        device.write_register("descriptor", 0xFFFFFF00)
        assert device.read_register("descriptor") == 0xFFFFFF00
        assert device.repeated == 0
        assert device.identity.bus_bytes == 4


@pytest.mark.parametrize("seed", range(4))
def test_noise_on_both_ways(seed):
    rng = random.Random(seed)
    data = rng.randbytes(20_000)
    with board(rate=1e-4 * (1 + seed), seed=seed) as (device, model):
        device.write(BASE + seed, data)
        for value in range(30):
            device.write_register("control", value)
        assert device.read(BASE + seed, len(data)) == data
    # Each write was executed exactly once, in order.
    written = [content for kind, _, content in model.executed if kind == 3]
    assert written == [value.to_bytes(4, "little") for value in range(30)]
    blocks = [content for kind, _, content in model.executed if kind == 1]
    assert b"".join(blocks) == data


def test_a_silent_board_is_reported_in_time():
    board_end, host_end = os.openpty()
    began = time.monotonic()
    with pytest.raises(DeviceError, match=r"^/dev/[^:]*: the board does not answer; check port"):
        SerialDevice(os.ttyname(host_end), timeout=0.02)
    assert time.monotonic() - began < 2
    os.close(board_end)
    os.close(host_end)


def test_a_board_that_is_gone():
    model = BridgeModel(Memory(64), registers())
    with on_terminal(model) as port:
        device = SerialDevice(port, timeout=0.1)
    with pytest.raises(DeviceError, match=f"^{port}: .*; check that the board is connected"):
        device.read(0, 4)
    device.close()


def test_no_such_port():
    with pytest.raises(
        DeviceError, match=r"^/dev/nothing: cannot be opened: No such file .*; check the name"
    ) as info:
        SerialDevice("/dev/nothing")
    assert "\n" not in str(info.value)


def test_without_pyserial(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(DeviceError, match=r"pip install 'trirow\[serial\]'"):
        SerialDevice("/dev/nothing")


def test_bytes_left_from_before_do_no_harm():
    model = BridgeModel(Memory(64, base=BASE), registers())
    with on_terminal(model) as port:
        with open(os.open(port, os.O_RDWR | os.O_NOCTTY), "wb", buffering=0) as earlier:
            earlier.write(b"\x5a\x01\x02")
        with SerialDevice(port, timeout=0.1) as device:
            device.write(BASE, b"1234")
            assert device.read(BASE, 4) == b"1234"


def test_configuration_is_checked():
    wanted = PRESETS["tiny"].to_dict()
    with board(configuration=wanted):
        pass
    for field, value in (("in_lanes", 8), ("weight_buffer_bytes", 99), ("bus_bytes", 16)):
        text = f": board has {field} {wanted[field]}, image wants {value}; "
        with pytest.raises(DeviceError, match=text):
            with board(configuration=wanted | {field: value}):
                pass


@pytest.mark.parametrize(
    ("register", "value", "text"),
    [
        ("id", 0, "register id is 0x00000000, not 0x57495254: no Trirow is there"),
        ("version", 0x10002, "register map has version 1.2, not 0.2"),
        ("version", 1, "register map has version 0.1, not 0.2"),
    ],
)
def test_another_accelerator_is_refused(register, value, text):
    model = BridgeModel(Memory(64), registers(**{register: value}))
    with pytest.raises(DeviceError, match=text):
        with board(model=model, configuration={}):
            pass


@pytest.mark.parametrize(("address", "size"), [(-1, 1), (0xFFFFFFFF, 2), (0, -1)])
def test_ranges_that_do_not_exist(address, size):
    with board() as (device, _):
        with pytest.raises(ValueError, match="are not within 32 bits of address"):
            device.read(address, size)

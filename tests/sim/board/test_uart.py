"""The host's end of the line, in C++, against a plain drawing of the line."""

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

import trirow_sim
from trirow_sim.compiled import ToolchainError, find_toolchain

HEADER = Path(trirow_sim.__file__).with_name("board") / "uart.hpp"
SOURCE = f"""
#include "{HEADER}"
#include <cstring>
using namespace trirow;
extern "C" void send(double bit, const unsigned char* data, long size, long pause, long cycles,
                     unsigned char* levels) {{
    UartSender sender(bit);
    sender.push(data, size / 2);
    for (long k = 0; k < cycles; ++k) {{
        if (k == pause) sender.push(data + size / 2, size - size / 2);
        levels[k] = sender.level(k);
    }}
}}
extern "C" long receive(double bit, const unsigned char* levels, long cycles, unsigned char* data,
                        long most, char* error) {{
    UartReceiver receiver(bit);
    error[0] = 0;
    for (long k = 0; k < cycles; ++k)
        if (!receiver.step(levels[k], k)) {{
            std::strcpy(error, receiver.error().c_str());
            break;
        }}
    return static_cast<long>(receiver.pull(data, most));
}}
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    try:
        compiler = find_toolchain().compiler
    except ToolchainError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("uart")
    source, library = folder / "uart.cpp", folder / "uart.so"
    source.write_text(SOURCE)
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    text, long, real = ctypes.c_char_p, ctypes.c_long, ctypes.c_double
    loaded.send.argtypes = [real, text, long, long, long, text]
    loaded.receive.argtypes = [real, text, long, text, long, text]
    loaded.receive.restype = long
    return loaded


def drawn(data, bit, cycles, begin=0.0):
    """Return the level in each cycle of bytes without a gap, the first bit of which begins then."""
    levels = []
    for cycle in range(cycles):
        byte, place = divmod(int((cycle - begin) // bit), 10)
        if cycle < begin or byte >= len(data):
            levels.append(1)
        else:
            levels.append((1 << 9 | data[byte] << 1) >> place & 1)
    return levels


def received(lib, levels, bit):
    data, error = ctypes.create_string_buffer(1000), ctypes.create_string_buffer(200)
    count = lib.receive(bit, bytes(levels), len(levels), data, 1000, error)
    return data.raw[:count], error.value.decode()


@pytest.mark.parametrize("bit", [8.0, 33.337, 26.713, 9.737])
def test_sender_draws_the_line(lib, bit):
    """Two bursts, with a pause between them; each bit in the cycles that begin within it."""
    data = random.Random(str(bit)).randbytes(60)
    pause = int(30 * 10 * bit) + 57
    cycles = pause + int(31 * 10 * bit)
    levels = ctypes.create_string_buffer(cycles)
    lib.send(bit, data, 60, pause, cycles, levels)
    exact = drawn(data[:30], bit, pause) + drawn(data[30:], bit, cycles - pause)
    assert list(levels.raw) == exact


@pytest.mark.parametrize("speed", [0.97, 1.0, 1.03])
@pytest.mark.parametrize("bit", [8.0, 100 / 3, 80 / 3])
def test_receiver_takes_every_byte(lib, bit, speed):
    """Also from a sender whose clock is 3 % faster or slower, byte for byte."""
    dice = random.Random(f"{bit} {speed}")
    data, levels = dice.randbytes(50), []
    for byte in data:
        levels += drawn([byte], bit * speed, int(10 * bit * speed) + dice.randrange(1, 9))
    assert received(lib, [*levels, 1, 1], bit) == (data, "")


@pytest.mark.parametrize(
    ("levels", "error"),
    [
        ([1] * 5 + [0] * 300, "cycle 5: UART: the board sent no stop bit"),
        ([1] * 7 + [0] * 2 + [1] * 300, "cycle 7: UART: the board sent no start bit"),
    ],
)
def test_receiver_reports_a_wrong_frame(lib, levels, error):
    assert received(lib, levels, 20.0) == (b"", error)

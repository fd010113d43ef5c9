"""The pseudo-terminal and the clock of a simulated board."""

import os
import random
import time

import pytest

from trirow_driver.device import SerialDevice
from trirow_driver.device.frames import Request
from trirow_hw.boards.top import LEDS
from trirow_hw.bridge.protocol import Kind
from trirow_sim.board.simulated import SimulatedBoard

from .kit import TINY

SILENCE_CYCLES = 2_000_000  # 20 ms


@pytest.fixture
def board(compiled_cache):
    pytest.importorskip("serial")
    with SimulatedBoard(TINY) as board:
        yield board


def device(board):
    return SerialDevice(board.port, TINY.baud, timeout=60)


def still(board, patience=50.0):
    """Wait until the clock stands still; return the cycle."""
    end = time.monotonic() + patience
    before = None
    while (cycle := board.model.cycles) != before:
        assert time.monotonic() < end
        before = cycle
        time.sleep(0.5)
    return cycle


def send(board, data):
    line = os.open(board.port, os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(line, data)
    finally:
        os.close(line)


def test_clock_stands_still_when_nothing_is_to_do(board):
    """It runs until the chip is initialised, and stops."""
    cycle = still(board)
    assert cycle < 20_000
    assert board.model.leds == 1 << LEDS.index("ready")
    began = time.thread_time(), time.process_time()
    time.sleep(0.3)
    assert time.process_time() - began[1] < 0.1
    assert board.model.cycles == cycle


def test_memory_and_reopening(board):
    """What is written is in the chip, and another program reads it."""
    data = random.Random(1).randbytes(1500)
    with device(board) as one:
        assert one.identity.clock_hz == TINY.clock_hz
        one.write(0x12345, data)
    with device(board) as two:
        assert two.read(0x12345, len(data)) == data
        assert two.repeated == 0
    assert board.model.memory.read(0x12345, len(data)) == data


@pytest.mark.parametrize("seed", range(3))
def test_garbage_before_the_first_request(board, seed):
    """Among it bytes that a frame begins with."""
    dice = random.Random(seed)
    garbage = dice.randbytes(40) + bytes([0x5A]) + dice.randbytes(dice.randrange(6))
    send(board, garbage)
    with SerialDevice(board.port, TINY.baud, timeout=3) as user:
        user.write(0x100, garbage)
        assert user.read(0x100, len(garbage)) == garbage


def test_half_a_frame_is_forgotten(board):
    """The clock runs on until the board has forgotten it, and stops then."""
    begin = still(board)
    send(board, Request(Kind.WRITE, 0, 512, bytes(512)).frame(0, 0)[:100])
    assert still(board) - begin > SILENCE_CYCLES
    with device(board) as user:
        assert user.repeated == 0
        assert user.read(0, 16) == bytes(16)

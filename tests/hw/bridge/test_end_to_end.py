# amaranth: UnusedElaboratable=no
"""The driver, through a pseudo-terminal, on the gateware."""

import os
import queue
import random
import select
import threading
import tty

import pytest

from trirow_driver.device import SerialDevice
from trirow_driver.device.frames import Request
from trirow_driver.device.link import Link
from trirow_hw.bridge.protocol import Kind
from trirow_sim.bridge_model import Noise
from trirow_sim.stream_kit import run


class Terminal:
    """Carries bytes between a pseudo-terminal and the pins; to be run in the background."""

    def __init__(self, pins):
        self._pins = pins
        self._board, self._host = os.openpty()
        tty.setraw(self._host)
        self.port = os.ttyname(self._host)
        self._sent = 0

    async def __call__(self, ctx):
        pins = self._pins
        while True:
            await ctx.delay(100e-6)
            ready, _, _ = select.select([self._board], [], [], 0)
            if ready:
                pins.send(os.read(self._board, 4096))
            if len(pins.received) > self._sent:
                self._sent += os.write(self._board, pins.received[self._sent :])

    def close(self):
        os.close(self._board)
        os.close(self._host)


def run_beside(bench, host):
    """Run a host in a thread until it ends, and the bench meanwhile."""
    failures = []

    def guarded():
        try:
            host()
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)

    async def until_the_host_is_done(ctx):
        await ctx.delay(1e-4)
        thread.start()
        while thread.is_alive():
            await ctx.delay(1e-3)

    run(bench.dut, until_the_host_is_done, background=bench.background, max_cycles=1_000_000)
    if failures:
        raise failures[0]


def test_driver_and_gateware(bench):
    pytest.importorskip("serial", reason="pyserial is not installed")
    b = bench(seed=5)
    data = random.Random(1).randbytes(600)
    terminal = Terminal(b.pins)
    b.background.append(terminal)
    facts = {}

    def host():
        # The simulated line is a thousand times slower than a real one.
        with SerialDevice(terminal.port, timeout=100) as device:
            facts["identity"] = device.identity
            device.write(0x1003, data)
            facts["read"] = device.read(0x1003, 600)
            device.write_register("descriptor", 0x89ABCDEF)
            facts["descriptor"] = device.read_register("descriptor")
            facts["id"] = device.read_register("id")
            facts["repeated"] = device.repeated

    try:
        run_beside(b, host)
    finally:
        terminal.close()
    assert facts["identity"].clock_hz == 24_000_000
    assert facts["read"] == data
    assert b.memory.read(0x1003, 600) == data
    assert (facts["descriptor"], facts["id"]) == (0x89ABCDEF, 0x57495254)
    assert b.registers.writes == [(0x14, 0x89ABCDEF)]
    assert facts["repeated"] == 0


class NoisyLine:
    """A line to the pins in simulated time; `carry` is to be run in the background.

    It receives until nothing has come for longer than the bridge's silence, so the wall clock,
    which differs from run to run, decides nothing.
    """

    name = "noisy"

    def __init__(self, pins, seed):
        self._pins = pins
        self._noise = [Noise(seed, 0.01), Noise(seed + 1000, 0.01)]
        self._to_send = queue.SimpleQueue()
        self._asked = threading.Event()
        self._quiet = queue.SimpleQueue()

    def send(self, data):
        self._to_send.put(self._noise[0].through(data))

    def receive(self, seconds):
        self._asked.set()
        return self._noise[1].through(self._quiet.get(timeout=300))

    async def carry(self, ctx):
        pins = self._pins
        while True:
            await ctx.delay(500e-6)
            if not self._asked.is_set():
                continue
            while not self._to_send.empty():
                pins.send(self._to_send.get())
            before = -1
            while pins.to_board or before < len(pins.received):
                before = len(pins.received)
                await ctx.delay(3000e-6)
            received = bytes(pins.received)
            pins.received.clear()
            self._asked.clear()
            self._quiet.put(received)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_noise_on_both_ways(bench, seed):
    b = bench(seed=seed)
    line = NoisyLine(b.pins, seed)
    b.background.append(line.carry)
    facts = {}

    def host():
        link = Link(line, timeout=1e-6)  # what is not there after a receive is lost
        writes = [Request(Kind.REGISTER_WRITE, 0x14, 4, bytes((n, 1, 2, 3))) for n in range(12)]
        list(link.execute(writes))
        list(link.execute([Request(Kind.WRITE, 0x1001, 9, b"some data")]))
        facts["read"] = list(link.execute([Request(Kind.READ, 0x1000 + n, 4) for n in range(4)]))
        facts["repeated"] = link.repeated

    run_beside(b, host)
    assert facts["repeated"] > 0
    assert [value for _, value in b.registers.writes] == [0x03020100 + n for n in range(12)]
    assert len(b.port.writes) == 1
    assert facts["read"] == [b"\0som", b"some", b"ome ", b"me d"]

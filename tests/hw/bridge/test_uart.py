# amaranth: UnusedElaboratable=no
import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trirow_hw.bridge.uart import BitRate, UartReceiver, UartTransmitter
from trirow_sim.stream_kit import run, send
from trirow_sim.uart_kit import UartPins


class Line(wiring.Component):
    """Receiver and transmitter with the pins that UartPins expects."""

    def __init__(self, clock_hz, baud):
        self.receiver = UartReceiver(clock_hz=clock_hz, baud=baud)
        self.transmitter = UartTransmitter(clock_hz=clock_hz, baud=baud)
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules += [self.receiver, self.transmitter]
        m.d.comb += [self.receiver.rx.eq(self.rx), self.tx.eq(self.transmitter.tx)]
        return m


def receive(items, clock_hz, *, baud=3_000_000, off=1.0):
    """Return what the receiver makes of items of UartPins: bytes, and None for an error."""
    dut = Line(clock_hz, baud)
    pins = UartPins(dut, clock_hz / baud * off)
    pins.to_board.extend(items)
    bits = sum(10 if not isinstance(item, float) else 0 for item in items) + 20
    pauses = sum(item for item in items if isinstance(item, float))
    cycles = int(bits * clock_hz / baud * off + pauses)
    received = []

    async def testbench(ctx):
        receiver = dut.receiver
        for _ in range(cycles):
            _, _, valid, error, data = await ctx.tick().sample(
                receiver.valid, receiver.error, receiver.data
            )
            assert not (valid and error)
            if valid or error:
                received.append(data if valid else None)

    run(dut, testbench, background=[pins.drive], max_cycles=cycles + 10)
    return received


@pytest.mark.parametrize("clock_hz", [24_000_000, 50_000_000, 66_000_000, 100_000_000, 130_000_000])
@pytest.mark.parametrize("off", [0.97, 1.0, 1.03])
def test_receives_at_any_clock(clock_hz, off):
    data = [0x00, 0xFF, 0x55, *random.Random(clock_hz).randbytes(5)]
    assert receive(data, clock_hz, off=off) == data


def test_missing_stop_bit_is_an_error_and_the_next_byte_is_right():
    assert receive([0x31, None, 0x32, 0x33], 50_000_000) == [0x31, None, 0x32, 0x33]


def test_pauses_of_any_length():
    items = [1, 3.3, 2, 100.7, 3, 17.1, 4]
    assert receive(items, 50_000_000) == [1, 2, 3, 4]


def test_pulse_shorter_than_half_a_bit_is_no_start_bit():
    dut = Line(50_000_000, 3_000_000)
    seen = []

    async def testbench(ctx):
        ctx.set(dut.rx, 0)
        await ctx.tick().repeat(6)
        ctx.set(dut.rx, 1)
        for _ in range(250):
            _, _, valid, error = await ctx.tick().sample(dut.receiver.valid, dut.receiver.error)
            seen.append(valid or error)

    run(dut, testbench, max_cycles=300)
    assert not any(seen)


@pytest.mark.parametrize("clock_hz", [24_000_000, 50_000_000, 100_000_000, 130_000_000])
def test_sends_without_gaps(clock_hz):
    data = random.Random(clock_hz).randbytes(8)
    cycles_per_bit = clock_hz / 3_000_000
    dut = Line(clock_hz, 3_000_000)
    pins = UartPins(dut, cycles_per_bit)

    async def testbench(ctx):
        await send(ctx, dut.transmitter.i, [*data])
        while len(pins.received) < len(data):
            await ctx.tick()

    cycles = run(dut, testbench, background=[pins.watch], max_cycles=int(90 * cycles_per_bit) + 60)
    assert pins.received == data
    assert pins.failures == 0
    # A bit at most passes before the first byte begins; the last one ends with its stop bit.
    assert cycles <= (10 * len(data) + 1) * cycles_per_bit + 10


@pytest.mark.parametrize("clock_hz", range(50_000_000, 131_000_000, 7_000_000))
@pytest.mark.parametrize("baud", [115_200, 1_000_000, 3_000_000])
def test_rate_is_right(clock_hz, baud):
    rate = BitRate(clock_hz=clock_hz, baud=baud)
    assert abs(rate.step / (1 << rate.bits) * clock_hz / baud - 1) < 0.002


def test_wrong_rates():
    with pytest.raises(ValueError, match=r"clock_hz must be at least 8 \* 3000000 baud, not 23"):
        BitRate(clock_hz=23_000_000, baud=3_000_000)
    with pytest.raises(ValueError, match="baud must be at least 1, not 0"):
        BitRate(clock_hz=23_000_000, baud=0)

"""Run a DDR image on the accelerator in Amaranth's own simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from amaranth.hdl import Cat
from amaranth.sim import Simulator

from trirow_hw.accelerator import Accelerator
from trirow_hw.config import Config
from trirow_hw.errors import ErrorCode, Unit
from trirow_hw.registers import REGISTERS
from trirow_hw.supervisor import COUNTERS
from trirow_sim.axi import AxiChecker, AxiMaster, AxiSlave
from trirow_sim.job import (
    HOST_PATIENCE,
    INTERRUPT_ENABLE,
    RESET,
    START,
    Job,
    Landing,
    RunResult,
)
from trirow_sim.memory import MemoryModel
from trirow_sim.probe import (
    DETAIL_BITS,
    TRACK_BITS,
    TRACKS,
    detail_value,
    running_value,
    track_values,
    what_waits,
)
from trirow_sim.trace import Timeline

__all__ = ["PysimEngine"]

CLOCK_PERIOD = 1e-8
# Flags of the control bus as they are sampled.
_AWREADY, _BVALID, _ARREADY, _RVALID = 1, 2, 4, 8


class PysimEngine:
    """The accelerator with a memory model on its bus and a host on its registers.

    Parameters
    ----------
    config : Config
        What is simulated.
    model : MemoryModel
        Memory; its rules are checked in every cycle.
    vcd : path, optional
        Where waveforms of all signals go.
    progress : callable, optional
        Called now and then with the bytes written and the cycles so far.
    timeline : Timeline, optional
        Is given what each unit does in each cycle of the runs.

    Raises
    ------
    AxiViolation
        From `run`, if either side of the bus breaks a rule.
    TimeoutError
        From `run`, if the host waits in vain for the accelerator; the text says what waits.
    """

    def __init__(
        self,
        config: Config,
        model: MemoryModel,
        *,
        vcd: Path | None = None,
        progress: Callable[[int, int], None] | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.accelerator = Accelerator(config=config)
        self.model = model
        self.checker = AxiChecker(config.bus_bytes)
        self._vcd = vcd
        self._progress = progress
        self._timeline = timeline
        self._master = AxiMaster()
        bus = self.accelerator.memory
        self._slave_flags = Cat(
            bus.arready,
            bus.rvalid,
            bus.rlast,
            bus.rresp,
            bus.awready,
            bus.wready,
            bus.bvalid,
            bus.bresp,
        )
        self._flags = self._rdata = 0
        self._cycles = self._control = self._interrupt = 0
        self._landed: list[Landing] = []
        self._began = 0.0
        self._written = 0
        self._probed = 0  # in the last cycle of a run

    def run(self, jobs: Iterable[Job], *, max_cycles: int = 1 << 62) -> list[RunResult]:
        """Run jobs one after the other on the same accelerator and memory.

        Parameters
        ----------
        jobs : iterable of Job
            Taken one by one, so that a generator can change the memory between them.
        max_cycles : int
            Cycles of simulation in all after which to give up.
        """
        results: list[RunResult] = []
        self._max_cycles = max_cycles

        async def host(ctx: Any) -> None:
            self._sampler = ctx.tick().sample(*self._watch())
            ctx.set(self.accelerator.control.bready, 1)
            self._drive(ctx, self.model.slave)
            for job in jobs:
                results.append(await self._run_job(ctx, job))

        simulator = Simulator(self.accelerator)
        simulator.add_clock(CLOCK_PERIOD)
        with ExitStack() as stack:
            if self._vcd is not None:
                stack.enter_context(simulator.write_vcd(str(self._vcd)))
            simulator.add_testbench(host)
            simulator.run()
        return results

    async def _run_job(self, ctx: Any, job: Job) -> RunResult:
        result = RunResult()
        for name in ("descriptor", "base", "limit", "watchdog"):
            await self._write(ctx, name, getattr(job, name))
        self._began = time.perf_counter()
        await self._write(ctx, "control", START | INTERRUPT_ENABLE)
        self._landed = result.landed  # from here on; the count of the run before is gone by now
        first = self._cycles
        await self._cycle(ctx)
        while not self._interrupt:
            await self._cycle(ctx)
            if job.reset_at is not None and self._cycles - first >= job.reset_at:
                await self._write(ctx, "control", RESET)
                break
            if self._progress is not None and self._cycles % 256 == 0:
                self._progress(self._written, self._cycles)
        result.seconds = time.perf_counter() - self._began
        error = await self._read(ctx, "error")
        result.error, result.index = ErrorCode(error & 0xFF), error >> 16
        result.unit = Unit(error >> 8 & 0xFF)
        if result.error is ErrorCode.WATCHDOG:
            result.waiting = self._waiting()
        while await self._read(ctx, "status") & 1:
            pass
        for name in COUNTERS:
            result.counters[name] = await self._read(ctx, name)
        return result

    def _watch(self) -> tuple[Any, ...]:
        """Return what is sampled in every cycle: flags and landed passes, addresses, data."""
        bus, control = self.accelerator.memory, self.accelerator.control
        supervisor = self.accelerator.supervisor
        return (
            Cat(
                bus.arvalid,
                bus.rready,
                bus.awvalid,
                bus.wvalid,
                bus.wlast,
                bus.bready,
                control.awready,
                control.bvalid,
                control.arready,
                control.rvalid,
                self.accelerator.interrupt,
                supervisor.passes_landed,
            ),
            Cat(bus.araddr, bus.arlen, bus.arsize, bus.arburst),
            Cat(bus.awaddr, bus.awlen, bus.awsize, bus.awburst),
            bus.wdata,
            bus.wstrb,
            Cat(
                running_value(self.accelerator),
                detail_value(self.accelerator),
                *track_values(self.accelerator),
            ),
        )

    async def _cycle(self, ctx: Any) -> None:
        """Let a cycle pass: sample what the accelerator drives, step and drive the memory."""
        _, _, flags, read, write, data, strobes, probed = await self._sampler
        master, slave = self._master, self.model.slave
        master.arvalid = flags & 1
        master.rready = flags >> 1 & 1
        master.awvalid = flags >> 2 & 1
        master.wvalid = flags >> 3 & 1
        master.wlast = flags >> 4 & 1
        master.bready = flags >> 5 & 1
        if master.arvalid:
            master.araddr, master.arlen = read & 0xFFFF_FFFF, read >> 32 & 0xFF
            master.arsize, master.arburst = read >> 40 & 7, read >> 43
        if master.awvalid:
            master.awaddr, master.awlen = write & 0xFFFF_FFFF, write >> 32 & 0xFF
            master.awsize, master.awburst = write >> 40 & 7, write >> 43
        master.wdata, master.wstrb = data, strobes
        if master.wvalid and slave.wready:
            self._written += strobes.bit_count()
        self._control = flags >> 6 & 0xF
        self._interrupt = flags >> 10 & 1
        if flags >> 11 > len(self._landed):
            self._landed.append(self._landing(ctx))
        if probed & 1:
            self._probed = probed
            if self._timeline is not None:
                self._timeline.step(self._tracks())

        self.checker.check(master, slave)
        self.model.step(master)
        self._drive(ctx, self.model.slave)
        self._cycles += 1
        if self._cycles >= self._max_cycles:
            raise TimeoutError(
                f"the run did not end within {self._max_cycles} cycles: {self._waiting()}"
            )

    def _tracks(self) -> list[int]:
        """Return the values of the tracks in the last cycle of a run."""
        values = self._probed >> 1 + DETAIL_BITS
        mask = (1 << TRACK_BITS) - 1
        return [values >> TRACK_BITS * k & mask for k in range(len(TRACKS))]

    def _waiting(self) -> str:
        """Return what waited in the last cycle of a run."""
        return what_waits(self._tracks(), self._probed >> 1 & (1 << DETAIL_BITS) - 1)

    def _landing(self, ctx: Any) -> Landing:
        """Return the counters as they are at the end of the cycle."""
        counters = zip(COUNTERS, self.accelerator.supervisor.counters, strict=True)
        values = {name: int(ctx.get(counter)) for name, counter in counters}
        return Landing(values, time.perf_counter() - self._began)

    def _drive(self, ctx: Any, slave: AxiSlave) -> None:
        """Set the memory's side of the bus, as far as it changes."""
        flags = (
            slave.arready
            | slave.rvalid << 1
            | slave.rlast << 2
            | slave.rresp << 3
            | slave.awready << 5
            | slave.wready << 6
            | slave.bvalid << 7
            | slave.bresp << 8
        )
        if flags != self._flags:
            self._flags = flags
            ctx.set(self._slave_flags, flags)
        if slave.rdata != self._rdata:
            self._rdata = slave.rdata
            ctx.set(self.accelerator.memory.rdata, slave.rdata)

    async def _write(self, ctx: Any, name: str, value: int) -> None:
        """Write a register over AXI4-Lite."""
        bus = self.accelerator.control
        ctx.set(bus.awaddr, REGISTERS[name].offset)
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, 0xF)
        ctx.set(bus.awvalid, 1)
        ctx.set(bus.wvalid, 1)
        await self._until(ctx, _AWREADY)
        ctx.set(bus.awvalid, 0)
        ctx.set(bus.wvalid, 0)
        await self._until(ctx, _BVALID)

    async def _read(self, ctx: Any, name: str) -> int:
        """Read a register over AXI4-Lite."""
        bus = self.accelerator.control
        ctx.set(bus.araddr, REGISTERS[name].offset)
        ctx.set(bus.arvalid, 1)
        await self._until(ctx, _ARREADY)
        ctx.set(bus.arvalid, 0)
        ctx.set(bus.rready, 0)
        while not ctx.get(bus.rvalid):
            await self._cycle(ctx)
        value = int(ctx.get(bus.rdata))
        ctx.set(bus.rready, 1)
        await self._until(ctx, _RVALID)
        return value

    async def _until(self, ctx: Any, flag: int) -> None:
        """Let cycles pass until one in which a flag of the control bus is up."""
        for _ in range(HOST_PATIENCE):
            await self._cycle(ctx)
            if self._control & flag:
                return
        raise TimeoutError("the registers do not answer")

"""A memory that fails on purpose."""

from trirow_sim.axi import AxiMaster, AxiSlave
from trirow_sim.memory.model import MemoryModel

__all__ = ["FaultyMemory"]


class FaultyMemory(MemoryModel):
    """Wrapper of any model: SLVERR for some addresses, no answer for some cycles.

    In the cycles c with stop_at <= c < resume_at all ready and valid of the memory are down, except
    that an R or B that was up in the cycle before and not taken stays up until it is taken, as AXI
    demands. Time goes on inside the model, which sees a master that drives nothing (but takes what
    stayed up). From `resume_at` on the memory drives what the model drives.

    Parameters
    ----------
    model : MemoryModel
        The model to wrap, not a FaultyMemory itself; it belongs to the wrapper from then on.
    read_errors, write_errors : range or None
        Beats that touch these addresses are answered with SLVERR; reads carry 0 there, writes are
        not stored. The response of a write burst is the highest of its beats.
    stop_at : int or None
        First cycle without an answer.
    resume_at : int or None
        First cycle with answers again; None: never.
    """

    __slots__ = ("_model", "_quiet", "_resume_at", "_silent", "_stop_at")

    def __init__(
        self,
        model: MemoryModel,
        *,
        read_errors: range | None = None,
        write_errors: range | None = None,
        stop_at: int | None = None,
        resume_at: int | None = None,
    ) -> None:
        if isinstance(model, FaultyMemory):
            raise TypeError("model must not be a FaultyMemory itself")
        for name, errors in (("read_errors", read_errors), ("write_errors", write_errors)):
            if errors is not None and (errors.step != 1 or not errors):
                raise ValueError(f"{name} must be a range of step 1 that is not empty: {errors!r}")
        if resume_at is not None and (stop_at is None or resume_at <= stop_at):
            raise ValueError(f"resume_at must be later than stop_at, not {resume_at!r}")
        super().__init__(model.memory, model.bus_bytes)
        model.read_errors = self.read_errors = read_errors
        model.write_errors = self.write_errors = write_errors
        self._model = model
        self._stop_at = stop_at
        self._resume_at = resume_at
        self._quiet = AxiMaster()
        self._silent = AxiSlave()
        self.cycle = model.cycle
        self.slave = self._silent if self._stopped() else model.slave

    def step(self, master: AxiMaster) -> None:
        """End the present cycle, in which the accelerator drove `master`, and begin the next."""
        shown = self.slave
        r_waits = shown.rvalid and not master.rready
        b_waits = shown.bvalid and not master.bready
        if shown is self._silent:
            quiet = self._quiet
            quiet.rready = shown.rvalid and master.rready
            quiet.bready = shown.bvalid and master.bready
            self._model.step(quiet)
        else:
            self._model.step(master)
        self.cycle += 1
        self.slave = inner = self._model.slave
        if self._stopped():
            self.slave = silent = self._silent
            silent.rvalid = 1 if r_waits else 0
            silent.rdata = inner.rdata
            silent.rresp = inner.rresp
            silent.rlast = inner.rlast
            silent.bvalid = 1 if b_waits else 0
            silent.bresp = inner.bresp

    def _stopped(self) -> bool:
        """Whether the present cycle is one without an answer."""
        return (
            self._stop_at is not None
            and self._stop_at <= self.cycle
            and (self._resume_at is None or self.cycle < self._resume_at)
        )

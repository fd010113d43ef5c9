"""Run simulations that do not depend on each other: one by one, in processes, on a cluster."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

from trirow_sim.simulate import RunError

__all__ = ["ClusterError", "MissingPackage", "WorkerLost", "run_all"]

#: Workers that an item may take with it before it is given up.
_LOSSES = 3
#: Seconds in which a scheduler has to answer.
_CONNECT = 10.0
#: Seconds without any worker after which a cluster is given up.
_PATIENCE = 60.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Keep = Callable[[int, Any], None]


class MissingPackage(RuntimeError):
    """A package that parallel work needs is not installed; the line says how to get it."""


class ClusterError(RuntimeError):
    """The cluster cannot be reached; the message is one line."""


class WorkerLost(RuntimeError):
    """An item was not computed: its process ended each time, or the cluster was lost."""


def run_all(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    on_result: Callable[[int, _Result | Exception], None] | None = None,
) -> list[_Result | Exception]:
    """Call a function with each item, and return the results in the order of the items.

    An exception becomes the result of its item and does not end the others. An item whose worker is
    lost (killed, out of memory, switched off) is computed again on another one; after several
    losses its result is a `WorkerLost`.

    Parameters
    ----------
    function : callable
        Takes one item. It, the items and the results have to be picklable if they are sent.
    items : sequence
        Independent of each other.
    jobs : int
        Processes on this machine; 1: in this process, one item after the other.
    scheduler : str, optional
        Address of a ``dask.distributed`` scheduler, such as ``tcp://10.0.0.1:8786``; its workers
        compute instead. Trirow has to be installed there too.
    on_result : callable, optional
        Called in this thread with index and result of each item, in the order in which they come.

    Raises
    ------
    ValueError
        If `jobs` is below 1, or is given together with `scheduler`.
    MissingPackage
        If joblib or distributed is needed and not installed.
    ClusterError
        If the scheduler cannot be reached. If it is lost later, or has no worker for a minute, the
        results that are missing are `WorkerLost`.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs!r}")
    if scheduler is not None and jobs != 1:
        raise ValueError("jobs and scheduler do not go together")
    results: dict[int, Any] = {}

    def keep(index: int, result: Any) -> None:
        results[index] = result
        if on_result is not None:
            on_result(index, result)

    if scheduler is not None:
        _on_cluster(function, items, scheduler, keep)
    elif jobs > 1:
        _in_processes(function, items, jobs, keep)
    else:
        for index, item in enumerate(items):
            keep(index, _guarded(function, item))
    return [results[index] for index in range(len(items))]


def _guarded(function: Callable[[_Item], _Result], item: _Item) -> _Result | Exception:
    """Return the result, or the exception, as one that can be sent to another process."""
    try:
        return function(item)
    except Exception as error:
        error.__traceback__ = error.__cause__ = error.__context__ = None
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return RunError(f"{type(error).__name__}: {error}")
        return error


def _in_processes(
    function: Callable[[_Item], _Result], items: Sequence[_Item], jobs: int, keep: _Keep
) -> None:
    """Compute in processes of this machine.

    When one ends, all that were at work have to be replaced, and nobody knows which item was to
    blame. So each that was at work is repeated alone: an innocent one is not given up.
    """
    try:
        from joblib import Parallel, delayed
    except ImportError as error:
        raise MissingPackage(
            "parallel processes need the package joblib: pip install joblib"
        ) from error

    def numbered(index: int, item: _Item) -> tuple[int, Any]:
        return index, _guarded(function, item)

    def calls(batch: Sequence[int], begun: set[int]) -> Iterator[Any]:
        for index in batch:
            begun.add(index)
            yield delayed(numbered)(index, items[index])

    losses: Counter[int] = Counter()
    batches = deque([list(range(len(items)))])
    while batches:
        batch, begun, done = batches.popleft(), set[int](), set[int]()
        pool = Parallel(
            n_jobs=jobs,
            backend="loky",
            batch_size=1,
            pre_dispatch="n_jobs",
            max_nbytes=None,
            return_as="generator_unordered",
        )
        try:
            for index, result in pool(calls(batch, begun)):
                done.add(index)
                keep(index, result)
        except BrokenProcessPool:
            for index in sorted(begun - done):
                losses[index] += 1
                if losses[index] < _LOSSES:
                    batches.append([index])
                else:
                    keep(index, WorkerLost(f"its process ended {_LOSSES} times without a result"))
            rest = [index for index in batch if index not in begun]
            if rest:
                batches.appendleft(rest)


def _on_cluster(
    function: Callable[[_Item], _Result], items: Sequence[_Item], scheduler: str, keep: _Keep
) -> None:
    """Compute on a cluster, whose scheduler gives the items of a lost worker to another."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingPackage(
            "a Dask cluster needs the package distributed: pip install 'trirow[cluster]'"
        ) from error
    failure = ""
    try:
        client = Client(scheduler, timeout=_CONNECT)
    except (OSError, ValueError, RuntimeError, asyncio.TimeoutError) as error:
        failure = " ".join(str(error).split()) or type(error).__name__
    if failure:
        gc.collect()  # closes the client; in a thread of the next one it would wait for itself
        raise ClusterError(f"no Dask scheduler answers at {scheduler!r}: {failure}")
    # What happens to the scheduler is said in one line, not in tracebacks as well.
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with client:
            _collect(client, scheduler, function, items, keep)
    finally:
        log.setLevel(level)


def _collect(
    client: Any,
    scheduler: str,
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    keep: _Keep,
) -> None:
    """Submit the items and keep their results.

    When a worker is lost several times, the scheduler blames all items that it had been given. So
    each of them is repeated alone: an innocent one is not given up.
    """
    from distributed import KilledWorker, wait

    def submit(index: int) -> Any:
        with warnings.catch_warnings():  # weights and feature maps are what has to be sent
            warnings.filterwarnings("ignore", message="Sending large graph")
            return client.submit(_guarded, function, items[index], pure=False)

    pending = {submit(index): index for index in range(len(items))}
    suspects: deque[int] = deque()
    alone = None
    lost = ""
    while (pending or suspects) and not lost:
        if not pending:
            alone = suspects.popleft()
            pending = {submit(alone): alone}
        try:
            ready = wait(list(pending), timeout=_PATIENCE, return_when="FIRST_COMPLETED").done
            for future in ready:
                index = pending[future]
                if isinstance(future.exception(), KilledWorker) and index != alone:
                    suspects.append(index)
                else:
                    keep(index, _result(future))
                del pending[future]
                future.release()
        except asyncio.TimeoutError:
            with suppress(OSError):  # a scheduler that does not answer cancels what is pending
                lost = "" if client.nthreads() else "has no worker"
        except CancelledError:
            lost = "was lost"
    for index in (*pending.values(), *suspects):
        keep(index, WorkerLost(f"the Dask scheduler at {scheduler!r} {lost}"))


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except CancelledError:
        raise
    except KilledWorker:
        return WorkerLost("its worker on the cluster was lost several times without a result")
    except Exception as error:
        text = " ".join(str(error).split())
        return WorkerLost(f"the cluster failed with {type(error).__name__}: {text}")

"""Calls in worker processes of this computer, or on the workers of a cluster: how work is spread is known here only."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from queue import SimpleQueue
from types import ModuleType
from typing import TypeVar

from concord.lib.extras import needing
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

Result = TypeVar("Result")
#: Number of worker processes by default.
CORES = os.cpu_count() or 1
#: How often a call begins at most, if its worker is lost.
TRIES = 4


class _Process(SpawnProcess):
    """A new Python process that does not run the script of a user again, which need not know of processes.

    It holds back Ctrl-C until `_begun`.
    """

    def start(self):
        script = sys.modules["__main__"]
        if getattr(script, "__spec__", None) is None:  # a file or a notebook, not `python -m`
            sys.modules["__main__"] = ModuleType("__main__")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            sys.modules["__main__"] = script


class _Context(SpawnContext):
    Process = _Process


def workers(count: int, begin: Callable | None = None, arguments: tuple = ()) -> ProcessPoolExecutor:
    """A pool of new Python processes, which have nothing of this one: no threads, no random state, no simulator.

    Products of matrices in numpy use one thread in each process, unless OPENBLAS_NUM_THREADS is set: threads of several
    processes that wait for each other on the same cores make small products several times slower.

    Args:
        count:     Number of processes.
        begin:     Function that each process calls first.
        arguments: Arguments of `begin`.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # which a process reads when it imports numpy
    return ProcessPoolExecutor(count, _Context(), initializer=_begun, initargs=(begin, arguments))


def _begun(begin: Callable | None, arguments: tuple):
    """Begin a worker process, which Ctrl-C now ends without a traceback.

    It ends with the process that began it, even if that one is killed in the middle of a call.
    """
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if begin is not None:
        begin(*arguments)


def _end_with(parent):
    """Wait until another process has ended, and end this one."""
    parent.join()
    os._exit(1)


@contextmanager
def executor(
    processes: int, begin: Callable | None = None, arguments: tuple = (), *, scheduler: str = "", extra: str = ""
) -> Iterator[Executor]:
    """What makes calls: processes of this computer, or the workers of a cluster.

    Args:
        processes: Number of worker processes.
        begin:     Function that each process calls first.
        arguments: Arguments of `begin`.
        scheduler: Address of the scheduler of a Dask cluster; empty for this computer.
        extra:     Name of the extra that workers of a cluster need, such as "sim".

    Raises:
        ValueError: no scheduler is at the address, or it has no workers.
    """
    if scheduler:
        with needing("cluster", "concord.lib.cluster").connected(scheduler, begin, arguments, extra) as pool:
            yield pool
    else:
        with workers(processes, begin, arguments) as pool:
            yield pool


def calls(
    function: Callable[..., Result], jobs: Iterable[tuple], processes: int, begin: Callable | None = None,
    arguments: tuple = (), *, scheduler: str = "", extra: str = "",
) -> Iterator[tuple[tuple, Result]]:
    """Call a function for every job in worker processes; the other arguments are those of `executor`.

    Args:
        function: Function of a module, so that another process finds it.
        jobs:     Arguments of each call.

    Yields:
        Each job and its result, in the order in which the calls end.
    """
    chosen = list(jobs)
    with executor(processes, begin, arguments, scheduler=scheduler, extra=extra) as pool:
        for number, result in results(pool, function, chosen):
            yield chosen[number], result


def results(pool: Executor, function: Callable[..., Result], jobs: Sequence[tuple]) -> Iterator[tuple[int, Result]]:
    """The number of each job and the result of its call, once, in the order in which the calls end.

    A call that the executor has lost, and therefore cancelled, begins again, up to `TRIES` times. After an error, calls
    that have not begun are dropped.

    Raises:
        CancelledError: a call was lost each time.
    """
    ended: SimpleQueue[Future] = SimpleQueue()
    running: dict[Future, tuple[int, int]] = {}

    def begin(number: int, tries: int):
        future = pool.submit(function, *jobs[number])
        running[future] = number, tries
        future.add_done_callback(ended.put)

    try:
        for number in range(len(jobs)):
            begin(number, 1)
        while running:
            future = ended.get()
            number, tries = running.pop(future)
            if future.cancelled() and tries < TRIES:
                begin(number, tries + 1)
            else:
                yield number, future.result()
    finally:
        for future in running:
            future.cancel()


def side_by_side(
    title: str, call: Callable, jobs: Sequence[tuple], console: Console, processes: int = 2,
    each: Callable = lambda result: None, *, scheduler: str = "", extra: str = "",
) -> list:
    """The result of a call for each job, in the order of the jobs; the worker processes are new ones.

    Args:
        title:     Text of the progress bar.
        call:      Function of a module, so that another process can import it.
        jobs:      Arguments of each call.
        processes: Number of processes.
        each:      Function that is called with each result as it comes.
        scheduler: Address of the scheduler of a Dask cluster; empty for this computer.
        extra:     Name of the extra that workers of a cluster need, such as "sim".
    """
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    found = {}
    with Progress(*columns, console=console) as progress, executor(processes, scheduler=scheduler, extra=extra) as pool:
        task = progress.add_task(title, total=len(jobs))
        for number, result in results(pool, call, jobs):
            found[number] = result
            each(result)
            progress.advance(task)
    return [found[number] for number in range(len(jobs))]

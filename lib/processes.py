"""Calls in worker processes."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

#: Number of worker processes by default.
CORES = os.cpu_count() or 1


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
    """Begin a worker process, which Ctrl-C now ends without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if begin is not None:
        begin(*arguments)


def calls(
    function: Callable, jobs: Iterable[tuple], processes: int, begin: Callable | None = None, arguments: tuple = ()
) -> Iterator[tuple[tuple, object]]:
    """Call a function for every job in worker processes. After an error, calls that have not begun are dropped.

    Args:
        function:  Function of a module, so that another process finds it.
        jobs:      Arguments of each call.
        processes: Number of worker processes.
        begin:     Function that each process calls first.
        arguments: Arguments of `begin`.

    Yields:
        Each job and its result, in the order in which the calls end.
    """
    with workers(processes, begin, arguments) as pool:
        try:
            running = {pool.submit(function, *job): job for job in jobs}
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def side_by_side(
    title: str, call: Callable, jobs: Sequence[tuple], console: Console, processes: int = 2,
    each: Callable = lambda result: None,
) -> list:
    """The result of a call for each job, in the order in which the calls end; the worker processes are new ones.

    Args:
        title:     Text of the progress bar.
        call:      Function of a module, so that another process can import it.
        jobs:      Arguments of each call.
        processes: Number of processes.
        each:      Function that is called with each result as it comes.
    """
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    results = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=len(jobs))
        for _, result in calls(call, jobs, processes):
            results.append(result)
            each(result)
            progress.advance(task)
    return results

"""Run the calls of a long session in parallel processes, with a progress bar."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn


def side_by_side(
    title: str, call: Callable, jobs: Sequence[tuple], console: Console, processes: int = 2,
    each: Callable = lambda result: None,
) -> list:
    """The results of a call for all jobs, in the order in which they end; processes are started anew.

    Args:
        title:     Text of the progress bar.
        call:      Function of a module, so that another process can import it.
        jobs:      Arguments of each call.
        processes: Number of processes.
        each:      Function that is called with each result as it comes.
    """
    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with (ProcessPoolExecutor(processes, get_context("spawn")) as pool,
          Progress(*columns, console=console) as progress):
        task = progress.add_task(title, total=len(jobs))
        results = []
        for done in as_completed([pool.submit(call, *job) for job in jobs]):
            results.append(done.result())
            each(results[-1])
            progress.advance(task)
    return results

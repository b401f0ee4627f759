"""Run the calls of a long session in parallel processes, with a progress bar."""

from collections.abc import Callable, Sequence

from concord.lib.processes import calls
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn


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

"""The queue of commands: as many run at once as there are workers, in the order in which they were asked for."""

import threading
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from concord.dashboard.execution import attend, execute


class WorkQueue:
    """Commands that wait or run, behind any executor.

    Args:
        executor:  What runs them: threads that wait for processes of this computer.
        scheduler: Address of the scheduler of a Dask cluster, over which verifications spread their samples; empty for
            this computer.
    """

    def __init__(self, executor: Executor, scheduler: str = ""):
        self.executor, self.futures, self._lock = executor, {}, threading.Lock()
        self._spread = ["--scheduler", scheduler] if scheduler else []

    def submit(self, folder: Path, job: str, command: Sequence[str]):
        """Run `nnp COMMAND` in a folder when its turn comes.

        Raises:
            ValueError: the same job of this folder waits or runs.
        """
        with self._lock:
            if self.active(folder, job):
                raise ValueError(f"{job} waits or runs already: wait for its end")
            words = [*command, *(self._spread if "verify" in command[:1] else ())]
            self.futures[folder.name, job] = self.executor.submit(execute, str(folder), job, words)

    def attend(self, folder: Path, job: str, pid: int):
        """Give a worker to a process that a server before this one began."""
        self.futures[folder.name, job] = self.executor.submit(attend, pid)

    def active(self, folder: Path, job: str) -> bool:
        """Whether a job waits or runs."""
        future: Future | None = self.futures.get((folder.name, job))
        return future is not None and not future.done()

    def position(self, folder: Path, job: str) -> int | None:
        """The position of a job in the queue, from 1; None if it does not wait."""
        waiting = [key for key, future in list(self.futures.items()) if not future.running() and not future.done()]
        key = folder.name, job
        return waiting.index(key) + 1 if key in waiting else None

    def cancel(self, folder: Path, job: str) -> bool:
        """Take a job that waits out of the queue; whether it waited."""
        future = self.futures.get((folder.name, job))
        return future is not None and future.cancel()

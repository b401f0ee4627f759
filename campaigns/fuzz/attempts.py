"""Loads damaged files in a process of its own, within limits of memory and time.

Time is CPU time of that process, so that other processes on the machine make no loader too slow.
"""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from concord.campaigns.fuzz.kinds import KINDS

REFUSED, ACCEPTED = "refused", "accepted"
FOLDER = "damaged_files"  #: Folder of what is loaded.
GRACE = 5.0  #: Seconds beyond its time limit after which a process that does not heed it, or waits, is killed.
IDLE = 0.01  #: Largest share of the CPU that a process takes while it waits for something.


class TooSlow(BaseException):
    """A loader took too long; no `except Exception` catches this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """What became of a file.

    Attributes:
        seed:    Number of the file.
        verdict: REFUSED, ACCEPTED, or what went wrong, in a few words.
        text:    The refusal, or the traceback.
    """

    seed: int
    verdict: str
    text: str


class Attempts:
    """Attempts to load damaged files of a kind.

    Args:
        name:    Name of the kind.
        folder:  Folder for the files.
        seconds: Seconds of CPU time that a loader may take.
        memory:  MiB that a loader may take beyond what the process has when it starts.
    """

    def __init__(self, name: str, folder: Path, seconds: float, memory: int):
        self.name, self.folder, self.seconds, self.memory = name, folder, seconds, memory

    def write(self, seed: int, name: str) -> Path:
        """Write the file of a number alone into the folder of a name, and return what is to be loaded."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return KINDS[self.name].make(folder, random.Random(f"{self.name} {seed}"))

    def run(self, seed: int, count: int, end: float) -> Iterator[Attempt]:
        """Load files from number `seed` on, until the time `end` of the monotonic clock."""
        self.write(seed, "first")  # what all files need is made once, before processes begin
        last = seed + count
        while seed < last and time.monotonic() < end:
            for outcome in self._process(seed, last, end):
                yield outcome
                seed = outcome.seed + 1

    def _process(self, seed: int, last: int, end: float) -> Iterator[Attempt]:
        """Outcomes of a process, until all is done or the process ends."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._loads, args=(seed, last, end, theirs))
        process.start()
        assert process.pid is not None  # it has been started
        theirs.close()
        try:
            while self._answers(ours, process.pid):
                outcome = ours.recv()
                if outcome is None:
                    return
                yield outcome
                seed = outcome.seed + 1
            yield Attempt(seed=seed, verdict=f"the process hangs for {self.seconds + GRACE:g} s", text="")
        except EOFError:
            process.join()
            yield Attempt(seed=seed, verdict=f"the process ends with code {process.exitcode}", text="")
        finally:
            process.kill()
            process.join()

    def _answers(self, connection, pid: int) -> bool:
        """Wait for an outcome; False where a process has had all its time, or takes none."""
        patience = self.seconds + GRACE
        begun = before = cpu_time(pid)
        while not connection.poll(patience):
            spent = cpu_time(pid)
            if spent - before < IDLE * patience or spent - begun > patience:
                return False
            before = spent
        return True

    def _loads(self, seed: int, last: int, end: float, connection):
        """Load files, in the process of its own."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (self.memory << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, _alarm)
        warnings.simplefilter("error")
        while seed < last and time.monotonic() < end:
            connection.send(self.attempt(seed))
            seed += 1
        connection.send(None)

    def attempt(self, seed: int) -> Attempt:
        """Load the file of a number, in this process."""
        path = self.write(seed, FOLDER)
        try:
            signal.setitimer(signal.ITIMER_PROF, self.seconds)
            try:
                KINDS[self.name].load(path)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except ValueError as error:
            return Attempt(seed=seed, verdict=verdict(str(error), self.folder / FOLDER), text=traceback.format_exc())
        except BaseException as error:
            return Attempt(seed=seed, verdict=f"{type(error).__name__}: {error}"[:200], text=traceback.format_exc())
        return Attempt(seed=seed, verdict=ACCEPTED, text="")


def cpu_time(pid: int) -> float:
    """Seconds of CPU time that a process has taken, in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def verdict(said: str, folder: Path) -> str:
    """REFUSED, or what is wrong with a refusal, which must name a file in `folder`."""
    if not any(path.name in said for path in (folder, *folder.rglob("*"))):
        return f"the refusal names no file: {said[:200]}"
    return REFUSED


def _alarm(*_):
    raise TooSlow

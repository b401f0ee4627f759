"""Loads damaged files in a process of its own, within limits of memory and time."""

import multiprocessing
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

from concord.tests.fuzz.kinds import KINDS

REFUSED, ACCEPTED = "refused", "accepted"
FOLDER = "damaged_files"  #: Folder of what is loaded.
GRACE = 5.0  #: Seconds after which a process that does not heed its time limit is killed.


class TooSlow(BaseException):
    """A loader took too long; no `except Exception` catches this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
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
        seconds: Seconds that a loader may take.
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

    def run(self, seed: int, count: int, end: float) -> Iterator[Outcome]:
        """Load files from number `seed` on, until the time `end` of the monotonic clock."""
        self.write(seed, "first")  # what all files need is made once, before processes begin
        last = seed + count
        while seed < last and time.monotonic() < end:
            for outcome in self._process(seed, last, end):
                yield outcome
                seed = outcome.seed + 1

    def _process(self, seed: int, last: int, end: float) -> Iterator[Outcome]:
        """Outcomes of a process, until all is done or the process ends."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._loads, args=(seed, last, end, theirs))
        process.start()
        theirs.close()
        try:
            while ours.poll(self.seconds + GRACE):
                outcome = ours.recv()
                if outcome is None:
                    return
                yield outcome
                seed = outcome.seed + 1
            yield Outcome(seed=seed, verdict=f"the process hangs for {self.seconds + GRACE:g} s", text="")
        except EOFError:
            process.join()
            yield Outcome(seed=seed, verdict=f"the process ends with code {process.exitcode}", text="")
        finally:
            process.kill()
            process.join()

    def _loads(self, seed: int, last: int, end: float, connection):
        """Load files, in the process of its own."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (self.memory << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, _alarm)
        warnings.simplefilter("error")
        while seed < last and time.monotonic() < end:
            connection.send(self.attempt(seed))
            seed += 1
        connection.send(None)

    def attempt(self, seed: int) -> Outcome:
        """Load the file of a number, in this process."""
        path = self.write(seed, FOLDER)
        try:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
            try:
                KINDS[self.name].load(path)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except ValueError as error:
            return Outcome(seed=seed, verdict=verdict(str(error), self.folder / FOLDER), text=traceback.format_exc())
        except BaseException as error:
            return Outcome(seed=seed, verdict=f"{type(error).__name__}: {error}"[:200], text=traceback.format_exc())
        return Outcome(seed=seed, verdict=ACCEPTED, text="")


def verdict(said: str, folder: Path) -> str:
    """REFUSED, or what is wrong with a refusal, which must name a file in `folder`."""
    if not any(path.name in said for path in (folder, *folder.rglob("*"))):
        return f"the refusal names no file: {said[:200]}"
    return REFUSED


def _alarm(*_):
    raise TooSlow

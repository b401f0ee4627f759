"""The file of a campaign's results: an interrupted campaign goes on from it, and its end puts them in order."""

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from concord.lib.edition import edition
from concord.lib.files import write
from concord.lib.processes import executor, results


class ResultsFile:
    """Results of batches in JSON Lines. The first line says of what, and each other one has a number and a result.

    Args:
        path: The file; it goes on if it is there.
        head: What the results depend on, in values of JSON.

    Raises:
        ValueError: the file holds something else, or another campaign is writing it.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]):
        self.path, self._head = path, json.dumps(head)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ValueError(f"{path}: another campaign is writing this file; wait, or name another one") from error
        self.results = self._read()

    def add(self, number: int, result: Any):
        """Keep the result of a batch."""
        self.results[number] = result
        self._file.write(_line(number, result))
        self._file.flush()

    def finish(self):
        """Put all results in the order of their numbers."""
        lines = [_line(number, result) for number, result in sorted(self.results.items())]
        write(self.path, self._head + "\n" + "".join(lines))

    def close(self):
        """Let others write the file."""
        self._file.close()

    def _read(self) -> dict[int, Any]:
        """The results of an interrupted campaign, of whose last line only a part may be there, which is removed."""
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        first, *lines = whole.splitlines() or [self._head]
        try:
            if first != self._head or text and not whole:
                raise ValueError
            found = {int(number): result for number, result in map(json.loads, lines)}
        except (TypeError, ValueError) as error:
            self._file.close()
            raise ValueError(
                f"{self.path}: it holds other things than this campaign's results, or those of other "
                "options or of other files of Concord; name another file"
            ) from error
        self._file.truncate(len(whole))  # JSON is ASCII here
        if not whole:
            self._file.write(self._head + "\n")
        return found


def _line(number: int, result: Any) -> str:
    return json.dumps([number, result]) + "\n"


def recorded(
    function: Callable[..., Any],
    jobs: Sequence[tuple],
    path: Path | None,
    head: Mapping[str, Any],
    *,
    processes: int,
    scheduler: str = "",
    extra: str = "",
) -> Iterator[tuple[int, Any]]:
    """The number of each job and the result of its call, a value of JSON; those that a file keeps are not called again.

    Args:
        function: Function of a module.
        jobs:     Arguments of each call.
        path:     File that keeps results; None for no file.
        head:     What the results depend on, beside the files of Concord.
        processes, scheduler, extra: See `concord.lib.processes.executor`.

    Raises:
        ValueError: the file holds results of something else.
    """
    with ExitStack() as stack:
        file = None
        if path is not None:
            file = ResultsFile(path, {"edition": edition(), **head})
            stack.callback(file.close)
            yield from list(file.results.items())
        missing = [number for number in range(len(jobs)) if file is None or number not in file.results]
        if missing:
            pool = stack.enter_context(executor(processes, scheduler=scheduler, extra=extra))
            for index, result in results(pool, function, [jobs[number] for number in missing]):
                if file is not None:
                    file.add(missing[index], result)
                yield missing[index], result
        if file is not None:
            file.finish()

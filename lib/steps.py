"""Progress of a command in numbered steps."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape


class Steps:
    """Prints each step with its number, and its duration when it is done.

    Args:
        console: Console to print on.
        total:   Number of steps.
    """

    def __init__(self, console: Console, total: int):
        self.console, self.total = console, total
        self.times: dict[str, float] = {}

    @contextmanager
    def step(self, title: str, announce: str = "") -> Iterator["Note"]:
        """A context for one step; a note that is taken inside is printed after its duration.

        Args:
            title:    Name of the step.
            announce: Text to print before a step that may take long.
        """
        number, note, start = len(self.times) + 1, Note(), time.perf_counter()
        if announce:
            self.console.print(f"[bold]{number}/{self.total}[/] {title} [dim]...[/]  {escape(announce)}")
        yield note
        self.times[title] = time.perf_counter() - start
        line = f"[bold]{number}/{self.total}[/] {title} [dim]{self.times[title]:.1f} s[/]  {escape(note.text)}"
        self.console.print(line)


class Note:
    """A text that a step adds to its line."""

    text = ""

"""Numbered steps with their times."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Steps:
    """Prints each step with its number, and its time when it is done.

    Args:
        total: How many there will be.
    """

    def __init__(self, console: Console, total: int):
        self.console, self.total = console, total
        self.times: dict[str, float] = {}

    @contextmanager
    def step(self, title: str, announce: str = "") -> Iterator["Note"]:
        """One step; what is noted inside stands behind its time.

        Args:
            announce: What is said before the step begins, where it may take long.
        """
        number, note, start = len(self.times) + 1, Note(), time.perf_counter()
        if announce:
            self.console.print(f"[bold]{number}/{self.total}[/] {title} [dim]...[/]  {announce}")
        yield note
        self.times[title] = time.perf_counter() - start
        self.console.print(f"[bold]{number}/{self.total}[/] {title} [dim]{self.times[title]:.1f} s[/]  {note.text}")


class Note:
    """What a step has to say."""

    text = ""

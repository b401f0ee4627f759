"""Progress of long work: bars on a terminal, lines elsewhere, so that a file or pipe shows it; and numbered steps."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

#: Function that is called as show(phase, step, steps, note): name of the phase, number of steps done, number of all
#: steps, and a note such as the loss.
Show = Callable[[str, int, int, str], None]
#: Seconds after which a line shows a step that has no note.
SECONDS = 15


def silent(phase: str, step: int, steps: int, note: str):
    """Show nothing."""


@contextmanager
def shown(console: Console | None = None) -> Iterator[Show]:
    """A context with a function that shows steps: a bar for each phase, or lines where there is no terminal."""
    console = console or Console()
    if not console.is_terminal:
        yield lines(console)
        return
    from rich.progress import Progress

    with Progress(console=console) as bars:
        tasks = {}

        def show(phase: str, step: int, steps: int, note: str):
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=steps)
            bars.update(tasks[phase], completed=step, description=f"{phase} {note}")

        yield show


def lines(console: Console) -> Show:
    """A function that prints a line for each step with a note, and now and then for the others."""
    latest = time.monotonic()

    def show(phase: str, step: int, steps: int, note: str):
        nonlocal latest
        if note or time.monotonic() - latest > SECONDS:
            console.print(f"{phase} {step}/{steps} {note}".rstrip(), soft_wrap=True, highlight=False, markup=False)
            latest = time.monotonic()

    return show


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

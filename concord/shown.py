"""What the functions of the Python API return: objects that terminals and notebooks show as tables."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 110  #: Characters of a line in a notebook.


class Shown(ABC):
    """Something that `print` shows as a line, and rich and notebooks as tables."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line about it."""

    @abstractmethod
    def tables(self) -> Iterator[RenderableType]:
        """The tables that show it."""

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    def __rich_console__(self, console, options) -> Iterator[RenderableType]:
        yield Text(self.summary, style="bold")
        yield from self.tables()

    def _repr_html_(self) -> str:
        console = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False)
        console.print(self)
        return console.export_html(inline_styles=True, code_format='<pre style="line-height: 1.2">{code}</pre>')


def table(head: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """A table whose numbers lie on the right; nothing in a cell is taken as markup."""
    made = Table(title=title or None, title_justify="left", box=None)
    rows = [list(row) for row in rows]
    for index, name in enumerate(head):
        numbers = rows and all(isinstance(row[index], int | float | None) for row in rows)
        made.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        made.add_row(*(Text(_text(cell)) for cell in row))
    return made


def _text(cell) -> str:
    if cell is None:
        return ""
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.4g}" if isinstance(cell, float) else str(cell)

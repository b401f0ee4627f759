"""What the functions of the Python API return: objects that terminals and notebooks show as tables.

These are a network in float32, a quantised model and firmware here; other functions return their own.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from concord.firmware.firmware import Firmware
    from concord.net import model
    from concord.net.graph import Graph
    from concord.workflows.original import Original

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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Network(Shown):
    """A network in float32, as it was trained elsewhere.

    Attributes:
        floating:  Its operations and numbers.
        original: The tool that it comes from, which runs the user's own samples, too; None where there is none.
    """

    floating: "Graph"
    original: "Original | None" = None

    @property
    def summary(self) -> str:
        network = self.floating
        takes = f"{'sequences of ' * network.sequence}{' x '.join(map(str, network.shape))}"
        return f"network {network.name} in float32, {len(network.nodes)} operations, takes {takes}"

    def tables(self) -> Iterator[RenderableType]:
        given = self.floating.shapes
        yield table(("node", "operation", "gives", "parameters"), (
            (node.name, node.op.label, " x ".join(map(str, given[node.name])),
             sum(tensor.size for tensor in node.op.tensors().values()) or None) for node in self.floating.nodes))
        yield from (Text(note) for note in self.floating.notes)

    def save(self, path: str | Path):
        """Write it as `nnp import` does."""
        from concord.net.graph_file import save

        save(self.floating, Path(path))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Model(Shown):
    """A quantised model.

    Attributes:
        quantised: Its layers and origin.
        path:      Its file, or None if it has none.
    """

    quantized: "model.Model"
    path: Path | None = None

    @property
    def summary(self) -> str:
        return f"quantised model {self.quantized.name}, {len(self.quantized.layers)} layers{_measured(self.measures)}"

    @property
    def measures(self) -> Mapping[str, float]:
        """The first measure of its task on its test set: FP32, quantised and golden. Empty if it was not measured."""
        return self.quantized.provenance.measures

    def tables(self) -> Iterator[RenderableType]:
        from concord.datasets.measures import NAMES

        yield table(("layer", "kind", "takes", "gives"), (
            (layer.name, layer.title, " + ".join(map(str, layer.takes or ())), layer.outputs)
            for layer in self.quantized.layers))
        if self.measures:
            yield table((NAMES[self.quantized.task], ""), self.measures.items())
        yield Text(self.quantized.provenance.method)

    def save(self, path: str | Path):
        """Write the model file, which `nnp verify` and `concord.load` read."""
        from concord.net.model_file import save_model

        save_model(self.quantized, Path(path))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Program(Shown):
    """A network that is compiled for one machine.

    Attributes:
        firmware: Program and contents of memories.
        machine:  Name of the machine.
        usage:    For each memory by name, words in use and words that it has; empty for firmware from a file.
    """

    firmware: "Firmware"
    machine: str
    usage: Mapping[str, tuple[int, int]]

    @property
    def summary(self) -> str:
        count = len(self.firmware.instruction_words)
        return f"firmware of {self.firmware.name} for {self.machine}, {count} instructions"

    def tables(self) -> Iterator[RenderableType]:
        if self.usage:
            yield table(("memory", "used", "of", "share"), (
                (name, used, of, f"{used / of:.0%}") for name, (used, of) in self.usage.items()))

    def save(self, path: str | Path):
        """Write the firmware file, which `nnp run` and `concord.load` read."""
        from concord.firmware.firmware_file import save_firmware

        save_firmware(self.firmware, Path(path))


def _measured(measures: Mapping[str, float]) -> str:
    return "".join(f", {name} {value:.4g}" for name, value in measures.items())

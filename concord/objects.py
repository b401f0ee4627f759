"""A network in float32, a quantised model and firmware, as the Python API hands them out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from concord.shown import Shown, table
from rich.console import RenderableType
from rich.text import Text

if TYPE_CHECKING:
    from concord.firmware.firmware import Firmware
    from concord.net.graph import Graph
    from concord.net.model import Model
    from concord.workflows.original import Original


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

    quantized: "Model"
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

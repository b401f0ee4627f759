"""The quantised model, which training writes and the compiler reads.

A model is a graph of layers, listed in an order in which each layer comes after its sources. The input of a layer is
the result of the layer before it in the list, or of the layers that `Model.sources` names. Of a sequence, a layer that
takes sequences reads the vectors of all time steps; any other layer reads the vector of the last step. The layers
`ImageToSequence` and `SequenceToImage` stand between layers of images and recurrent layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from concord.datasets.samples import Task
from concord.lib.input_axes import InputAxes
from concord.lib.names import check_printable
from concord.lib.several import Results, check
from concord.net.graph import Graph
from concord.net.layers.attention import BlockAttention
from concord.net.layers.layer import Layer
from concord.net.wired import INPUT, Wired


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Origin of a model.

    Attributes:
        command:         Command that made the model.
        method:          Method of training and quantisation, in a sentence.
        seed:            Seed of every random choice.
        fp32_accuracy:   First measure of the model's task, see `datasets.measures`, of the FP32 network on the test
            set: the accuracy, RMSE or AUC; None if there is no test set.
        quantized_accuracy: The same of the quantised network in float arithmetic: after post-training quantisation, or
            in quantisation-aware training before the lowered phase.
        golden_accuracy: The same of this model in golden arithmetic.
    """

    command: str
    method: str
    seed: int
    fp32_accuracy: float | None
    quantized_accuracy: float | None
    golden_accuracy: float | None

    @property
    def measures(self) -> dict[str, float]:
        """The measures by the names that networks have in tables; what was not measured is left out."""
        found = {"FP32": self.fp32_accuracy, "quantised": self.quantized_accuracy, "golden": self.golden_accuracy}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Model(Wired[Layer]):
    """A quantised network, a graph whose nodes are its layers.

    Attributes:
        name:             Name of the model.
        data:             Name of its test set, as `datasets.read` makes it, or `NO_DATA`.
        task:             What the network does, which decides how it is measured.
        description:      TOML text that says how its data are read, see `datasets.description`; empty for the shipped
            sets. It is shown and compared, and names nothing that is opened or run by itself.
        preprocessing:    Sentence on how raw data become the binary16 input vector.
        classes:          Names of the outputs.
        layers:           Layers in order.
        sources:          Names of the layers (or INPUT) whose results enter a layer, if this is not just the layer
            before it in the list.
        provenance:       Origin of the model.
        fp32_predictions: What the FP32 network gives for each sample of the test set: for classification its class,
            uint8[samples], int32[samples] where there are more than 256, or [samples, time] where each time step has
            one; or its outputs, float32[samples, outputs].
        quantized_predictions: The same of the quantised network in float arithmetic, after post-training quantisation
            or in quantisation-aware training.
        axes:             Axes of an input, in the file of the network and as the layers take them; None where the
            network comes from no file.
        graph:            The float network that it was quantised from, in which each layer has a node of its name;
            None if it is not known, or if the layers hold it, see `net.float_network`.
    """

    name: str
    data: str
    preprocessing: str
    classes: tuple[str, ...]
    layers: tuple[Layer, ...]
    provenance: Provenance
    fp32_predictions: np.ndarray
    quantized_predictions: np.ndarray
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    task: Task = Task.CLASSIFICATION
    description: str = ""
    axes: InputAxes | None = None
    graph: Graph | None = None

    def __post_init__(self):
        if not self.layers:
            raise ValueError(f"model {self.name!r} has no layers; it needs one at least")
        names = [layer.name for layer in self.layers]
        check_printable("the name", (self.name, self.data, *self.classes, *names))
        if len(set(names)) < len(names):
            raise ValueError(f"model {self.name!r} has two layers of one name in {', '.join(names)}; rename one")
        if self.graph is not None and (lost := [layer.name for layer in self.layers if not layer.ends and (
                self.graph.node(layer.name) is None)]):
            raise ValueError(f"model {self.name!r}: its float network has no node for layer {lost[0]!r}; quantise it "
                             "again")
        if unknown := set(self.sources) - set(names):
            raise ValueError(f"model {self.name!r}: sources names {min(unknown)!r}, which is no layer of it")
        check(self.results, self.outputs)
        made = {}
        for layer in self.layers:
            _check_sources(layer, self, made)
            made[layer.name] = layer
            before = tuple(names[-2:-1]) or (INPUT,)
            if layer.ends and (layer is not self.layers[-1] or self.sources_of(layer) != before):
                raise ValueError(f"layer {layer.name!r} ({layer.title}) stands at the end of a model, behind the layer "
                                 "whose result it takes; put it there")
        self._check_steps()
        if self.axes is not None and prod(self.axes.shape) != self.inputs:
            raise ValueError(f"model {self.name!r} takes {self.inputs} numbers, and its axes are "
                             f"{' x '.join(map(str, self.axes.shape))}; make the two equal")
        for layer, size in self._inputs():
            if size != self.inputs or layer.sequence != self.recurrent:
                shapes = [f"{n} elements{' at each time step' * s}" for n, s in (
                    (size, layer.sequence), (self.inputs, self.recurrent))]
                raise ValueError(f"layer {layer.name!r} takes {shapes[0]} of the network's input, but layer "
                                 f"{self.layers[0].name!r} takes {shapes[1]}; make the two equal")

    @property
    def predictions(self) -> dict[str, np.ndarray]:
        """What float networks give for the test set, by their names in tables."""
        return {"FP32": self.fp32_predictions, "quantised": self.quantized_predictions}

    @property
    def nodes(self) -> tuple[Layer, ...]:
        """The layers."""
        return self.layers

    def sources_of(self, node: Layer) -> tuple[str, ...]:
        """Names of the sources of a layer."""
        index = self.layers.index(node)
        return self.sources.get(node.name, (self.layers[index - 1].name if index else INPUT,))

    def steps_of(self, name: str) -> int | None:
        """Number of time steps of the sequence that a layer makes, or of the input; None for any number."""
        return self._steps().get(name)

    @property
    def steps(self) -> int | None:
        """Number of time steps of every input, which an image made of all of them fixes; None for any number."""
        return self.steps_of(INPUT)

    def lengths_of(self, layer: Layer, lengths: np.ndarray | None, samples: int) -> np.ndarray | None:
        """int[samples], time steps of the sequences that enter a layer, from those of the inputs."""
        steps = self.steps_of(self.sources_of(layer)[0]) if layer.sequence else None
        return lengths if steps is None else np.full(samples, steps)

    def check_lengths(self, inputs: np.ndarray, lengths: np.ndarray | None):
        """Refuse sequences [samples, time, inputs] that are shorter or longer than an image made of them.

        Raises:
            ValueError: the number of time steps is fixed, and a sequence has another one.
        """
        steps = self.steps
        if steps is None:
            return
        found = {inputs.shape[1], *({} if lengths is None else np.unique(lengths).tolist())} - {steps}
        if found:
            raise ValueError(f"{self.name} takes sequences of {steps} time steps, not of {min(found)}: cut or pad them")

    @property
    def recurrent(self) -> bool:
        """Whether an input is a sequence of vectors instead of one vector."""
        return self.layers[0].sequence

    @property
    def inputs(self) -> int:
        """Number of elements of one input vector; 0 if no known layer takes it."""
        return next((size for _, size in self._inputs()), 0)

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Channels, rows and columns of the input; None if no known layer takes it as an image."""
        seen, waiting = set(), [INPUT]
        while waiting:
            name = waiting.pop(0)
            uses = [(layer, index) for layer, index in self.uses(name) if layer.takes is not None]
            found = next((shape for layer, index in uses if (shape := _shape(layer, index)) is not None), None)
            if found is not None:
                return found
            later = [layer.name for layer, _ in uses if layer.keeps_shape and layer.name not in seen]
            seen.update(later)
            waiting += later
        return None

    @property
    def before_end(self) -> "Model":
        """The model without the layer that can stand at its end only, or the model itself."""
        *layers, last = self.layers
        if not last.ends:
            return self
        graph = self.graph and replace(self.graph, softmax=False)
        return replace(self, layers=tuple(layers), graph=graph, sources={
            k: v for k, v in self.sources.items() if k != last.name})

    @property
    def results(self) -> Results:
        """Names and numbers of elements of the tensors that lie one after the other in the output; empty for one."""
        return self.graph.results if self.graph else ()

    @property
    def table(self) -> np.ndarray | None:
        """Vectors float32[rows, size] of an embedding, which the host looks up; None for none."""
        return self.graph.table if self.graph else None

    @property
    def outputs(self) -> int:
        """Number of elements of the output vector."""
        return self.layers[-1].outputs

    def _steps(self) -> dict[str, int | None]:
        """Number of time steps of the input and of each layer's sequence, as far as they are fixed."""
        ends = self._ends()
        found = {INPUT: next((layer.steps for layer, origin in ends if origin == INPUT), None)}
        for layer in self.layers:
            if layer.makes_sequence:
                found[layer.name] = found.get(self.sources_of(layer)[0]) if layer.sequence else layer.steps
        return found

    def _ends(self) -> list[tuple[Layer, str]]:
        """The layers that make an image of a sequence, each with the layer that made the sequence, or INPUT."""
        origins, ends = {INPUT: INPUT}, []
        for layer in self.layers:
            origin = origins.get(self.sources_of(layer)[0]) if layer.sequence else layer.name
            if layer.makes_sequence:
                origins[layer.name] = origin
            elif layer.sequence:
                ends.append((layer, origin))
        return ends

    def _check_steps(self):
        """Refuse images of sequences that have another number of time steps."""
        for layer, origin in self._ends():
            steps = self.steps_of(origin)
            if origin is not None and layer.steps != steps:
                raise ValueError(f"layer {layer.name!r} makes an image of {layer.steps} time steps, but its sequence "
                                 f"has {steps}; make the two equal")

    def _inputs(self) -> list[tuple[Layer, int]]:
        """The layers that take the network's input, and the number of elements that each takes."""
        return [(layer, size) for layer in self.layers if layer.takes is not None
                for name, size in zip(self.sources_of(layer), layer.takes, strict=True) if name == INPUT]


def _shape(layer: Layer, index: int) -> tuple[int, int, int] | None:
    """The shape of the image that enters a layer at an index; None if the layer does not know it."""
    if isinstance(layer, BlockAttention):
        return (layer.queries, layer.keys, layer.values)[index]
    return getattr(layer, "shape", None)


def _check_sources(layer: Layer, model: Model, made: dict[str, Layer]):
    """Refuse sources that do not fit the layer that they enter."""
    names = model.sources_of(layer)
    if missing := [name for name in names if name != INPUT and name not in made]:
        raise ValueError(f"layer {layer.name!r} takes {missing[0]!r}, which no layer before it makes; put that first")
    if layer.takes is None:
        return
    if len(layer.takes) != len(names):
        raise ValueError(f"layer {layer.name!r} takes {len(layer.takes)} tensors, but sources names {len(names)}")
    for size, name in zip(layer.takes, names, strict=True):
        source = made.get(name)
        if source is None or source.outputs is None:
            continue
        if source.outputs != size:
            raise ValueError(
                f"layer {layer.name!r} takes {size} inputs, but {source.name!r} before it gives {source.outputs}; "
                "make the two sizes equal")
        if layer.sequence and not source.makes_sequence:
            raise ValueError(
                f"recurrent layer {layer.name!r} cannot follow layer {source.name!r}, which sees one vector and not a "
                "sequence; put recurrent layers first, or an ImageToSequence between them")

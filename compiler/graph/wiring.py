"""The graph of a model: its layers in the order in which they are compiled, and the loops of its recurrent layers.

In a network with images all tensors are images, and a sequence is stored as an image of one row, column by column.
Layers that only read an image as a sequence, or a sequence as an image, disappear where the machine stores both alike.
In all other networks tensors are vectors, and the host sends sequences of any length, time step by time step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from concord.compiler.graph.nodes import CompiledKind
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.neighbours import ALONE, Neighbours, needed
from concord.net.layers.attention import BlockAttention
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Concat, GatedChannels, SequenceConcat, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, BlockAverage, BlockQuantizedResult, MaxPool, QuantizedResult
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.recurrent import Recurrent
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.model import Model
from concord.net.wired import INPUT, Wired
from concord.spec.isa.memories import Mem

#: Classes of layers that have images.
IMAGES = (Conv, BlockConv, Average, BlockAverage, MaxPool, Enlarge, ImageToSequence, SequenceToImage,
          GatedChannels, BlockAttention, PixelOffsets,
          ConstantPositions)
#: Quantised results, which are vectors where their image has one pixel.
_RESULTS = (QuantizedResult, BlockQuantizedResult)
#: Name of the network's input when it comes in reverse order, from the last time step to the first one.
BACKWARD = "(backward)"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecurrentLoop:
    """Recurrent layers that share one loop over time steps.

    Attributes:
        entry:   How the first layer reads its source, an image; None where the host sends one time step after the
            other, for any number of them.
        layers:  The recurrent layers, each after its source; all begin at the same end.
        sources: Name of the source of each recurrent layer.
        images:  Layers that make images of their hidden vectors of all time steps.
    """

    entry: ImageToSequence | None
    layers: list[Recurrent] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    images: list[SequenceToImage] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Wiring(Wired[Layer]):
    """Layers and what enters them.

    Attributes:
        kind_of:  From a layer, or None for the network's input, to its kind.
        entering: Channels, rows and columns of the network's input.
        read:     Memory from which products read tensors, see `Value`.
        layers:   The layers in the order in which they are compiled; the last one makes the network's result.
        sources:  Names of the tensors that enter each layer, INPUT for the network's input.
        loops:    The loop of each recurrent layer and of each image of its hidden vectors, by the name of the layer.
        problems: Reasons about layers that the machine cannot run, by the name of the layer.
        softmax:  The softmax of the result on its way to the host, or None.
        results:  Names of the tensors that leave the machine.
    """

    kind_of: Callable[[Layer | None], CompiledKind]
    entering: tuple[int, int, int]
    read: Mem
    layers: list[Layer]
    sources: Mapping[str, tuple[str, ...]]
    loops: Mapping[str, RecurrentLoop]
    problems: Mapping[str, list[Reason]]
    results: tuple[str, ...]
    softmax: Softmax | None = None

    @property
    def nodes(self) -> tuple[Layer, ...]:
        """The layers."""
        return tuple(self.layers)

    def sources_of(self, node: Layer) -> tuple[str, ...]:
        """Names of the sources of a layer."""
        return self.sources[node.name]


def has_images(model: Model, neighbours: Neighbours = ALONE) -> bool:
    """Whether a model, or the network of which it is a part, has layers of images."""
    vectors = _RESULTS if model.recurrent else ()  # such as behind the last time step of any number of them
    return neighbours.images or any(isinstance(layer, IMAGES) and not (
        isinstance(layer, vectors) and layer.shape[1:] == (1, 1)) for layer in model.layers)


def wired(model: Model, kind_of: Callable[[Layer | None], CompiledKind], neighbours: Neighbours = ALONE) -> Wiring:
    """The wiring of a model; layers that do not lead to its results are left out.

    Args:
        model:      The model, or a part of one.
        kind_of:    From a layer, or None for the network's input, to its kind.
        neighbours: The machines before and after, where the model is a part.
    """
    last, whole = model.layers[-1], model.before_end
    if has_images(model, neighbours):
        wiring = Wires(whole, neighbours.sends, kind_of).wiring()
    else:
        wiring = _vectors(whole, neighbours.sends, kind_of)
    return replace(wiring, softmax=last if isinstance(last, Softmax) else None,
                   entering=neighbours.shape or wiring.entering)


def _vectors(model: Model, sends: Sequence[str], kind_of: Callable[[Layer | None], CompiledKind]) -> Wiring:
    """The wiring of a model without images: all of its recurrent layers share one loop, which comes first."""
    results = tuple(sends) or (model.layers[-1].name,)
    layers = needed(model, results)
    sources = {layer.name: tuple(BACKWARD if layer.sequence and layer.reverse and name == INPUT else name
                                 for name in model.sources_of(layer)) for layer in layers}
    recurrent = [layer for layer in layers if layer.sequence]
    loop = RecurrentLoop(entry=None, layers=recurrent, sources=[sources[layer.name][0] for layer in recurrent])
    return Wiring(kind_of=kind_of, entering=(model.inputs, 1, 1), read=Mem.INITIAL_VRF,
                  layers=[*recurrent, *(layer for layer in layers if not layer.sequence)], sources=sources,
                  loops={layer.name: loop for layer in recurrent}, problems={}, results=results)


class Wires:
    """Follows the layers of a model in order.

    Args:
        model:   The model.
        sends:   Names of the layers whose results count; that of the last layer by default.
        kind_of: From a layer to its kind, which says how it is followed.

    Attributes:
        images:  The tensor that stands for the result of a layer, read as an image, by the name of the layer.
        entries: The image that is read as a sequence, and how, by the name of the layer that reads it so.
        joined:  Concatenations of sequences, by name.
    """

    def __init__(self, model: Model, sends: Sequence[str], kind_of: Callable[[Layer | None], CompiledKind]):
        self._kind_of = kind_of
        self._model, self._results = model, tuple(sends) or (model.layers[-1].name,)
        self._layers: dict[str, Layer] = {}
        self._sources: dict[str, tuple[str, ...]] = {}
        self.images = {INPUT: INPUT}
        self.entries: dict[str, tuple[str, ImageToSequence]] = {}
        self.joined: dict[str, SequenceConcat] = {}
        self._loops: dict[str, RecurrentLoop] = {}
        self._problems: dict[str, list[Reason]] = {}
        for layer in needed(model, self._results):
            kind_of(layer).follow(self, layer, model.sources_of(layer))

    def wiring(self) -> Wiring:
        """The result."""
        ordered = []
        for last in (layer for layer in self._model.layers if layer.name in self._results):
            if self.images.get(last.name) != last.name:
                self._problem(last, "it only puts numbers into another order: put a layer that computes after it")
        for layer in self._layers.values():
            loop = self._loops.get(layer.name)
            if loop is None:
                ordered.append(layer)
            elif layer is loop.layers[0]:
                ordered += [*loop.layers, *loop.images]
        return Wiring(kind_of=self._kind_of, entering=self._entering(), read=Mem.VECTOR_RF, layers=ordered,
                      sources=self._sources, loops=self._loops, problems=self._problems, results=self._results)

    def _entering(self) -> tuple[int, int, int]:
        if self._model.recurrent:
            return self._model.inputs, 1, self._model.steps or 1
        return self._model.image or (self._model.inputs, 1, 1)

    def follow_recurrent(self, layer: Recurrent, source: str):
        """Let a recurrent layer join the loop of its source, or begin a loop on an image."""
        before = self._layers.get(source)
        if isinstance(before, Recurrent) and before.reverse == layer.reverse:
            loop, name = self._loops[source], source
        elif source in self.entries:
            name, entry = self.entries[source]
            loop = RecurrentLoop(entry=entry)
        else:
            name, steps = self.all_steps(layer, source), self._model.steps_of(source)
            loop = RecurrentLoop(entry=ImageToSequence(name=layer.name, shape=(layer.inputs, 1, steps or 1)))
        loop.layers.append(layer)
        loop.sources.append(name)
        self._loops[layer.name] = loop
        self.add(layer, (name,))

    def all_steps(self, reader: Layer, source: str) -> str:
        """The tensor of a sequence, stored as an image of one row."""
        steps = self._model.steps_of(source)
        if steps is None:
            self._problem(reader, "its sequence has any number of time steps, and a network with images stores all of "
                                  "a fixed number: put a SequenceToImage after the sequence, or leave out the images")
            return INPUT
        if source == INPUT:
            return INPUT
        if source in self.entries:
            name, entry = self.entries[source]
            if entry.shape[1] > 1:
                self._problem(reader, f"it reads {source!r}, of which a time step has several pixels: let recurrent "
                                      "layers read it, or reshape it on the host")
            return name
        if source in self.joined:
            return self._join(reader, source)
        loop, layer = self._loops[source], self._layers[source]
        found = next((one for one in loop.images if self._sources[one.name] == (source,)), None)
        if found is None:
            named = isinstance(reader, SequenceToImage) and self._model.sources_of(reader) == (source,)
            name = reader.name if named else f"{source}, all steps"
            found = SequenceToImage(name=name, inputs=layer.outputs, steps=steps)
            loop.images.append(found)
            self._loops[found.name] = loop
            self.add(found, (source,))
        return found.name

    def _join(self, reader: Layer, source: str) -> str:
        """The concatenation of sequences, stored as images."""
        if source not in self._layers:
            layer, steps = self.joined[source], self._model.steps_of(source)
            parts = tuple(self.all_steps(reader, part) for part in self._model.sources_of(layer))
            self.add(Concat(name=source, sizes=tuple(size * steps for size in layer.sizes)), parts)
        return source

    def image(self, reader: Layer, source: str) -> str:
        """The tensor that a layer of images reads: of a sequence, the vector of the last time step."""
        if source in self.entries or source in self.joined or (source == INPUT and self._model.recurrent):
            self._problem(reader, f"it reads only the last time step of {source or 'the input'!r}, which no recurrent "
                                  "layer makes: read a recurrent layer, or an image of all time steps")
            return INPUT
        return self.images[source]

    def add(self, layer: Layer, sources: tuple[str, ...]):
        """Add a layer, whose result is an image."""
        self._layers[layer.name], self._sources[layer.name] = layer, sources
        self.images[layer.name] = layer.name

    def _problem(self, layer: Layer, sentence: str):
        self._problems.setdefault(layer.name, []).append(Reason(sentence=sentence))

"""A model as a list of nodes with the shapes of all tensors, which layers do not know where they only join tensors."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.cells.registry import RECURRENT
from concord.compiler.graph import kernels
from concord.compiler.graph.entries import Entry
from concord.compiler.graph.sender import Sender, cheapest, kernel_of
from concord.compiler.graph.values import Value
from concord.compiler.graph.wiring import BACKWARD, Loop, Wiring
from concord.compiler.lib.neighbours import ALONE, Neighbours
from concord.compiler.lib.reason import Reason
from concord.compiler.lib.received import Received
from concord.net.arithmetic.places import flattened, joined
from concord.net.layers.add import Add
from concord.net.layers.concat import Concat
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.layer import Layer
from concord.net.layers.pool import MaxPool
from concord.net.layers.recurrent import Recurrent
from concord.net.model import INPUT
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Node:
    """A layer and the tensors around it.

    Attributes:
        layer:   The layer; None for the network's input.
        sources: Tensors that enter.
        value:   Tensor that the layer makes.
    """

    layer: Layer | None
    sources: tuple[Value, ...]
    value: Value

    @property
    def name(self) -> str:
        return self.value.name

    @property
    def multiplies(self) -> bool:
        """Whether the layer is a product."""
        return isinstance(self.layer, kernels.PRODUCTS)

    @property
    def activation(self) -> Activation:
        """The activation function of the result."""
        return getattr(self.layer, "activation", Activation.NONE)


class Network:
    """The nodes of a model, in order.

    Args:
        wiring:  Layers that images can have, and what enters them.
        config:  Configuration of the machine.
        content: From a layer to the layer whose numbers fill the memories; the same one by default.
        neighbours: The machines before and behind. Another machine sends the input in words and pixel by pixel; the
            host may send patches.

    Attributes:
        nodes:    The nodes; the first one is the network's input as the host sends it, or the first ones are what the
            machine before sends.
        sender:   How an image is sent; None where vectors are sent, or the machine before sends several tensors.
        results:  The nodes of the tensors that leave the machine.
        problems: Reasons about layers whose shapes or blocks do not fit the machine, by the layer's name.
        softmax:  The softmax of the result on its way to the host, or None.
        read:     Memory from which products read tensors, see `Value`.
        before:   Whether another machine sends the input.
        every:    Whether the result of every time step is sent.
    """

    def __init__(self, wiring: Wiring, config: Config, content: Callable[[Layer], Layer] = lambda layer: layer,
                 neighbours: Neighbours = ALONE):
        self._config, self._block, self._moved = config, config.native_dim, {}
        self._content, self.softmax = content, wiring.softmax
        self._loops, self.read = wiring.loops, wiring.read
        self.before, self.every = neighbours.before, neighbours.steps
        self.sender = self._sender(wiring)
        self._build(wiring)
        while moved := self._terms_in_other_lanes():
            self._moved |= moved
            self._build(wiring)
        self.results = [self.node(name) for name in wiring.results]
        for node in self.results:
            if node.value.lanes > node.value.shape[0]:
                self._problem(node.layer, f"its parts are no multiples of {self._block} channels, and the host "
                                          "receives an image without gaps: put a layer behind it")
        if self.softmax and self.last.value.pixels > 1:
            self._problem(self.softmax, f"the machine sends the {self.last.value.pixels} pixels of its input one by "
                                        "one: put a dense layer in front")
        if self.sender and any(self.sender.patch):
            image, sent = self.sender.image, self.sender.value
            self.nodes[0] = replace(self.nodes[0], value=sent)
            self.nodes[1:] = [replace(node, sources=tuple(sent if source is image else source
                                                          for source in node.sources)) for node in self.nodes[1:]]
            self._index()

    def _sender(self, wiring: Wiring) -> Sender | None:
        readers = [layer for layer in wiring.layers if INPUT in wiring.sources_of(layer)]
        if not readers or self.read is not Mem.VECTOR_RF:
            return None
        made = Value.of("", getattr(readers[0], "made", (readers[0].outputs, 1, 1)))
        image = Value.of(INPUT, wiring.entering)
        return Sender(image=image) if self.before else cheapest(self._config, image, readers, made)

    def _build(self, wiring: Wiring):
        """Make the nodes, with the network's input as the model has it."""
        self.problems: dict[str, list[Reason]] = {}
        entering = [layer for layer in wiring.layers if isinstance(layer, Received)]
        values = {layer.name: self._value(layer.name, layer.shape or (layer.outputs, 1, 1)) for layer in entering}
        if self.sender:
            values[INPUT] = self.sender.image
        else:
            read = {name for layer in wiring.layers for name in wiring.sources_of(layer)}
            values |= {name: self._value(name, wiring.entering) for name in (INPUT, BACKWARD) if name in read}
        self.nodes = [Node(layer=None, sources=(), value=value) for value in values.values()]
        for layer in (layer for layer in wiring.layers if layer not in entering):
            sources = tuple(self._reshaped(values[name], layer) for name in wiring.sources_of(layer))
            values[layer.name] = self._made(layer, sources)
            self.nodes.append(Node(layer=layer, sources=sources, value=values[layer.name]))
        self._index()

    def _value(self, name: str, shape: tuple[int, int, int]) -> Value:
        """A tensor whose channels follow each other."""
        return Value.of(name, shape, self.read)

    def _index(self):
        self._by_name = {node.name: node for node in self.nodes}
        self._consumers: dict[str, list[tuple[Node, int]]] = {}
        for node in self.nodes:
            for index, source in enumerate(node.sources):
                self._consumers.setdefault(source.name, []).append((node, index))

    def _terms_in_other_lanes(self) -> dict[str, np.ndarray]:
        """Places for a term of a sum whose other term has gaps between its channels, by the layer that makes it.

        The rows of a product can be put into any lanes, if nothing else reads it.
        """
        for node in self.nodes:
            if isinstance(node.layer, Add) and node.sources[0].shape == node.sources[1].shape:
                for term, other in (node.sources, node.sources[::-1]):
                    maker = self.maker(term)
                    free = maker.multiplies and len(self.consumers(term)) == 1 and term.name not in self._moved
                    if free and not _alone(maker.layer, maker.sources[0]) and other.lanes > term.lanes:
                        return {term.name: other.places}
        return {}

    def kernel(self, node: Node) -> kernels.Kernel:
        """The weights of a layer that multiplies."""
        source, content = node.sources[0], self._content(node.layer)
        if self.sender and source.name == INPUT:
            return kernel_of(self.sender, node.layer, node.value, content)
        return kernels.kernel_of(node.layer, source, node.value, content)

    def loop(self, node: Node) -> Loop | None:
        """The loop over time steps to which a node belongs, or None."""
        return self._loops.get(node.name)

    @property
    def steps(self) -> bool:
        """Whether the host sends the time steps of a sequence of any length."""
        return any(loop.entry is None for loop in self._loops.values())

    def begins_loop(self, node: Node) -> bool:
        """Whether a node is the first recurrent layer of a loop."""
        loop = self.loop(node)
        return loop is not None and loop.layers[0] is node.layer

    def node(self, name: str) -> Node:
        """The node of a layer."""
        return self._by_name[name]

    def maker(self, value: Value) -> Node:
        """The node that makes a tensor."""
        return self._by_name[value.name]

    def consumers(self, value: Value) -> list[tuple[Node, int]]:
        """The nodes that read a tensor, each with the index at which it enters."""
        return self._consumers.get(value.name, [])

    @property
    def entering(self) -> list[Node]:
        """The nodes of the tensors that come from NetQ, in order."""
        return [node for node in self.nodes if node.layer is None]

    @property
    def last(self) -> Node:
        """The node that makes the result of the network."""
        return self.nodes[-1]

    def _reshaped(self, value: Value, layer: Layer) -> Value:
        """A source as a layer sees it; the shapes must agree."""
        loop = self._loops.get(layer.name)
        wanted = getattr(loop.entry if loop and layer is loop.layers[0] else layer, "shape", None)
        if wanted is not None and tuple(wanted) != value.shape:
            self._problem(layer, f"it takes an image of {_title(wanted)}, but its source is one of "
                                 f"{_title(value.shape)}: put no other layer than a dense one behind a flattened image")
            return Value.of(value.name, tuple(wanted))
        return value

    def _made(self, layer: Layer, sources: tuple[Value, ...]) -> Value:
        """The tensor that a layer makes."""
        match layer:
            case Conv() | BlockConv() if _alone(layer, sources[0]):
                value = Value(name=layer.name, shape=layer.made, places=sources[0].places)
            case MaxPool():
                value = Value(name=layer.name, shape=layer.made, places=sources[0].places)
            case Add():
                a, b = sources
                if a.shape != b.shape or not np.array_equal(a.places, b.places):
                    self._problem(layer, f"its tensors, images of {_title(a.shape)} and {_title(b.shape)}, lie in "
                                         "different order: add images of one shape, whose parts of a concatenation are "
                                         f"multiples of {self._block} channels")
                value = replace(a, name=layer.name)
            case Concat():
                value = self._joined(layer, sources)
            case _:
                shape = getattr(layer, "made", (layer.outputs, 1, 1))
                value = self._value(layer.name, shape)
                if layer.name in self._moved:
                    value = replace(value, places=self._moved[layer.name])
        if value.lanes > value.shape[0] and getattr(layer, "activation", None) is Activation.SIGMOID:
            self._problem(layer, "its sigmoid gives 1/2 in the gaps between the parts of a concatenation: give each "
                                 f"part a multiple of {self._block} channels")
        if isinstance(layer, Recurrent):
            self._enter(layer, sources[0])
        if isinstance(layer, kernels.PRODUCTS) and not value.in_words:
            patched = self.sender and sources[0] is self.sender.image and all(self.sender.patch)
            for sentence in kernels.problems(layer, sources[0], self._block, patched):
                self._problem(layer, sentence)
        return value

    def _enter(self, layer: Recurrent, source: Value):
        """Check the first recurrent layer of a loop, whose time steps hold the lanes of several pixels."""
        loop = self._loops[layer.name]
        if loop.entry and layer is loop.layers[0]:
            entry = Entry(config=self._config, entry=loop.entry, value=source)
            found = entry.problems(layer)
            for sentence in found or RECURRENT[type(layer)].problems(entry.spread(layer), self._config):
                self._problem(layer, sentence)

    def _joined(self, layer: Concat, sources: tuple[Value, ...]) -> Value:
        """The concatenation along channels of images of one size, or of flattened images; vectors join in words."""
        if sources[0].in_words:
            parts = [source.places for source in sources]
            return replace(sources[0], name=layer.name, shape=(layer.outputs, 1, 1),
                           places=joined(parts, self._config.mfu_lanes))
        if len({source.shape[1:] for source in sources}) == 1:
            channels = sum(source.shape[0] for source in sources)
            return Value(name=layer.name, shape=(channels, *sources[0].shape[1:]),
                         places=joined([source.places for source in sources], self._block))
        parts = [flattened(source.places, source.pixels, self._block) for source in sources]
        return Value(name=layer.name, shape=(layer.outputs, 1, 1), places=joined(parts, self._block))

    def _problem(self, layer: Layer, sentence: str):
        self.problems.setdefault(layer.name, []).append(Reason(sentence=sentence))


def _alone(layer: Layer, source: Value) -> bool:
    """Whether each channel of the result sees one channel of the source, so that it stays in its lane."""
    return isinstance(layer, Conv | BlockConv) and layer.groups == layer.channels == source.shape[0]


def _title(shape: tuple[int, int, int]) -> str:
    return " x ".join(map(str, shape))

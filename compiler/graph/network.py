"""A model as a list of nodes with the shapes of all tensors, which layers do not know where they only join tensors."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.compiler.graph import kernels
from concord.compiler.graph.entering import Sender, cheapest
from concord.compiler.graph.nodes import PlannedNode, Value
from concord.compiler.graph.wiring import BACKWARD, RecurrentLoop, Wiring
from concord.compiler.lib.limits import Reason
from concord.compiler.lib.neighbours import ALONE, Neighbours, Received
from concord.golden.lib import float16
from concord.golden.mfu.multifunction import activate
from concord.net.layers.joins import Add, Concat
from concord.net.layers.layer import Layer
from concord.net.wired import INPUT, Wired
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.activation import Activation


class PlannedNetwork(Wired[PlannedNode]):
    """The nodes of a model, in order.

    Args:
        wiring:  Layers that images can have, and what enters them.
        config:  Configuration of the machine.
        content: From a layer to the layer whose numbers fill the memories; the same one by default.
        neighbours: The machines before and after. Another machine sends the input in words and pixel by pixel; the
            host may send patches.

    Attributes:
        nodes:    The nodes; the first one is the network's input as the host sends it, or the first ones are what the
            machine before sends.
        sender:   How an image is sent; None where vectors are sent, or the machine before sends several tensors.
        results:  The nodes of the tensors that leave the machine.
        loops:    The loop over time steps to which a layer belongs, by the layer's name.
        problems: Reasons about layers whose shapes or blocks do not fit the machine, by the layer's name.
        softmax:  The softmax of the result on its way to the host, or None.
        read:     Memory from which products read tensors, see `Value`.
        before:   Whether another machine sends the input.
        every:    Whether the result of every time step is sent.
    """

    def __init__(self, wiring: Wiring, config: Config, content: Callable[[Layer], Layer] = lambda layer: layer,
                 neighbours: Neighbours = ALONE):
        self.config, self._moved = config, {}
        self._kind_of, self._content, self.softmax = wiring.kind_of, content, wiring.softmax
        self.loops, self.read = wiring.loops, wiring.read
        self.before, self.every = neighbours.before, neighbours.steps
        self.sender = self._sender(wiring)
        self._build(wiring)
        while moved := self._terms_in_other_lanes():
            self._moved |= moved
            self._build(wiring)
        self.results = [self.node(name) for name in wiring.results]
        for node in self.results:
            if (neighbours.behind or self.softmax) and not node.value.adjacent:
                self.problem(node.layer, _order(node.value, self.config.native_dim) + (
                    ": cut elsewhere" if neighbours.behind else ": put a dense layer behind it"))
        if self.softmax and self.last.value.pixels > 1:
            self.problem(self.softmax, f"the machine sends the {self.last.value.pixels} pixels of its input one by "
                                       "one: put a dense layer in front")
        if self.sender and any(self.sender.patch):
            image, sent = self.sender.image, self.sender.value
            self.nodes = (replace(self.nodes[0], value=sent), *(
                replace(node, sources=tuple(sent if source is image else source for source in node.sources))
                for node in self.nodes[1:]))

    def sources_of(self, node: PlannedNode) -> tuple[str, ...]:
        """Names of the tensors that enter a node."""
        return tuple(source.name for source in node.sources)

    def _sender(self, wiring: Wiring) -> Sender | None:
        readers = wiring.readers(INPUT)
        if not readers or self.read is not Mem.VECTOR_RF:
            return None
        made = Value.of("", getattr(readers[0], "made", (readers[0].outputs, 1, 1)))
        image = Value.of(INPUT, wiring.entering)
        return Sender(image=image) if self.before else cheapest(self.config, image, readers, made)

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
        nodes = [PlannedNode(layer=None, kind=self._kind_of(None), sources=(),
                             value=value) for value in values.values()]
        for layer in (layer for layer in wiring.layers if layer not in entering):
            sources = tuple(self._reshaped(values[name], layer) for name in wiring.sources_of(layer))
            nodes.append(self._node(layer, sources))
            values[layer.name] = nodes[-1].value
        self.nodes = tuple(nodes)
        for node in self.nodes:
            for source in node.sources:
                if source.in_words and not source.adjacent and not isinstance(node.layer, Concat):
                    self._ragged(self.maker(source).layer, node.layer)

    def _value(self, name: str, shape: tuple[int, int, int]) -> Value:
        """A tensor whose channels follow each other."""
        return Value.of(name, shape, self.read)

    def _terms_in_other_lanes(self) -> dict[str, np.ndarray]:
        """Places for a term of a sum whose other term has gaps between its channels, by the layer that makes it.

        The rows of a product can be put into any lanes, if nothing else reads it.
        """
        for node in self.nodes:
            if isinstance(node.layer, Add) and node.sources[0].shape == node.sources[1].shape:
                for term, other in (node.sources, node.sources[::-1]):
                    maker = self.maker(term)
                    free = len(self.consumers(term)) == 1 and term.name not in self._moved and isinstance(
                        maker.layer, kernels.PRODUCTS) and not kernels.alone(maker.layer, maker.sources[0])
                    if free and other.lanes > term.lanes:
                        return {term.name: other.places}
        return {}

    def kernel(self, node: PlannedNode) -> kernels.Kernel:
        """The weights of a layer that multiplies."""
        sender = self.sender if self.sender and node.sources[0].name == INPUT else None
        source = sender.image if sender else node.sources[0]
        kernel = kernels.kernel_of(node.layer, source, node.value, self._content(node.layer))
        return kernels.patched(kernel, sender.patch) if sender and any(sender.patch) else kernel

    def loop(self, node: PlannedNode) -> RecurrentLoop | None:
        """The loop over time steps to which a node belongs, or None."""
        return self.loops.get(node.name)

    @property
    def steps(self) -> bool:
        """Whether the host sends the time steps of a sequence of any length."""
        return any(loop.entry is None for loop in self.loops.values())

    def begins_loop(self, node: PlannedNode) -> bool:
        """Whether a node is the first recurrent layer of a loop."""
        loop = self.loop(node)
        return loop is not None and loop.layers[0] is node.layer

    def maker(self, value: Value) -> PlannedNode:
        """The node that makes a tensor."""
        return self.node(value.name)

    def consumers(self, value: Value) -> tuple[tuple[PlannedNode, int], ...]:
        """The nodes that read a tensor, each with the index at which it enters."""
        return self.uses(value.name)

    @property
    def entering(self) -> list[PlannedNode]:
        """The nodes of the tensors that come from NetQ, in order."""
        return [node for node in self.nodes if node.layer is None]

    @property
    def last(self) -> PlannedNode:
        """The node that makes the result of the network."""
        return self.nodes[-1]

    def _reshaped(self, value: Value, layer: Layer) -> Value:
        """A source as a layer sees it; the shapes must agree."""
        loop = self.loops.get(layer.name)
        wanted = getattr(loop.entry if loop and layer is loop.layers[0] else layer, "shape", None)
        if wanted is not None and tuple(wanted) != value.shape:
            self.problem(layer, f"it takes an image of {title(wanted)}, but its source is one of "
                                f"{title(value.shape)}: put no other layer than a dense one after a flattened image")
            return Value.of(value.name, tuple(wanted))
        return value

    def _node(self, layer: Layer, sources: tuple[Value, ...]) -> PlannedNode:
        """The node of a layer, after all checks of what enters it and of what it makes."""
        kind = self._kind_of(layer)
        value = kind.made(self, layer, sources)
        function = getattr(layer, "activation", Activation.NONE)
        if value.lanes > value.shape[0] and (at_zero := float16.to_real(activate(function, np.zeros(1, np.uint16)))[0]):
            self.problem(layer, f"its {function} gives {at_zero:g} in the gaps between the parts of a concatenation: "
                                f"give each part a multiple of {self.config.native_dim} channels")
        for sentence in kind.objections(self, layer, sources[0]):
            self.problem(layer, sentence)
        return PlannedNode(layer=layer, kind=kind, sources=sources, value=value)

    def _ragged(self, joined: Concat, reader: Layer):
        """Note why a layer cannot read a vector of parts that do not fill words. The host can take it."""
        lanes = self.config.mfu_lanes
        for size in joined.sizes[:-1]:
            if size % lanes:
                self.problem(joined, f"its part of {size} elements is no whole number of words of {lanes}, so that "
                                    f"{reader.name!r} would read gaps: give that part a multiple of {lanes} elements, "
                                    "or put it last")

    def new(self, layer: Layer) -> Value:
        """The tensor of a layer whose channels follow each other, unless a sum needs them in other lanes."""
        value = self._value(layer.name, getattr(layer, "made", (layer.outputs, 1, 1)))
        return replace(value, places=self._moved[layer.name]) if layer.name in self._moved else value

    def patched(self, value: Value) -> bool:
        """Whether the host sends a tensor as patches, which hold all rows and columns of a window."""
        return self.sender is not None and value is self.sender.image and all(self.sender.patch)

    def problem(self, layer: Layer, sentence: str):
        """Note a reason why the machine cannot run a layer."""
        self.problems.setdefault(layer.name, []).append(Reason(sentence=sentence))


def _order(value: Value, native_dim: int) -> str:
    """Why neither another machine nor the softmax unit takes a result whose elements do not follow each other."""
    if value.lanes > value.shape[0]:
        return f"its parts are no multiples of {native_dim} channels, so that there are gaps between them"
    return "it has the elements of an image beside others, which the machine sends pixel by pixel"


def title(shape: tuple[int, int, int]) -> str:
    """The sizes of an image, for people."""
    return " x ".join(map(str, shape))

"""What becomes of each node of a network that is quantised already: a layer, part of a layer, or operand codes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.grid import IntegerGrid, Quantize
from concord.net.ops.joins import Addition, Concatenation
from concord.net.ops.pointwise import Pointwise, Relu
from concord.net.ops.pooling import AveragePooling, MaxPooling
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import Scale
from concord.net.ops.weighted import Weighted
from concord.net.qdq.graph import PRODUCTS
from concord.spec.numbers.activation import Activation

#: Operators without weights that become layers of their own.
PLAIN = (Addition, Concatenation, MaxPooling)
ANEW = "quantise the network anew (--anew)"


class Inexact(ValueError):
    """The reason why a node cannot be computed as its file says, with what to do."""


@dataclass(kw_only=True, eq=False)
class HalfTensor:
    """A result in binary16.

    Attributes:
        shape:       [channels, rows, columns] or [elements].
        layer:       The layer that computes it, or None for the network's input.
        nonnegative: Whether no element is below zero.
        ceiling:     Where a relu clips it, which is left to the quantisers that read it; or None.
        scale, offset: For the input, what a constant scale and offset ahead of the quantiser make of it, [channels].
    """

    shape: tuple[int, ...]
    layer: "PlannedLayer | None" = None
    nonnegative: bool = False
    ceiling: float | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None


@dataclass(kw_only=True, eq=False)
class QuantizedTensor:
    """A quantiser of a tensor, which layers with weights and averages read."""

    node: Node
    source: HalfTensor
    grid: IntegerGrid

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.source.shape


@dataclass(kw_only=True, eq=False)
class PlannedLayer:
    """A layer.

    Attributes:
        name:       Unique name.
        node:       Its node.
        shape:      Shape of what it gives.
        sources:    What it reads.
        gain:       float64[outputs], a constant scale behind the product.
        constant:   float64[outputs], a constant offset behind that.
        activation: Activation function of the result.
        readers:    Layers and quantisers that read its result, and None for the network's output.
    """

    name: str
    node: Node
    shape: tuple[int, ...]
    sources: Sequence[HalfTensor | QuantizedTensor]
    gain: np.ndarray | None = None
    constant: np.ndarray | None = None
    activation: Activation = Activation.NONE
    readers: list = field(default_factory=list)

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies quantised numbers."""
        return isinstance(self.node.op, PRODUCTS)


class IntegerPlan:
    """The layers of a network that `graph.prepared` made.

    Attributes:
        layers:     Layers in order.
        quantizers: Quantisers in order.
        problems:   Nodes that cannot be computed as their file says, by name, each with the reason.
        network:    The network.
        shapes:     Shape of the result of each node.
    """

    def __init__(self, network: Graph):
        self.layers: list[PlannedLayer] = []
        self.quantizers: list[QuantizedTensor] = []
        self.problems: dict[str, str] = {}
        self.network, self.shapes = network, network.shapes
        self._made = {INPUT: HalfTensor(shape=self.shapes[INPUT])}
        for node in network.nodes:
            taken = [self._made.get(name) for name in node.sources]
            try:
                if None in taken:  # what follows from a refusal is no problem of its own
                    self._check_product(node, self._is_quantized(node.sources[0]))
                    continue
                self._made[node.name] = self._taken(node, taken)
            except Inexact as error:
                self.problems[node.name] = str(error)
        self._note_readers(network.output.name)

    def _taken(self, node: Node, taken: list[HalfTensor | QuantizedTensor]) -> HalfTensor | QuantizedTensor:
        """What a node gives.

        Raises:
            Refused: it cannot be computed as the file says.
        """
        x, op = taken[0], node.op
        if isinstance(op, Flatten):
            return x
        if isinstance(op, Quantize):
            self.quantizers.append(QuantizedTensor(node=node, source=x, grid=op.grid))
            return self.quantizers[-1]
        if isinstance(op, PRODUCTS):
            return self._product(node, x)
        if any(isinstance(one, HalfTensor) and (one.ceiling is not None or one.scale is not None) for one in taken):
            raise Inexact("it reads what a relu with a ceiling, or a scale of the inputs, gives without a quantiser "
                          f"between; put a quantiser there, or {ANEW}")
        if isinstance(op, PLAIN):
            return self._plain(node, taken)
        if isinstance(op, Scale):
            return self._scaled(node, x)
        if isinstance(op, Pointwise) and op.activation is not None:
            return self._curve(node, x)
        raise Inexact(f"the machine has no {op.label} of networks that are quantised already; {ANEW}")

    def _layer(self, node: Node, sources: Sequence[HalfTensor | QuantizedTensor], nonnegative: bool, name: str = "",
               **fields) -> HalfTensor:
        self.layers.append(PlannedLayer(name=name or node.name, node=node, shape=self.shapes[node.name],
                                        sources=sources, **fields))
        return HalfTensor(shape=self.shapes[node.name], layer=self.layers[-1], nonnegative=nonnegative)

    def _product(self, node: Node, x: HalfTensor | QuantizedTensor) -> HalfTensor:
        self._check_product(node, isinstance(x, QuantizedTensor))
        average = not isinstance(node.op, Weighted)
        outputs = self.shapes[node.name][0]
        first = x.grid.lowest - x.grid.zero_point
        return self._layer(node, [x], average and (first >= 0 or x.source.nonnegative), gain=np.ones(outputs),
                           constant=np.zeros(outputs))

    def _is_quantized(self, name: str) -> bool:
        """Whether a quantiser gives a tensor, which may be flattened behind it."""
        node = self.network.node(name)
        if node is not None and isinstance(node.op, Flatten):
            return self._is_quantized(node.sources[0])
        return node is not None and isinstance(node.op, Quantize)

    def _check_product(self, node: Node, quantized: bool):
        """Refuse a product whose input or weights are not quantised, or an average of unequal windows."""
        if not isinstance(node.op, PRODUCTS):
            return
        if not quantized:
            raise Inexact(f"its input is not quantised; put a quantiser ahead of it and train again, or {ANEW}")
        if not isinstance(node.op, Weighted):
            self._check_average(node)
        elif node.op.grid is None:
            raise Inexact(f"its weights are not quantised; quantise them and train again, or {ANEW}")

    def _check_average(self, node: Node):
        if not isinstance(node.op, AveragePooling):
            return
        if any(node.op.window.padding) and not node.op.count_padding:
            raise Inexact("its padding does not count among the pixels, so its factor is not the same everywhere; let "
                          f"the padding count, or {ANEW}")
        if node.op.window.dilation != (1, 1):
            raise Inexact(f"it averages pixels that are no neighbours; {ANEW}")

    def _plain(self, node: Node, taken: list[HalfTensor]) -> HalfTensor:
        nonnegative = all(one.nonnegative for one in taken)
        if not isinstance(node.op, Addition):
            return self._layer(node, taken, nonnegative)
        made = taken[0]
        for index, other in enumerate(taken[1:], 2):
            name = node.name if index == len(taken) else f"{node.name}_{index}"
            made = self._layer(node, [made, other], made.nonnegative and other.nonnegative, name)
        return made

    def _scaled(self, node: Node, x: HalfTensor) -> HalfTensor:
        """A constant scale and offset behind a product, or of the network's input."""
        scale, offset = node.op.line()
        following = self.network.readers(node.name)
        if x.layer is None and all(isinstance(one.op, Quantize) for one in following):
            return HalfTensor(shape=x.shape, scale=scale, offset=offset)
        layer = x.layer
        if layer is None or not layer.multiplies or layer.activation is not Activation.NONE or self._read_else(node):
            raise Inexact("its scale and offset stand behind no layer with weights, which could hold them; move it "
                          f"there, or {ANEW}")
        layer.gain, layer.constant = layer.gain * scale, layer.constant * scale + offset
        return HalfTensor(shape=x.shape, layer=layer)

    def _curve(self, node: Node, x: HalfTensor) -> HalfTensor:
        """An activation function, which the layer before it applies, or the quantisers behind it by their clip."""
        layer, relu = x.layer, isinstance(node.op, Relu)
        ceiling = node.op.ceiling if relu else None
        if ceiling is not None and not self._only_quantizers(node.name):
            raise Inexact(f"its ceiling of {ceiling:g} is left to quantisers behind it, but something else reads it, "
                          f"too; put a quantiser there, or {ANEW}")
        free = layer is not None and layer.activation is Activation.NONE
        if free and not isinstance(layer.node.op, Concatenation) and not self._read_else(node):
            layer.activation = node.op.activation
        elif not relu or layer is None or not self._only_quantizers(node.name):
            raise Inexact(f"no layer can apply it, because its input is read without it, too; {ANEW}")
        return HalfTensor(shape=x.shape, layer=layer, nonnegative=node.op.positive,
                          ceiling=ceiling)

    def _read_else(self, node: Node) -> bool:
        """Whether something else than this node reads its source."""
        return not self.network.alone(node)

    def _only_quantizers(self, name: str) -> bool:
        following = self.network.readers(name)
        return bool(following) and all(isinstance(node.op, Quantize) for node in following)

    def _note_readers(self, output: str):
        for reader in (*self.layers, *self.quantizers):
            for source in reader.sources if isinstance(reader, PlannedLayer) else [reader.source]:
                if isinstance(source, HalfTensor) and source.layer is not None:
                    source.layer.readers.append(reader)
        if isinstance(self._made.get(output), HalfTensor) and self._made[output].layer is not None:
            self._made[output].layer.readers.append(None)

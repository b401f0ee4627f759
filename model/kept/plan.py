"""What becomes of each node of a network that is quantised already: a layer, part of a layer, or operand codes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from concord.model.floating.grid import Grid, grid_of
from concord.model.floating.network import INPUT, FloatNetwork, Node, Op
from concord.model.floating.run import factors
from concord.model.floating.shapes import shapes
from concord.model.kept.graph import PRODUCTS
from concord.spec.activation import Activation

#: Activation functions of layers.
CURVES = {Op.RELU: Activation.RELU, Op.SIGMOID: Activation.SIGMOID, Op.TANH: Activation.TANH}
#: Nodes without weights that become layers of their own.
PLAIN = frozenset({Op.ADD, Op.CONCAT, Op.MAX_POOL})
ANEW = "quantise the network anew (--anew)"


class Refused(ValueError):
    """The reason why a node cannot be computed as its file says, with what to do."""


@dataclass(kw_only=True, eq=False)
class Tensor:
    """A result in binary16.

    Attributes:
        shape:       [channels, rows, columns] or [elements].
        layer:       The layer that computes it, or None for the network's input.
        nonnegative: Whether no element is below zero.
        ceiling:     Where a relu clips it, which is left to the quantisers that read it; or None.
        scale, offset: For the input, what a constant scale and offset ahead of the quantiser make of it, [channels].
    """

    shape: tuple[int, ...]
    layer: "Planned | None" = None
    nonnegative: bool = False
    ceiling: float | None = None
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None


@dataclass(kw_only=True, eq=False)
class Quantised:
    """A quantiser of a tensor, which layers with weights and averages read."""

    node: Node
    source: Tensor
    grid: Grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.source.shape


@dataclass(kw_only=True, eq=False)
class Planned:
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
    sources: Sequence[Tensor | Quantised]
    gain: np.ndarray | None = None
    constant: np.ndarray | None = None
    activation: Activation = Activation.NONE
    readers: list = field(default_factory=list)

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies quantised numbers."""
        return self.node.op in PRODUCTS


class Plan:
    """The layers of a network that `graph.prepared` made.

    Attributes:
        layers:     Layers in order.
        quantisers: Quantisers in order.
        problems:   Nodes that cannot be computed as their file says, by name, each with the reason.
        shapes:     Shape of what each node gives.
    """

    def __init__(self, network: FloatNetwork):
        self.layers: list[Planned] = []
        self.quantisers: list[Quantised] = []
        self.problems: dict[str, str] = {}
        self.shapes, self._nodes = shapes(network), network.nodes
        self._made = {INPUT: Tensor(shape=self.shapes[INPUT])}
        for node in network.nodes:
            taken = [self._made.get(name) for name in node.sources]
            if None in taken:  # what follows from a refusal is no problem of its own
                continue
            try:
                self._made[node.name] = self._taken(node, taken)
            except Refused as error:
                self.problems[node.name] = str(error)
        self._note_readers(network.nodes[-1].name)

    def _taken(self, node: Node, taken: list[Tensor | Quantised]) -> Tensor | Quantised:
        """What a node gives.

        Raises:
            Refused: it cannot be computed as the file says.
        """
        x = taken[0]
        if node.op is Op.FLATTEN:
            return x
        if node.op is Op.QUANTIZE:
            self.quantisers.append(Quantised(node=node, source=x, grid=grid_of(node)))
            return self.quantisers[-1]
        if node.op in PRODUCTS:
            return self._product(node, x)
        if any(isinstance(one, Tensor) and (one.ceiling is not None or one.scale is not None) for one in taken):
            raise Refused("it reads what a relu with a ceiling, or a scale of the inputs, gives without a quantiser "
                          f"between; put a quantiser there, or {ANEW}")
        if node.op in PLAIN:
            return self._plain(node, taken)
        if node.op in (Op.BATCH_NORM, Op.AFFINE):
            return self._scaled(node, x)
        if node.op in CURVES:
            return self._curve(node, x)
        raise Refused(f"the machine has no {node.op} of networks that are quantised already; {ANEW}")

    def _layer(self, node: Node, sources: Sequence[Tensor | Quantised], nonnegative: bool, name: str = "",
               **fields) -> Tensor:
        self.layers.append(Planned(name=name or node.name, node=node, shape=self.shapes[node.name], sources=sources,
                                   **fields))
        return Tensor(shape=self.shapes[node.name], layer=self.layers[-1], nonnegative=nonnegative)

    def _product(self, node: Node, x: Tensor | Quantised) -> Tensor:
        average = node.op not in (Op.DENSE, Op.CONV)
        if not isinstance(x, Quantised):
            raise Refused(f"its input is not quantised; put a quantiser ahead of it and train again, or {ANEW}")
        if average:
            self._check_average(node)
        elif "weight_scale" not in node.tensors:
            raise Refused(f"its weights are not quantised; quantise them and train again, or {ANEW}")
        outputs = self.shapes[node.name][0]
        first = x.grid.lowest - x.grid.zero_point
        return self._layer(node, [x], average and (first >= 0 or x.source.nonnegative), gain=np.ones(outputs),
                           constant=np.zeros(outputs))

    def _check_average(self, node: Node):
        padded = any(node.attributes.get("padding", ()))
        if padded and not node.attributes["count_padding"]:
            raise Refused("its padding does not count among the pixels, so its factor differs from place to place; let "
                          f"the padding count, or {ANEW}")
        if node.attributes.get("dilation", (1, 1)) != (1, 1):
            raise Refused(f"it averages pixels that are no neighbours; {ANEW}")

    def _plain(self, node: Node, taken: list[Tensor]) -> Tensor:
        nonnegative = all(one.nonnegative for one in taken)
        if node.op is not Op.ADD:
            return self._layer(node, taken, nonnegative)
        made = taken[0]
        for index, other in enumerate(taken[1:], 2):
            name = node.name if index == len(taken) else f"{node.name}_{index}"
            made = self._layer(node, [made, other], made.nonnegative and other.nonnegative, name)
        return made

    def _scaled(self, node: Node, x: Tensor) -> Tensor:
        """A constant scale and offset behind a product, or of the network's input."""
        scale, offset = factors(node)
        following = [one for one in self._nodes if node.name in one.sources]
        if x.layer is None and all(one.op is Op.QUANTIZE for one in following):
            return Tensor(shape=x.shape, scale=scale, offset=offset)
        layer = x.layer
        if layer is None or not layer.multiplies or layer.activation is not Activation.NONE or self._read_else(node):
            raise Refused("its scale and offset stand behind no layer with weights, which could hold them; move it "
                          f"there, or {ANEW}")
        layer.gain, layer.constant = layer.gain * scale, layer.constant * scale + offset
        return Tensor(shape=x.shape, layer=layer)

    def _curve(self, node: Node, x: Tensor) -> Tensor:
        """An activation function, which the layer before it applies, or the quantisers behind it by their clip."""
        layer, ceiling, relu = x.layer, node.attributes.get("ceiling"), node.op is Op.RELU
        if ceiling is not None and not self._only_quantisers(node.name):
            raise Refused(f"its ceiling of {ceiling:g} is left to quantisers behind it, but something else reads it, "
                          f"too; put a quantiser there, or {ANEW}")
        free = layer is not None and layer.activation is Activation.NONE and layer.node.op is not Op.CONCAT
        if free and not self._read_else(node):
            layer.activation = CURVES[node.op]
        elif not relu or layer is None or not self._only_quantisers(node.name):
            raise Refused(f"no layer can apply it, because its input is read without it, too; {ANEW}")
        return Tensor(shape=x.shape, layer=layer, nonnegative=relu or node.op is Op.SIGMOID,
                      ceiling=ceiling)

    def _read_else(self, node: Node) -> bool:
        """Whether something else than this node reads its source."""
        return sum(name == node.sources[0] for one in self._nodes for name in one.sources) > 1

    def _only_quantisers(self, name: str) -> bool:
        following = [node for node in self._nodes if name in node.sources]
        return bool(following) and all(node.op is Op.QUANTIZE for node in following)

    def _note_readers(self, output: str):
        for reader in (*self.layers, *self.quantisers):
            for source in reader.sources if isinstance(reader, Planned) else [reader.source]:
                if isinstance(source, Tensor) and source.layer is not None:
                    source.layer.readers.append(reader)
        if isinstance(self._made.get(output), Tensor) and self._made[output].layer is not None:
            self._made[output].layer.readers.append(None)

"""The interface that converts layers to QONNX nodes, and the forms of layers without weights.

`qonnx.graph` lists one form for each class of layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.qonnx.nodes import Nodes
from concord.golden.mfu.multifunction import activate
from concord.net.layers.layer import Layer
from concord.net.layers.pool import MaxPool
from concord.spec.numbers.activation import Activation


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """The result of a layer.

    Attributes:
        name:       Name of the tensor in the graph.
        shape:      Shape of one sample.
        minus_zero: Whether an element may be -0.
    """

    name: str
    shape: tuple[int, ...]
    minus_zero: bool


class Form:
    """Converts layers of one class to nodes."""

    def check(self, layer: Layer):
        """Refuse a layer whose numbers the nodes cannot represent.

        Raises:
            ValueError: a sentence that names the layer.
        """

    def add(self, nodes: Nodes, layer: Layer, sources: Sequence[Tensor]) -> Tensor:
        """Add nodes that compute the layer from the tensors that enter it, and return its result."""
        raise NotImplementedError


class MaxPoolForm(Form):
    """Converts maximum pooling."""

    def add(self, nodes, layer, sources):
        x = shaped(nodes, f"{layer.name}.input", sources[0], layer.shape)
        made = Tensor(name=_maximum(nodes, layer, x), shape=layer.made, minus_zero=x.minus_zero)
        return activated(nodes, layer, made)


class AddForm(Form):
    """Converts the sum of two tensors, rounded to binary16."""

    def add(self, nodes, layer, sources):
        a, b = sources[0], shaped(nodes, f"{layer.name}.other", sources[1], sources[0].shape)
        total = nodes.binary16("Add", f"{layer.name}.sum", a.name, b.name)
        return activated(nodes, layer, replace(a, name=total, minus_zero=a.minus_zero and b.minus_zero))


class ConcatForm(Form):
    """Converts concatenations; images of the same size are joined along their channels."""

    def add(self, nodes, layer, sources):
        if len({x.shape[1:] for x in sources}) > 1:
            sources = [shaped(nodes, f"{layer.name}.{k}", x, (size,))
                       for k, (x, size) in enumerate(zip(sources, layer.sizes, strict=True))]
        name = nodes.add("Concat", f"{layer.name}.y", *(x.name for x in sources), axis=1)
        shape = (sum(x.shape[0] for x in sources), *sources[0].shape[1:])
        return Tensor(name=name, shape=shape, minus_zero=any(x.minus_zero for x in sources))


def activated(nodes: Nodes, layer: Layer, x: Tensor) -> Tensor:
    """Add the nodes of a layer's activation function."""
    name = layer.name
    match layer.activation:
        case Activation.NONE:
            return x
        case Activation.RELU:
            y = nodes.add("Relu", f"{name}.relu", x.name)
            # Relu may return -0 for -0.
            return replace(x, name=nodes.add("Abs", f"{name}.abs", y) if x.minus_zero else y, minus_zero=False)
    results = activate(layer.activation, np.arange(1 << 16, dtype=np.uint16))
    return replace(x, name=nodes.table(f"{name}.{layer.activation}", x.name, results))


def shaped(nodes: Nodes, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Add a node that gives a tensor another shape."""
    return x if x.shape == shape else replace(x, name=nodes.reshaped(name, x.name, shape), shape=shape)


def _maximum(nodes: Nodes, layer: MaxPool, x: Tensor) -> str:
    """The largest value of each window; +0 counts as larger than -0."""
    name, value = layer.name, x.name
    if x.minus_zero:
        # +0 is represented by a tiny positive number, which binary16 rounds to +0.
        inverse = nodes.add("Reciprocal", f"{name}.inverse", value)
        plus = nodes.add("Equal", f"{name}.plus", inverse, nodes.constant(f"{name}.infinity", np.inf))
        value = nodes.add("Where", f"{name}.marked", plus, nodes.constant(f"{name}.tiny", 2.0**-26), value)
    above, below, left, right = layer.padding
    largest = nodes.add("MaxPool", f"{name}.largest", value, kernel_shape=layer.size, strides=layer.stride,
                        pads=(above, left, below, right), dilations=layer.dilation)
    return nodes.rounded(f"{name}.y", largest) if x.minus_zero else largest

"""The interface that converts layers to QONNX nodes; `qonnx.graph` lists one form for each class of layers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.qonnx.nodes import Nodes
from concord.golden.mfu.multifunction import activate
from concord.net.layers.layer import Layer
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

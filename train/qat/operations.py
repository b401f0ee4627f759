"""The operations of a network: in real numbers, in the machine's arithmetic, and as a layer of the model."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from concord.model.layers.add import Add
from concord.model.layers.concat import Concat
from concord.model.layers.layer import Layer
from concord.model.layers.pool import MaxPool
from concord.spec.activation import Activation
from concord.train.lib.straight_through import binary16
from concord.train.qat.graph import Node
from concord.train.qat.modules import Kind
from torch import nn
from torch.nn import functional

#: The shape of what each node makes, without samples, by its name.
Shapes = Mapping[str, Sequence[int]]


class Operation:
    """What nodes of a kind do, before a relu that may follow."""

    def real(self, node: Node, x: list[torch.Tensor]) -> torch.Tensor:
        """The result for real numbers."""
        return node.module(x[0])

    def lowered(self, node: Node, x: list[torch.Tensor]) -> torch.Tensor:
        """The result for binary16 numbers in the machine's arithmetic."""
        return self.real(node, x)

    def lower(self, node: Node, shapes: Shapes, activation: Activation) -> Layer:
        """The layer of the quantised model."""
        raise NotImplementedError


class Product(Operation):
    """A convolution, dense layer or average in FP32; `QuantisedLayer` and `BlockLayer` know the rest."""

    def real(self, node, x):
        if isinstance(node.module, nn.Linear):
            return node.module(x[0].flatten(1))
        return node.module(functional.pad(x[0], node.zeros) if any(node.zeros) else x[0])


class Sum(Operation):
    """The sum of two tensors."""

    def real(self, node, x):
        left, right = x if x[0].dim() == x[1].dim() else (part.flatten(1) for part in x)
        return left + right

    def lowered(self, node, x):
        return binary16(self.real(node, x))

    def lower(self, node, shapes, activation):
        return Add(name=node.name, inputs=prod(shapes[node.sources[0]]), activation=activation)


class Concatenation(Operation):
    """Tensors one behind the other; flattened images lie channel by channel, as those that are joined."""

    def real(self, node, x):
        same = len({part.shape[2:] for part in x}) == 1
        return torch.cat(x if same else [part.flatten(1) for part in x], 1)

    def lower(self, node, shapes, activation):
        return Concat(name=node.name, sizes=tuple(prod(shapes[name]) for name in node.sources))


class Maximum(Operation):
    """The largest value of each window."""

    def lower(self, node, shapes, activation):
        shape = tuple(shapes[node.sources[0]])
        window = node.window(shape)
        return MaxPool(name=node.name, shape=shape, size=window.size, stride=window.stride, padding=window.padding,
                       dilation=window.dilation, activation=activation)


OPERATIONS: dict[Kind, Operation] = {
    Kind.LAYER: Product(),
    Kind.ADD: Sum(),
    Kind.CONCAT: Concatenation(),
    Kind.MAX: Maximum(),
    Kind.AVERAGE: Product(),
}


def real(node: Node, x: list[torch.Tensor]) -> torch.Tensor:
    """What a node makes of real numbers."""
    y = OPERATIONS[node.kind].real(node, x)
    return y.clamp(0, node.ceiling) if node.relu else y


def lowered(node: Node, x: list[torch.Tensor]) -> torch.Tensor:
    """What a node without weights makes of binary16 numbers in the machine's arithmetic."""
    y = OPERATIONS[node.kind].lowered(node, x)
    return torch.relu(y) + 0.0 if node.relu else y


def lower(node: Node, shapes: Shapes) -> Layer:
    """The layer of the quantised model for a node without weights."""
    return OPERATIONS[node.kind].lower(node, shapes, Activation.RELU if node.relu else Activation.NONE)

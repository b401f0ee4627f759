"""The operations of a network: in real numbers, in the machine's arithmetic, and as a layer of the model."""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from concord.net.layers.add import Add
from concord.net.layers.concat import Concat
from concord.net.layers.layer import Layer
from concord.net.layers.pool import MaxPool
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import curve
from concord.train.lib.straight_through import binary16
from concord.train.qat.graph import INPUT, Node
from concord.train.qat.modules import Kind
from torch import nn
from torch.nn import functional

#: The shape of what each node makes, without samples, by its name.
Shapes = Mapping[str, Sequence[int]]


class Operation:
    """What nodes of a kind do, before an activation function that may follow."""

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
    """A convolution, dense layer or average in FP32; `QuantizedLayer` and `BlockLayer` know the rest."""

    def real(self, node, x):
        if isinstance(node.module, nn.Linear):
            rows = x[0].flatten(1)
            if rows.shape[1] != node.module.in_features:
                raise ValueError(f"{node.name!r}: a dense layer of {node.module.in_features} inputs sees samples of "
                                 f"{list(x[0].shape[1:])}; flatten them, so that it reads all of a sample")
            return node.module(rows)
        return node.module(functional.pad(x[0], node.zeros) if any(node.zeros) else x[0])


class Sum(Operation):
    """The sum of two tensors."""

    def real(self, node, x):
        left, right = x if x[0].dim() == x[1].dim() else (part.flatten(1) for part in x)
        if left.shape != right.shape:
            raise ValueError(f"{node.name!r}: a sum of {list(left.shape[1:])} and {list(right.shape[1:])}; "
                             "the terms of a sum need one shape")
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


def entering(nodes: Sequence[Node], x: torch.Tensor) -> torch.Tensor:
    """The input of a network; sequences of vectors become images of one row."""
    return x.unsqueeze(2) if x.dim() == 3 and any(node.line for node in nodes) else x


def results(nodes: Sequence[Node], x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The result of every node of a network in FP32, by name, and the input.

    Raises:
        ValueError: the terms of a sum differ in shape, or a dense layer does not read all of a sample.
    """
    made = {INPUT: entering(nodes, x)}
    for node in nodes:
        y = real(node, [made[name] for name in node.sources])
        made[node.name] = y if node.ceiling is None else y.clamp(max=node.ceiling)
    return made


def real(node: Node, x: list[torch.Tensor]) -> torch.Tensor:
    """What a node makes of real numbers, or a maximum of numbers in steps.

    Behind quantisers, the clip of a relu6 at 6 is that of its readers' codes, so that it is left to them.
    """
    return curve(node.activation, False)(OPERATIONS[node.kind].real(node, x))


def lowered(node: Node, x: list[torch.Tensor]) -> torch.Tensor:
    """What a node without weights makes of binary16 numbers in the machine's arithmetic."""
    return curve(node.activation, True)(OPERATIONS[node.kind].lowered(node, x))


def lower(node: Node, shapes: Shapes) -> Layer:
    """The layer of the quantised model for a node without weights."""
    return OPERATIONS[node.kind].lower(node, shapes, node.activation)

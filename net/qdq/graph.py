"""Rewrites a network that is quantised already so that only layers with weights and averages read its quantisers."""

from dataclasses import replace

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.graph import Graph, Node, flattens
from concord.net.ops.grid import IntegerGrid, Quantize
from concord.net.ops.joins import Concatenation
from concord.net.ops.operator import Operator, Shape
from concord.net.ops.pointwise import Relu
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.reshape import Flatten
from concord.net.ops.weighted import Convolution, Linear

#: Operators whose input is multiplied as integers.
PRODUCTS = (Linear, Convolution, AveragePooling, GlobalAverage)
#: Operators of images.
IMAGES = (Convolution, AveragePooling, GlobalAverage, MaxPooling)


class Identity(Linear):
    """A linear layer that gives the numbers of a quantised vector."""

    __slots__ = ()

    @classmethod
    def of(cls, size: int) -> "Identity":
        """The layer of a vector of this size."""
        weight, ones = np.eye(size, dtype=np.float32), np.ones(size)
        return cls(weight=weight, bias=np.zeros(size, np.float32), grid=IntegerGrid.of_outputs(
            ones, 0 * ones, weight, bits=2, signed=True, narrow=True))


def prepared(network: Graph) -> Graph:
    """The same network without quantisers that change nothing.

    Where something else than a product reads a quantiser, an average of single pixels, or a product with an identity
    matrix, gives it the numbers that the integers stand for.
    """
    return _with_numbers(_after_maxima(_merged(_without_repeated(network))))


def _without_repeated(network: Graph) -> Graph:
    """Without quantisers that the same quantiser follows on every path, after operators that only choose."""
    for node in network.nodes:
        if isinstance(node.op, Quantize) and _repeated(network, node.name, node.op):
            network = network.without(node.name)
    return network


def _merged(network: Graph) -> Graph:
    """With one quantiser instead of several equal ones of one tensor."""
    for node in network.nodes:
        source = network.node(node.name).sources[0]
        same = next((one for one in network.readers(source) if isinstance(one.op, Quantize) and _same(one.op, node.op)
                     ), node)
        if same.name != node.name and node is not network.output:
            network = network.rewritten({node.name: ()}, {node.name: same.name})
    return network


def _repeated(network: Graph, name: str, quantizer: Quantize) -> bool:
    """Whether every path from a tensor leads to a quantiser like this one."""
    following = network.readers(name)
    return bool(following) and all(
        _same(node.op, quantizer) if isinstance(node.op, Quantize) else
        _chooses(node.op) and _repeated(network, node.name, quantizer) for node in following)


def _chooses(op: Operator) -> bool:
    """Whether an operator only chooses among numbers, so that rounding may as well follow it."""
    return isinstance(op, MaxPooling | Flatten | Concatenation) or isinstance(op, Relu) and op.ceiling is None


def _same(one: Operator, other: Operator) -> bool:
    return isinstance(other, Quantize) and one.attributes() == other.attributes()


def _after_maxima(network: Graph) -> Graph:
    """With maxima of numbers before the quantiser instead of maxima of integers, which are the same."""
    for node in network.nodes:
        quantizer = network.source(network.node(node.name))
        if isinstance(node.op, MaxPooling) and quantizer is not None and isinstance(quantizer.op, Quantize):
            largest = Node(name=f"{node.name}_maxima", op=node.op, sources=quantizer.sources)
            network = network.rewritten({node.name: (largest, Node(
                name=node.name, op=quantizer.op, sources=(largest.name,)))})
    return network


def _with_numbers(network: Graph) -> Graph:
    """With layers that give the numbers of quantisers to what does not multiply their integers."""
    changes, made = {}, {}
    for node in network.nodes:
        sources = tuple(made[name] if name in made and not _multiplies(network, node) else name
                        for name in node.sources)
        changes[node.name] = [Node(name=node.name, op=node.op, sources=sources)]
        following = network.readers(node.name)
        if isinstance(node.op, Quantize) and not (following and all(_multiplies(network, one) for one in following)):
            made[node.name] = f"{node.name}_numbers"
            changes[node.name].append(Node(name=made[node.name], op=_numbers(network.shapes[node.name]),
                                           sources=(node.name,)))
    return replace(network, nodes=tuple(node for nodes in changes.values() for node in nodes))


def _multiplies(network: Graph, node: Node) -> bool:
    """Whether a node multiplies what it reads as integers, perhaps after a flattening."""
    following = network.readers(node.name, flattens) if flattens(node) else (node,)
    return bool(following) and all(isinstance(one.op, PRODUCTS) for one in following)


def has_images(network: Graph) -> bool:
    """Whether a network has operators of images."""
    return network.has(*IMAGES)


def _numbers(shape: Shape) -> Operator:
    """The operator that gives the numbers of a quantised tensor of this shape."""
    return AveragePooling(window=Window(size=(1, 1)), count_padding=True) if len(shape) == 3 else Identity.of(shape[0])

"""Functions with an upper limit: clips of the integers that read them, where only these do, or layers of their own.

A relu with a ceiling costs nothing where each reader is a product in integers, because its quantiser clips. A hard
sigmoid is then a scale and an offset ahead of such a relu, which the product before it takes into its weights.
"""

import numpy as np
from concord.net.graph import Graph, Node, naming
from concord.net.ops.joins import Multiplication
from concord.net.ops.pointwise import HardSigmoid, HardSwish, Pointwise, Relu
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.reshape import Enlarging, Flatten
from concord.net.ops.scale import Affine, Scale
from concord.net.ops.weighted import Convolution, Linear

#: Operators whose integers clip what they read, and those that hand it on.
CLIPPING = (Convolution, Linear, AveragePooling, GlobalAverage)
HANDING_ON = (MaxPooling, Enlarging, Flatten, Scale)


def with_clips(graph: Graph, *, integers: bool = True) -> Graph:
    """The network, whose functions with an upper limit are clips where they can be, and hard sigmoids elsewhere.

    A hard swish becomes the product of a tensor and its hard sigmoid.

    Args:
        graph:    The network.
        integers: Whether products are in integers; blocks clip nothing.

    Raises:
        ValueError: the factor of a hard sigmoid is not above zero.
    """
    changes = {}
    for node in graph.nodes:
        op, clipped = node.op, integers and _clipped(graph, node)
        if isinstance(op, HardSwish):
            gate = Node(name=f"{node.name}_gate", op=HardSigmoid(alpha=1 / 6), sources=node.sources)
            changes[node.name] = (gate, Node(name=node.name, op=Multiplication(), sources=(*node.sources, gate.name)))
        elif isinstance(op, HardSigmoid) and clipped and op.ceiling == 1 and _follows_product(graph, node):
            with naming(node.name):
                line = Affine(scale=np.float32([op.alpha]), offset=np.float32([op.beta]))
            first = Node(name=f"{node.name}_line", op=line, sources=node.sources)
            changes[node.name] = (first, Node(name=node.name, op=Relu(ceiling=1.0), sources=(first.name,)))
        elif isinstance(op, HardSigmoid) and op.alpha <= 0:
            raise ValueError(f"{node.name!r}: a hard sigmoid whose factor is {op.alpha:g}; use one above 0")
        elif isinstance(op, Relu) and op.ceiling is not None and not (clipped and _carried(graph, node)):
            changes[node.name] = Node(name=node.name, op=HardSigmoid(alpha=1, beta=0, ceiling=op.ceiling),
                                      sources=node.sources)
    return graph.rewritten(changes) if changes else graph


def _clipped(graph: Graph, node: Node) -> bool:
    """Whether each reader of a result, directly or behind maxima, quantises it."""
    readers = graph.readers(node.name)
    return node is not graph.output and bool(readers) and all(
        isinstance(reader.op, CLIPPING) or isinstance(reader.op, HANDING_ON) and _clipped(graph, reader)
        for reader in readers)


def _carried(graph: Graph, node: Node) -> bool:
    """Whether the layer before a relu computes it, or, of an image, a maximum of single pixels."""
    before = graph.source(node)
    return len(graph.shapes[node.sources[0]]) == 3 or before is not None and not isinstance(before.op, Pointwise) and (
        graph.alone(node))


def _follows_product(graph: Graph, node: Node) -> bool:
    """Whether a product whose result nothing else reads takes a scale and an offset into its weights."""
    before = graph.source(node)
    while before is not None and isinstance(before.op, Scale) and graph.alone(node):
        node, before = before, graph.source(before)
    return before is not None and isinstance(before.op, Convolution | Linear) and graph.alone(node)

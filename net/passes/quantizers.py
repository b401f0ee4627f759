"""Networks that are quantised already as networks of real numbers, which can be quantised in another way."""

from dataclasses import replace

from concord.net.graph import Graph
from concord.net.ops.quantize import Quantize
from concord.net.ops.weighted import Weighted


def is_quantized(graph: Graph) -> bool:
    """Whether a network is quantised already: whether it has a quantiser or weights that stand for integers."""
    return graph.has(Quantize) or any(isinstance(node.op, Weighted) and node.op.grid is not None
                                      for node in graph.nodes)


def without_quantizers(graph: Graph) -> Graph:
    """The network without quantisers; weights keep the numbers that their integers stand for.

    Raises:
        ValueError: the network consists of quantisers only.
    """
    if not is_quantized(graph):
        return graph
    if all(isinstance(node.op, Quantize) for node in graph.nodes):
        raise ValueError("the network only rounds its input; leave it out")
    changes = {node.name: replace(node, op=replace(node.op, grid=None)) for node in graph.nodes
               if isinstance(node.op, Weighted) and node.op.grid is not None}
    bare = replace(graph, nodes=tuple(changes.get(node.name, node) for node in graph.nodes))
    return bare.without(*(node.name for node in graph.nodes if isinstance(node.op, Quantize)))

"""Hard sigmoids as a scale, an offset and a clip, which layers can take."""

import numpy as np
from concord.net.graph import Graph, Node, naming
from concord.net.ops.pointwise import HardSigmoid, Relu
from concord.net.ops.scale import Affine


def hard_sigmoids_as_lines(graph: Graph) -> Graph:
    """max(0, min(1, alpha * x + beta)) becomes a scale and an offset, and a relu with the ceiling 1."""
    changes = {}
    for node in graph.nodes:
        if isinstance(node.op, HardSigmoid):
            with naming(node.name):
                line = Affine(scale=np.float32([node.op.alpha]), offset=np.float32([node.op.beta]))
            first = Node(name=f"{node.name}_line", op=line, sources=node.sources)
            changes[node.name] = (first, Node(name=node.name, op=Relu(ceiling=1.0), sources=(first.name,)))
    return graph.rewritten(changes) if changes else graph

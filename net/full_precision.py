"""The layers of a model before any rounding."""

import numpy as np
from concord.net.float_network import float_network
from concord.net.graph import Graph
from concord.net.layers.layer import Layer
from concord.net.lowering.full_precision import Clip, Numbers, in_full_precision
from concord.net.model import Model
from concord.net.ops.pointwise import Relu
from concord.net.ops.recurrent import Last
from concord.net.ops.reshape import Flatten


def layers_of(model: Model, numbers: Numbers = Numbers.REAL) -> dict[str, Layer]:
    """The layers of a model by name, with float64 in place of all arrays that the machine holds in fewer bits.

    Raises:
        ValueError: a layer does not hold the numbers of the float network.
    """
    graph = float_network(model)
    return {layer.name: in_full_precision(layer, graph and graph.node(layer.name), _clip(graph, layer), numbers)
            for layer in model.layers}


def _clip(graph: Graph | None, layer: Layer) -> Clip:
    """What the quantiser of a layer does for the float network."""
    node = graph and graph.node(layer.name)
    before = node and graph.source(node)
    while before and isinstance(before.op, Flatten | Last):
        before = graph.source(before)
    if not before or not isinstance(before.op, Relu):
        return Clip()
    ceiling = before.op.ceiling
    return Clip(relu=layer.clips, ceiling=np.inf if ceiling is None else ceiling)

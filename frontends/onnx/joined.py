"""The nodes of a graph, with one node instead of those that spell out a normalisation or a GELU.

    GELU: x * (1 + Erf(x / sqrt(2))) / 2, whose factors stand in any order
"""

import numpy as np
import onnx
from concord.frontends.onnx.lib.spelled import SpelledGraph
from concord.frontends.onnx.norms import norm
from onnx import helper


def joined(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph, in order, with LayerNormalization, RMSNormalization and Gelu where they are spelled out."""
    found, replaced, dropped = SpelledGraph.of(graph), {}, set()
    for node in graph.node:
        if made := norm(found, node) or _gelu(found, node):
            replaced[made[0].output[0]] = made[0]
            dropped |= made[1]
    return [replaced.get(node.output[0], node) for node in graph.node
            if node.output and (node.output[0] in replaced or node.output[0] not in dropped)]


def _gelu(graph: SpelledGraph, node: onnx.NodeProto) -> tuple[onnx.NodeProto, set[str]] | None:
    """The node that stands for one with an error function and those around it, and the names of what it replaces."""
    scaled = graph.with_constant(node.input[0], "Div", "Mul") if node.op_type == "Erf" else None
    if scaled is None:
        return None
    x, factor = scaled
    divided = graph.made(node.input[0], "Div") is not None
    wanted, inner, end = {x: 1, 0.5: 1}, {node.input[0], node.output[0]}, graph.only_reader(node.output[0], "Add")
    one = end is not None and graph.with_constant(end.output[0], "Add")
    if not one or not np.allclose(one[1], 1) or not np.allclose(factor, 2**0.5 if divided else 0.5**0.5, rtol=1e-5):
        return None
    # The sum is multiplied by x and by one half, or by x / 2 at once.
    while wanted:
        inner |= {end.output[0]}
        end = graph.only_reader(end.output[0], "Mul")
        other = end is not None and next((name for name in end.input if name not in inner), None)
        half = other and graph.with_constant(other, "Mul")
        if other in wanted:
            del wanted[other]
        elif other in graph.constants and np.allclose(graph.constants[other], 0.5) and wanted.pop(0.5, 0):
            continue
        elif half and half[0] == x and np.allclose(half[1], 0.5) and len(wanted) == 2 and (
                len(graph.readers[other]) == 1):
            inner |= {other}
            wanted.clear()
        else:
            return None
    return helper.make_node("Gelu", [x], [end.output[0]], name=node.name or end.output[0]), inner - {end.output[0]}

"""Normalisations over features that a file spells out in means, roots and quotients, as one node each.

    d = x - ReduceMean(x), or x      q = d * d, or Pow(d, 2)      s = Sqrt(ReduceMean(q) + epsilon)
    y = d / s, or d * Reciprocal(s)  and behind it  y * weight + bias  where these are constant
"""

import numpy as np
import onnx
from concord.frontends.onnx.lib.spelled import SpelledGraph
from onnx import helper


def norm(graph: SpelledGraph, node: onnx.NodeProto) -> tuple[onnx.NodeProto, set[str]] | None:
    """The node that stands for one with a quotient and those behind it, and the names of what it replaces."""
    if node.op_type not in ("Div", "Mul") or len(node.input) != 2:
        return None
    for d, divisor in (tuple(node.input), tuple(node.input)[::-1])[:1 + (node.op_type == "Mul")]:
        root, inner = divisor, set()
        if node.op_type == "Mul":
            reciprocal = graph.made(divisor, "Reciprocal")
            if reciprocal is None:
                continue
            root, inner = reciprocal.input[0], {divisor}
        if found := _mean_square(graph, root, d):
            epsilon, more = found
            return _made(graph, node, d, epsilon, inner | more)
    return None


def _mean_square(graph, root: str, d: str) -> tuple[float, set[str]] | None:
    """The epsilon of a root of the mean square of d, and the names on the way."""
    sqrt = graph.made(root, "Sqrt")
    added = sqrt is not None and graph.with_constant(sqrt.input[0], "Add")
    mean = added and added[1].size == 1 and graph.mean(added[0])
    square = mean and graph.made(mean.input[0], "Pow", "Mul")
    if square is None or not square or square.input[0] != d:
        return None
    two = graph.constants.get(square.input[1], np.zeros(1))
    if square.input[1] != d if square.op_type == "Mul" else (two != 2).any():
        return None
    names = {root, sqrt.input[0], added[0], mean.input[0]}
    alone = all(len(graph.readers[name]) == 1 for name in names)
    return (float(added[1].reshape(-1)[0]), names) if alone else None


def _made(graph, node, d, epsilon, inner):
    x, kind = d, "RMSNormalization"
    difference = graph.made(d, "Sub")
    mean = difference is not None and graph.mean(difference.input[1])
    own = graph.readers[d] <= inner | {node.output[0]}
    if mean and mean.input[0] == difference.input[0] and own and len(graph.readers[mean.output[0]]) == 1:
        x, kind, inner = mean.input[0], "LayerNormalization", inner | {d, mean.output[0]}
    inputs, end = [x, "", ""], node
    for index, following in ((1, "Mul"), (2, "Add")) if kind == "LayerNormalization" else ((1, "Mul"),):
        reader = graph.only_reader(end.output[0], following)
        if reader is None or graph.with_constant(reader.output[0], following) is None:
            break
        inputs[index] = next(name for name in reader.input if name != end.output[0])
        inner, end = inner | {end.output[0]}, reader
    made = helper.make_node(kind, inputs, [end.output[0]], name=node.name or end.output[0], epsilon=epsilon)
    return made, inner

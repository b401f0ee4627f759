"""Normalisations over features that a file spells out in means, roots and quotients, as one node each.

    d = x - ReduceMean(x), or x      q = d * d, or Pow(d, 2)      s = Sqrt(ReduceMean(q) + epsilon)
    y = d / s, or d * Reciprocal(s)  and behind it  y * weight + bias  where these are constant
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper


def with_norms(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph, with LayerNormalization and RMSNormalization in place of those that spell them out."""
    found = _Graph.of(graph)
    replaced: dict[str, onnx.NodeProto] = {}
    dropped: set[str] = set()
    for node in graph.node:
        if made := _norm(found, node):
            norm, inner = made
            replaced[norm.output[0]] = norm
            dropped |= inner
    return [replaced.get(node.output[0], node) for node in graph.node
            if node.output and (node.output[0] in replaced or node.output[0] not in dropped)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Graph:
    """What is known of the tensors of a graph.

    Attributes:
        makers:    The node that makes each tensor.
        constants: Constants of at most one axis.
        ranks:     Numbers of axes, as far as the file has them.
        readers:   The nodes that read each tensor, by the names of their first results; "" for the end of the graph.
    """

    makers: Mapping[str, onnx.NodeProto]
    constants: Mapping[str, np.ndarray]
    ranks: Mapping[str, int]
    readers: Mapping[str, set[str]]

    @classmethod
    def of(cls, graph: onnx.GraphProto) -> "_Graph":
        constants = {one.name: one for one in graph.initializer}
        constants |= {node.output[0]: attribute.t for node in graph.node if node.op_type == "Constant"
                      for attribute in node.attribute if attribute.name == "value"}
        small = {name: numpy_helper.to_array(one) for name, one in constants.items() if len(one.dims) <= 1}
        readers: dict[str, set[str]] = defaultdict(set)
        for node in graph.node:
            for name in node.input:
                readers[name].add(node.output[0])
        for one in graph.output:
            readers[one.name].add("")
        return cls(makers={node.output[0]: node for node in graph.node if node.output}, constants=small,
                   ranks={one.name: len(one.type.tensor_type.shape.dim) for one in graph.value_info}, readers=readers)

    def made(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The node of one of these kinds that makes a tensor."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def mean(self, name: str) -> onnx.NodeProto | None:
        """The node that makes a tensor as the mean over the last axis, which it keeps."""
        node = self.made(name, "ReduceMean")
        if node is None:
            return None
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        axes = self.constants.get(node.input[1]) if len(node.input) > 1 else given.get("axes")
        last = axes is not None and list(axes) in ([-1], [self.ranks.get(node.input[0], 0) - 1])
        return node if last and given.get("keepdims", 1) else None

    def with_constant(self, name: str, kind: str) -> tuple[str, np.ndarray] | None:
        """The tensor and the constant that a node of this kind takes to make a tensor."""
        node = self.made(name, kind)
        for place in (0, 1) if node is not None else ():
            if node.input[place] in self.constants and node.input[1 - place] not in self.constants:
                return node.input[1 - place], self.constants[node.input[place]]
        return None


def _norm(graph: _Graph, node: onnx.NodeProto) -> tuple[onnx.NodeProto, set[str]] | None:
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
    for place, following in ((1, "Mul"), (2, "Add")) if kind == "LayerNormalization" else ((1, "Mul"),):
        readers = graph.readers[end.output[0]]
        reader = graph.made(next(iter(readers), ""), following) if len(readers) == 1 else None
        if reader is None or graph.with_constant(reader.output[0], following) is None:
            break
        inputs[place] = next(name for name in reader.input if name != end.output[0])
        inner, end = inner | {end.output[0]}, reader
    made = helper.make_node(kind, inputs, [end.output[0]], name=node.name or end.output[0], epsilon=epsilon)
    return made, inner

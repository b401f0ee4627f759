"""What is known of the tensors of a graph in which several nodes may spell out one operator."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True, kw_only=True, slots=True)
class SpelledGraph:
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
    def of(cls, graph: onnx.GraphProto) -> "SpelledGraph":
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

    def only_reader(self, name: str, kind: str) -> onnx.NodeProto | None:
        """The node of this kind that alone reads a tensor."""
        readers = self.readers[name]
        return self.made(next(iter(readers)), kind) if len(readers) == 1 else None

    def with_constant(self, name: str, *kinds: str) -> tuple[str, np.ndarray] | None:
        """The tensor and the constant that a node of one of these kinds takes to make a tensor."""
        node = self.made(name, *kinds)
        for index in (0, 1) if node is not None else ():
            if node.input[index] in self.constants and node.input[1 - index] not in self.constants:
                return node.input[1 - index], self.constants[node.input[index]]
        return None

"""Embeddings at the input of a graph, which the host looks up: the network begins with the vectors."""

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WHOLE = {TensorProto.INT32, TensorProto.INT64}  #: Types of token numbers.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Embedding:
    """An embedding at the input of a graph.

    Attributes:
        before: Nodes that the token numbers pass on their way there, and that leave them as they are.
        gather: The node that looks the vectors up.
        entry:  The graph's input, token numbers.
        table:  The vectors, float32[rows, size].
    """

    before: tuple[onnx.NodeProto, ...]
    gather: onnx.NodeProto
    entry: onnx.ValueInfoProto
    table: np.ndarray

    @property
    def note(self) -> str:
        """A sentence on the table, and on what samples are."""
        rows, size = self.table.shape
        return (f"{self.gather.name or self.gather.output[0]}: the host looks up the vectors of an embedding: samples "
                f"are token numbers, or sequences of the rows of its table {self.gather.input[0]!r}, {rows} vectors of "
                f"{size} numbers")

    @property
    def dtype(self) -> np.dtype:
        """Type of the token numbers in the file."""
        return helper.tensor_dtype_to_np_dtype(self.entry.type.tensor_type.elem_type)

    def restored(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """A model that `without_embedding` gave, with the embedding in front of it again."""
        made = onnx.ModelProto()
        made.CopyFrom(model)
        given = next(one for one in made.graph.input if one.name == self.gather.output[0])
        made.graph.input.remove(given)
        made.graph.input.append(self.entry)
        for node in (self.gather, *reversed(self.before)):
            made.graph.node.insert(0, node)
        return made


def _before_vectors(node: onnx.NodeProto, vectors: str) -> onnx.NodeProto:
    """A node Shape that reads the vectors of an embedding, and gives what it gives for the token numbers."""
    given = {one.name: int(helper.get_attribute_value(one)) for one in node.attribute}
    ends = {"start": 0, "end": -1} | {name: value - (value < 0) for name, value in given.items()}
    return helper.make_node("Shape", [vectors], node.output, node.name, **ends)


def _to_lookup(graph: onnx.GraphProto, node: onnx.NodeProto) -> tuple[tuple[onnx.NodeProto, ...], onnx.NodeProto]:
    """The nodes from one on that leave token numbers as they are, and the first one behind them."""
    before = []
    while node.op_type == "Identity" or node.op_type == "Cast" and any(
            one.name == "to" and one.i in WHOLE for one in node.attribute):
        readers = [other for other in graph.node if node.output[0] in other.input]
        if len(readers) != 1 or node.output[0] in {one.name for one in graph.output}:
            break
        before.append(node)
        (node,) = readers
    return tuple(before), node


def without_embedding(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Embedding | None]:
    """The model whose input are the vectors that an embedding gives for token numbers, and the embedding.

    A model that does not begin with one stays as it is. The table must be a constant of two axes, and the token numbers
    must be the only input, of which everything else reads no more than the shape.
    """
    graph, tables = model.graph, {one.name: one for one in model.graph.initializer if len(one.dims) == 2}
    inputs = [one for one in graph.input if one.name not in {constant.name for constant in graph.initializer}]
    readers = [node for node in graph.node if inputs and inputs[0].name in node.input]
    shapes = [node for node in readers if node.op_type == "Shape"]
    readers = [node for node in readers if node not in shapes]
    if len(inputs) != 1 or len(readers) != 1:
        return model, None
    before, gather = _to_lookup(graph, readers[0])
    axis = next((helper.get_attribute_value(one) for one in gather.attribute if one.name == "axis"), 0)
    if gather.op_type != "Gather" or gather.input[0] not in tables or gather.input[1] != (
            before[-1].output[0] if before else inputs[0].name) or axis:
        return model, None
    made, table = onnx.ModelProto(), tables[gather.input[0]]
    made.CopyFrom(model)
    for node in (*before, gather):
        made.graph.node.remove(node)
    for node in made.graph.node:
        if node in shapes:
            node.CopyFrom(_before_vectors(node, gather.output[0]))
    indices = inputs[0].type.tensor_type.shape.dim
    sizes = [size.dim_param or size.dim_value or None for size in indices]
    made.graph.input.remove(inputs[0])
    made.graph.input.append(helper.make_tensor_value_info(
        gather.output[0], TensorProto.FLOAT, [*sizes, table.dims[1]]))
    for value in [one for one in made.graph.value_info if one.name == gather.output[0]]:
        made.graph.value_info.remove(value)
    return made, Embedding(
        before=before, gather=gather, entry=inputs[0], table=numpy_helper.to_array(table).astype(np.float32))

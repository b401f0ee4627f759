"""Embeddings at the input of a graph, which the host looks up: the network begins with the vectors."""

import onnx
from onnx import TensorProto, helper, numpy_helper


def without_embedding(model: onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    """The model whose input are the vectors that an embedding gives for indices, and a sentence on the table.

    A model that does not begin with one stays as it is, with an empty sentence. The table must be a constant of two
    axes, and the indices must be the only input, which nothing else reads.
    """
    graph, tables = model.graph, {one.name: one for one in model.graph.initializer if len(one.dims) == 2}
    inputs = [one for one in graph.input if one.name not in {constant.name for constant in graph.initializer}]
    readers = [node for node in graph.node if inputs and inputs[0].name in node.input]
    if len(inputs) != 1 or len(readers) != 1:
        return model, ""
    gather = readers[0]
    axis = next((helper.get_attribute_value(one) for one in gather.attribute if one.name == "axis"), 0)
    if gather.op_type != "Gather" or gather.input[0] not in tables or gather.input[1] != inputs[0].name or axis:
        return model, ""
    made, table = onnx.ModelProto(), tables[gather.input[0]]
    made.CopyFrom(model)
    made.graph.node.remove(gather)
    indices = inputs[0].type.tensor_type.shape.dim
    sizes = [size.dim_param or size.dim_value or None for size in indices]
    made.graph.input.remove(inputs[0])
    made.graph.input.append(helper.make_tensor_value_info(
        gather.output[0], TensorProto.FLOAT, [*sizes, table.dims[1]]))
    for value in [one for one in made.graph.value_info if one.name == gather.output[0]]:
        made.graph.value_info.remove(value)
    rows, size = numpy_helper.to_array(table).shape
    return made, (f"{gather.name or gather.output[0]}: an embedding is left to the host: samples are sequences of the "
                  f"rows of its table {gather.input[0]!r}, {rows} vectors of {size} numbers, as numpy's table[indices]")

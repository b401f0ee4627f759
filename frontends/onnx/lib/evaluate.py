"""Evaluates one node of a file on known numbers, with ONNX's own reference implementation."""

import numpy as np
import onnx
from concord.frontends.onnx.lib.problems import Misplaced
from concord.frontends.onnx.lib.step import Step
from concord.frontends.onnx.lib.views import View, check_size
from onnx import helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

#: Constants of up to this many elements may say how large a result is.
SHAPE = 4096


def evaluate(step: Step, values: tuple[np.ndarray | None, ...]) -> list[np.ndarray]:
    """Results of a node.

    Args:
        step:   The node.
        values: Its inputs; None for those that are left out.

    Raises:
        Refused: the results are too large, or the node cannot be evaluated.
    """
    model = _model(step, values)
    _check_results(model)
    fed = {name: value for name, value in zip(step.names, values, strict=True) if value is not None}
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(model).run(None, fed)
    except Exception as error:  # the evaluator raises what numpy raises
        raise Misplaced(f"it cannot be evaluated ({_first_line(error)})", "simplify the file, for example with "
                      "onnxsim, or export it again") from error
    return [np.asarray(value) for value in found]


def inferred(step: Step) -> list[tuple[int, ...] | None]:
    """Shapes of the results of a node that is not computed, as ONNX infers them; None for those that are not known."""
    values = tuple(np.empty(value.shape, np.float32) if isinstance(value, View) else value for value in step.values)
    if any(value is not None and not isinstance(value, np.ndarray) for value in values):
        return [None] * len(step.outputs)
    try:
        graph = shape_inference.infer_shapes(_model(step, values), data_prop=True).graph
    except Exception:  # it has exceptions of its own
        return [None] * len(step.outputs)
    shapes = {output.name: output.type.tensor_type.shape.dim for output in graph.output
              if output.type.tensor_type.HasField("shape")}
    return [tuple(size.dim_value for size in shapes[name]) if name in shapes else None for name in step.outputs]


def _model(step: Step, values: tuple[np.ndarray | None, ...]) -> onnx.ModelProto:
    known = {name: value for name, value in zip(step.names, values, strict=True) if value is not None}
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for name, value in known.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in step.outputs if name]
    small = [numpy_helper.from_array(value, name) for name, value in known.items() if value.size <= SHAPE]
    graph = helper.make_graph([step.proto], "node", inputs, outputs, small)
    # The reference has these operators from a later version on, in which nothing that they did before has changed.
    version = max(step.opset, 21) if step.kind in ("DequantizeLinear", "QuantizeLinear") else step.opset
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(step.proto.domain, version)])


def _check_results(model: onnx.ModelProto):
    """Refuse results that are too large, before they are computed."""
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # it has exceptions of its own
        raise Misplaced(f"its inputs do not fit ({_first_line(error)})", "export the network again") from error
    for output in inferred.graph.output:
        kind = output.type.tensor_type
        if not kind.HasField("shape") or not all(size.HasField("dim_value") for size in kind.shape.dim):
            raise Misplaced("the size of its result is not known before it is computed", "export the network with "
                          "constant shapes")
        check_size(tuple(size.dim_value for size in kind.shape.dim))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]

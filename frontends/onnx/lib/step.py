"""One node of a file with the values that enter it, and its evaluation on known numbers by ONNX's own reference."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from concord.frontends.onnx.lib.problems import Misplaced, Refused
from concord.frontends.onnx.lib.scores import ONLY_ATTENTION, Scores
from concord.frontends.onnx.lib.views import View, check_size
from onnx import NodeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

#: Those that ONNX itself defines.
STANDARD = ("", "ai.onnx")
#: Those that QONNX's operators have had; a file may describe them as functions.
QONNX = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
#: Constants of up to this many elements may say how large a result is.
SHAPE = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class HostValue:
    """A value that the host computes from the network's output.

    Attributes:
        view:    The output that it is computed from.
        softmax: Whether it is the softmax of the output.
        node:    The node of a softmax of which a network can go on; None for others.
    """

    view: View
    softmax: bool = False
    node: "FileNode | None" = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FileCodes:
    """Integers that QuantizeLinear makes of what the network computes.

    Attributes:
        view:       What they stand for.
        scale:      Their scale.
        zero_point: The integer that stands for zero.
    """

    view: View
    scale: float
    zero_point: int


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownValue:
    """A value that cannot be had, and why.

    Attributes:
        reason: Why nothing may read it, a clause; "" for the result of a refused node.
    """

    reason: str = ""


#: What a tensor of a file is: part of a node's result, constant numbers, the host's, or not to be had.
Value = View | np.ndarray | FileCodes | HostValue | Scores | UnknownValue | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FileNode:
    """One node of a file.

    Attributes:
        name:       Its name in the file, or the name of its first result.
        kind:       ONNX operator.
        attributes: Attributes by name; strings are text.
        values:     What enters it; None for an input that is left out.
        names:      Names of the tensors that enter it.
        outputs:    Names of its results; "" for one that is left out.
        opset:      Version of the operator set.
        proto:      The node as the file has it.
    """

    name: str
    kind: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    values: tuple[Value, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    proto: NodeProto

    def get(self, index: int) -> Value:
        """The value of an input, or None if it is left out."""
        return self.values[index] if index < len(self.values) else None

    def view(self, index: int = 0) -> View:
        """An input that the network computes.

        Raises:
            Refused: it is constant, or left out.
        """
        value = self.get(index)
        if isinstance(value, FileCodes):
            raise Refused("it computes with integers between QuantizeLinear and DequantizeLinear", "put both around "
                          "each layer (the format QDQ)")
        if isinstance(value, Scores):
            raise Refused(f"its input {index + 1} holds products of two computed tensors", ONLY_ATTENTION)
        if not isinstance(value, View):
            raise Refused(f"its input {index + 1} is constant", "let the input of the network enter it")
        return value

    def constant(self, index: int, what: str) -> np.ndarray | None:
        """A constant input, or None if it is left out.

        Raises:
            Refused: it is computed from the input of the network.
        """
        value = self.get(index)
        if value is not None and not isinstance(value, np.ndarray):
            raise Refused(f"its {what} is computed from the network's input, not constant",
                          f"export the network with a constant {what}")
        return value

    def weights(self, index: int, what: str) -> np.ndarray | None:
        """A constant input of trained numbers, as float64.

        Raises:
            Refused: it is computed from the input of the network, or not finite.
        """
        value = self.constant(index, what)
        if value is None:
            return None
        with np.errstate(invalid="ignore"):  # a signalling NaN
            value = np.asarray(value, np.float64)
        if bad := int(np.count_nonzero(~np.isfinite(value))):
            raise Refused(f"its {what} {self.names[index]!r} holds {bad} values of {value.size} that are infinite or "
                          "not a number", "train the network again")
        return value

    def integers(self, key: str, index: int) -> tuple[int, ...] | None:
        """Whole numbers that are an attribute or, in later operator sets, a constant input; None if left out."""
        found = self.attributes.get(key)
        if found is None:
            found = self.constant(index, key)
        return None if found is None else tuple(int(number) for number in np.asarray(found).reshape(-1))

    def label(self) -> str:
        """A name for the network's node: that of the layer whose weights it has, or its own; letters and digits.

        TensorFlow Lite joins the names of all operations that it fuses by semicolons; the first one is taken.
        """
        layer, _, weight = self.names[1].rpartition(".") if len(self.names) > 1 else ("", "", "")
        name = layer if weight == "weight" and layer else self.name
        clean = re.sub(r"\W+", "_", name.split(";")[0], flags=re.ASCII).strip("_") or self.kind
        return f"layer_{clean}" if clean[0].isdigit() else clean


def misplaced(reason: str, advice: str = "put a Flatten or a Transpose where the layout changes, or compute it apart"
              ) -> Misplaced:
    """An error about the layout of an input."""
    return Misplaced(reason, advice)


def evaluate(step: FileNode, values: tuple[np.ndarray | None, ...]) -> list[np.ndarray]:
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


def inferred(step: FileNode) -> list[tuple[int, ...] | None]:
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


def _model(step: FileNode, values: tuple[np.ndarray | None, ...]) -> onnx.ModelProto:
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


def qualified(domain: str, kind: str) -> str:
    """The name of an operator with its domain, which is left out for those of ONNX itself."""
    return kind if domain in STANDARD else f"{domain}.{kind}"

"""One node of a file with the values that enter it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from concord.frontends.onnx.lib.problems import Misplaced, Refused
from concord.frontends.onnx.lib.views import View
from onnx import NodeProto


@dataclass(frozen=True, kw_only=True, slots=True)
class HostValue:
    """A value that the host computes from the network's output.

    Attributes:
        view:    The output that it is computed from.
        softmax: Whether it is the softmax of the output.
    """

    view: View
    softmax: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Codes:
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
class Unknown:
    """A value that cannot be had, and why.

    Attributes:
        reason: Why nothing may read it, a clause; "" for the result of a refused node.
    """

    reason: str = ""


#: What a tensor of a file is: part of a node's result, constant numbers, the host's, or not to be had.
Value = View | np.ndarray | Codes | HostValue | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
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
        if isinstance(value, Codes):
            raise Refused("it computes with integers between QuantizeLinear and DequantizeLinear", "put both around "
                          "each layer (the format QDQ)")
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

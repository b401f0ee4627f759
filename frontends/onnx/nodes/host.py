"""Operators behind the network that the host computes, such as a softmax and labels of classes."""

from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.domains import qualified
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import HostValue, Step, Value
from concord.frontends.onnx.lib.views import View

#: Operators that may follow the network's output, and how a note calls them.
HOST = {
    "ArgMax": "the index of the largest output (ArgMax)",
    "ArgMin": "the index of the smallest output (ArgMin)",
    "LogSoftmax": "a logarithm of softmax (LogSoftmax)",
    "Softmax": "a softmax (Softmax)",
    "TopK": "the largest outputs (TopK)",
    "ai.onnx.ml.Normalizer": "a normalisation of the outputs (Normalizer)",
    "ai.onnx.ml.ZipMap": "a table of classes (ZipMap)",
    "ai.onnx.ml.Binarizer": "a comparison with a threshold (Binarizer)",
    "Cast": "a conversion of the outputs (Cast)",
    "Greater": "a comparison (Greater)",
    "GreaterOrEqual": "a comparison (GreaterOrEqual)",
    "Less": "a comparison (Less)",
    "LessOrEqual": "a comparison (LessOrEqual)",
    "Equal": "a comparison (Equal)",
}
#: What a note on a softmax says beside that it is left to the host.
UNLESS = ", unless the machine has a softmax unit"
#: Operators that may follow those, and that a note need not name.
BEHIND = frozenset({
    "Concat", "Flatten", "Gather", "Identity", "Not", "Reshape", "Round", "Slice", "Squeeze", "Sub", "Transpose",
    "Unsqueeze", "Where", "ai.onnx.ml.ArrayFeatureExtractor", "ai.onnx.ml.LabelEncoder", "Floor", "Shape"})
#: Operators that leave a softmax as it is, but for the names of its elements.
KEEPING = frozenset({"Identity", "ai.onnx.ml.Normalizer", "ai.onnx.ml.ZipMap"})


def at_host(step: Step, build: Builder) -> list[Value]:
    """What the host makes of the network's output.

    Raises:
        Refused: the node does not stand at the end of the network.
    """
    kind = qualified(step.proto.domain, step.kind)
    computed = next(value for value in step.values if isinstance(value, HostValue | View))
    if kind not in HOST and kind not in BEHIND:
        raise Refused("it computes with what only the host has, such as the result of a Softmax", "end the network "
                      "before that")
    view = computed.view if isinstance(computed, HostValue) else computed
    softmax = kind == "Softmax" and isinstance(computed, View) and _along_elements(step, view)
    if kind in HOST and (kind != "Cast" or isinstance(computed, View)):
        build.note(f"{step.name}: {HOST[kind]} is left to the host" + UNLESS * softmax)
    softmax |= kind in KEEPING and isinstance(computed, HostValue) and computed.softmax
    return [HostValue(view=view, softmax=softmax) for _ in step.outputs]


def _along_elements(step: Step, view: View) -> bool:
    """Whether a softmax adds up all elements of each sample's vector."""
    axes = len(view.shape)
    return axes == 2 and step.attributes.get("axis", -1 if step.opset >= 13 else 1) % axes == 1

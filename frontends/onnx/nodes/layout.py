"""Operators that compute nothing, but change where elements lie; and those after the network, for the host."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileCodes, FileNode, HostValue, Value, evaluate, qualified
from concord.frontends.onnx.lib.views import View
from onnx import TensorProto

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
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
    "Sub": "a difference (Sub)",
}
#: What a note on a softmax says beside that it is left to the host.
UNLESS = ", unless the machine has a softmax unit"
#: Operators that may follow those, and that a note need not name.
BEHIND = frozenset({
    "Concat", "Flatten", "Gather", "Identity", "Not", "Reshape", "Round", "Slice", "Squeeze", "Transpose",
    "Unsqueeze", "Where", "ai.onnx.ml.ArrayFeatureExtractor", "ai.onnx.ml.LabelEncoder", "Floor", "Shape"})
#: Operators that leave a softmax as it is, but for the names of its elements.
KEEPING = frozenset({"Identity", "ai.onnx.ml.Normalizer", "ai.onnx.ml.ZipMap"})


def move(step: FileNode, build: Builder) -> list[Value]:
    """What the operator makes of the numbers of the elements of its input."""
    if isinstance(step.get(0), FileCodes):
        moved = move(replace(step, values=(step.get(0).view, *step.values[1:])), build)
        return [replace(step.get(0), view=view) for view in moved]
    view = step.view(0)
    others = tuple(step.constant(index, f"input {index + 1}") for index in range(1, len(step.values)))
    # The number 0 stands for a zero of padding, which Pad brings.
    found = evaluate(step, (view.numbers + 1, *others))
    return [view.at((numbers - 1).astype(np.int32)) for numbers in found]


def pad(step: FileNode, build: Builder) -> list[Value]:
    """Zeros around the input; other modes repeat elements, which only layout can undo."""
    value = step.constant(2, "value") if step.opset >= 11 else step.attributes.get("value", 0.0)
    if step.attributes.get("mode", "constant") == "constant" and value is not None and np.any(value):
        raise Refused(f"it pads with {float(np.asarray(value).reshape(-1)[0]):g}", "the machine pads with zeros")
    if value is None or step.opset < 11:
        return move(step, build)
    zero = np.zeros(np.shape(value), np.int32)
    values = (step.view(0).numbers + 1, *(zero if index == 2 else value
                                          for index, value in enumerate(step.values) if index > 0))
    found = evaluate(step, values)
    return [step.view(0).at((numbers - 1).astype(np.int32)) for numbers in found]


def same(step: FileNode, build: Builder) -> list[Value]:
    """The input itself."""
    check_keeps(step)
    return [step.view(0), *(None for _ in step.outputs[1:])]


def check_keeps(step: FileNode) -> None:
    """Refuse a Dropout that drops elements."""
    mode = step.constant(2, "mode") if step.kind == "Dropout" else None
    if mode is not None and mode.any():
        raise Refused("it drops elements at random, as in training", "export the network for inference (eval mode)")


def cast(step: FileNode, build: Builder) -> list[Value]:
    """Numbers in another format; whole numbers are for the host."""
    if step.attributes["to"] in FLOATS:
        return [step.view(0)]
    return at_host(step, build)


def shape(step: FileNode, build: Builder) -> list[Value]:
    """The shape of the input, which is known."""
    view: View = step.view(0)
    if step.kind == "Size":
        return [np.array(view.numbers.size, np.int64)]
    first, end = step.attributes.get("start", 0), step.attributes.get("end")
    return [np.array(view.shape, np.int64)[first:end]]


def at_host(step: FileNode, build: Builder) -> list[Value]:
    """What the host makes of the network's output.

    Raises:
        Refused: the node does not stand at the end of the network, or joins several results.
    """
    kind = qualified(step.proto.domain, step.kind)
    computed, *others = (value for value in step.values if isinstance(value, HostValue | View))
    if any(other is not computed for other in others):
        raise Refused("it joins several results of the network, of which the machine gives one", "give them as outputs "
                      "of the network, and choose one by --output NAME")
    if kind not in HOST and kind not in BEHIND:
        raise Refused("it computes with what only the host has, such as the result of a Softmax", "end the network "
                      "before that")
    view = computed.view if isinstance(computed, HostValue) else computed
    softmax = kind == "Softmax" and isinstance(computed, View) and _along_elements(step, view)
    if kind in HOST and (kind != "Cast" or isinstance(computed, View)):
        what = "the smallest outputs (TopK)" if kind == "TopK" and not step.attributes.get("largest", 1) else HOST[kind]
        build.note(f"{step.name}: {what} is left to the host" + UNLESS * softmax)
    keeps = kind in KEEPING and step.attributes.get("norm", "L1") == "L1"  # a sum of 1 stays one
    softmax |= keeps and isinstance(computed, HostValue) and computed.softmax
    return [HostValue(view=view, softmax=softmax, node=step if kind == "Softmax" and _along_last(step, view) else None)
            for _ in step.outputs]


def _along_elements(step: FileNode, view: View) -> bool:
    """Whether a softmax adds up all elements of each sample's vector."""
    return _along_last(step, view) and len(view.shape) == 2 and len(view.numbers) == view.source.samples and (
        view.numbers.size == view.source.order.size)


def _along_last(step: FileNode, view: View) -> bool:
    """Whether a softmax adds up the elements of the last axis, and of no other."""
    axes = len(view.shape)
    return axes > 0 and step.attributes.get("axis", -1 if step.opset >= 13 else 1) % axes == axes - 1

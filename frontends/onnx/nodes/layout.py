"""Operators that compute nothing: they only change where elements lie."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder
from concord.frontends.onnx.lib.evaluate import evaluate
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import Codes, Step, Value
from concord.frontends.onnx.lib.views import View
from concord.frontends.onnx.nodes.host import at_host
from onnx import TensorProto

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}


def move(step: Step, build: Builder) -> list[Value]:
    """What the operator makes of the numbers of the elements of its input."""
    if isinstance(step.get(0), Codes):
        moved = move(replace(step, values=(step.get(0).view, *step.values[1:])), build)
        return [replace(step.get(0), view=view) for view in moved]
    view = step.view(0)
    others = tuple(step.constant(index, f"input {index + 1}") for index in range(1, len(step.values)))
    # The number 0 stands for a zero of padding, which Pad brings.
    found = evaluate(step, (view.numbers + 1, *others))
    return [view.at((numbers - 1).astype(np.int32)) for numbers in found]


def pad(step: Step, build: Builder) -> list[Value]:
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


def same(step: Step, build: Builder) -> list[Value]:
    """The input itself."""
    if step.kind == "Dropout" and step.constant(2, "mode") is not None and bool(step.constant(2, "mode")):
        raise Refused("it drops elements at random, as in training", "export the network for inference (eval mode)")
    return [step.view(0), *(None for _ in step.outputs[1:])]


def cast(step: Step, build: Builder) -> list[Value]:
    """Numbers in another format; whole numbers are for the host."""
    if step.attributes["to"] in FLOATS:
        return [step.view(0)]
    return at_host(step, build)


def shape(step: Step, build: Builder) -> list[Value]:
    """The shape of the input, which is known."""
    view: View = step.view(0)
    if step.kind == "Size":
        return [np.array(view.numbers.size, np.int64)]
    first, end = step.attributes.get("start", 0), step.attributes.get("end")
    return [np.array(view.shape, np.int64)[first:end]]

"""Activation functions."""

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, check_not_padded
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileCodes, FileNode, Value
from concord.frontends.onnx.lib.views import View
from concord.frontends.onnx.nodes import quantized
from concord.net.ops.pointwise import (
    Exp,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Pointwise,
    Reciprocal,
    Relu,
    Sigmoid,
    Sqrt,
    Tanh,
    limits,
)

#: The operators of ONNX that are one activation function.
ACTIVATIONS = {
    "Exp": Exp, "HardSwish": HardSwish, "Reciprocal": Reciprocal, "Relu": Relu, "Sigmoid": Sigmoid, "Sqrt": Sqrt,
    "Tanh": Tanh}


def activation(step: FileNode, build: Builder) -> list[Value]:
    """An activation function without options."""
    return [_curve(step, build, ACTIVATIONS[step.kind]())]


def hard_sigmoid(step: FileNode, build: Builder) -> list[Value]:
    """max(0, min(1, alpha * x + beta))."""
    return [_curve(step, build, HardSigmoid(
        alpha=float(step.attributes.get("alpha", 0.2)), beta=float(step.attributes.get("beta", 0.5))))]


def prelu(step: FileNode, build: Builder) -> list[Value]:
    """A relu with one slope of negative numbers."""
    slopes = np.unique(step.weights(1, "slope"))
    if len(slopes) > 1:
        raise Refused("its slopes for negative numbers differ", "use LeakyRelu and train on")
    return [_leaky(step, build, float(slopes[0]))]


def gelu(step: FileNode, build: Builder) -> list[Value]:
    """GELU, exact or by its approximation with tanh."""
    exact = step.attributes.get("approximate", "none") != "tanh"
    if exact:
        line, cube = Gelu.EXACT
        build.note(f"An exact GELU is x * sigmoid({line:.3f} x + {cube:.4f} x^3) on the machine, which differs from it "
                   "by at most 0.00028")
    return [build.same(step, Gelu(exact=exact), step.view(0))]


def leaky_relu(step: FileNode, build: Builder) -> list[Value]:
    """max(x, slope * x)."""
    return [_leaky(step, build, float(step.attributes.get("alpha", 0.01)))]


def _leaky(step: FileNode, build: Builder, slope: float) -> View:
    if not 0 <= slope <= 1:
        raise Refused(f"its slope for negative numbers is {slope:g}", "use a slope of 0 to 1 and train on")
    return build.same(step, LeakyRelu(slope=slope) if slope else Relu(), step.view(0))


def clip(step: FileNode, build: Builder) -> list[Value]:
    """A relu with a largest result; or fewer of the integers that QuantizeLinear makes."""
    low, high = (step.constant(index, key) if step.opset >= 11 else step.attributes.get(key)
                 for index, key in ((1, "min"), (2, "max")))
    if isinstance(step.get(0), FileCodes):
        return quantized.clip(step, build, low, high)
    return [between(step, build, step.view(0), low, high)]


def extreme(step: FileNode, build: Builder) -> list[Value]:
    """Max or Min of the input and one number."""
    limits = [value for value in step.values if isinstance(value, np.ndarray)]
    views = [step.view(index) for index, value in enumerate(step.values) if not isinstance(value, np.ndarray)]
    if len(views) > 1:
        raise Refused("it takes the larger or the smaller of two tensors", "the machine compares with 0 or in pools")
    if len(limits) != 1:
        raise Refused(f"it compares what the network computes with {len(limits) or 'no'} constants",
                      "compare it with one number" if limits else "leave the node out, which changes nothing")
    view, limit = *views, *limits
    if np.broadcast_shapes(limit.shape, view.shape) != view.shape:
        raise Refused(f"its constant {list(limit.shape)} makes a larger tensor of its input {list(view.shape)}",
                      "compare it with one number")
    bounds = (limit, None) if step.kind == "Max" else (None, limit)
    return [between(step, build, view, *bounds)]


def between(step: FileNode, build: Builder, view: View, low, high) -> View:
    """A tensor with a smallest and a largest value; None is no limit."""
    low, high = (_limit(value, none) for value, none in ((low, -np.inf), (high, np.inf)))
    maker = build.maker(view.source)
    above_zero = maker is not None and isinstance(maker.op, Pointwise) and maker.op.positive
    if above_zero and low <= 0 < high:
        low = 0.0
    try:
        op = limits(low, high)
    except ValueError as error:
        raise Refused(str(error), "leave the node out") from error
    if op is None:
        return view
    if op.real(np.zeros(1), None).any():
        check_not_padded(view)
    return build.same(step, op, view)


def _limit(value, none: float) -> float:
    if value is None:
        return none
    numbers = np.unique(np.asarray(value, np.float64))
    if len(numbers) != 1 or np.isnan(numbers[0]):
        raise Refused("its limits differ from element to element, or are not a number",
                      "use one limit for all elements")
    # Exporters write the largest float32 of that sign where there is no limit.
    return none if numbers[0] * np.sign(none) >= np.finfo(np.float32).max else float(numbers[0])


def _curve(step: FileNode, build: Builder, op: Pointwise) -> View:
    """A function of each number; of the zeros of a Pad only one that is zero at zero."""
    if op.real(np.zeros(1), None).any():
        check_not_padded(step.view(0))
    return build.same(step, op, step.view(0))

"""The interface that converts layers to QONNX nodes, and the forms of layers without weights.

`qonnx.graph` lists one form for each class of layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from concord.compiler.qonnx.nodes import QonnxNodes
from concord.golden.mfu.multifunction import activate
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import MaxPool
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.softmax import DISTANCE_BITS, LOW_BITS, QUOTIENT_BITS, fractions, wholes
from onnx import TensorProto

_LOWEST = -(2.0 ** (2 * DISTANCE_BITS))  # what minus infinity becomes


@dataclass(frozen=True, kw_only=True, slots=True)
class QonnxTensor:
    """The result of a layer.

    Attributes:
        name:       Name of the tensor in the graph.
        shape:      Shape of one sample.
        minus_zero: Whether an element may be -0.
    """

    name: str
    shape: tuple[int, ...]
    minus_zero: bool


class QonnxForm:
    """Converts layers of one class to nodes."""

    def check(self, layer: Layer):
        """Refuse a layer whose numbers the nodes cannot represent.

        Raises:
            ValueError: a sentence that names the layer.
        """

    def add(self, nodes: QonnxNodes, layer: Layer, sources: Sequence[QonnxTensor]) -> QonnxTensor:
        """Add nodes that compute the layer from the tensors that enter it, and return its result."""
        raise NotImplementedError


class MaxPoolForm(QonnxForm):
    """Converts maximum pooling."""

    def add(self, nodes, layer, sources):
        x = shaped(nodes, f"{layer.name}.input", sources[0], layer.shape)
        made = QonnxTensor(name=_maximum(nodes, layer, x), shape=layer.made, minus_zero=x.minus_zero)
        return activated(nodes, layer, made)


class AddForm(QonnxForm):
    """Converts the sum of two tensors, rounded to binary16."""

    def add(self, nodes, layer, sources):
        a, b = sources[0], shaped(nodes, f"{layer.name}.other", sources[1], sources[0].shape)
        total = nodes.binary16("Add", f"{layer.name}.sum", a.name, b.name)
        return activated(nodes, layer, replace(a, name=total, minus_zero=a.minus_zero and b.minus_zero))


class ConcatForm(QonnxForm):
    """Converts concatenations; images of the same size are joined along their channels."""

    def add(self, nodes, layer, sources):
        if len({x.shape[1:] for x in sources}) > 1:
            sources = [shaped(nodes, f"{layer.name}.{k}", x, (size,))
                       for k, (x, size) in enumerate(zip(sources, layer.sizes, strict=True))]
        name = nodes.add("Concat", f"{layer.name}.y", *(x.name for x in sources), axis=1)
        shape = (sum(x.shape[0] for x in sources), *sources[0].shape[1:])
        return QonnxTensor(name=name, shape=shape, minus_zero=any(x.minus_zero for x in sources))


class SoftmaxForm(QonnxForm):
    """Converts the softmax at the end of a network."""

    def add(self, nodes, layer, sources):
        return replace(sources[0], name=_Softmax(nodes, layer.name).result(sources[0].name, layer.inputs),
                       minus_zero=False)


def activated(nodes: QonnxNodes, layer: Layer, x: QonnxTensor) -> QonnxTensor:
    """Add the nodes of a layer's activation function."""
    name = layer.name
    match layer.activation:
        case Activation.NONE:
            return x
        case Activation.RELU:
            y = nodes.add("Relu", f"{name}.relu", x.name)
            # Relu may return -0 for -0.
            return replace(x, name=nodes.add("Abs", f"{name}.abs", y) if x.minus_zero else y, minus_zero=False)
    results = activate(layer.activation, np.arange(1 << 16, dtype=np.uint16))
    return replace(x, name=nodes.table(f"{name}.{layer.activation}", x.name, results))


def shaped(nodes: QonnxNodes, name: str, x: QonnxTensor, shape: tuple[int, ...]) -> QonnxTensor:
    """Add a node that gives a tensor another shape."""
    return x if x.shape == shape else replace(x, name=nodes.reshaped(name, x.name, shape), shape=shape)


def _maximum(nodes: QonnxNodes, layer: MaxPool, x: QonnxTensor) -> str:
    """The largest value of each window; +0 counts as larger than -0."""
    name, value = layer.name, x.name
    if x.minus_zero:
        # +0 is represented by a tiny positive number, which binary16 rounds to +0.
        inverse = nodes.add("Reciprocal", f"{name}.inverse", value)
        plus = nodes.add("Equal", f"{name}.plus", inverse, nodes.constant(f"{name}.infinity", np.inf))
        value = nodes.add("Where", f"{name}.marked", plus, nodes.constant(f"{name}.tiny", 2.0**-26), value)
    above, below, left, right = layer.padding
    largest = nodes.add("MaxPool", f"{name}.largest", value, kernel_shape=layer.size, strides=layer.stride,
                        pads=(above, left, below, right), dilations=layer.dilation)
    return nodes.rounded(f"{name}.y", largest) if x.minus_zero else largest


class _Softmax:
    """Nodes in float64 whose names begin with the name of the layer.

    Args:
        nodes: Nodes that grow.
        name:  Name of the layer.
    """

    def __init__(self, nodes: QonnxNodes, name: str):
        self._nodes, self._name = nodes, name

    def result(self, x: str, elements: int) -> str:
        """The softmax of float32[samples, elements] that hold binary16 numbers."""
        nodes, name = self._nodes, self._name
        # The operator that finds a maximum along an axis changed its form between operator sets; this one did not.
        largest = nodes.add("GlobalMaxPool", f"{name}.largest", nodes.reshaped(f"{name}.line", x, (1, elements)))
        largest = nodes.reshaped(f"{name}.top", largest, (1,))
        distance = self._do("Sub", "distance", self._units("top", largest), self._units("element", x))
        term = self._term(distance)
        axis = nodes.constant(f"{name}.axis", [1], np.int64)
        total = nodes.add("ReduceSum", f"{name}.total", term, axis, keepdims=1)
        value = nodes.narrowed(f"{name}.value", self._quotient(term, total), 1 << QUOTIENT_BITS + 2)
        unit = nodes.constant(f"{name}.unit", 2.0 ** -(QUOTIENT_BITS + 1))
        return nodes.rounded(f"{name}.y", nodes.add("Mul", f"{name}.scaled", value, unit))

    def _units(self, what: str, x: str) -> str:
        """X of `spec.numbers.softmax`."""
        wide = self._nodes.add("Cast", f"{self._name}.{what}.wide", x, to=TensorProto.DOUBLE)
        steps = self._floor(f"{what}.steps", self._times(f"{what}.units", wide, 2.0**DISTANCE_BITS))
        return self._do("Max", f"{what}.place", steps, self._number(f"{what}.lowest", _LOWEST))

    def _term(self, distance: str) -> str:
        """e of `spec.numbers.softmax`."""
        whole, t = self._split("whole", distance, DISTANCE_BITS)
        segment, low = self._split("segment", t, LOW_BITS)
        base, slope = (self._gather(key, [getattr(row, key) for row in fractions()], segment)
                       for key in ("base", "slope"))
        fall = self._floor("fall", self._times("fall.scaled", self._do("Mul", "slope.low", slope, low), 2.0**-LOW_BITS))
        near = self._do("Sub", "near", base, fall)
        number = self._do("Min", "row", whole, self._number("rows", len(wholes())))
        factor = self._gather("factor", [*(row.factor * 2.0**-row.shift for row in wholes()), 0], number)
        return self._floor("term", self._do("Mul", "term.exact", near, factor))

    def _quotient(self, term: str, total: str) -> str:
        """Twice the quotient of term * 2**QUOTIENT_BITS and total, and 1 more where a remainder is left."""
        numerator = self._times("numerator", term, 2.0**QUOTIENT_BITS)
        guess = self._floor("guess", self._do("Div", "ratio", numerator, total))  # at most one too large
        rest = self._do("Sub", "guess.rest", numerator, self._do("Mul", "guess.back", guess, total))
        none = self._number("none", 0)
        over = self._cast("over", self._do("Less", "is_over", rest, none))
        # A guess that is too large leaves less than nothing; the quotient is no whole number then.
        sticky = self._cast("sticky", self._do("Not", "is_left", self._do("Equal", "is_whole", rest, none)))
        whole = self._do("Sub", "quotient", guess, over)
        return self._do("Add", "doubled.sticky", self._times("doubled", whole, 2.0), sticky)

    def _split(self, what: str, value: str, bits: int) -> tuple[str, str]:
        """value div 2**bits, and value mod 2**bits."""
        high = self._floor(what, self._times(f"{what}.ratio", value, 2.0**-bits))
        return high, self._do("Sub", f"{what}.low", value, self._times(f"{what}.back", high, 2.0**bits))

    def _gather(self, what: str, rows: list[float], index: str) -> str:
        whole = self._nodes.add("Cast", f"{self._name}.{what}.index", index, to=TensorProto.INT64)
        return self._do("Gather", what, self._number(f"{what}.rows", rows), whole)

    def _do(self, op: str, what: str, *inputs: str) -> str:
        return self._nodes.add(op, f"{self._name}.{what}", *inputs)

    def _floor(self, what: str, value: str) -> str:
        return self._do("Floor", f"{what}.floor", value)

    def _times(self, what: str, value: str, factor: float) -> str:
        return self._do("Mul", what, value, self._number(f"{what}.factor", factor))

    def _cast(self, what: str, value: str) -> str:
        return self._nodes.add("Cast", f"{self._name}.{what}", value, to=TensorProto.DOUBLE)

    def _number(self, what: str, value) -> str:
        return self._nodes.constant(f"{self._name}.{what}", value, np.float64)

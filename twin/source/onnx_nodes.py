"""Nodes of an ONNX graph: tensors, their types and shapes, and operators that only move elements.

Numbers are float32 tensors that hold binary16 values; codes are float32 or float64. Only operators of ONNX are used.
"""

from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

#: The first operator set of ONNX with BitCast.
OPSET = 26
FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
TYPES = {FLOAT: np.float32, DOUBLE: np.float64}


@dataclass(frozen=True, kw_only=True, slots=True)
class OnnxValue:
    """A tensor of the graph.

    Attributes:
        name:  Its name.
        shape: Size of each axis; None for the batch, and for the number of time steps.
        type:  FLOAT or DOUBLE.
        array: What it holds, if it is stored.
    """

    name: str
    shape: tuple
    type: int = FLOAT
    array: np.ndarray | None = None


def broadcast(a: tuple, b: tuple) -> tuple:
    """Shape of an operation on tensors of two shapes."""
    size = max(len(a), len(b))
    pairs = zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True)
    return tuple(None if None in pair else max(pair) for pair in pairs)


class OnnxNodes:
    """Adds nodes, one call after the other.

    Attributes:
        nodes:     The nodes, in the order of computation.
        constants: Stored tensors by name; those of a loop's body lie in the graph around it, too.
    """

    def __init__(self, constants: dict[str, TensorProto] | None = None, prefix: str = ""):
        self.nodes: list[NodeProto] = []
        self.constants = {} if constants is None else constants
        self._prefix = prefix

    def node(self, op: str, *inputs: str, **attributes) -> str:
        """Add a node, and return the name of its result."""
        name = f"{self._prefix}{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, values, dtype) -> str:
        """Add a stored tensor, and return its name."""
        array = np.asarray(values, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def stored(self, values: np.ndarray) -> OnnxValue:
        """A tensor of the script."""
        kind = DOUBLE if values.dtype == np.float64 else FLOAT
        name = self.constant(values, values.dtype if values.dtype == np.int32 else TYPES[kind])
        return OnnxValue(name=name, shape=values.shape, type=kind, array=values)

    def _op(self, op: str, *inputs: "OnnxValue | float", shape: tuple | None = None, type: int | None = None,
            **attributes) -> OnnxValue:
        """A node of tensors and numbers, whose result has the type of the first tensor, if none is given."""
        tensors = [each for each in inputs if isinstance(each, OnnxValue)]
        like = next((each.type for each in tensors if each.type in TYPES), FLOAT)
        names = [each.name if isinstance(each, OnnxValue) else self.constant(each, TYPES[like]) for each in inputs]
        made = self.node(op, *names, **attributes)
        return OnnxValue(name=made, type=tensors[0].type if type is None else type,
                         shape=reduce(broadcast, (each.shape for each in tensors)) if shape is None else shape)

    def _moved(self, op: str, x: OnnxValue, *integers, shape: tuple, **attributes) -> OnnxValue:
        """A node that takes whole numbers beside a tensor, such as sizes."""
        names = [each if isinstance(each, str) else self.constant(each, np.int64) for each in integers]
        return OnnxValue(name=self.node(op, x.name, *names, **attributes), shape=shape, type=x.type)

    def _cast(self, x: OnnxValue, to: int) -> OnnxValue:
        return x if x.type == to else self._op("Cast", x, to=to, type=to)

    def _power(self, x: OnnxValue) -> OnnxValue:
        """The largest power of two up to |x|, or 0."""
        whole, mask = ((TensorProto.INT64, np.int64(0x7FF << 52)) if x.type == DOUBLE
                       else (TensorProto.INT32, np.int32(0xFF << 23)))
        bits = self.node("BitwiseAnd", self.node("BitCast", x.name, to=whole), self.constant(mask, mask.dtype))
        return OnnxValue(name=self.node("BitCast", bits, to=x.type), shape=x.shape, type=x.type)

    def _pad(self, x: OnnxValue, axes: dict[int, tuple[int, int]], fill) -> OnnxValue:
        before, after = ([axes.get(axis, (0, 0))[end] for axis in range(len(x.shape))] for end in (0, 1))
        shape = tuple(size if size is None else size + sum(axes.get(axis, (0, 0)))
                      for axis, size in enumerate(x.shape))
        return self._moved("Pad", x, before + after, self.constant(fill, TYPES[x.type]), shape=shape)

    def join(self, *values: OnnxValue) -> OnnxValue:
        if len(values) == 1:
            return values[0]
        kind = max(value.type for value in values)
        shape = (*values[0].shape[:-1], sum(value.shape[-1] for value in values))
        return self._op("Concat", *(self._cast(value, kind) for value in values), shape=shape, axis=-1)

    def part(self, x: OnnxValue, first: int, last: int) -> OnnxValue:
        return self._moved("Slice", x, [first], [last], [-1], shape=(*x.shape[:-1], last - first))

    def flatten(self, x: OnnxValue) -> OnnxValue:
        return x if len(x.shape) == 2 else self.reshape(x, (prod(x.shape[1:]),))

    def reshape(self, x: OnnxValue, shape: tuple) -> OnnxValue:
        # A 0 keeps the size of the batch.
        return self._moved("Reshape", x, (0, *shape), shape=(None, *shape))

    def image(self, x: OnnxValue, shape: tuple) -> OnnxValue:
        return self.transpose(self.reshape(x, shape), (2, 3, 1))

    def transpose(self, x: OnnxValue, axes: tuple) -> OnnxValue:
        return self._moved("Transpose", x, perm=(0, *axes), shape=(None, *(x.shape[axis] for axis in axes)))

    def start(self, like: OnnxValue, values: OnnxValue) -> OnnxValue:
        """The same stored values for every sample of a batch."""
        batch = self.node("Shape", like.name, start=0, end=1)
        shape = self.node("Concat", batch, self.constant(values.shape, np.int64), axis=0)
        return self._moved("Expand", values, shape, shape=(None, *values.shape))

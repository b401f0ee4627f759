"""The functions of a script as nodes of an ONNX graph.

Numbers are float32 tensors that hold binary16 values: each operation is followed by a cast to float16 and back. If the
tensors themselves were float16, runtimes without float16 kernels would leave these roundings out. Codes are float32 or
float64. Only operators of ONNX are used. Bits may differ for an input that leads to a NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod, reduce
from math import prod

import numpy as np
from concord.golden.mfu import activation
from onnx import NodeProto, TensorProto, helper, numpy_helper

#: The first operator set of ONNX with BitCast.
OPSET = 26
FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
TYPES = {FLOAT: np.float32, DOUBLE: np.float64}


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
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


def _broadcast(a: tuple, b: tuple) -> tuple:
    """Shape of an operation on tensors of two shapes."""
    size = max(len(a), len(b))
    pairs = zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True)
    return tuple(None if None in pair else max(pair) for pair in pairs)


class Functions:
    """The vocabulary; each call adds nodes.

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

    def stored(self, values: np.ndarray) -> Value:
        """A tensor of the script."""
        kind = DOUBLE if values.dtype == np.float64 else FLOAT
        name = self.constant(values, values.dtype if values.dtype == np.int32 else TYPES[kind])
        return Value(name=name, shape=values.shape, type=kind, array=values)

    def _real(self, value: float, like: Value) -> str:
        return self.constant(value, TYPES[like.type])

    def _apply(self, op: str, a: Value, *others: str, shape: tuple | None = None, **attributes) -> Value:
        """A node whose result has the type of its first argument."""
        name = self.node(op, a.name, *others, **attributes)
        return Value(name=name, shape=a.shape if shape is None else shape, type=a.type)

    def _cast(self, x: Value, to: int) -> Value:
        return x if x.type == to else Value(name=self.node("Cast", x.name, to=to), shape=x.shape, type=to)

    def _power(self, x: Value) -> str:
        """The largest power of two up to |x|, or 0."""
        whole, mask = ((TensorProto.INT64, np.int64(0x7FF << 52)) if x.type == DOUBLE
                       else (TensorProto.INT32, np.int32(0xFF << 23)))
        bits = self.node("BitwiseAnd", self.node("BitCast", x.name, to=whole), self.constant(mask, mask.dtype))
        return self.node("BitCast", bits, to=x.type)

    def half(self, x: Value) -> Value:
        """Numbers rounded once to binary16."""
        if x.type == DOUBLE:  # a cast from float64 may round twice: round to units of the last place first
            unit = self.node("Max", self.node("Mul", self._power(x), self._real(2.0**-10, x)), self._real(2.0**-24, x))
            whole = self.node("Round", self.node("Div", x.name, unit))
            x = self._cast(Value(name=self.node("Mul", whole, unit), shape=x.shape, type=DOUBLE), FLOAT)
        return Value(name=self.node("Cast", self.node("Cast", x.name, to=HALF), to=FLOAT), shape=x.shape)

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        return self.half(self._apply(op, a, b.name, shape=_broadcast(a.shape, b.shape)))

    add = partialmethod(_binary, "Add")
    subtract = partialmethod(_binary, "Sub")
    multiply = partialmethod(_binary, "Mul")

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger of a and b; +0 is larger than -0, so that whole numbers in the order of the values are compared.

        `Where` of onnxruntime would make +0 of -0.
        """
        if a.type == DOUBLE:
            return self._apply("Max", a, b.name)
        larger = self.node("Max", *(self._ordered(self.node("BitCast", each.name, to=TensorProto.INT32))
                                    for each in (a, b)))
        return Value(name=self.node("BitCast", self._ordered(larger), to=FLOAT), shape=_broadcast(a.shape, b.shape))

    def _ordered(self, bits: str) -> str:
        """Patterns of float32 as whole numbers in the order of their values, or back."""
        negative = self.node("Less", bits, self.constant(0, np.int32))
        return self.node("Where", negative, self.node("BitwiseXor", bits, self.constant(0x7FFFFFFF, np.int32)), bits)

    def relu(self, a: Value) -> Value:
        """max(a, +0)."""
        below = self.node("LessOrEqual", a.name, self._real(0, a))
        return self._apply("Where", Value(name=below, shape=a.shape, type=a.type), self._real(0, a), a.name)

    def canonical(self, a: Value) -> Value:
        return a

    def _curve(self, function: Callable[[np.ndarray], np.ndarray], a: Value) -> Value:
        """The result for each of the 65,536 bit patterns, from a table."""
        table = self.constant(function(np.arange(1 << 16)).view(np.float16), np.float32)
        bits = self.node("BitCast", self.node("Cast", a.name, to=HALF), to=TensorProto.UINT16)
        return Value(name=self.node("Gather", table, self.node("Cast", bits, to=TensorProto.INT32)), shape=a.shape)

    sigmoid = partialmethod(_curve, activation.sigmoid)
    tanh = partialmethod(_curve, activation.tanh)

    def _without_nan(self, x: Value) -> Value:
        test = Value(name=self.node("IsNaN", x.name), shape=x.shape, type=x.type)
        return self._apply("Where", test, self._real(0, x), x.name)

    def integers(self, x: Value, lowest: int, highest: int) -> Value:
        """Codes: numbers rounded to whole numbers and clipped."""
        whole = self._apply("Round", self._without_nan(x))
        return self._apply("Clip", whole, self._real(lowest, x), self._real(highest, x))

    def blocks(self, x: Value, size: int, bits: int, exponents=(-15, 16), rule="frexp", symmetric=False) -> Value:
        """Codes: mantissas under one exponent for each block."""
        groups, largest = self._grouped(x, size)
        above = self.node("Mul", self._power(largest), self._real(2, x))
        if rule == "ceil":
            exact = self.node("Equal", self.node("Mul", largest.name, self._real(2, x)), above)
            above = self.node("Where", exact, largest.name, above)
        ends = [self._real(2.0**exponent, x) for exponent in exponents]
        unit = self.node("Mul", self.node("Clip", above, *ends), self._real(2.0 ** (1 - bits), x))
        whole = self.node("Round", self.node("Div", groups.name, unit))
        limit = 1 << bits - 1
        mantissas = self.node("Clip", whole, self._real(symmetric - limit, x), self._real(limit - 1, x))
        return self._ungrouped(self._apply("Mul", Value(name=mantissas, shape=groups.shape), unit), x)

    def _grouped(self, x: Value, size: int) -> tuple[Value, Value]:
        """Neighbours in blocks [..., blocks, size], and the largest magnitude of each block [..., blocks, 1]."""
        spare = -x.shape[-1] % size
        x = self._apply("Clip", self._without_nan(x), self._real(-65504, x), self._real(65504, x))
        padded = self._pad(x, {len(x.shape) - 1: (0, spare)}, 0) if spare else x
        groups = self.reshape(padded, (*padded.shape[1:-1], padded.shape[-1] // size, size))
        return groups, self._apply("ReduceMax", self._apply("Abs", groups), self.constant([-1], np.int64),
                                   shape=(*groups.shape[:-1], 1), keepdims=1)

    def _ungrouped(self, groups: Value, x: Value) -> Value:
        """Blocks of neighbours in the shape of x, as codes."""
        width = groups.shape[-2] * groups.shape[-1]
        codes = self.reshape(groups, (*x.shape[1:-1], width))
        return self._cast(self.part(codes, 0, x.shape[-1]) if width > x.shape[-1] else codes, DOUBLE)

    def floats(self, x: Value, precision: int, lowest: float, highest: float, fraction=0) -> Value:
        """Codes: multiples of 2**-fraction of so many significant bits, clipped."""
        x = self._apply("Clip", self._without_nan(x), self._real(lowest, x), self._real(highest, x))
        codes = self._significant(x, precision, self._real(2.0**-fraction, x))
        return self._cast(codes, DOUBLE) if fraction else codes

    def float_blocks(self, x: Value, size: int, bits: int, precision: int, exponents=(-15, 16)) -> Value:
        """Codes: floats under one exponent for each block."""
        groups, largest = self._grouped(x, size)
        rounded = self._significant(largest, precision, self._real(2.0**-99, x))
        ends = [self._real(2.0**exponent, x) for exponent in exponents]
        above = self.node("Clip", self.node("Mul", self._power(rounded), self._real(2, x)), *ends)
        limit = self.node("Mul", above, self._real(1 - 2.0**-precision, x))
        clipped = self._apply("Max", self._apply("Min", groups, limit), self.node("Neg", limit))
        return self._ungrouped(self._significant(clipped, precision, self.node("Mul", above, self._real(
            2.0 ** (1 - bits), x))), x)

    def _significant(self, x: Value, precision: int, unit: str) -> Value:
        """x rounded to multiples of a unit that have so many significant bits."""
        step = self.node("Max", self.node("Mul", self._power(x), self._real(2.0 ** (1 - precision), x)), unit)
        return self._apply("Mul", Value(name=self.node("Round", self.node("Div", x.name, step)), shape=x.shape,
                                        type=x.type), step)

    def numbers(self, codes: Value) -> Value:
        return self.half(self._without_sign(codes))

    def _without_sign(self, x: Value) -> Value:
        """x with +0 for -0; a runtime drops the addition of 0."""
        zero = Value(name=self.node("Equal", x.name, self._real(0, x)), shape=x.shape, type=x.type)
        return self._apply("Where", zero, self._real(0, x), x.name)

    def dense(self, codes: Value, weights: Value, start: Value | None = None, scale=0, wrap=0, fraction=0) -> Value:
        """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
        matrix = self.constant(weights.array.T, TYPES[weights.type])
        sums = self._apply("MatMul", self._cast(codes, weights.type), matrix,
                           shape=(*codes.shape[:-1], len(weights.array)))
        return self._rounded(sums, start, scale, wrap, fraction)

    def _rounded(self, sums: Value, start, scale, wrap, fraction) -> Value:
        if start is not None:
            sums = self._apply("Add", sums, self.constant(start.array, TYPES[sums.type]))
        if wrap:
            sums = self._wrapped(self._cast(sums, DOUBLE), wrap, fraction)
        sums = self._without_sign(sums)
        return self.half(self._apply("Mul", sums, self._real(2.0**-scale, sums)) if scale else sums)

    def _wrapped(self, sums: Value, wrap: int, fraction: int) -> Value:
        """Sums modulo an accumulator."""
        limit = self.constant(1 << wrap - 1, np.int64)
        steps = self.node("Cast", self.node("Mul", sums.name, self._real(2.0**fraction, sums)), to=TensorProto.INT64)
        rest = self.node("Mod", self.node("Add", steps, limit), self.constant(1 << wrap, np.int64))
        whole = self.node("Cast", self.node("Sub", rest, limit), to=DOUBLE)
        return self._apply("Mul", Value(name=whole, shape=sums.shape, type=DOUBLE), self._real(2.0**-fraction, sums))

    def convolution(self, codes: Value, weights: Value, start: Value | None = None, scale=0, stride=(1, 1),
                    padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0) -> Value:
        """`dense` of every window."""
        kernels = weights.array
        pixels = self._pixels(self._cast(codes, weights.type), kernels.shape[1:3], stride, padding, dilation, fill)
        kernels = kernels.reshape(len(kernels), len(pixels), -1)
        each = len(kernels) // groups
        if kernels.shape[2] == 1 and each == 1:  # a channel by itself: a sum over the pixels
            products = [self._apply("Mul", pixel, self.constant(kernels[:, place, 0], TYPES[weights.type]))
                        for place, pixel in enumerate(pixels)]
            sums = reduce(lambda a, b: self._apply("Add", a, b.name), products)
        else:
            sums = self.join(*(self._group(pixels, kernels[group * each : (group + 1) * each], group)
                               for group in range(groups)))
        return self._rounded(sums, start, scale, wrap, fraction)

    def _group(self, pixels: list[Value], kernels: np.ndarray, group: int) -> Value:
        """Sums of one group of channels."""
        size = kernels.shape[2]
        parts = [self.part(pixel, group * size, (group + 1) * size) if size < pixel.shape[-1] else pixel
                 for pixel in pixels]
        seen = self.join(*parts)
        matrix = self.constant(kernels.reshape(len(kernels), -1).T, TYPES[seen.type])
        return self._apply("MatMul", seen, matrix, shape=(*seen.shape[:-1], len(kernels)))

    def _pixels(self, x: Value, window, stride, padding, dilation, fill) -> list[Value]:
        """For each pixel of a window, in row order, what all windows have there."""
        if any(padding):
            x = self._pad(x, {1: padding[:2], 2: padding[2:]}, fill)
        places = [(x.shape[axis + 1] - (window[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1 for axis in (0, 1)]
        found = []
        for at in np.ndindex(*window):
            first = np.multiply(at, dilation)
            last = first + (np.array(places) - 1) * stride + 1
            words = [self.constant(each, np.int64) for each in (first, last, (1, 2), stride)]
            found.append(self._apply("Slice", x, *words, shape=(None, *places, x.shape[-1])))
        return found

    def _pad(self, x: Value, axes: dict[int, tuple[int, int]], fill) -> Value:
        before, after = ([axes.get(axis, (0, 0))[end] for axis in range(len(x.shape))] for end in (0, 1))
        shape = tuple(size if size is None else size + sum(axes.get(axis, (0, 0)))
                      for axis, size in enumerate(x.shape))
        return self._apply("Pad", x, self.constant(before + after, np.int64), self._real(fill, x), shape=shape)

    def patches(self, x: Value, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0) -> Value:
        return self.join(*self._pixels(x, window, stride, padding, dilation, fill))

    def max_pool(self, x: Value, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0) -> Value:
        return reduce(self.maximum, self._pixels(x, window, stride, padding, (1, 1), fill))

    def take(self, index: Value, *values: Value) -> Value:
        joined = self.join(*map(self.flatten, values))
        return self._apply("Gather", joined, index.name, shape=(None, *index.shape), axis=1)

    def join(self, *values: Value) -> Value:
        kind = max(value.type for value in values)
        if len(values) == 1:
            return values[0]
        names = [self._cast(value, kind).name for value in values]
        shape = (*values[0].shape[:-1], sum(value.shape[-1] for value in values))
        return Value(name=self.node("Concat", *names, axis=-1), shape=shape, type=kind)

    def part(self, x: Value, first: int, last: int) -> Value:
        words = [self.constant([each], np.int64) for each in (first, last, -1)]
        return self._apply("Slice", x, *words, shape=(*x.shape[:-1], last - first))

    def flatten(self, x: Value) -> Value:
        return x if len(x.shape) == 2 else self.reshape(x, (prod(x.shape[1:]),))

    def reshape(self, x: Value, shape: tuple) -> Value:
        # A 0 keeps the size of the batch.
        return self._apply("Reshape", x, self.constant((0, *shape), np.int64), shape=(None, *shape))

    def image(self, x: Value, shape: tuple) -> Value:
        channels, rows, columns = shape
        return self._apply("Transpose", self.reshape(x, shape), perm=(0, 2, 3, 1),
                           shape=(None, rows, columns, channels))

    def transpose(self, x: Value, axes: tuple) -> Value:
        return self._apply("Transpose", x, perm=(0, *axes), shape=(None, *(x.shape[axis] for axis in axes)))

    def start(self, like: Value, values: Value) -> Value:
        """The same stored values for every sample of a batch."""
        batch = self.node("Shape", like.name, start=0, end=1)
        shape = self.node("Concat", batch, self.constant(values.shape, np.int64), axis=0)
        return self._apply("Expand", values, shape, shape=(None, *values.shape))

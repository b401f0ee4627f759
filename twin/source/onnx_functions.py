"""The functions of a script as nodes of an ONNX graph.

Numbers are float32 tensors that hold binary16 values: each operation is followed by a cast to float16 and back. If the
tensors themselves were float16, runtimes without float16 kernels would leave these roundings out. Codes are float32 or
float64. Only operators of ONNX are used. Bits may differ for an input that leads to a NaN.
"""

from collections.abc import Callable
from functools import partial, partialmethod, reduce

import numpy as np
from concord.golden.mfu import activation
from concord.twin.source.onnx_nodes import DOUBLE, FLOAT, HALF, OnnxNodes, OnnxValue, broadcast
from onnx import TensorProto


class Functions(OnnxNodes):
    """The vocabulary; each call adds nodes."""

    def half(self, x: OnnxValue) -> OnnxValue:
        """Numbers rounded once to binary16."""
        if x.type == DOUBLE:  # a cast from float64 may round twice: round to units of the last place first
            unit = self._op("Max", self._op("Mul", self._power(x), 2.0**-10), 2.0**-24)
            x = self._cast(self._nearest(x, unit), FLOAT)
        return self._cast(self._op("Cast", x, to=HALF, type=HALF), FLOAT)

    def _nearest(self, x: OnnxValue, unit: OnnxValue) -> OnnxValue:
        """x rounded to multiples of a unit, ties to even."""
        return self._op("Mul", self._op("Round", self._op("Div", x, unit)), unit)

    def _binary(self, op: str, a: OnnxValue, b: OnnxValue) -> OnnxValue:
        return self.half(self._op(op, a, b))

    add = partialmethod(_binary, "Add")
    subtract = partialmethod(_binary, "Sub")
    multiply = partialmethod(_binary, "Mul")

    def maximum(self, a: OnnxValue, b: OnnxValue) -> OnnxValue:
        """The larger of a and b; +0 is larger than -0, so that whole numbers in the order of the values are compared.

        `Where` of onnxruntime would make +0 of -0.
        """
        if a.type == DOUBLE:
            return self._op("Max", a, b)
        a, b = (self._op("Where", self._op("IsNaN", each), np.nan, each) for each in (a, b))  # a NaN is the largest
        larger = self.node("Max", *(self._ordered(self.node("BitCast", each.name, to=TensorProto.INT32))
                                    for each in (a, b)))
        return OnnxValue(name=self.node("BitCast", self._ordered(larger), to=FLOAT), shape=broadcast(a.shape, b.shape))

    def _ordered(self, bits: str) -> str:
        """Patterns of float32 as whole numbers in the order of their values, or back."""
        negative = self.node("Less", bits, self.constant(0, np.int32))
        return self.node("Where", negative, self.node("BitwiseXor", bits, self.constant(0x7FFFFFFF, np.int32)), bits)

    def relu(self, a: OnnxValue) -> OnnxValue:
        """max(a, +0)."""
        return self._zero_where(self._op("LessOrEqual", a, 0), a)

    def _zero_where(self, test: OnnxValue, x: OnnxValue) -> OnnxValue:
        """x with +0 where a test is true."""
        return self._op("Where", test, 0, x)

    def canonical(self, a: OnnxValue) -> OnnxValue:
        return a

    def _curve(self, function: Callable[[np.ndarray], np.ndarray], a: OnnxValue) -> OnnxValue:
        """The result for each of the 65,536 bit patterns, from a table."""
        table = self.constant(function(np.arange(1 << 16)).view(np.float16), np.float32)
        bits = self.node("BitCast", self.node("Cast", a.name, to=HALF), to=TensorProto.UINT16)
        return OnnxValue(name=self.node("Gather", table, self.node("Cast", bits, to=TensorProto.INT32)), shape=a.shape)

    sigmoid = partialmethod(_curve, activation.sigmoid)
    tanh = partialmethod(_curve, activation.tanh)
    exp = partialmethod(_curve, activation.exp)
    reciprocal = partialmethod(_curve, activation.reciprocal)
    rsqrt = partialmethod(_curve, activation.rsqrt)
    sqrt = partialmethod(_curve, activation.sqrt)

    def _clipped(self, x: OnnxValue, lowest: float, highest: float) -> OnnxValue:
        """x with 0 for a NaN, clipped."""
        return self._op("Clip", self._zero_where(self._op("IsNaN", x), x), lowest, highest)

    def integers(self, x: OnnxValue, lowest: int, highest: int) -> OnnxValue:
        """Codes: numbers rounded to whole numbers and clipped."""
        return self._op("Round", self._clipped(x, lowest, highest))

    def blocks(self, x: OnnxValue, size: int, bits: int, exponents=(-15, 16), rule="frexp",
               symmetric=False) -> OnnxValue:
        """Codes: mantissas under one exponent for each block."""
        groups, largest = self._grouped(x, size)
        above = self._op("Mul", self._power(largest), 2)
        if rule == "ceil":
            exact = self._op("Equal", self._op("Mul", largest, 2), above)
            above = self._op("Where", exact, largest, above)
        above = self._op("Clip", above, *(2.0**exponent for exponent in exponents))
        unit, limit = self._op("Mul", above, 2.0 ** (1 - bits)), 1 << bits - 1
        mantissas = self._op("Clip", self._op("Round", self._op("Div", groups, unit)), symmetric - limit, limit - 1)
        return self._ungrouped(self._op("Mul", mantissas, unit), x)

    def _grouped(self, x: OnnxValue, size: int) -> tuple[OnnxValue, OnnxValue]:
        """Neighbours in blocks [..., blocks, size], and the largest magnitude of each block [..., blocks, 1]."""
        spare = -x.shape[-1] % size
        x = self._clipped(x, -65504, 65504)
        padded = self._pad(x, {len(x.shape) - 1: (0, spare)}, 0) if spare else x
        groups = self.reshape(padded, (*padded.shape[1:-1], padded.shape[-1] // size, size))
        largest = self._moved("ReduceMax", self._op("Abs", groups), [-1], shape=(*groups.shape[:-1], 1), keepdims=1)
        return groups, largest

    def _ungrouped(self, groups: OnnxValue, x: OnnxValue) -> OnnxValue:
        """Blocks of neighbours in the shape of x, as codes."""
        width = groups.shape[-2] * groups.shape[-1]
        codes = self.reshape(groups, (*x.shape[1:-1], width))
        return self._cast(self.part(codes, 0, x.shape[-1]) if width > x.shape[-1] else codes, DOUBLE)

    def floats(self, x: OnnxValue, precision: int, lowest: float, highest: float, fraction=0) -> OnnxValue:
        """Codes: multiples of 2**-fraction of so many significant bits, clipped."""
        codes = self._significant(self._clipped(x, lowest, highest), precision, 2.0**-fraction)
        return self._cast(codes, DOUBLE) if fraction else codes

    def float_blocks(self, x: OnnxValue, size: int, bits: int, precision: int, exponents=(-15, 16)) -> OnnxValue:
        """Codes: floats under one exponent for each block."""
        groups, largest = self._grouped(x, size)
        above = self._op("Mul", self._power(self._significant(largest, precision, 2.0**-99)), 2)
        above = self._op("Clip", above, *(2.0**exponent for exponent in exponents))
        limit = self._op("Mul", above, 1 - 2.0**-precision)
        clipped = self._op("Max", self._op("Min", groups, limit), self._op("Neg", limit))
        return self._ungrouped(self._significant(clipped, precision, self._op("Mul", above, 2.0 ** (1 - bits))), x)

    def _significant(self, x: OnnxValue, precision: int, unit: "OnnxValue | float") -> OnnxValue:
        """x rounded to multiples of a unit that have so many significant bits."""
        return self._nearest(x, self._op("Max", self._op("Mul", self._power(x), 2.0 ** (1 - precision)), unit))

    def numbers(self, codes: OnnxValue) -> OnnxValue:
        return self.half(self._without_sign(codes))

    def _without_sign(self, x: OnnxValue) -> OnnxValue:
        """x with +0 for -0; a runtime drops the addition of 0."""
        return self._zero_where(self._op("Equal", x, 0), x)

    def dense(self, codes: OnnxValue, weights: OnnxValue, start: OnnxValue | None = None, scale=0, wrap=0,
              fraction=0) -> OnnxValue:
        """(weights @ codes + start) * 2**-scale: exact, then rounded once to binary16."""
        sums = self._product(self._cast(codes, weights.type), weights.array)
        return self._rounded(sums, start, scale, wrap, fraction)

    def matmul(self, codes: OnnxValue, others: OnnxValue, wrap=0, fraction=0) -> OnnxValue:
        """codes @ others, whose last two axes are exchanged: exact, then rounded once to binary16."""
        *axes, last = range(1, len(others.shape))
        right = self.transpose(self._cast(others, DOUBLE), (*axes[:-1], last, axes[-1]))
        sums = self._op("MatMul", self._cast(codes, DOUBLE), right, shape=(*codes.shape[:-1], right.shape[-1]))
        return self._rounded(sums, None, 0, wrap, fraction)

    def _product(self, x: OnnxValue, matrix: np.ndarray) -> OnnxValue:
        """The sums of a matrix [outputs, elements]."""
        return self._op("MatMul", x, matrix.T, shape=(*x.shape[:-1], len(matrix)))

    def _rounded(self, sums: OnnxValue, start, scale, wrap, fraction) -> OnnxValue:
        if start is not None:
            sums = self._op("Add", sums, start.array, shape=sums.shape)
        if wrap:
            sums = self._wrapped(self._cast(sums, DOUBLE), wrap, fraction)
        sums = self._without_sign(sums)
        return self.half(self._op("Mul", sums, 2.0**-scale) if scale else sums)

    def _wrapped(self, sums: OnnxValue, wrap: int, fraction: int) -> OnnxValue:
        """Sums modulo an accumulator."""
        limit = self.constant(1 << wrap - 1, np.int64)
        steps = self.node("Cast", self._op("Mul", sums, 2.0**fraction).name, to=TensorProto.INT64)
        rest = self.node("Mod", self.node("Add", steps, limit), self.constant(1 << wrap, np.int64))
        whole = self.node("Cast", self.node("Sub", rest, limit), to=DOUBLE)
        return self._op("Mul", OnnxValue(name=whole, shape=sums.shape, type=DOUBLE), 2.0**-fraction)

    def total(self, a: OnnxValue) -> OnnxValue:
        """The sum along the last axis: exact, then rounded once to binary16."""
        sums = self._moved("ReduceSum", self._cast(a, DOUBLE), [-1], shape=(*a.shape[:-1], 1), keepdims=1)
        finite = self._op("Clip", self._without_sign(sums), -(2.0**17), 2.0**17)  # beyond binary16, as infinity is
        return self.half(finite)

    def largest(self, a: OnnxValue) -> OnnxValue:
        """The largest element along the last axis; +0 is larger than -0."""
        while (size := a.shape[-1]) > 1:
            middle = (size + 1) // 2
            a = self.maximum(self.part(a, 0, middle), self.part(a, size - middle, size))
        return a

    def softmax(self, a: OnnxValue, fractions: OnnxValue, wholes: OnnxValue) -> OnnxValue:
        """exp(a) by its sum along the last axis: whole numbers of two tables, rounded once."""
        node, x = self.node, self._cast(a, DOUBLE).name
        nan, above, below = node("IsNaN", x), node("IsInf", x, detect_negative=0), node("IsInf", x, detect_positive=0)
        strange = node("Or", nan, above)
        term = self._terms(node("Where", node("Or", strange, below), self.constant(-65536, np.float64), x),
                           fractions.array.astype(np.int64), wholes.array.astype(np.int64))
        last = self.constant([-1], np.int64)
        total, raised = node("ReduceSum", term, last), node("Mul", term, self.constant(1 << 25, np.int64))
        quotient = node("Div", raised, total)
        sticky = node("Cast", node("Greater", raised, node("Mul", quotient, total)), to=DOUBLE)
        parts = node("Add", node("Mul", node("Cast", quotient, to=DOUBLE), self.constant(2, np.float64)), sticky)
        parts = node("Mul", parts, self.constant(2.0**-26, np.float64))
        result = self.half(OnnxValue(name=parts, shape=a.shape, type=DOUBLE))
        any_strange = node("ReduceMax", node("Cast", strange, to=FLOAT), last)
        all_below = node("ReduceMin", node("Cast", below, to=FLOAT), last)
        undefined = node("Greater", node("Max", any_strange, all_below), self.constant(0, np.float32))
        return OnnxValue(name=node("Where", undefined, self.constant(np.nan, np.float32), result.name), shape=a.shape)

    def _terms(self, x: str, fractions: np.ndarray, wholes: np.ndarray) -> str:
        """The terms of `softmax`, whole numbers, from finite numbers in float64."""
        def number(value) -> str:
            return self.constant(value, np.int64)

        node = self.node
        units = node("Floor", node("Mul", x, self.constant(65536, np.float64)))
        # The largest is found in float64: ReduceMax of onnxruntime is wrong for whole numbers beyond 32 bits.
        distance = node("Cast", node("Sub", node("ReduceMax", units, number([-1])), units), to=TensorProto.INT64)
        whole, part = (node(op, distance, number(65536)) for op in ("Div", "Mod"))
        chord, low = (node(op, part, number(512)) for op in ("Div", "Mod"))
        base, slope = (node("Gather", number(column), chord) for column in fractions.T)
        near = node("Sub", base, node("Div", node("Mul", slope, low), number(512)))
        row = node("Min", whole, number(len(wholes) - 1))
        factor, power = (node("Gather", number(column), row) for column in (wholes[:, 0], 1 << wholes[:, 1]))
        far = node("Less", number(len(wholes) - 1), whole)
        return node("Where", far, number(0), node("Div", node("Mul", near, factor), power))

    def convolution(self, codes: OnnxValue, weights: OnnxValue, start: OnnxValue | None = None, scale=0, stride=(1, 1),
                    padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, fill=0, wrap=0, fraction=0) -> OnnxValue:
        """`dense` of every window."""
        kernels = weights.array
        pixels = self._pixels(self._cast(codes, weights.type), kernels.shape[1:3], stride, padding, dilation, fill)
        kernels = kernels.reshape(len(kernels), len(pixels), -1)
        each = len(kernels) // groups
        if kernels.shape[2] == 1 and each == 1:  # a channel by itself: a sum over the pixels
            sums = reduce(partial(self._op, "Add"), [self._op("Mul", pixel, kernels[:, index, 0], shape=pixel.shape)
                                                     for index, pixel in enumerate(pixels)])
        else:
            sums = self.join(*(self._group(pixels, kernels[group * each : (group + 1) * each], group)
                               for group in range(groups)))
        return self._rounded(sums, start, scale, wrap, fraction)

    def _group(self, pixels: list[OnnxValue], kernels: np.ndarray, group: int) -> OnnxValue:
        """Sums of one group of channels."""
        size = kernels.shape[2]
        parts = [self.part(pixel, group * size, (group + 1) * size) if size < pixel.shape[-1] else pixel
                 for pixel in pixels]
        return self._product(self.join(*parts), kernels.reshape(len(kernels), -1))

    def _pixels(self, x: OnnxValue, window, stride, padding, dilation, fill) -> list[OnnxValue]:
        """For each pixel of a window, in row order, what all windows have there."""
        if any(padding):
            x = self._pad(x, {1: padding[:2], 2: padding[2:]}, fill)
        positions = [(x.shape[axis + 1] - (window[axis] - 1) * dilation[axis] - 1) // stride[axis] + 1
                     for axis in (0, 1)]
        found = []
        for at in np.ndindex(*window):
            first = np.multiply(at, dilation)
            last = first + (np.array(positions) - 1) * stride + 1
            found.append(self._moved("Slice", x, first, last, (1, 2), stride, shape=(None, *positions, x.shape[-1])))
        return found

    def patches(self, x: OnnxValue, window, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), fill=0) -> OnnxValue:
        return self.join(*self._pixels(x, window, stride, padding, dilation, fill))

    def max_pool(self, x: OnnxValue, window, stride=(1, 1), padding=(0, 0, 0, 0), fill=0) -> OnnxValue:
        return reduce(self.maximum, self._pixels(x, window, stride, padding, (1, 1), fill))

    def take(self, index: OnnxValue, *values: OnnxValue) -> OnnxValue:
        joined = self.join(*map(self.flatten, values))
        return self._moved("Gather", joined, index.name, shape=(None, *index.shape), axis=1)

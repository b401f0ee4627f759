"""ONNX graphs of integers whose scales are powers of two, so that a machine keeps them."""

from typing import Any

import numpy as np
import onnx
from concord.campaigns.makers.onnx_graphs import OnnxGraph

ZERO = np.int8(0)


class IntegerGraph(OnnxGraph):
    """A graph of integers whose scales are powers of two."""

    def qdq(self, scale: float, zero=ZERO) -> str:
        constants = self.constant(np.float32(scale)), self.constant(zero)
        self.add("QuantizeLinear", *constants)
        return self.add("DequantizeLinear", *constants)

    def quant(self, scale: float, bits: int, signed: bool, first: str | None = None) -> str:
        """QONNX's Quant."""
        constants = [self.constant(np.float32(value)) for value in (scale, 0, bits)]
        return self.add("Quant", *constants, first=first, domain="qonnx.custom_op.general", signed=int(signed),
                        narrow=0, rounding_mode="ROUND")

    def integers(self, scale, *shape: int, largest: int = 3) -> str:
        """Weights: integers, and one scale or one for each output."""
        at, scale = self.at, np.float32(scale)
        values = self.random.integers(-largest, largest + 1, shape).astype(np.int8)
        axis: dict[str, Any] = {"axis": 0} if scale.ndim else {}
        name = self.add("DequantizeLinear", self.constant(scale), self.constant(np.zeros(scale.shape, np.int8)),
                        first=self.constant(values), **axis)
        self.at = at
        return name

    def bias(self, size: int, step: float) -> str:
        return self.constant((self.random.integers(-9, 10, size) * step).astype(np.float32))


def dense(end: bool = False) -> onnx.ModelProto:
    graph = IntegerGraph(("batch", 12))
    graph.qdq(2.0**-2)
    graph.add("Gemm", graph.integers(2.0**-2, 10, 12, largest=1), graph.bias(10, 2.0**-4), transB=1)
    graph.add("Relu")
    graph.qdq(2.0**-2)
    graph.add("Gemm", graph.integers([2.0**-3, 2.0**-2, 2.0**-1], 3, 10, largest=1), graph.bias(3, 2.0**-3), transB=1)
    if end:
        graph.qdq(0.5)
    return graph.model(21)


def images(zero=ZERO) -> onnx.ModelProto:
    """Convolutions, maxima, a sum, an average, and a quantised output."""
    graph = IntegerGraph((1, 2, 8, 8))
    graph.qdq(2.0**-1)
    graph.add("Conv", graph.integers(np.full(4, 0.5), 4, 2, 3, 3, largest=1), graph.bias(4, 0.25), pads=[1, 1, 1, 1])
    graph.add("Relu")
    graph.qdq(0.5, zero)
    graph.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    first = graph.qdq(0.5, zero)
    graph.add("Conv", graph.integers(0.5, 4, 1, 3, 3, largest=2), graph.bias(4, 0.25), pads=[1, 1, 1, 1], group=4)
    graph.qdq(0.5, zero)
    graph.add("Add", first)
    graph.qdq(1.0, np.uint8(0))
    graph.add("GlobalAveragePool")
    graph.qdq(0.5)
    graph.add("Flatten")
    graph.add("Gemm", graph.integers(0.25, 5, 4, largest=1), graph.bias(5, 0.125), transB=1)
    graph.qdq(0.25)
    return graph.model(21)


def clipped() -> onnx.ModelProto:
    """Integers of fewer bits than their type, as Brevitas writes them."""
    graph = IntegerGraph(("batch", 12))
    for first, size, (lowest, highest), zero in ((12, 10, (-128, 127), ZERO), (10, 3, (0, 15), np.uint8(0))):
        scale, zero, *limits = map(graph.constant, (np.float32(0.5), zero, type(zero)(lowest), type(zero)(highest)))
        graph.add("QuantizeLinear", scale, zero)
        graph.add("Clip", *limits)
        graph.add("DequantizeLinear", scale, zero)
        graph.add("Gemm", graph.integers(0.25, size, first, largest=1), graph.bias(size, 0.125), transB=1)
        graph.add("Relu")
    return graph.model(21)


def qonnx(image: bool) -> onnx.ModelProto:
    """Inputs of 8 bits, activations of 4, weights of 2."""
    from concord.compiler.qonnx.nodes import quant_function

    graph = IntegerGraph((1, 2, 6, 6) if image else ("batch", 12))
    at = graph.quant(0.25, 8, True)
    for rows, columns in ((6, 2), (4, 6)) if image else ((10, 12), (3, 10)):
        weight = graph.quant(0.5, 2, True, graph.weight(rows, columns, *((3, 3) if image else ())))
        if image:
            graph.add("Conv", weight, graph.bias(rows, 0.125), first=at)
        else:
            weight = graph.add("Transpose", first=weight, perm=[1, 0])
            graph.add("MatMul", weight, first=at)
            graph.add("Add", graph.bias(rows, 0.125))
        graph.add("Relu")
        at = graph.quant(0.5, 4, False)
    model = graph.model(21)
    shape = (1, 4, 2, 2) if image else ("batch", 3)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info(graph.at, onnx.TensorProto.FLOAT, shape))
    model.functions.append(quant_function(21))
    return model

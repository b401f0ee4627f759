"""Dense layers and convolutions of integer mode in a QONNX graph.

Their products are float32 numbers that round to the machine's binary16. Unsigned codes are not lowered by `zero`, as
they are on the machine, so that only the part of `start` that comes from a bias is added.
"""

from math import prod

import numpy as np
from concord.compiler.qonnx.form import QonnxForm, QonnxTensor, activated, shaped
from concord.compiler.qonnx.nodes import FLOAT32_BITS, QonnxNodes
from concord.net.arithmetic.integer import largest_sum
from concord.net.layers.convolution import Conv
from concord.net.layers.rows import IntegerRows
from concord.net.lowering import lowering
from onnx import TensorProto

MINUS_ZERO = 0x8000
#: Sums above this limit are not exact in float64.
FLOAT64_BITS = 53


class ProductForm(QonnxForm):
    """Converts a layer: quantised codes, their exact product, and its scale, offset and activation.

    Attributes:
        channels: Shape of a vector of parameters, one for each channel.
    """

    channels = (-1,)

    def check(self, layer):
        bits = largest(layer).bit_length()
        if bits > FLOAT64_BITS:
            raise ValueError(f"layer {layer.name!r}: its sums need {bits} bits, and float64 holds {FLOAT64_BITS}; use "
                             "fewer bits")

    def add(self, nodes, layer, sources):
        name = layer.name
        value = self.bordered(nodes, layer, shaped(nodes, f"{name}.input", sources[0], layer.entering).name)
        if layer.quant_scale is not None:
            scale = nodes.halves(f"{name}.R", layer.quant_scale, self.channels)
            value = nodes.binary16("Mul", f"{name}.scaled", value, scale)
        if layer.quant_offset is not None:
            offset = nodes.halves(f"{name}.O", layer.quant_offset, self.channels)
            value = nodes.binary16("Add", f"{name}.shifted", value, offset)
        codes = nodes.quant(f"{name}.codes", value, layer.input_format, unsigned=layer.unsigned)
        shift = nodes.constant(f"{name}.places", 2.0**-layer.p)
        a = nodes.rounded(f"{name}.a", nodes.add("Mul", f"{name}.moved", self._product(nodes, layer, codes), shift))
        gained = nodes.binary16("Mul", f"{name}.gained", a, nodes.halves(f"{name}.S", layer.scale, self.channels))
        y = nodes.binary16("Add", f"{name}.y", gained, nodes.halves(f"{name}.T", layer.offset, self.channels))
        minus_zero = bool((layer.offset == MINUS_ZERO).any())
        return activated(nodes, layer, QonnxTensor(name=y, shape=self.made(layer), minus_zero=minus_zero))

    def bordered(self, nodes: QonnxNodes, layer: IntegerRows, x: str) -> str:
        """The input, padded if the layer has padding."""
        return x

    def made(self, layer: IntegerRows) -> tuple[int, ...]:
        """The shape of one sample of the result."""
        return (layer.outputs,)

    def sums(self, nodes: QonnxNodes, layer: IntegerRows, codes: str, wide: bool) -> str:
        """weights @ codes, in float64 if `wide`."""
        weights = quantized(nodes, layer, layer.weights.T, wide)
        return nodes.add("MatMul", f"{layer.name}.product", codes, weights)

    def _product(self, nodes: QonnxNodes, layer: IntegerRows, codes: str) -> str:
        """start + weights @ codes as float32 that rounds to the right binary16."""
        name, limit = layer.name, largest(layer)
        wide = limit.bit_length() > FLOAT32_BITS
        dtype = np.float64 if wide else np.float32
        if wide:
            codes = nodes.add("Cast", f"{name}.codes.wide", codes, to=TensorProto.DOUBLE)
        total = self.sums(nodes, layer, codes, wide)
        if (start := _start(layer)).any():
            constant = nodes.constant(f"{name}.start", start.reshape(self.channels), dtype)
            total = nodes.add("Add", f"{name}.total", total, constant)
        return nodes.narrowed(f"{name}.narrow", total, limit) if wide else total


class ConvolutionForm(ProductForm):
    """Converts a convolution: the product at every position of an image."""

    channels = (-1, 1, 1)

    def bordered(self, nodes, layer, x):
        """The input with its border, whose value is in the units of the input."""
        if not any(layer.padding):
            return x
        name, (above, below, left, right) = layer.name, layer.padding
        pads = nodes.constant(f"{name}.pads", (0, 0, above, left, 0, 0, below, right), np.int64)
        return nodes.add("Pad", f"{name}.padded", x, pads, nodes.halves(f"{name}.border", layer.border, ()))

    def made(self, layer):
        return layer.made

    def sums(self, nodes, layer, codes, wide):
        if wide:
            return _wide_convolution(nodes, layer, codes)
        weights = quantized(nodes, layer, layer.weights, wide)
        return nodes.add("Conv", f"{layer.name}.product", codes, weights, strides=layer.stride,
                         dilations=layer.dilation, group=layer.groups, kernel_shape=layer.size)


def quantized(nodes: QonnxNodes, layer: IntegerRows, weights: np.ndarray, wide: bool) -> str:
    """Add the weights and a node that quantises them."""
    name = layer.name
    made = nodes.quant(f"{name}.weights", nodes.constant(f"{name}.W", weights), layer.weights_format)
    return nodes.add("Cast", f"{name}.weights.wide", made, to=TensorProto.DOUBLE) if wide else made


def _wide_convolution(nodes: QonnxNodes, layer: Conv, codes: str) -> str:
    """A convolution in float64, for which runtimes have no operator: for each group, a matrix times all patches."""
    name, positions = layer.name, layer.made[1:]
    each, outputs = layer.shape[0] // layer.groups, len(layer.weights) // layer.groups
    patches = [
        nodes.reshaped(f"{part}.columns", part, (layer.groups, each, prod(positions)))
        for part in nodes.slices(f"{name}.patch", codes, layer.window, positions)]
    columns = nodes.add("Concat", f"{name}.patches", *patches, axis=2)
    matrices = layer.weights.transpose(0, 2, 3, 1).reshape(layer.groups, outputs, -1)
    total = nodes.add("MatMul", f"{name}.product", quantized(nodes, layer, matrices, wide=True), columns)
    return nodes.reshaped(f"{name}.image", total, layer.made)


def _start(layer: IntegerRows) -> np.ndarray:
    flat = layer.weights.reshape(len(layer.weights), -1)
    return layer.start - lowering.start_values(flat, layer.input_format, layer.unsigned)


def largest(layer: IntegerRows) -> int:
    """An upper bound of the magnitude of all partial sums."""
    flat = layer.weights.reshape(len(layer.weights), -1)
    return largest_sum(flat, _start(layer), lowering.largest_code(layer.input_format, layer.unsigned))

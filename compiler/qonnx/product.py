"""Exact products of integer layers in a QONNX graph, as float32 that rounds to the machine's binary16."""

from math import prod

import numpy as np
from concord.compiler.qonnx.nodes import FLOAT32_BITS, Nodes
from concord.model import lowering
from concord.model.arithmetic.integer import largest_sum
from concord.model.layers.convolution import Conv
from concord.model.layers.dense import Dense
from onnx import TensorProto


def product(nodes: Nodes, layer: Dense | Conv, codes: str) -> str:
    """start + weights @ codes as float32 that rounds to the right binary16.

    Unsigned codes enter as they are, not lowered by `zero`, which leaves of `start` what a bias added.
    """
    name, limit = layer.name, largest(layer)
    wide = limit.bit_length() > FLOAT32_BITS
    dtype = np.float64 if wide else np.float32
    if wide:
        codes = nodes.add("Cast", f"{name}.codes.wide", codes, to=TensorProto.DOUBLE)
    if isinstance(layer, Dense):
        total = nodes.add("MatMul", f"{name}.product", codes, _weights(nodes, layer, layer.weights.T, wide))
    elif wide:
        total = _wide_convolution(nodes, layer, codes)
    else:
        total = nodes.add("Conv", f"{name}.product", codes, _weights(nodes, layer, layer.weights, wide),
                          strides=[layer.stride] * 2, group=layer.groups, kernel_shape=layer.window)
    if (start := _start(layer)).any():
        shape = (-1, 1, 1) if isinstance(layer, Conv) else (-1,)
        total = nodes.add("Add", f"{name}.total", total, nodes.constant(f"{name}.start", start.reshape(shape), dtype))
    return nodes.narrowed(f"{name}.narrow", total, limit) if wide else total


def _weights(nodes: Nodes, layer: Dense | Conv, weights: np.ndarray, wide: bool) -> str:
    name = layer.name
    quantised = nodes.quant(f"{name}.weights", nodes.constant(f"{name}.W", weights), layer.weights_format)
    return nodes.add("Cast", f"{name}.weights.wide", quantised, to=TensorProto.DOUBLE) if wide else quantised


def _wide_convolution(nodes: Nodes, layer: Conv, codes: str) -> str:
    """A convolution in float64, which runtimes have no operator for: a matrix for each group, times all patches."""
    name, places = layer.name, layer.made[1:]
    each, outputs = layer.shape[0] // layer.groups, len(layer.weights) // layer.groups
    patches = [
        nodes.reshaped(f"{part}.columns", part, (layer.groups, each, prod(places)))
        for part in nodes.slices(f"{name}.patch", codes, layer.window, places, layer.stride)]
    columns = nodes.add("Concat", f"{name}.patches", *patches, axis=2)
    matrices = layer.weights.transpose(0, 2, 3, 1).reshape(layer.groups, outputs, -1)
    total = nodes.add("MatMul", f"{name}.product", _weights(nodes, layer, matrices, wide=True), columns)
    return nodes.reshaped(f"{name}.image", total, layer.made)


def _start(layer: Dense | Conv) -> np.ndarray:
    flat = layer.weights.reshape(len(layer.weights), -1)
    return layer.start - lowering.start_values(flat, layer.input_format, layer.unsigned)


def largest(layer: Dense | Conv) -> int:
    """No partial sum has a larger magnitude."""
    flat = layer.weights.reshape(len(layer.weights), -1)
    return largest_sum(flat, _start(layer), lowering.largest_code(layer.input_format, layer.unsigned))

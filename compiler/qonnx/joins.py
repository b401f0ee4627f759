"""Layers without weights in a QONNX graph: pooling, sums and concatenations."""

from dataclasses import replace

import numpy as np
from concord.compiler.qonnx.form import Form, Tensor, activated, shaped
from concord.compiler.qonnx.nodes import Nodes
from concord.net.layers.pool import MaxPool


class MaxPoolForm(Form):
    """Converts maximum pooling."""

    def add(self, nodes, layer, sources):
        x = shaped(nodes, f"{layer.name}.input", sources[0], layer.shape)
        made = Tensor(name=_maximum(nodes, layer, x), shape=layer.made, minus_zero=x.minus_zero)
        return activated(nodes, layer, made)


class AddForm(Form):
    """Converts the sum of two tensors, rounded to binary16."""

    def add(self, nodes, layer, sources):
        a, b = sources[0], shaped(nodes, f"{layer.name}.other", sources[1], sources[0].shape)
        total = nodes.binary16("Add", f"{layer.name}.sum", a.name, b.name)
        return activated(nodes, layer, replace(a, name=total, minus_zero=a.minus_zero and b.minus_zero))


class ConcatForm(Form):
    """Converts concatenations; images of the same size are joined along their channels."""

    def add(self, nodes, layer, sources):
        if len({x.shape[1:] for x in sources}) > 1:
            sources = [shaped(nodes, f"{layer.name}.{k}", x, (size,))
                       for k, (x, size) in enumerate(zip(sources, layer.sizes, strict=True))]
        name = nodes.add("Concat", f"{layer.name}.y", *(x.name for x in sources), axis=1)
        shape = (sum(x.shape[0] for x in sources), *sources[0].shape[1:])
        return Tensor(name=name, shape=shape, minus_zero=any(x.minus_zero for x in sources))


def _maximum(nodes: Nodes, layer: MaxPool, x: Tensor) -> str:
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

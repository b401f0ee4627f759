"""A quantised model as a QONNX graph, which returns the machine's bits.

Integers come from `Quant` nodes of scale 1, products of integers are exact, and each operation on binary16 rounds once,
in the order in which `model.network` computes. An input that leads to a NaN is outside this promise.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import onnx
from concord.compiler.qonnx.nodes import DOMAIN, Nodes, quant_function
from concord.compiler.qonnx.product import largest, product
from concord.golden.mfu import activation
from concord.golden.mfu.activation import Activation
from concord.model.arithmetic import windows
from concord.model.layers.add import Add
from concord.model.layers.concat import Concat
from concord.model.layers.convolution import Conv
from concord.model.layers.dense import Dense
from concord.model.layers.layer import Layer
from concord.model.layers.pool import Pool, Reduction
from concord.model.model import INPUT, Model
from onnx import ModelProto, TensorProto, helper

SUPPORTED = (Dense, Conv, Pool, Add, Concat)
MINUS_ZERO = 0x8000
#: Sums above it are not exact in float64.
FLOAT64_BITS = 53


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """What a layer made.

    Attributes:
        name:       In the graph.
        shape:      Of one sample.
        minus_zero: Whether an element may be -0.
    """

    name: str
    shape: tuple[int, ...]
    minus_zero: bool


def qonnx_graph(model: Model, batch: int = 1) -> ModelProto:
    """The graph of a model.

    Args:
        model: Of dense layers, convolutions, pooling, sums and concatenations in integer mode.
        batch: Samples that one run takes.

    Raises:
        ValueError: a layer has no QONNX form.
    """
    for layer in model.layers:
        _check(layer)
    nodes, shape = Nodes(), _entering(model.layers[0])
    entry = nodes.add("Cast", "input.float32", "input", to=TensorProto.FLOAT)
    made = {INPUT: Tensor(name=entry, shape=shape, minus_zero=True)}
    for layer in model.layers:
        made[layer.name] = _layer(nodes, layer, [made[name] for name in model.sources_of(layer)])
    last = _shaped(nodes, "output.vector", made[model.layers[-1].name], (model.outputs,))
    nodes.add("Cast", "output", last.name, to=TensorProto.FLOAT16)
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, (batch, *size))
            for name, size in (("input", shape), ("output", last.shape)))
    return _packed(model, nodes, *ends)


def _check(layer: Layer):
    if not isinstance(layer, SUPPORTED):
        kind = getattr(layer, "kind", type(layer).__name__)
        raise ValueError(
            f"layer {layer.name!r} ({kind}) has no QONNX form: dense layers, convolutions, pooling, sums and "
            "concatenations of integer mode have one; hand over the model file instead: `nnp export MODEL DESTINATION`")
    if isinstance(layer, Dense | Conv) and largest(layer).bit_length() > FLOAT64_BITS:
        raise ValueError(f"layer {layer.name!r}: its sums need {largest(layer).bit_length()} bits, and float64 holds "
                         f"{FLOAT64_BITS}; use fewer bits")


def _entering(layer: Layer) -> tuple[int, ...]:
    """The shape of one sample at a layer's first input."""
    match layer:
        case Conv() | Pool():
            return layer.shape
        case Concat():
            return layer.sizes[:1]
    return (layer.inputs,)


def _packed(model: Model, nodes: Nodes, entry, result) -> ModelProto:
    """The whole file, checked, with the shapes of all tensors."""
    graph = helper.make_graph(
        nodes.nodes, model.name, [entry], [result], list(nodes.constants.values()),
        doc_string=f"{model.preprocessing}; binary16 in, binary16 out")
    opsets = [helper.make_opsetid("", nodes.opset), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(
        graph, opset_imports=opsets, functions=[quant_function(nodes.opset)], producer_name="concord",
        ir_version=helper.find_min_ir_version_for(opsets[:1]))
    helper.set_model_props(made, {
        "name": model.name,
        "data": model.data,
        "preprocessing": model.preprocessing,
        "classes": json.dumps(model.classes),
        "provenance": json.dumps(asdict(model.provenance)),
    })
    made = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    onnx.checker.check_model(made)
    return made


def _layer(nodes: Nodes, layer: Layer, sources: Sequence[Tensor]) -> Tensor:
    """One layer on what enters it."""
    match layer:
        case Dense() | Conv():
            made = _product(nodes, layer, *sources)
        case Pool():
            made = _pool(nodes, layer, *sources)
        case Add():
            a, b = sources[0], _shaped(nodes, f"{layer.name}.other", sources[1], sources[0].shape)
            made = replace(a, name=nodes.binary16("Add", f"{layer.name}.sum", a.name, b.name),
                           minus_zero=a.minus_zero and b.minus_zero)
        case Concat():
            return _concat(nodes, layer, sources)
    return _activation(nodes, layer, made)


def _product(nodes: Nodes, layer: Dense | Conv, x: Tensor) -> Tensor:
    """Codes, their exact product, and what brings it to the next unit."""
    name = layer.name
    # Along the channels of what enters and of what leaves.
    into, out = ((-1, 1, 1), (-1, 1, 1)) if isinstance(layer, Conv) else ((-1,), (-1,))
    x = _shaped(nodes, f"{name}.input", x, _entering(layer))
    value = _padded(nodes, layer, x.name) if isinstance(layer, Conv) and layer.padding else x.name
    if layer.quant_scale is not None:
        value = nodes.binary16("Mul", f"{name}.scaled", value, nodes.halves(f"{name}.R", layer.quant_scale, into))
    if layer.quant_offset is not None:
        value = nodes.binary16("Add", f"{name}.shifted", value, nodes.halves(f"{name}.O", layer.quant_offset, into))
    codes = nodes.quant(f"{name}.codes", value, layer.input_format, unsigned=layer.unsigned)
    places = nodes.constant(f"{name}.places", 2.0**-layer.p)
    a = nodes.rounded(f"{name}.a", nodes.add("Mul", f"{name}.moved", product(nodes, layer, codes), places))
    gained = nodes.binary16("Mul", f"{name}.gained", a, nodes.halves(f"{name}.S", layer.scale, out))
    y = nodes.binary16("Add", f"{name}.y", gained, nodes.halves(f"{name}.T", layer.offset, out))
    made = layer.made if isinstance(layer, Conv) else (layer.outputs,)
    return Tensor(name=y, shape=made, minus_zero=bool((layer.offset == MINUS_ZERO).any()))


def _padded(nodes: Nodes, layer: Conv, x: str) -> str:
    """The border, in the unit in which the input arrives."""
    name, around = layer.name, (0, 0, layer.padding, layer.padding)
    pads = nodes.constant(f"{name}.pads", around * 2, np.int64)
    return nodes.add("Pad", f"{name}.padded", x, pads, nodes.halves(f"{name}.border", layer.border, ()))


def _pool(nodes: Nodes, layer: Pool, x: Tensor) -> Tensor:
    name, x = layer.name, _shaped(nodes, f"{layer.name}.input", x, layer.shape)
    if layer.reduction is Reduction.MAX:
        y = _maximum(nodes, layer, x)
        return Tensor(name=y, shape=layer.made, minus_zero=x.minus_zero)
    parts = nodes.slices(f"{name}.part", x.name, layer.window, layer.made[1:], layer.stride)
    total = parts[0]
    for count, part in enumerate(parts[1:], 2):
        total = nodes.binary16("Add", f"{name}.sum{count}", total, part)
    factor = nodes.halves(f"{name}.reciprocal", windows.reciprocal(len(parts)), ())
    return Tensor(name=nodes.binary16("Mul", f"{name}.y", total, factor), shape=layer.made, minus_zero=True)


def _maximum(nodes: Nodes, layer: Pool, x: Tensor) -> str:
    """The largest of each window, where +0 is larger than -0."""
    name, value = layer.name, x.name
    if x.minus_zero:
        # +0 stands aside as a number that binary16 rounds to +0.
        inverse = nodes.add("Reciprocal", f"{name}.inverse", value)
        plus = nodes.add("Equal", f"{name}.plus", inverse, nodes.constant(f"{name}.infinity", np.inf))
        value = nodes.add("Where", f"{name}.marked", plus, nodes.constant(f"{name}.tiny", 2.0**-26), value)
    largest = nodes.add("MaxPool", f"{name}.largest", value, kernel_shape=layer.window, strides=[layer.stride] * 2,
                        pads=[layer.padding] * 4)
    return nodes.rounded(f"{name}.y", largest) if x.minus_zero else largest


def _concat(nodes: Nodes, layer: Concat, sources: Sequence[Tensor]) -> Tensor:
    """Images of one size stay images."""
    if len({x.shape[1:] for x in sources}) > 1:
        sources = [_shaped(nodes, f"{layer.name}.{k}", x, (size,))
                   for k, (x, size) in enumerate(zip(sources, layer.sizes, strict=True))]
    name = nodes.add("Concat", f"{layer.name}.y", *(x.name for x in sources), axis=1)
    return Tensor(name=name, shape=(sum(x.shape[0] for x in sources), *sources[0].shape[1:]),
                  minus_zero=any(x.minus_zero for x in sources))


def _activation(nodes: Nodes, layer: Layer, x: Tensor) -> Tensor:
    name = layer.name
    match layer.activation:
        case Activation.NONE:
            return x
        case Activation.RELU:
            y = nodes.add("Relu", f"{name}.relu", x.name)
            # Relu may leave -0 as it is.
            return replace(x, name=nodes.add("Abs", f"{name}.abs", y) if x.minus_zero else y, minus_zero=False)
    results = activation.apply(layer.activation, np.arange(1 << 16, dtype=np.uint16))
    return replace(x, name=nodes.table(f"{name}.{layer.activation}", x.name, results))


def _shaped(nodes: Nodes, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else replace(x, name=nodes.reshaped(name, x.name, shape), shape=shape)

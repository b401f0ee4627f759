"""The float network that a model was quantised from: a graph in which each layer has a node of its name.

A layer is made with the float operator that it was quantised from. Model files hold the graph; files of earlier
versions hold the operator's numbers in `real` of the layer, in names that begin with "fp32_".
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from concord.golden.mfu.softmax import real_softmax
from concord.net.graph import INPUT, Graph, Node
from concord.net.layers.attention import BlockAttention
from concord.net.layers.convolution import BlockConv, Conv
from concord.net.layers.curves import ClippedLine, Curve, Leaky, Limited, TanhGelu
from concord.net.layers.dense import BlockDense, Dense
from concord.net.layers.enlarging import Enlarge
from concord.net.layers.joins import Add, Concat, GatedChannels, Multiply, Softmax
from concord.net.layers.layer import Layer
from concord.net.layers.pooling import Average, BlockAverage, BlockQuantizedResult, MaxPool, QuantizedResult
from concord.net.layers.positions import ConstantPositions, PixelOffsets
from concord.net.layers.recurrent import Recurrent
from concord.net.layers.reductions import VectorNorm, VectorSoftmax
from concord.net.layers.rows import IntegerRows
from concord.net.layers.sequences import ImageToSequence, SequenceToImage
from concord.net.model import Model
from concord.net.ops.attention import Attention
from concord.net.ops.joins import Addition, ChannelGating, Concatenation, Multiplication
from concord.net.ops.operator import Operator, TensorType
from concord.net.ops.pointwise import ACTIVATIONS, Gelu, HardSigmoid, LeakyRelu, Limits, Relu
from concord.net.ops.pooling import AveragePooling, MaxPooling, ProductResult
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.reduction import FeatureNorm, SoftmaxInside
from concord.net.ops.reshape import Flatten, Tokens
from concord.net.ops.scale import Affine, Offsets
from concord.net.ops.sequences import Last, ToImage, ToSequence
from concord.net.ops.weighted import Convolution, Linear
from concord.spec.numbers.activation import Activation

#: Beginning of the names of the float network's numbers in `real` of layers of earlier files.
_FP32 = "fp32_"
_CURVES = {each.activation: each for each in ACTIVATIONS}


def float_network(model: Model) -> Graph | None:
    """The float network of a model: its own, or that of the operators of its layers; None if there is none."""
    return model.graph or _Builder(model).made()


def separated(model: Model, network: Graph | None = None) -> Model:
    """The model with its float network beside it, and layers without operators of it.

    Args:
        model:   The model.
        network: The float network as it was imported, whose names of outputs and table of vectors the model keeps; None
            for those that it has.
    """
    graph = float_network(model)
    if graph is None:
        return model
    if network is not None:
        graph = replace(graph, results=network.results, table=network.table)
    return replace(model, graph=graph, layers=tuple(
        replace(layer, float_operator=None, real={
            key: value for key, value in layer.real.items() if not key.startswith(_FP32)})
        if hasattr(layer, "real") else layer for layer in model.layers))


def result_of(graph: Graph, layer: str) -> str:
    """The name of the tensor that is the result of a layer: that of its activation function, if it has one."""
    readers = graph.readers(layer)
    return readers[0].name if len(readers) == 1 and isinstance(readers[0].op, ACTIVATIONS) else layer


def forward(model: Model, inputs: np.ndarray, lengths: np.ndarray | None = None) -> list[np.ndarray]:
    """Outputs of every layer of the float network.

    Args:
        model:   A model with its float network.
        inputs:  uint16[samples, inputs], or uint16[samples, time, inputs] if the model is recurrent.
        lengths: int[samples], time steps of each sample; all time steps by default.

    Returns:
        float64[samples, outputs] for each layer, of the last time step where it is recurrent.

    Raises:
        ValueError: there is no float network, or a sample has another number of time steps than is fixed.
    """
    model.check_lengths(inputs, lengths)
    graph = float_network(model)
    if graph is None:
        raise ValueError(f"{model.name} carries no FP32 parameters, so it cannot be compared with them")
    x = np.asarray(inputs).view(np.float16).astype(np.float64)
    x = x.reshape(*x.shape[:1 + graph.sequence], *graph.shape)
    found, results = graph.forward(x, lengths), []
    for layer in model.layers:
        if isinstance(layer, Softmax):
            results.append(real_softmax(results[-1]))
            continue
        made = found[result_of(graph, layer.name)]
        if graph.types[layer.name].sequence:
            steps = model.lengths_of(layer, lengths, len(x))
            steps = np.full(len(x), made.shape[1]) if steps is None or not layer.sequence else np.asarray(steps)
            made = made[np.arange(len(x)), 0 if getattr(layer, "reverse", False) else steps - 1]
        results.append(made.reshape(len(x), -1))
    return results


class _Builder:
    """Makes the graph of a model layer by layer."""

    def __init__(self, model: Model):
        self.model, self.nodes = model, []
        shape = model.image or (model.inputs,)
        self.types = {INPUT: TensorType(shape=shape, sequence=model.recurrent)}
        self.results = {INPUT: INPUT}

    def made(self) -> Graph | None:
        """The graph; None if a layer does not hold its numbers, or reads a vector as an image."""
        for layer in self.model.layers:
            if isinstance(layer, Softmax):
                continue
            op = _operator(layer)
            sources = op and self._entering(layer)
            if not sources:
                return None
            if "line" in getattr(layer, "real", ()):
                sources = (self._add(f"{layer.name}:line", _scaled(layer), sources),)
            self.results[layer.name] = self._add(layer.name, op, sources)
            curve = self._curve(layer)
            if curve is not None:
                self.results[layer.name] = self._add(f"{layer.name}:{curve.kind}", curve, (layer.name,))
        if not self.nodes:
            return None
        shape = self.types[INPUT].shape
        return Graph(name=self.model.name, shape=shape, sequence=self.model.recurrent, nodes=tuple(self.nodes),
                     axes=tuple(range(len(shape))), softmax=isinstance(self.model.layers[-1], Softmax))

    def _add(self, name: str, op: Operator, sources: tuple[str, ...]) -> str:
        if name not in self.types:
            self.types[name] = op.result(*(self.types[source] for source in sources))
            self.nodes.append(Node(name=name, op=op, sources=sources))
        return name

    def _entering(self, layer: Layer) -> tuple[str, ...] | None:
        """The tensors that enter a layer, flattened, or the last time step, as it needs them; None if it cannot be."""
        found = []
        for name in self.model.sources_of(layer):
            if name not in self.results:
                return None
            tensor = self.results[name]
            if self.types[tensor].sequence and not layer.sequence:
                source = self.model.node(name)
                backward = self.types[tensor].shape[0] if getattr(source, "reverse", False) else 0
                tensor = self._add(f"{tensor}:last", Last(backward=backward), (tensor,))
            found.append(tensor)
        shapes = [self.types[tensor].shape for tensor in found]
        if isinstance(layer, QuantizedResult | BlockQuantizedResult) and len(shapes[0]) == 1:
            shapes[0] = (*shapes[0], 1, 1)
        wanted = getattr(layer, "shape", getattr(layer, "image", None))
        if wanted is not None and shapes[0] != tuple(wanted):
            return None
        if isinstance(layer, BlockAttention) and shapes != [layer.queries, layer.keys, layer.values]:
            return None
        flat = isinstance(layer, Dense | BlockDense) or len({len(shape) for shape in shapes}) > 1 or (
            len({shape[1:] for shape in shapes}) > 1)
        flat = flat and not isinstance(layer, GatedChannels | BlockAttention)
        return tuple(self._add(f"{tensor}:flat", Flatten(), (tensor,)) if flat and len(shape) == 3 else tensor
                     for tensor, shape in zip(found, shapes, strict=True))

    def _curve(self, layer: Layer) -> Operator | None:
        """The activation function of a layer, which can be the clip of the quantiser of its only reader."""
        if isinstance(layer, Curve):
            return None  # it is one itself
        readers = self.model.readers(layer.name)
        own = getattr(layer, "activation", Activation.NONE)
        hidden = layer.sequence and layer.makes_sequence  # the curves of a cell are its own
        if own is Activation.NONE and not hidden and len(readers) == 1 and readers[0].clips:
            own = Activation.RELU
        ceiling = min((float(reader.real[key][0]) for reader in readers if isinstance(reader, IntegerRows)
                       for key in ("ceiling", f"{_FP32}ceiling") if key in reader.real), default=None)
        if own is Activation.NONE:
            return None
        return Relu(ceiling=ceiling) if own is Activation.RELU else _CURVES[own]()


def _numbers(layer: Layer) -> dict[str, np.ndarray]:
    """The numbers of the float network that a layer of an earlier file holds, float32, by name."""
    return {key.removeprefix(_FP32): np.asarray(value, np.float32) for key, value in layer.real.items()
            if key.startswith(_FP32)}


def _dense(layer: Dense | BlockDense) -> Linear:
    if layer.float_operator is not None:
        return layer.float_operator
    found = _numbers(layer)
    return Linear(weight=found["weights"].reshape(layer.outputs, layer.inputs), bias=found["bias"])


def _scaled(layer: Layer) -> Affine:
    """What the network makes of its input ahead of a layer."""
    scale, offset = np.asarray(layer.real["line"], np.float32)
    return Affine(scale=scale, offset=offset)


def _conv(layer: Conv | BlockConv) -> Convolution:
    if layer.float_operator is not None:
        return layer.float_operator
    found = _numbers(layer)
    kernels = (layer.channels, layer.shape[0] // layer.groups, *layer.size)
    return Convolution(weight=found["weights"].reshape(kernels), bias=found["bias"], window=layer.window,
                       groups=layer.groups)


def _recurrent(layer: Recurrent) -> Recurrence:
    found = _numbers(layer)
    first = {name: state.view(np.float16).astype(np.float32) for name, state in layer.initial.items() if state.any()}
    if layer.float_operator is not None:
        return replace(layer.float_operator, reverse=layer.reverse, first=first)
    return Recurrence(cell=layer.cell, reverse=layer.reverse, first=first, directions=(Direction(
        **{name: found[name] for name in ("input_weights", "recurrent_weights", "bias")},
        vectors={name: found[name] for name in layer.cell.vectors}),))


def _float32(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16).astype(np.float32)


#: The operator of a layer, by its class.
_OPERATORS: Mapping[type[Layer], Callable[[Layer], Operator]] = {
    Dense: _dense, BlockDense: _dense, Recurrent: _recurrent,
    QuantizedResult: lambda layer: ProductResult(), BlockQuantizedResult: lambda layer: ProductResult(),
    Average: lambda layer: AveragePooling(window=layer.window, count_padding=True),
    BlockAverage: lambda layer: AveragePooling(window=layer.window, count_padding=True),
    Conv: _conv, BlockConv: _conv,
    MaxPool: lambda layer: MaxPooling(window=layer.window),
    Multiply: lambda layer: Multiplication(), Add: lambda layer: Addition(),
    Leaky: lambda layer: LeakyRelu(slope=layer.slope),
    ClippedLine: lambda layer: HardSigmoid(alpha=layer.slope, beta=layer.shift * layer.slope, ceiling=layer.ceiling),
    TanhGelu: lambda layer: Gelu(exact=(layer.line, layer.cube) == Gelu.EXACT, nearest=True),
    GatedChannels: lambda layer: ChannelGating(), Curve: lambda layer: _CURVES[layer.activation](),
    Limited: lambda layer: Limits(lowest=layer.lowest, highest=layer.highest),
    VectorSoftmax: lambda layer: SoftmaxInside(),
    VectorNorm: lambda layer: FeatureNorm(
        weight=_float32(layer.weight), bias=_float32(layer.bias), centred=layer.centred, epsilon=layer.epsilon),
    BlockAttention: lambda layer: Attention(
        heads=layer.heads, mask=None if layer.mask is None else _float32(layer.mask)),
    ConstantPositions: lambda layer: Tokens(tokens=_float32(layer.tokens)),
    PixelOffsets: lambda layer: Offsets(offset=_float32(layer.offset)),
    Concat: lambda layer: Concatenation(), Enlarge: lambda layer: layer.operator,
    ImageToSequence: lambda layer: ToSequence(time=layer.time),
    SequenceToImage: lambda layer: ToImage(steps=layer.steps),
}


def _operator(layer: Layer) -> Operator | None:
    """The operator of a layer; None if it does not hold its numbers."""
    make = next((make for kind, make in _OPERATORS.items() if isinstance(layer, kind)), None)
    if make is None or hasattr(layer, "real") and layer.float_operator is None and f"{_FP32}bias" not in layer.real:
        return None
    try:
        return make(layer)
    except KeyError:
        return None

"""Imported networks of images and vectors as modules of PyTorch, whose parts have the names of their nodes."""

import operator
from collections.abc import Callable

import numpy as np
import torch
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.convolution import Convolution
from concord.net.ops.join import Addition, Concatenation
from concord.net.ops.linear import Linear
from concord.net.ops.operator import Operator
from concord.net.ops.pointwise import ACTIVATIONS, HardSwish, Pointwise, Relu
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import BatchNorm
from concord.net.ops.weighted import Weighted
from concord.net.quantize.plan import Unsupported
from concord.train.imported.folding import folded
from concord.train.imported.names import layer_names
from concord.train.lib.curves import CURVES
from concord.train.qat.modules import PaddedMaxPool2d
from torch import fx, nn
from torch.nn import functional

#: Operators that an activation function becomes a part of.
CARRYING = (Weighted, BatchNorm, Addition, MaxPooling, AveragePooling, GlobalAverage)


def graph_module(network: Graph) -> fx.GraphModule:
    """The network as a module: float32[samples, channels, rows, columns], or float32[samples, inputs], to vectors.

    Raises:
        Unsupported: some operations cannot be quantised; the message has a line for each.
    """
    network = folded(network)
    if problems := [problem for node in network.nodes if (problem := _problem(node))]:
        raise Unsupported("\n".join(problems))
    return _Builder(network).finished()


def _problem(node: Node) -> str | None:
    """Why a node has no form in PyTorch, and what to do, or None."""
    op = node.op
    if isinstance(op, HardSwish):
        return f"{node.name!r}: a hard swish multiplies two results, which no layer does; use a relu6 or a relu"
    if type(op) not in MODULES and type(op) not in FUNCTIONS:
        return f"{node.name!r}: there is no quantised form of {op.label} in a network of this kind; leave it out"
    if isinstance(op, AveragePooling) and op.window.dilation != (1, 1):
        return f"{node.name!r}: an average of windows with a dilation; use a dilation of 1"
    if isinstance(op, AveragePooling) and any(op.window.padding) and not op.count_padding:
        return f"{node.name!r}: an average that does not count its padding; count it in (count_include_pad)"
    return None


class _Builder:
    """Makes the graph of a module, node by node."""

    def __init__(self, network: Graph):
        self.network, self.graph = network, fx.Graph()
        self.root = nn.ModuleDict()
        self.names = layer_names(node.name for node in network.nodes)
        self.made = {INPUT: self.graph.placeholder("x")}

    def finished(self) -> fx.GraphModule:
        """The module, in evaluation mode."""
        for node in self.network.nodes:
            sources = [self.made[name] for name in node.sources]
            make = FUNCTIONS.get(type(node.op), _call_module)
            self.made[node.name] = make(self, node, sources)
        result = self.made[self.network.output.name]
        self.graph.output(self.call_module("flat output", nn.Flatten(), result))
        return fx.GraphModule(self.root, self.graph, "Imported").eval()

    def call_module(self, name: str, module: nn.Module, source: fx.Node) -> fx.Node:
        """Give the network a module, and call it. No two have one name: a space is in no name of a node."""
        self.root[name] = module
        return self.graph.call_module(name, (source,))

    def call(self, name: str, function: Callable, *args) -> fx.Node:
        """Call a function; the operation has this name."""
        made = self.graph.call_function(function, args)
        made.meta["name"] = name
        return made


def _function(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    """An activation function; a maximum of single pixels carries one of an image that others read without it."""
    name, source, (x,) = builder.names[node.name], node.sources[0], sources
    before = builder.network.node(source)
    carried = before is not None and isinstance(before.op, CARRYING) and builder.network.alone(node)
    if carried or len(builder.network.shapes[source]) < 3:
        return builder.call_module(name, MODULES[type(node.op)](node.op), x)
    made = builder.call_module(name, PaddedMaxPool2d((1, 1), (1, 1), (0, 0, 0, 0)), x)
    return builder.call_module(f"{name} {node.op.kind}", MODULES[type(node.op)](node.op), made)


def _call_module(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    """A module, behind zeros around its input where it has no such padding itself."""
    name, module = builder.names[node.name], MODULES[type(node.op)](node.op)
    (x,) = sources
    zeros = _zeros_apart(node.op)
    if any(zeros):
        x = builder.call(f"{name}_zeros", functional.pad, x, zeros)
    made = builder.call_module(name, module, x)
    if isinstance(node.op, GlobalAverage):
        made = builder.call_module(f"{name} flat", nn.Flatten(), made)
    return made


def _zeros_apart(op: Operator) -> tuple[int, ...]:
    """Zeros left, right, above and below the input that the module of an operator does not put there."""
    if not isinstance(op, Convolution | AveragePooling):
        return (0, 0, 0, 0)
    above, below, left, right = op.window.padding
    even = isinstance(op, Convolution) and (above, left) == (below, right)
    return (0, 0, 0, 0) if even else (left, right, above, below)


def _add(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    """A sum of two terms; a longer one is a chain of sums."""
    name, (total, *terms) = builder.names[node.name], sources
    for index, term in enumerate(terms, 1):
        total = builder.call(name if index == len(terms) else f"{name}_{index}", operator.add, total, term)
    return total


def _concat(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    return builder.call(builder.names[node.name], torch.cat, sources, 1)


def _batch_norm(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    """Batch normalisation of vectors behind a dense layer, of images behind a convolution."""
    op, before = node.op, builder.network.source(node)
    kind = nn.BatchNorm1d if isinstance(before.op, Linear) else nn.BatchNorm2d
    made = _filled(kind(len(op.mean), eps=op.epsilon), weight=op.weight, bias=op.bias, running_mean=op.mean,
                   running_var=op.variance)
    return builder.call_module(builder.names[node.name], made, *sources)


def _conv(op: Convolution) -> nn.Module:
    above, below, left, right = op.window.padding
    padding = (above, left) if (above, left) == (below, right) else 0
    made = nn.Conv2d(op.channels, op.outputs, op.window.size, op.window.stride, padding, op.window.dilation, op.groups)
    return _filled(made, weight=op.weight, bias=op.bias)


def dense(op: Linear) -> nn.Linear:
    """The dense layer of an operator."""
    rows, columns = op.weight.shape
    return _filled(nn.Linear(columns, rows), weight=op.weight, bias=op.bias)


def _filled(module: nn.Module, **values: np.ndarray) -> nn.Module:
    """A module with these parameters and buffers."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(module, name).copy_(torch.from_numpy(np.array(value, np.float32)))
    return module


def _activation(op: Pointwise) -> nn.Module:
    if isinstance(op, Relu) and op.ceiling is not None:
        return nn.Hardtanh(0.0, float(op.ceiling))
    return CURVES[op.activation].module()


def _max_pool(op: MaxPooling) -> nn.Module:
    return PaddedMaxPool2d(op.window.size, op.window.stride, op.window.padding, op.window.dilation)


#: The module of an operator with one source.
MODULES: dict[type[Operator], Callable[[Operator], nn.Module]] = {
    **dict.fromkeys(ACTIVATIONS, _activation), Convolution: _conv, Linear: dense,
    MaxPooling: _max_pool, AveragePooling: lambda op: nn.AvgPool2d(op.window.size, op.window.stride),
    GlobalAverage: lambda op: nn.AdaptiveAvgPool2d(1), Flatten: lambda op: nn.Flatten()}
#: The function that adds an operator of another kind to the graph.
FUNCTIONS: dict[type[Operator], Callable[[_Builder, Node, list[fx.Node]], fx.Node]] = {
    **dict.fromkeys(ACTIVATIONS, _function), Addition: _add, Concatenation: _concat, BatchNorm: _batch_norm}

"""Imported networks of images and vectors as modules of PyTorch, whose parts have the names of their nodes."""

import operator
from collections.abc import Callable

import numpy as np
import torch
from concord.model.floating.network import INPUT, FloatNetwork, Node, Op
from concord.model.floating.shapes import shapes
from concord.train.imported.folding import folded
from concord.train.imported.names import layer_names
from concord.train.qat.graph import Unsupported
from concord.train.qat.modules import PaddedMaxPool2d
from torch import fx, nn
from torch.nn import functional

#: Operations that an activation function becomes a part of.
CARRYING = frozenset({Op.CONV, Op.DENSE, Op.BATCH_NORM, Op.ADD, Op.MAX_POOL, Op.AVERAGE_POOL, Op.GLOBAL_AVERAGE})


def graph_module(network: FloatNetwork) -> fx.GraphModule:
    """The network as a module: float32[samples, channels, rows, columns], or float32[samples, inputs], to vectors.

    Raises:
        Unsupported: some operations cannot be quantised; the message has a line for each.
    """
    network = folded(network)
    if problems := [problem for node in network.nodes if (problem := _problem(node, network))]:
        raise Unsupported("\n".join(problems))
    return _Builder(network).finished()


def plane_shape(network: FloatNetwork) -> tuple[int, ...]:
    """Shape of one input of the module; a one-dimensional image has one row."""
    return (network.shape[0], 1, network.shape[1]) if len(network.shape) == 2 else network.shape


def _problem(node: Node, network: FloatNetwork) -> str | None:
    """Why a node has no form in PyTorch, and what to do, or None."""
    if node.op is Op.HARD_SWISH:
        return f"{node.name!r}: a hard swish multiplies two results, which no layer does; use a relu6 or a relu"
    if node.op not in MODULES and node.op not in FUNCTIONS:
        return f"{node.name!r}: there is no quantised form of {node.op} in a network of this kind; leave it out"
    if node.op is Op.AVERAGE_POOL and tuple(node.attributes["dilation"]) != (1, 1):
        return f"{node.name!r}: an average of windows with a dilation; use a dilation of 1"
    if node.op is Op.AVERAGE_POOL and any(node.attributes["padding"]) and not node.attributes["count_padding"]:
        return f"{node.name!r}: an average that does not count its padding; count it in (count_include_pad)"
    return None


class _Builder:
    """Makes the graph of a module, node by node."""

    def __init__(self, network: FloatNetwork):
        self.network, self.graph = network, fx.Graph()
        self.root = nn.ModuleDict()
        self.shapes = shapes(network)
        self.names = layer_names(node.name for node in network.nodes)
        self.made = {INPUT: self.graph.placeholder("x")}

    def finished(self) -> fx.GraphModule:
        """The module, in evaluation mode."""
        for node in self.network.nodes:
            sources = [self.made[name] for name in node.sources]
            make = FUNCTIONS.get(node.op, _call_module)
            self.made[node.name] = make(self, node, sources)
        result = self.made[self.network.nodes[-1].name]
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
    before = next((other for other in builder.network.nodes if other.name == source), None)
    readers = [other for other in builder.network.nodes if source in other.sources]
    carried = before is not None and before.op in CARRYING and len(readers) == 1
    if carried or len(builder.shapes[source]) < 3:
        return builder.call_module(name, MODULES[node.op](node), x)
    made = builder.call_module(name, PaddedMaxPool2d((1, 1), (1, 1), (0, 0, 0, 0)), x)
    return builder.call_module(f"{name} {node.op}", MODULES[node.op](node), made)


def _call_module(builder: _Builder, node: Node, sources: list[fx.Node]) -> fx.Node:
    """A module, behind zeros around its input where it has no such padding itself."""
    name, module = builder.names[node.name], MODULES[node.op](node)
    (x,) = sources
    zeros = _zeros_apart(node)
    if any(zeros):
        x = builder.call(f"{name}_zeros", functional.pad, x, zeros)
    made = builder.call_module(name, module, x)
    if node.op is Op.GLOBAL_AVERAGE:
        made = builder.call_module(f"{name} flat", nn.Flatten(), made)
    return made


def _zeros_apart(node: Node) -> tuple[int, ...]:
    """Zeros left, right, above and below the input that the module of a node does not put there."""
    above, below, left, right = node.attributes.get("padding", (0, 0, 0, 0))
    even = node.op is Op.CONV and (above, left) == (below, right)
    return (0, 0, 0, 0) if even or node.op is Op.MAX_POOL else (left, right, above, below)


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
    tensors = node.tensors
    before = next(other for other in builder.network.nodes if other.name == node.sources[0])
    kind = nn.BatchNorm1d if before.op is Op.DENSE else nn.BatchNorm2d
    made = _filled(
        kind(len(tensors["mean"]), eps=float(node.attributes["epsilon"])), weight=tensors["weight"],
        bias=tensors["bias"], running_mean=tensors["mean"], running_var=tensors["variance"])
    return builder.call_module(builder.names[node.name], made, *sources)


def _conv(node: Node) -> nn.Module:
    weight = node.tensors["weight"]
    above, below, left, right = node.attributes["padding"]
    made = nn.Conv2d(
        weight.shape[1] * node.attributes["groups"], len(weight), weight.shape[2:], tuple(node.attributes["stride"]),
        (above, left) if (above, left) == (below, right) else 0, tuple(node.attributes["dilation"]),
        node.attributes["groups"])
    return _filled(made, weight=weight, bias=node.tensors["bias"])


def dense(node: Node) -> nn.Linear:
    """The dense layer of a node."""
    rows, columns = node.tensors["weight"].shape
    return _filled(nn.Linear(columns, rows), weight=node.tensors["weight"], bias=node.tensors["bias"])


def _filled(module: nn.Module, **values: np.ndarray) -> nn.Module:
    """A module with these parameters and buffers."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(module, name).copy_(torch.from_numpy(np.array(value, np.float32)))
    return module


def _relu(node: Node) -> nn.Module:
    ceiling = node.attributes.get("ceiling")
    return nn.ReLU() if ceiling is None else nn.Hardtanh(0.0, float(ceiling))


def _max_pool(node: Node) -> nn.Module:
    return PaddedMaxPool2d(*(tuple(node.attributes[key]) for key in ("size", "stride", "padding", "dilation")))


def _average_pool(node: Node) -> nn.Module:
    return nn.AvgPool2d(tuple(node.attributes["size"]), tuple(node.attributes["stride"]))


#: The module of an operation with one source.
MODULES: dict[Op, Callable[[Node], nn.Module]] = {
    Op.CONV: _conv, Op.DENSE: dense, Op.RELU: _relu,
    Op.SIGMOID: lambda node: nn.Sigmoid(), Op.TANH: lambda node: nn.Tanh(), Op.MAX_POOL: _max_pool,
    Op.AVERAGE_POOL: _average_pool, Op.GLOBAL_AVERAGE: lambda node: nn.AdaptiveAvgPool2d(1),
    Op.FLATTEN: lambda node: nn.Flatten()}
#: What adds an operation of other kinds to the graph.
FUNCTIONS: dict[Op, Callable[[_Builder, Node, list[fx.Node]], fx.Node]] = {
    Op.ADD: _add, Op.CONCAT: _concat, Op.BATCH_NORM: _batch_norm, Op.RELU: _function, Op.SIGMOID: _function,
    Op.TANH: _function}

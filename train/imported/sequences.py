"""Imported recurrent networks: recurrent layers, the last time step, and dense layers on it."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op
from concord.model.floating.recurrent import CELLS
from concord.spec.activation import Activation
from concord.train.imported.folding import folded
from concord.train.imported.graph_module import dense
from concord.train.imported.names import layer_names
from concord.train.qat.graph import Unsupported
from concord.train.recurrent.bidirectional import Bidirectional
from concord.train.recurrent.float_layer import FloatRecurrent
from concord.train.recurrent.float_network import Dense, FloatSequenceNetwork

#: Activation function of an operation.
ACTIVATIONS = {Op.RELU: Activation.RELU, Op.SIGMOID: Activation.SIGMOID, Op.TANH: Activation.TANH}


def sequence_network(network: FloatNetwork) -> FloatSequenceNetwork:
    """The network as a module: float32[samples, time, inputs] and int[samples] lengths to vectors.

    Raises:
        Unsupported: the network has another form; the message has a line for each operation that does not fit.
    """
    nodes = _flat(folded(network).nodes)
    if problems := _problems(nodes):
        raise Unsupported("\n".join(problems))
    names = layer_names(node.name for node in nodes)
    recurrent = {names[node.name]: _recurrent(node) for node in nodes if node.op in RECURRENT}
    return FloatSequenceNetwork(recurrent, _dense(nodes, names))


def _flat(nodes: Sequence[Node]) -> list[Node]:
    """The nodes without those that flatten a vector, which leave it as it is."""
    sources = {node.name: node.sources for node in nodes if node.op is Op.FLATTEN}
    kept = []
    for node in nodes:
        names = node.sources
        while any(name in sources for name in names):
            names = tuple(part for name in names for part in sources.get(name, (name,)))
        if node.op is not Op.FLATTEN:
            kept.append(replace(node, sources=names))
    return kept


def _problems(nodes: list[Node]) -> list[str]:
    """Why operations do not fit into a chain of recurrent layers, the last step and dense layers."""
    found, last, previous = [], False, None
    for node in nodes:
        if node.op in RECURRENT and last:
            found.append(f"{node.name!r}: a recurrent layer behind the last time step; put recurrent layers first")
        elif node.op is Op.LAST and not any(other.op in RECURRENT for other in nodes[:nodes.index(node)]):
            found.append(f"{node.name!r}: the last step of the input itself; put a recurrent layer before it")
        elif node.op is Op.DENSE and not last:
            found.append(f"{node.name!r}: a dense layer at each time step; put it behind the last step")
        elif node.op in ACTIVATIONS and (previous is None or previous.op is not Op.DENSE):
            found.append(f"{node.name!r}: a {node.op} that follows no dense layer; leave it out")
        elif node.op is Op.RELU and node.attributes.get("ceiling") is not None:
            found.append(f"{node.name!r}: a relu with the ceiling {node.attributes['ceiling']:g}, which dense layers "
                         "behind recurrent ones do not have; use a relu")
        elif node.op not in RECURRENT and node.op not in (Op.LAST, Op.DENSE, *ACTIVATIONS):
            found.append(f"{node.name!r}: {node.op} in a recurrent network; it has recurrent layers, the last time "
                         "step, and dense layers with relu, sigmoid or tanh")
        last, previous = last or node.op is Op.LAST, node
    if not any(node.op is Op.DENSE for node in nodes):
        found.append("output: the vectors of the recurrent layers; put a dense layer behind the last time step")
    return found or _branches(nodes)


def _branches(nodes: list[Node]) -> list[str]:
    """Nodes that read another one than that before them."""
    before = [INPUT, *(node.name for node in nodes)]
    return [f"{node.name!r}: a branch in a recurrent network; each layer reads the one before it"
            for node, name in zip(nodes, before, strict=False) if node.sources != (name,)]


def _recurrent(node: Node) -> FloatRecurrent | Bidirectional:
    if node.attributes.get("bidirectional"):
        return Bidirectional(_direction(node, ""), _direction(node, "_reverse"))
    return _direction(node, "")


def _direction(node: Node, end: str) -> FloatRecurrent:
    cell = CELLS[node.op]
    parts = (torch.from_numpy(node.tensors[f"{name}{end}"].copy()).float().unflatten(0, (len(cell.gates), -1))
             for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return FloatRecurrent.from_gates(cell, *parts)


def _dense(nodes: list[Node], names: dict[str, str]) -> list[Dense]:
    """The dense layers, each with the activation function that follows it."""
    found = []
    for node, after in zip(nodes, [*nodes[1:], None], strict=True):
        if node.op is Op.DENSE:
            function = ACTIVATIONS.get(after.op, Activation.NONE) if after else Activation.NONE
            found.append(Dense(name=names[node.name], layer=dense(node), activation=function))
    return found

"""Imported recurrent networks: recurrent layers, the last time step, and dense layers on it."""

from collections.abc import Sequence

from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.linear import Linear
from concord.net.ops.pointwise import ACTIVATIONS, Relu
from concord.net.ops.recurrent import Last, Recurrence
from concord.net.ops.reshape import Flatten
from concord.net.quantize.plan import Unsupported
from concord.spec.numbers.activation import Activation
from concord.train.imported.folding import folded
from concord.train.imported.graph_module import dense
from concord.train.imported.names import layer_names
from concord.train.recurrent.bidirectional import Bidirectional
from concord.train.recurrent.float_layer import FloatRecurrent
from concord.train.recurrent.float_network import Dense, FloatSequenceNetwork


def sequence_network(network: Graph) -> FloatSequenceNetwork:
    """The network as a module: float32[samples, time, inputs] and int[samples] lengths to vectors.

    Raises:
        Unsupported: the network has another form; the message has a line for each operation that does not fit.
    """
    graph = folded(network)
    nodes = graph.without(*(node.name for node in graph.nodes if isinstance(node.op, Flatten))).nodes
    if problems := _problems(nodes):
        raise Unsupported("\n".join(problems))
    names = layer_names(node.name for node in nodes)
    recurrent = {names[node.name]: _recurrent(node.op) for node in nodes if isinstance(node.op, Recurrence)}
    return FloatSequenceNetwork(recurrent, _dense(nodes, names))


def _problems(nodes: Sequence[Node]) -> list[str]:
    """Why operations do not fit into a chain of recurrent layers, the last step and dense layers."""
    found, last, previous, recurrent = [], False, None, False
    for node in nodes:
        if isinstance(node.op, Recurrence) and last:
            found.append(f"{node.name!r}: a recurrent layer behind the last time step; put recurrent layers first")
        elif isinstance(node.op, Last) and not recurrent:
            found.append(f"{node.name!r}: the last step of the input itself; put a recurrent layer before it")
        elif isinstance(node.op, Linear) and not last:
            found.append(f"{node.name!r}: a dense layer at each time step; put it behind the last step")
        elif isinstance(node.op, ACTIVATIONS) and (previous is None or not isinstance(previous.op, Linear)):
            found.append(f"{node.name!r}: a {node.op.label} that follows no dense layer; leave it out")
        elif isinstance(node.op, Relu) and node.op.ceiling is not None:
            found.append(f"{node.name!r}: a relu with the ceiling {node.op.ceiling:g}, which dense layers "
                         "behind recurrent ones do not have; use a relu")
        elif not isinstance(node.op, (Recurrence, Last, Linear, *ACTIVATIONS)):
            found.append(f"{node.name!r}: {node.op.label} in a recurrent network; it has recurrent layers, the last "
                         "time step, and dense layers with relu, sigmoid or tanh")
        last, previous = last or isinstance(node.op, Last), node
        recurrent = recurrent or isinstance(node.op, Recurrence)
    if not any(isinstance(node.op, Linear) for node in nodes):
        found.append("output: the vectors of the recurrent layers; put a dense layer behind the last time step")
    return found or _branches(nodes)


def _branches(nodes: Sequence[Node]) -> list[str]:
    """Nodes that read another one than that before them."""
    before = [INPUT, *(node.name for node in nodes)]
    return [f"{node.name!r}: a branch in a recurrent network; each layer reads the one before it"
            for node, name in zip(nodes, before, strict=False) if node.sources != (name,)]


def _recurrent(op: Recurrence) -> FloatRecurrent | Bidirectional:
    layers = [FloatRecurrent.of_direction(op.cell, one) for one in op.directions]
    return Bidirectional(*layers) if op.bidirectional else layers[0]


def _dense(nodes: Sequence[Node], names: dict[str, str]) -> list[Dense]:
    """The dense layers, each with the activation function that follows it."""
    found = []
    for node, after in zip(nodes, [*nodes[1:], None], strict=True):
        if isinstance(node.op, Linear):
            function = after.op.activation if after and isinstance(after.op, ACTIVATIONS) else Activation.NONE
            found.append(Dense(name=names[node.name], layer=dense(node.op), activation=function))
    return found

"""The results of the nodes of a float network, one node after the other; only those that will be read are kept."""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from concord.net.graph import INPUT, Graph, Node, naming
from concord.net.ops.operator import Operator

#: Number of samples that an operator with windows computes at once, so that its patches stay in caches, and others.
WINDOWED, TOGETHER = 32, 512


def results(
    graph: Graph, x: np.ndarray, lengths: np.ndarray | None = None,
    operator: Callable[[Node, list[np.ndarray]], Operator] = lambda node, inputs: node.op,
) -> Iterator[tuple[Node, list[np.ndarray], np.ndarray]]:
    """Each node of a network with its inputs and its result, float32[samples, ...].

    A tensor is kept until its last reader is done, and an operator computes a few samples at once.

    Args:
        operator: What computes a node with these inputs; by default its own operator.
    """
    x = np.asarray(x, np.float32)
    found = {INPUT: x[:, :, None] if len(graph.shape) == 2 else x}
    times = {INPUT: np.full(len(x), x.shape[1]) if lengths is None else np.asarray(lengths)}
    last = {name: node for node in graph.nodes for name in node.sources}
    with np.errstate(over="ignore", invalid="ignore"):
        for node in graph.nodes:
            inputs, first = [found[name] for name in node.sources], node.sources[0]
            count = WINDOWED if hasattr(node.op, "window") else TOGETHER
            with naming(node.name):
                op = operator(node, inputs)
                made = np.concatenate([
                    op.real(*(one[at:at + count] for one in inputs), lengths=times[first][at:at + count])
                    .astype(np.float32) for at in range(0, len(x), count)])
            begins = graph.types[node.name].sequence and not graph.types[first].sequence
            times[node.name] = np.full(len(x), made.shape[1]) if begins else times[first]
            found[node.name] = made
            yield node, inputs, made
            for name in {name for name in node.sources if last[name] is node}:
                del found[name]


def outputs(graph: Graph, x: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """float32[samples, outputs], the results of a network."""
    ((_, _, made),) = deque(results(graph, x, lengths), maxlen=1)
    return made.reshape(len(made), -1)

"""Channels of equal range between layers, so that the codes of one quantiser serve all of them.

A layer, or a scale of the network's input, gives channel c divided by k_c, and the layers that read it multiply their
weights of channel c by k_c. What lies between computes the same for channels that are multiplied by positive numbers:
relus without a ceiling, maxima, averages, sums, flattening. Batch normalisation must be folded before.

Source: Nagel et al., 2019, cross-layer equalisation; Xiao et al., 2023, SmoothQuant: what inputs and weights share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from concord.net.graph import INPUT, Graph, Node, naming
from concord.net.ops.joins import Addition
from concord.net.ops.pointwise import Relu
from concord.net.ops.pooling import AveragePooling, GlobalAverage, MaxPooling
from concord.net.ops.reshape import Enlarging, Flatten
from concord.net.ops.scale import Scale
from concord.net.ops.weighted import Convolution, Weighted
from concord.net.passes.fold import reads_input

#: Operators that channels may pass, each multiplied by a positive number of its own; of relus, those without a ceiling.
PASSED = (Relu, MaxPooling, AveragePooling, GlobalAverage, Flatten, Addition)
#: Largest factor of a channel, and its inverse.
MOST = 2.0**8
#: Smallest range of a channel and smallest weight, as a share of the largest one.
LEAST = 2.0**-8


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ChannelGroup:
    """Tensors whose channels are multiplied by the same numbers.

    Attributes:
        tensors:  Names of the tensors.
        makers:   Names of the nodes that make them: layers with weights, or scales of the network's input.
        readers:  Names of the nodes with weights that read them.
        channels: Number of channels.
    """

    tensors: tuple[str, ...]
    makers: tuple[str, ...]
    readers: tuple[str, ...]
    channels: int


def groups(graph: Graph) -> list[ChannelGroup]:
    """All groups of tensors of a network whose channels can be multiplied."""
    names = {node.name: node.name for node in graph.nodes} | {INPUT: INPUT}

    def first(name: str) -> str:
        while names[name] != name:
            name = names[name]
        return name

    for node in graph.nodes:
        if _passes(node):
            for source in node.sources:
                names[first(source)] = first(node.name)
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(first(name), []).append(name)
    made = (_group(graph, tensors) for tensors in found.values())
    return [one for one in made if one is not None]


def _passes(node: Node) -> bool:
    repeats = isinstance(node.op, Enlarging) and not node.op.shuffled
    return repeats or isinstance(node.op, PASSED) and getattr(node.op, "ceiling", None) is None


def _group(graph: Graph, tensors: list[str]) -> ChannelGroup | None:
    """The group of these tensors; None if their channels cannot be multiplied."""
    if INPUT in tensors or graph.output.name in tensors:
        return None
    makers = [node for node in graph.nodes if node.name in tensors and not _passes(node)]
    readers = [node for node in graph.nodes if set(node.sources) & set(tensors) and not _passes(node)]
    channels = {graph.shapes[one.name][0] for one in makers}
    if not readers or len(channels) > 1 or any(graph.types[name].sequence for name in tensors):
        return None
    scales = all(isinstance(one.op, Scale) and reads_input(graph, one) or _multiplies(one) for one in makers)
    if not scales or not all(map(_multiplies, readers)):
        return None
    return ChannelGroup(tensors=tuple(tensors), makers=tuple(one.name for one in makers),
                        readers=tuple(one.name for one in readers), channels=channels.pop())


def _multiplies(node: Node) -> bool:
    """Whether a node has weights that may change."""
    return isinstance(node.op, Weighted) and node.op.grid is None


def equalized(graph: Graph, ranges: Mapping[str, np.ndarray], share: float = 0.5) -> Graph:
    """The network with equal channels.

    Args:
        graph:  The network, without batch normalisation that follows a layer.
        ranges: Largest magnitude of each channel of each tensor, for a calibration set.
        share:  How much of the difference between channels goes from the tensors into the weights that read them.
    """
    for group in groups(graph):
        factors = _factors(graph, group, ranges, share)
        changes = {}
        for name in group.makers:
            node = graph.node(name)
            with naming(name):
                changes[name] = replace(node, op=node.op.scaled(1 / factors, np.zeros(1)))
        for name in group.readers:
            node = changes.get(name) or graph.node(name)
            with naming(name):
                changes[name] = replace(node, op=node.op.of_scaled(factors, np.zeros(1)))
        graph = graph.rewritten(changes)
    return graph


def _factors(graph: Graph, group: ChannelGroup, ranges: Mapping[str, np.ndarray], share: float) -> np.ndarray:
    """k_c of each channel, about 1."""
    made = _positive(np.max([ranges[name].reshape(group.channels, -1).max(1) for name in group.tensors], axis=0))
    weights = [columns for name in group.readers
               if (columns := _columns(graph.node(name).op, group.channels)) is not None]
    if weights:
        made = made**share / _positive(np.max(weights, axis=0)) ** (1 - share)
    return np.clip(made / np.exp(np.log(made).mean()), 1 / MOST, MOST)


def _columns(op: Weighted, channels: int) -> np.ndarray | None:
    """Largest weight of each channel that enters, as a share of the largest one of its row.

    None for a depthwise convolution: a row has a scale of its own, and no other channel.
    """
    weight = np.abs(op.weight.reshape(op.outputs, op.weight.shape[1], -1)).max(2)
    weight = weight / np.maximum(weight.max(1, keepdims=True), 1e-30)
    if isinstance(op, Convolution) and op.groups > 1:
        if weight.shape[1] == 1:
            return None
        return weight.reshape(op.groups, -1, weight.shape[1]).max(1).reshape(-1)
    return weight.max(0).reshape(channels, -1).max(1)


def _positive(values: np.ndarray) -> np.ndarray:
    """Numbers that are not much smaller than the largest one."""
    most = values.max()
    return np.maximum(values, LEAST * most) if most > 0 else np.ones_like(values)

"""Where channels and elements lie in the native vectors that a machine stores, through a network in PyTorch.

Each pixel of an image begins a native vector, and so does each part of a concatenation. The network's own input is an
image where a layer sees windows of it, else a vector, which the sender packs densely.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
from concord.net.arithmetic import places
from concord.train.qat.graph import INPUT, Node
from concord.train.qat.modules import QUANTISED, Kind
from torch import nn


def entering(nodes: Iterable[Node], shapes: Mapping[str, Sequence[int]], block: int) -> dict[str, np.ndarray | None]:
    """Places of what enters each node with a quantiser, by its name: int32[elements], or int32[channels] of an image.

    None stands for elements or channels that follow each other.

    Args:
        nodes:  Operations of a network in order.
        shapes: Shape of the result of each of them and of the network's input, by name.
        block:  Number of elements of a native vector.
    """
    made, found = {}, {}
    for node in nodes:
        joins = node.kind in (Kind.CONCAT, Kind.ADD)
        flat = isinstance(node.module, nn.Linear) or joins and len(shapes[node.name]) == 1
        parts = [_of(name, made, shapes, block, flat) for name in node.sources]
        if node.kind in QUANTISED:
            found[node.name] = None if _adjacent(parts[0]) else parts[0]
        made[node.name] = _made(node, parts, shapes[node.name][0], block)
    return found


def _of(name: str, made: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]], block: int, flat: bool):
    """Places of a result, as elements of a vector if `flat`."""
    shape = shapes[name]
    if name == INPUT:
        return places.adjacent(prod(shape) if flat else shape[0])
    return places.flattened(made[name], prod(shape[1:]), block) if flat else made[name]


def _made(node: Node, parts: Sequence[np.ndarray], count: int, block: int) -> np.ndarray:
    """Places of the elements or channels of a node's result, from those of its inputs."""
    if node.kind is Kind.CONCAT:
        return places.joined(parts, block)
    if node.kind is Kind.LAYER and getattr(node.module, "groups", 0) != len(parts[0]):
        return places.adjacent(count)
    # Where each channel stays alone, it stays in its place.
    apart = [part for part in parts if not _adjacent(part)]
    return apart[0] if apart and len(apart[0]) == count else places.adjacent(count)


def _adjacent(at: np.ndarray) -> bool:
    return np.array_equal(at, places.adjacent(len(at)))

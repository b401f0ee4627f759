"""Layers that only take a part of what another layer gives, joined with the layer before or after them.

Such a layer has weights of 1 and 0: each of its outputs is one of its inputs, or 0. So the joined weights are weights
that the network had, and zeros.
"""

from dataclasses import replace
from itertools import count

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.graph import Graph, Node
from concord.net.ops.grid import IntegerGrid
from concord.net.ops.pointwise import Pointwise
from concord.net.ops.weighted import Convolution, Linear


def part_before_curve(graph: Graph, node: Node) -> Graph | None:
    """A function of each number is computed of the part alone that is read."""
    before = graph.source(node)
    if before is None or not isinstance(before.op, Pointwise) or not _read_in_parts(graph, before) or (
            not _of_one_pixel(node) or not _matrix(node).any(axis=1).all()):  # a function of 0 is not always 0
        return None
    names, name = {each.name for each in graph.nodes}, f"{before.sources[0] or 'input'}_part"
    if name in names:
        name = next(one for number in count(2) if (one := f"{name}_{number}") not in names)
    taken = replace(node, name=name, sources=before.sources)
    return graph.rewritten({node.name: (taken, replace(before, name=node.name, sources=(name,)))})


def part_of_layer(graph: Graph, node: Node) -> Graph | None:
    """A layer whose result is read in parts becomes one layer for each of them."""
    before = graph.source(node)
    if before is None or not _dense(before) or not _read_in_parts(graph, before) or (
            type(before.op) is not type(node.op) or not _of_one_pixel(node)):
        return None
    matrix, grid = _matrix(node), before.op.grid
    if grid is not None:
        if not matrix.any(axis=1).all():
            return None
        grid = replace(grid, scale=grid.scale[matrix.argmax(1)], zero_point=grid.zero_point[matrix.argmax(1)])
    weight = np.tensordot(matrix, before.op.weight, 1)
    made = before.changed(weight=weight, bias=matrix @ before.op.bias, grid=grid)
    return graph.rewritten({node.name: replace(made, name=node.name)})


def layer_of_part(graph: Graph, node: Node) -> Graph | None:
    """A layer that reads a part of another one's result reads all of it, with weights of 0 for the rest."""
    part = graph.source(node)
    if part is None or not takes_part(part) or not _dense(node) or type(part.op) is not type(node.op):
        return None
    if _of_one_pixel(part):
        if node.op.grid is not None and (_matrix(part).sum(0) > 1).any():
            return None  # a sum of two weights is none of their integers
        fields = {"weight": np.moveaxis(np.tensordot(node.op.weight, _matrix(part), (1, 0)), -1, 1)}
    elif _of_one_pixel(node) and node.op.grid is None:
        fields = {"weight": np.tensordot(_matrix(node), part.op.weight, 1), "window": part.op.window}
    else:
        return None
    return graph.rewritten({node.name: replace(node.changed(**fields), sources=part.sources)})


def takes_part(node: Node) -> bool:
    """Whether each output of a layer is one of its inputs, or 0."""
    if not _dense(node) or node.op.bias.any() or any(getattr(node.op, "window", Window(size=(1, 1))).padding):
        return False
    rows = node.op.weight.reshape(node.op.outputs, -1)
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(1) <= 1).all())


def integers_of_parts(graph: Graph) -> Graph:
    """The network, whose layers that take a part have weights of integers 0 and 1."""
    changes = {}
    for node in graph.nodes:
        if takes_part(node) and node.op.grid is None:
            ones = np.ones(node.op.outputs)
            grid = IntegerGrid.of_outputs(ones, 0 * ones, node.op.weight, bits=2, signed=True, narrow=True)
            changes[node.name] = node.changed(grid=grid)
    return graph.rewritten(changes) if changes else graph


def _dense(node: Node) -> bool:
    """Whether a node is a linear layer or a convolution without groups."""
    return type(node.op) in (Linear, Convolution) and getattr(node.op, "groups", 1) == 1


def _read_in_parts(graph: Graph, node: Node) -> bool:
    """Whether each reader of a result takes a part of it; the network's output is no such."""
    return node is not graph.output and all(takes_part(reader) for reader in graph.readers(node.name))


def _of_one_pixel(node: Node) -> bool:
    """Whether a layer computes each vector or pixel alone."""
    return isinstance(node.op, Linear) or node.op.window == Window(size=(1, 1))


def _matrix(node: Node) -> np.ndarray:
    """float32[outputs, inputs], the weights of a layer that computes each vector or pixel alone."""
    return node.op.weight.reshape(node.op.weight.shape[:2])

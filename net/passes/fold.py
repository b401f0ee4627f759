"""Scales and offsets become part of the layers beside them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.net.graph import Graph, Node, flattens, naming
from concord.net.ops.joins import Concatenation
from concord.net.ops.recurrent import Recurrence
from concord.net.ops.reshape import Enlarging
from concord.net.ops.scale import Affine, BatchNorm, Scale
from concord.net.ops.weighted import Convolution, Linear, Weighted

#: Most elements of a vector that a layer multiplies alone, since that takes a square matrix.
MOST_APART = 1024


def fold_constants(graph: Graph) -> Graph:
    """Constant scales and offsets become part of the layers before or after them, where that is possible.

    Batch normalisation stays, since training may go on with it. A constant scale of the network's input, flattened or
    not, stays, too: it brings inputs into a range that a quantiser can take.
    """
    return _folded(graph, lambda node: isinstance(node.op, Affine), keep_input=True)


def nothing_stays(node: Node, graph: Graph) -> bool:
    """Whether a scale stays where it is: none does."""
    return False


def fold_scales(
    graph: Graph, *, batch_norm: bool = False, stays: Callable[[Node, Graph], bool] = nothing_stays
) -> Graph:
    """Every scale and offset becomes part of a layer beside it; what no layer takes becomes a layer of its own.

    A scale of an enlarged image becomes one of what is enlarged. Batch normalisation that follows a layer, which nobody
    else reads, stays where `batch_norm` is false.

    Args:
        graph:      The network.
        batch_norm: Whether batch normalisation that follows a layer is folded, too.
        stays:      Which scales stay, of a node and the network so far.

    Raises:
        ValueError: a scale of too many elements of a vector has no layer beside it.
    """
    def unfit(node: Node, graph: Graph) -> bool:
        found = isinstance(node.op, Affine) or isinstance(node.op, BatchNorm) and (
            batch_norm or _layer_before(graph, node) is None)
        return found and not stays(node, graph)

    graph = _ahead_of_enlarging(graph)
    while node := next((node for node in graph.nodes if unfit(node, graph)), None):
        graph = _without(graph, node) or graph.rewritten({node.name: _apart(graph, node)})
    return graph


def _ahead_of_enlarging(graph: Graph) -> Graph:
    """The graph with scales ahead of enlargements, where layers may take them: one for each part of a pixel."""
    made = (_moved_ahead(graph, node) for node in graph.nodes if isinstance(node.op, Scale) and graph.alone(node))
    first = next((one for one in made if one is not None), None)
    return graph if first is None else _ahead_of_enlarging(first)


def _moved_ahead(graph: Graph, node: Node) -> Graph | None:
    """The graph with a scale ahead of the enlargement that it reads; None where it reads something else."""
    large = graph.source(node)
    if large is None or not isinstance(large.op, Enlarging):
        return None
    if not large.op.shuffled:
        both = replace(node, sources=large.sources), replace(large, sources=(node.name,))
        return graph.rewritten({large.name: both, node.name: ()}, {node.name: large.name})
    joined = graph.source(large)
    if joined is None or not isinstance(joined.op, Concatenation) or not graph.alone(large) or (
            len(joined.sources) != large.op.parts):
        return None
    parts = [replace(node, name=f"{node.name}_{index}", sources=(name,)) for index, name in enumerate(joined.sources)]
    both = *parts, replace(joined, sources=tuple(part.name for part in parts))
    return graph.rewritten({joined.name: both, node.name: ()}, {node.name: large.name})


def _folded(graph: Graph, wanted: Callable[[Node], bool], *, keep_input: bool) -> Graph:
    """The graph without the wanted nodes that a layer beside them can take."""
    while True:
        made = (_without(graph, node, keep_input=keep_input) for node in graph.nodes if wanted(node))
        smaller = next((one for one in made if one is not None), None)
        if smaller is None:
            return graph
        graph = smaller


def _without(graph: Graph, node: Node, *, keep_input: bool = False) -> Graph | None:
    """The graph without a scale, which becomes part of the layers beside it; None where no layer takes it."""
    scale, offset = node.op.line()
    before = _layer_before(graph, node)
    if before is not None and _takes(before, scale):
        with naming(before.name):
            made = replace(before, op=before.op.scaled(scale, offset))
        return graph.rewritten({before.name: made, node.name: ()}, {node.name: before.name})
    if keep_input and reads_input(graph, node) or node is graph.output:
        return None
    readers = graph.readers(node.name, flattens)
    made = {reader.name: _of_scaled(reader, scale, offset) for reader in readers}
    if not readers or any(op is None for op in made.values()):
        return None
    changed = {reader.name: replace(reader, op=made[reader.name], sources=tuple(
        node.sources[0] if name == node.name else name for name in reader.sources)) for reader in readers}
    return graph.rewritten({**changed, node.name: ()}, {node.name: node.sources[0]})


def reads_input(graph: Graph, node: Node) -> bool:
    """Whether a node reads the network's input, flattened or not."""
    source = graph.source(node)
    return source is None or flattens(source) and reads_input(graph, source)


def _layer_before(graph: Graph, node: Node) -> Node | None:
    """The layer, or the scale, whose result a scale alone reads; None if there is none."""
    before = graph.source(node)
    if before is None or not graph.alone(node):
        return None
    fits = isinstance(before.op, Weighted) or isinstance(before.op, Scale) and isinstance(node.op, Affine)
    return before if fits else None


def _takes(layer: Node, scale: np.ndarray) -> bool:
    """Whether a layer can take a scale of its results: the integers of quantised weights stay."""
    return not (isinstance(layer.op, Weighted) and layer.op.grid is not None and (scale != 1).any())


def _of_scaled(layer: Node, scale: np.ndarray, offset: np.ndarray) -> Convolution | Linear | Recurrence | None:
    """The operator that takes the input before the scale; None where there is none."""
    if not isinstance(layer.op, Weighted | Recurrence) or isinstance(layer.op, Weighted) and layer.op.grid is not None:
        return None
    with naming(layer.name):
        return layer.op.of_scaled(scale, offset)


def _apart(graph: Graph, node: Node) -> Node:
    """A layer that multiplies and moves each channel of an image, or each element of a vector, alone."""
    (channels, *pixels) = graph.shapes[node.sources[0]]
    if not pixels and channels > MOST_APART:
        raise ValueError(f"{node.name!r}: a scale of {channels} elements of a vector, which no layer beside it takes; "
                         "put it before or behind a dense layer")
    scale, offset = (np.broadcast_to(part, channels).astype(np.float32) for part in node.op.line())
    if not pixels:
        return replace(node, op=Linear(weight=np.diag(scale), bias=offset))
    return replace(node, op=Convolution(
        weight=scale.reshape(-1, 1, 1, 1).copy(), bias=offset.copy(), groups=channels, window=Window(size=(1, 1))))

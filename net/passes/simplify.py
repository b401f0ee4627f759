"""Makes a network smaller without changing what it computes, and takes away what no layer does."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.net.graph import INPUT, Graph, Node, naming
from concord.net.ops.grid import Quantize
from concord.net.ops.joins import Concatenation
from concord.net.ops.operator import Operator, Takes
from concord.net.ops.pointwise import Relu, Sigmoid
from concord.net.ops.reshape import Flatten
from concord.net.ops.scale import Affine
from concord.net.ops.sequences import Last
from concord.net.ops.weighted import Convolution, Linear, Weighted
from concord.net.passes.fold import fold_constants
from concord.net.passes.parts import integers_of_parts, layer_of_part, part_before_curve, part_of_layer


def _repeated(rule: Callable[[Graph, Node], Graph | None]) -> Callable[[Graph], Graph]:
    """A pass that applies a rule, which changes a graph at a node or returns None, as often as it can."""
    def applied(graph: Graph) -> Graph:
        while (made := next((new for node in graph.nodes if (new := rule(graph, node))), None)) is not None:
            graph = made
        return graph

    applied.__name__, applied.__doc__ = rule.__name__, rule.__doc__
    return applied


def _joined(graph: Graph, before: Node, node: Node, op: Operator) -> Graph:
    """The graph with one operator instead of two, the second of which alone reads the first."""
    with naming(before.name):
        made = replace(before, op=op)
    return graph.rewritten({before.name: made, node.name: ()}, {node.name: before.name})


@_repeated
def merge_clips(graph: Graph, node: Node) -> Graph | None:
    """A relu of a relu has the smaller ceiling of both; a quantiser to fewer of the same integers clips as both do."""
    before = graph.source(node)
    if before is None or not graph.alone(node):
        return None
    if isinstance(before.op, Relu) and isinstance(node.op, Relu):
        ceilings = [op.ceiling for op in (before.op, node.op) if op.ceiling is not None]
        return _joined(graph, before, node, Relu(ceiling=min(ceilings, default=None)))
    if isinstance(before.op, Quantize) and isinstance(node.op, Quantize):
        wide, few = before.op.grid, node.op.grid
        same = (wide.scale, wide.zero_point) == (few.scale, few.zero_point)
        if same and wide.lowest <= few.lowest and few.highest <= wide.highest:
            return _joined(graph, before, node, node.op)
    return None


@_repeated
def drop_neutral(graph: Graph, node: Node) -> Graph | None:
    """An affine operator that changes nothing is left out, unless it is all that the network computes."""
    neutral = isinstance(node.op, Affine) and node.op.neutral
    only = node is graph.output and node.sources[0] == INPUT
    return graph.without(node.name) if neutral and not only else None


@_repeated
def last_step_first(graph: Graph, node: Node) -> Graph | None:
    """The last time step is taken before operators that compute each time step alone."""
    before = graph.source(node)
    if not isinstance(node.op, Last) or before is None or before.op.takes is not Takes.EITHER or (
            before.op.several or not graph.alone(node)):
        return None
    if node.op.backward and isinstance(before.op, Linear):
        return None  # it mixes elements of both ends
    taken, moved = replace(node, sources=before.sources), replace(before, sources=(node.name,))
    return graph.rewritten({before.name: (taken, moved), node.name: ()}, {node.name: moved.name})


@_repeated
def merge_two_classes(graph: Graph, node: Node) -> Graph | None:
    """[1 - sigmoid(z), sigmoid(z)], as scikit-learn writes two classes, becomes sigmoid([-z, z])."""
    if not isinstance(node.op, Concatenation):
        return None
    rest = graph.source(node)
    curve = rest and graph.source(rest)
    dense = curve and graph.source(curve)
    if not dense or not (isinstance(rest.op, Affine) and isinstance(curve.op, Sigmoid)
                         and isinstance(dense.op, Linear)) or node.sources != (rest.name, curve.name):
        return None
    alone = len(graph.readers(curve.name)) == 2 and graph.alone(curve)
    if not alone or dense.op.grid is not None or (rest.op.scale != -1).any() or (rest.op.offset != 1).any():
        return None
    weight, bias = dense.op.weight, dense.op.bias
    both = dense.changed(weight=np.concatenate([-weight, weight]), bias=np.concatenate([-bias, bias]))
    return graph.rewritten({dense.name: both, rest.name: (), curve.name: (),
                            node.name: replace(node, op=curve.op, sources=(dense.name,))})


@_repeated
def drop_unread_parts(graph: Graph, node: Node) -> Graph | None:
    """Parts of a concatenation of vectors that the linear layer after it does not read are left out."""
    before = graph.source(node)
    if not isinstance(node.op, Linear) or before is None or not isinstance(before.op, Concatenation) or (
            not graph.alone(node)):
        return None
    ends = np.cumsum([graph.shapes[name][0] for name in before.sources])
    parts = np.split(node.op.weight, ends[:-1], axis=1)
    kept = [index for index, part in enumerate(parts) if part.any()]
    if not kept or len(kept) == len(parts):
        return None
    sources = tuple(before.sources[index] for index in kept)
    weight = np.concatenate([parts[index] for index in kept], axis=1)
    made = replace(node.changed(weight=weight), sources=(before.name,) if len(kept) > 1 else sources)
    return graph.rewritten({before.name: replace(before, sources=sources), node.name: made})


@_repeated
def merge_outputs(graph: Graph, node: Node) -> Graph | None:
    """Linear layers, or convolutions, of one tensor whose results, side by side, are the output become one layer."""
    if not isinstance(node.op, Concatenation) or node is not graph.output or INPUT in node.sources:
        return None
    parts = [graph.node(name) for name in node.sources]
    heads = [graph.source(part) if isinstance(part.op, Flatten) else part for part in parts]
    inner = {each.name: each for each in (*parts, *heads) if each is not None}
    if None in heads or len({head.name for head in heads}) < len(heads) or any(
            len(graph.readers(name)) > 1 for name in inner) or len({_geometry(head) for head in heads}) > 1:
        return None
    if _geometry(heads[0]) is None:
        return None
    weight, bias = (np.concatenate([getattr(head.op, name) for head in heads]) for name in ("weight", "bias"))
    whole = heads[0].changed(weight=weight, bias=bias)
    changes = dict.fromkeys(inner, ()) | {node.name: replace(whole, name=node.name)}
    if parts[0] is not heads[0]:
        changes[node.name] = (whole, replace(node, op=Flatten(), sources=(whole.name,)))
    return graph.rewritten(changes)


def _geometry(node: Node) -> tuple | None:
    """What layers whose rows of weights can be those of one layer have in common; None for others."""
    if type(node.op) not in (Linear, Convolution) or node.op.grid is not None or getattr(node.op, "groups", 1) > 1:
        return None
    return type(node.op), node.sources, getattr(node.op, "window", None), node.op.weight.shape[1:]




def is_quantized(graph: Graph) -> bool:
    """Whether a network is quantised already: whether it has a quantiser or weights that stand for integers."""
    return graph.has(Quantize) or any(isinstance(node.op, Weighted) and node.op.grid is not None
                                      for node in graph.nodes)


def parts_in_integers(graph: Graph) -> Graph:
    """Layers that take a part, in a network that is quantised already."""
    return integers_of_parts(graph) if is_quantized(graph) else graph


#: The passes of an import, in order. They are repeated until none changes anything.
PASSES = (
    merge_two_classes, merge_outputs, drop_unread_parts, drop_neutral, fold_constants,
    *map(_repeated, (part_before_curve, part_of_layer, layer_of_part)), parts_in_integers, merge_clips, last_step_first)


def simplified(graph: Graph, seen: Callable[[str, Graph], None] = lambda name, graph: None) -> Graph:
    """A network on which no pass of `PASSES` changes anything.

    Args:
        graph: The network.
        seen:  Called with the name of a pass and the network after it, for each pass that changes something.
    """
    changed = True
    while changed:
        changed = False
        for one in PASSES:
            made = one(graph)
            if made is not graph:
                graph, changed = made, True
                seen(one.__name__, graph)
    return graph


def without_quantizers(graph: Graph) -> Graph:
    """The network without quantisers; weights keep the numbers that their integers stand for.

    Raises:
        ValueError: the network consists of quantisers only.
    """
    if not is_quantized(graph):
        return graph
    if all(isinstance(node.op, Quantize) for node in graph.nodes):
        raise ValueError("the network only rounds its input; leave it out")
    changes = {node.name: replace(node, op=replace(node.op, grid=None)) for node in graph.nodes
               if isinstance(node.op, Weighted) and node.op.grid is not None}
    bare = replace(graph, nodes=tuple(changes.get(node.name, node) for node in graph.nodes))
    return bare.without(*(node.name for node in graph.nodes if isinstance(node.op, Quantize)))

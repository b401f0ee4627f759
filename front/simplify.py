"""Makes a float network smaller without changing what it computes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from concord.model.floating.grid import grid_of
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op

#: Nodes that compute each time step alone, so that the last time step may be taken before them.
MOVABLE = frozenset({Op.DENSE, Op.AFFINE, Op.BATCH_NORM, Op.RELU, Op.SIGMOID, Op.TANH, Op.HARD_SIGMOID, Op.HARD_SWISH,
                     Op.QUANTIZE})


def simplified(network: FloatNetwork, output: str) -> FloatNetwork:
    """A network whose last node is `output`, without nodes that it does not need."""
    nodes = _needed(list(network.nodes), output)
    changed = True
    while changed:
        changed = False
        for rule in RULES:
            made = rule(nodes)
            if made is not None:
                nodes, changed = _needed(made, made[-1].name), True
                break
    return replace(network, nodes=tuple(nodes))


def _needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that an output depends on."""
    needed = {output}
    for node in reversed(nodes):
        if node.name in needed:
            needed |= set(node.sources)
    return [node for node in nodes if node.name in needed]


def _join(allowed: Callable[[Node, Node], Node | None]):
    """A rule that replaces a node, and the only node that reads it, by one."""

    def rule(nodes: list[Node]) -> list[Node] | None:
        by_name = {node.name: node for node in nodes}
        for node in nodes:
            before = by_name.get(node.sources[0])
            if before is None or len(node.sources) > 1 or _readers(nodes, before.name) != [node]:
                continue
            made = allowed(before, node)
            if made is not None:
                return _replaced(nodes, before, node, made)
        return None

    return rule


def _readers(nodes: list[Node], name: str) -> list[Node]:
    return [node for node in nodes if name in node.sources]


def _replaced(nodes: list[Node], before: Node, node: Node, made: Node) -> list[Node]:
    """Nodes with `made` in place of two, and its name in place of the second one's."""
    kept = [one for one in nodes if one is not before]
    return [made if one is node else replace(one, sources=tuple(
        made.name if name == node.name else name for name in one.sources)) for one in kept]


def _affine_behind(before: Node, node: Node) -> Node | None:
    """A constant scale and offset behind weights become part of them."""
    if node.op is not Op.AFFINE or before.op not in (Op.DENSE, Op.CONV, Op.AFFINE, Op.BATCH_NORM):
        return None
    scale, offset = (node.tensors[key].astype(np.float64) for key in ("scale", "offset"))
    if "weight_scale" in before.tensors and (scale != 1).any():
        return None  # the integers of quantised weights stay
    gain, shift = {Op.AFFINE: ("scale", "offset")}.get(before.op, ("weight", "bias"))
    weight = before.tensors[gain]
    weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    tensors = {gain: weight, shift: before.tensors[shift] * scale + offset}
    return replace(before, tensors={**before.tensors, **{key: value.astype(np.float32)
                                                         for key, value in tensors.items()}})


def _affine_ahead(before: Node, node: Node) -> Node | None:
    """A constant scale and offset ahead of weights become part of them, where no zeros of padding lie between."""
    # Ahead of the first layer they bring inputs into a range that a quantiser can take.
    quantised = "weight_scale" in node.tensors
    if before.op is not Op.AFFINE or before.sources == (INPUT,) or node.op not in (Op.DENSE, Op.CONV) or quantised:
        return None
    scale, offset = (before.tensors[key].astype(np.float64) for key in ("scale", "offset"))
    if offset.any() and any(node.attributes.get("padding", ())):
        return None
    weight = node.tensors["weight"].astype(np.float64)
    groups = node.attributes.get("groups", 1)
    ends = [1] * (weight.ndim - 2)
    # Weights of an output read the channels of its own group.
    scale, offset = (np.repeat(value.reshape(groups, -1), len(weight) // groups, axis=0).reshape(
        len(weight), -1, *ends) for value in (scale, offset))
    bias = node.tensors["bias"] + (weight * offset).reshape(len(weight), -1).sum(axis=1)
    return replace(node, sources=before.sources, tensors={
        "weight": (weight * scale).astype(np.float32), "bias": bias.astype(np.float32)})


def _two_relus(before: Node, node: Node) -> Node | None:
    """A relu of a relu has the smaller ceiling of both."""
    if (before.op, node.op) != (Op.RELU, Op.RELU):
        return None
    ceilings = [one.attributes["ceiling"] for one in (before, node) if one.attributes["ceiling"] is not None]
    return replace(before, attributes={"ceiling": min(ceilings, default=None)})


def _two_quantisers(before: Node, node: Node) -> Node | None:
    """A quantiser to fewer of the same integers clips as both do."""
    if (before.op, node.op) != (Op.QUANTIZE, Op.QUANTIZE):
        return None
    wide, few = grid_of(before), grid_of(node)
    same = (wide.scale, wide.zero_point) == (few.scale, few.zero_point)
    return replace(before, attributes=node.attributes) if same and (
        wide.lowest <= few.lowest and few.highest <= wide.highest) else None


def _nothing(nodes: list[Node]) -> list[Node] | None:
    """Without an affine node that changes nothing."""
    for node in nodes:
        if node.op is Op.AFFINE and len(nodes) > 1 and (node.tensors["scale"] == 1).all() and not (
                node.tensors["offset"].any()) and (node is not nodes[-1] or node.sources[0] != INPUT):
            kept = [replace(one, sources=tuple(node.sources[0] if name == node.name else name for name in one.sources))
                    for one in nodes if one is not node]
            return kept if node is not nodes[-1] else _needed(kept, node.sources[0])
    return None


def _last_first(nodes: list[Node]) -> list[Node] | None:
    """The last time step is taken before what computes each time step alone."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        before = by_name.get(node.sources[0])
        if node.op is not Op.LAST or before is None or before.op not in MOVABLE or len(
                _readers(nodes, before.name)) > 1:
            continue
        taken, moved = replace(node, sources=before.sources), replace(before, sources=(node.name,))
        kept = [one if one is not before else taken for one in nodes if one is not node]
        kept = [one if one is taken else replace(one, sources=tuple(
            before.name if name == node.name else name for name in one.sources)) for one in kept]
        kept.insert(kept.index(taken) + 1, moved)
        return kept
    return None


def _two_classes(nodes: list[Node]) -> list[Node] | None:
    """[1 - sigmoid(z), sigmoid(z)], as scikit-learn writes two classes, is sigmoid([-z, z])."""
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        chain = [by_name.get(name) for name in node.sources[:1]]
        while chain[-1] is not None and len(chain) < 3:
            chain.append(by_name.get(chain[-1].sources[0]))
        if node.op is not Op.CONCAT or None in chain:
            continue
        rest, curve, dense = chain
        alone = len(_readers(nodes, curve.name)) == 2 and len(_readers(nodes, dense.name)) == 1
        if (rest.op, curve.op, dense.op) != (Op.AFFINE, Op.SIGMOID, Op.DENSE) or not alone or node.sources != (
                rest.name, curve.name) or (rest.tensors["scale"] != -1).any() or (rest.tensors["offset"] != 1).any():
            continue
        both = {key: np.concatenate([-value, value]) for key, value in dense.tensors.items()}
        made = {dense.name: replace(dense, tensors=both), node.name: replace(curve, name=node.name)}
        return [made.get(one.name, one) for one in nodes if one is not rest and one is not curve]
    return None


def _width(by_name: dict[str, Node], name: str) -> int:
    """Number of elements of a vector, or of a time step; 0 where it is not known from nodes alone."""
    node = by_name.get(name)
    if node is None:
        return 0
    if node.op is Op.DENSE:
        return len(node.tensors["weight"])
    if node.op in RECURRENT:
        return node.tensors["weight_hh"].shape[1] * (1 + bool(node.attributes["bidirectional"]))
    return _width(by_name, node.sources[0]) if node.op in MOVABLE | {Op.LAST} else 0


def _unread(nodes: list[Node]) -> list[Node] | None:
    """Without the parts of a concatenation of vectors that the dense layer behind it does not read."""
    by_name = {node.name: node for node in nodes}
    sizes = {name: width for name in by_name if (width := _width(by_name, name))}
    for node in nodes:
        before = by_name.get(node.sources[0])
        if node.op is not Op.DENSE or before is None or before.op is not Op.CONCAT or len(
                _readers(nodes, before.name)) > 1 or not all(name in sizes for name in before.sources):
            continue
        ends = np.cumsum([sizes[name] for name in before.sources])
        parts = np.split(node.tensors["weight"], ends[:-1], axis=1)
        kept = [index for index, part in enumerate(parts) if part.any()]
        if not kept or len(kept) == len(parts):
            continue
        sources = tuple(before.sources[index] for index in kept)
        weight = np.concatenate([parts[index] for index in kept], axis=1)
        joined = replace(before, sources=sources)
        made = replace(node, sources=(before.name,) if len(kept) > 1 else sources,
                       tensors={**node.tensors, "weight": weight})
        return [joined if one is before else made if one is node else one for one in nodes]
    return None


RULES = (_two_classes, _unread, _nothing, _join(_affine_behind), _join(_affine_ahead), _join(_two_relus),
         _join(_two_quantisers), _last_first)

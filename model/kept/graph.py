"""Rewrites a network that is quantised already so that only layers with weights and averages read its quantisers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from concord.model.floating.network import FloatNetwork, Node, Op
from concord.model.floating.shapes import shapes

#: Operations whose input is multiplied as integers.
PRODUCTS = frozenset({Op.DENSE, Op.CONV, Op.AVERAGE_POOL, Op.GLOBAL_AVERAGE})
#: Attribute of products that give the numbers of a quantised vector.
IDENTITY = "identity"
#: Operations of images.
IMAGES = frozenset({Op.CONV, Op.AVERAGE_POOL, Op.GLOBAL_AVERAGE, Op.MAX_POOL})
#: Operations that only choose among numbers, so that rounding may as well follow them.
CHOOSING = frozenset({Op.MAX_POOL, Op.FLATTEN, Op.CONCAT, Op.RELU})


def prepared(network: FloatNetwork) -> FloatNetwork:
    """The same network without quantisers that change nothing.

    Where something else than a product reads a quantiser, an average of single pixels, or a product with an identity
    matrix, gives it the numbers that the integers stand for.
    """
    return _with_numbers(_behind_maxima(_merged(_without_repeated(network))))


def readers(nodes: Sequence[Node], name: str) -> list[Node]:
    """The nodes that read a tensor, also as a flattened one."""
    found = []
    for node in nodes:
        if name in node.sources:
            found += readers(nodes, node.name) if node.op is Op.FLATTEN else [node]
    return found


def _without_repeated(network: FloatNetwork) -> FloatNetwork:
    """Without quantisers behind which, after operations that only choose, the same quantiser follows."""
    nodes = list(network.nodes)
    for node in network.nodes:
        if node.op is not Op.QUANTIZE or not _repeated(nodes, node.name, node):
            continue
        nodes = [replace(one, sources=tuple(node.sources[0] if name == node.name else name for name in one.sources))
                 for one in nodes if one.name != node.name]
    return replace(network, nodes=tuple(nodes))


def _merged(network: FloatNetwork) -> FloatNetwork:
    """With one quantiser in place of several equal ones of one tensor."""
    first, nodes = {}, []
    for node in network.nodes:
        node = replace(node, sources=tuple(first.get(name, name) for name in node.sources))
        same = next((one for one in nodes if node.op is one.op is Op.QUANTIZE and one.sources == node.sources
                     and _same(one, node)), None)
        if same is None or node is network.nodes[-1]:
            nodes.append(node)
        else:
            first[node.name] = same.name
    return replace(network, nodes=tuple(nodes))


def _repeated(nodes: list[Node], name: str, quantiser: Node) -> bool:
    """Whether every path from a tensor leads to a quantiser like this one."""
    following = [node for node in nodes if name in node.sources]
    return bool(following) and all(
        _same(node, quantiser) if node.op is Op.QUANTIZE else
        node.op in CHOOSING and node.attributes.get("ceiling") is None and _repeated(nodes, node.name, quantiser)
        for node in following)


def _same(one: Node, other: Node) -> bool:
    return dict(one.attributes) == dict(other.attributes)


def _behind_maxima(network: FloatNetwork) -> FloatNetwork:
    """With maxima of numbers ahead of the quantiser in place of maxima of integers, which are the same."""
    nodes = {}
    for node in network.nodes:
        quantiser = nodes.get(node.sources[0])
        if node.op is Op.MAX_POOL and quantiser is not None and quantiser.op is Op.QUANTIZE:
            largest = replace(node, name=f"{node.name}_maxima", sources=quantiser.sources)
            nodes[largest.name] = largest
            node = replace(quantiser, name=node.name, sources=(largest.name,))
        nodes[node.name] = node
    read = {name for node in nodes.values() for name in node.sources} | {network.nodes[-1].name}
    return replace(network, nodes=tuple(node for node in nodes.values() if node.name in read))


def _with_numbers(network: FloatNetwork) -> FloatNetwork:
    found = shapes(network)
    nodes, made = [], {}
    for node in network.nodes:
        sources = tuple(made[name] if name in made and not _multiplies(network.nodes, node) else name
                        for name in node.sources)
        nodes.append(replace(node, sources=sources))
        following = [one for one in network.nodes if node.name in one.sources]
        if node.op is Op.QUANTIZE and not (following and all(_multiplies(network.nodes, one) for one in following)):
            nodes.append(_numbers(node, found[node.name]))
            made[node.name] = nodes[-1].name
    return replace(network, nodes=tuple(nodes))


def _multiplies(nodes: Sequence[Node], node: Node) -> bool:
    """Whether a node multiplies what it reads as integers, perhaps after a flattening."""
    if node.op is not Op.FLATTEN:
        return node.op in PRODUCTS
    following = readers(nodes, node.name)
    return bool(following) and all(one.op in PRODUCTS for one in following)


def has_images(network: FloatNetwork) -> bool:
    """Whether a network has operations of images."""
    return any(node.op in IMAGES for node in network.nodes)


def _numbers(node: Node, shape: tuple[int, ...]) -> Node:
    """The layer that gives the numbers of a quantiser."""
    name = f"{node.name}_numbers"
    if len(shape) == 3:
        return Node(name=name, op=Op.AVERAGE_POOL, sources=(node.name,), attributes={
            "size": (1, 1), "stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0), "count_padding": True})
    ones = np.ones(shape[0], np.float32)
    return Node(name=name, op=Op.DENSE, sources=(node.name,), attributes={
        "weight_bits": 2, "weight_signed": True, "weight_narrow": True, IDENTITY: True}, tensors={
            "weight": np.diag(ones), "bias": 0 * ones, "weight_scale": ones, "weight_zero_point": 0 * ones})


def is_quantised(network: FloatNetwork) -> bool:
    """Whether a network is quantised already: whether it has a quantiser or weights that are integers."""
    return any(node.op is Op.QUANTIZE or "weight_scale" in node.tensors for node in network.nodes)

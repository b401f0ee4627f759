"""Scales and offsets of imported networks, folded into the layers beside them.

A hard sigmoid becomes a scale, an offset and a clip; batch normalisation that no layer precedes becomes both as well.
What can be folded nowhere becomes a layer of its own, which multiplies each channel or element alone.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from concord.model.floating.network import RECURRENT, FloatNetwork, Node, Op
from concord.model.floating.shapes import shapes
from concord.train.qat.graph import Unsupported

#: Operations with weights and a bias for each output.
LAYERS = frozenset({Op.CONV, Op.DENSE})
#: Most elements of a vector that a layer multiplies alone, since that takes a square matrix.
MOST_APART = 1024


def folded(network: FloatNetwork) -> FloatNetwork:
    """The same network without nodes of the operations AFFINE, HARD_SIGMOID and QUANTIZE.

    Of a network that is quantised already, the numbers that its weights stand for stay, and its ranges of activations
    are left to the quantisers that replace them.

    Nodes of the operation BATCH_NORM that are left follow a layer that nobody else reads.
    """
    nodes = [part for node in network.nodes for part in _parts(node)]
    while (node := next((node for node in nodes if node.op is Op.QUANTIZE), None)) is not None:
        nodes = _bypassed(node, nodes, {})
    while (at := next((index for index, node in enumerate(nodes) if _unfit(node, nodes)), None)) is not None:
        nodes = _without(at, nodes, network)
    return replace(network, nodes=tuple(nodes))


def _parts(node: Node) -> tuple[Node, ...]:
    """A node, or the scale, offset and clip that a hard sigmoid is."""
    if node.op is not Op.HARD_SIGMOID:
        return (node,)
    tensors = {"scale": np.float32([node.attributes["alpha"]]), "offset": np.float32([node.attributes["beta"]])}
    line = Node(name=f"{node.name}_line", op=Op.AFFINE, sources=node.sources, tensors=tensors)
    return line, Node(name=node.name, op=Op.RELU, sources=(line.name,), attributes={"ceiling": 1.0})


def _unfit(node: Node, nodes: Iterable[Node]) -> bool:
    """Whether a node has to be folded."""
    if node.op is Op.AFFINE:
        return True
    return node.op is Op.BATCH_NORM and _layer_before(node, nodes) is None


def _layer_before(node: Node, nodes: Iterable[Node]) -> Node | None:
    """The layer, or its batch normalisation, that a node alone reads; None if there is none."""
    before = next((other for other in nodes if other.name == node.sources[0]), None)
    alone = before is not None and len(_readers(before.name, nodes)) == 1
    fits = alone and (before.op in LAYERS or (before.op, node.op) == (Op.BATCH_NORM, Op.AFFINE))
    return before if fits else None


def _readers(name: str, nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if name in node.sources]


def _line(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset, float64, of an affine node or of batch normalisation."""
    tensors = {name: np.asarray(value, np.float64) for name, value in node.tensors.items()}
    if node.op is Op.AFFINE:
        return tensors["scale"], tensors["offset"]
    scale = tensors["weight"] / np.sqrt(tensors["variance"] + float(node.attributes["epsilon"]))
    return scale, tensors["bias"] - tensors["mean"] * scale


def _without(at: int, nodes: list[Node], network: FloatNetwork) -> list[Node]:
    """The nodes without the one at this index, which is part of a layer beside it; or it is a layer itself."""
    node = nodes[at]
    scale, offset = _line(node)
    before = _layer_before(node, nodes)
    if before is not None:
        return _bypassed(node, nodes, {before.name: _scaled_outputs(before, scale, offset)})
    readers = _through_flatten(node.name, nodes)
    made = {reader.name: _scaled_inputs(reader, scale, offset) for reader in readers}
    if readers and node is not nodes[-1] and all(made.values()):
        return _bypassed(node, nodes, made)
    return [*nodes[:at], _apart(node, scale, offset, nodes[:at], network), *nodes[at + 1:]]


def _through_flatten(name: str, nodes: list[Node]) -> list[Node]:
    """The nodes that read a result, directly or flattened."""
    return [found for reader in _readers(name, nodes)
            for found in (_through_flatten(reader.name, nodes) if reader.op is Op.FLATTEN else [reader])]


def _bypassed(node: Node, nodes: list[Node], changed: dict[str, Node]) -> list[Node]:
    """The nodes without one of them, and with others in place of some."""
    def sources(other: Node) -> tuple[str, ...]:
        return tuple(node.sources[0] if name == node.name else name for name in other.sources)

    kept = (changed.get(other.name, other) for other in nodes if other is not node)
    return [replace(other, sources=sources(other)) for other in kept]


def _scaled_outputs(layer: Node, scale: np.ndarray, offset: np.ndarray) -> Node:
    """A layer, or its batch normalisation, whose results are multiplied and moved."""
    made = dict(layer.tensors)
    for name, added in (("weight", 0.0), ("bias", offset)):
        value = np.asarray(layer.tensors[name], np.float64)
        made[name] = (value * scale.reshape(-1, *[1] * (value.ndim - 1)) + added).astype(np.float32)
    return replace(layer, tensors=made)


def _scaled_inputs(layer: Node, scale: np.ndarray, offset: np.ndarray) -> Node | None:
    """A layer whose inputs need not be multiplied and moved before; None where its padding would change."""
    if layer.op in RECURRENT:
        ends = ("", "_reverse") if layer.attributes.get("bidirectional") else ("",)
        return replace(layer, tensors=dict(layer.tensors) | {
            name: value for end in ends for name, value in _scaled_matrix(
                layer, f"weight_ih{end}", f"bias_ih{end}", scale, offset).items()})
    if layer.op is Op.DENSE:
        return replace(layer, tensors=dict(layer.tensors) | _scaled_matrix(layer, "weight", "bias", scale, offset))
    if layer.op is not Op.CONV or (any(layer.attributes["padding"]) and offset.any()):
        return None
    weight = np.asarray(layer.tensors["weight"], np.float64)
    rows, each = weight.shape[:2]
    groups = int(layer.attributes["groups"])
    first = np.arange(rows) // (rows // groups) * each
    columns = first[:, None] + np.arange(each)
    scale, offset = (np.broadcast_to(part, groups * each)[columns][:, :, None, None] for part in (scale, offset))
    bias = layer.tensors["bias"] + (weight * offset).sum((1, 2, 3))
    return replace(layer, tensors={
        "weight": (weight * scale).astype(np.float32), "bias": bias.astype(np.float32)})


def _scaled_matrix(layer: Node, weight: str, bias: str, scale: np.ndarray, offset: np.ndarray) -> dict:
    """Weights[outputs, inputs] and bias; channels of a flattened image have as many neighbouring inputs as pixels."""
    matrix = np.asarray(layer.tensors[weight], np.float64)
    scale, offset = (np.repeat(part, matrix.shape[1] // part.size) for part in (scale, offset))
    moved = layer.tensors[bias] + matrix @ offset
    return {weight: (matrix * scale).astype(np.float32), bias: moved.astype(np.float32)}


def _apart(node: Node, scale: np.ndarray, offset: np.ndarray, before: list[Node], network: FloatNetwork) -> Node:
    """A layer that multiplies and moves each channel of an image, or each element of a vector, alone."""
    (channels, *pixels) = shapes(replace(network, nodes=tuple(before)))[node.sources[0]]
    if not pixels and channels > MOST_APART:
        raise Unsupported(f"{node.name!r}: a scale of {channels} elements of a vector, which no layer beside it takes; "
                          "put it before or behind a dense layer")
    scale, offset = (np.broadcast_to(part, channels).astype(np.float32) for part in (scale, offset))
    if not pixels:
        return Node(name=node.name, op=Op.DENSE, sources=node.sources,
                    tensors={"weight": np.diag(scale), "bias": offset})
    window = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0), "groups": channels}
    return Node(name=node.name, op=Op.CONV, sources=node.sources, attributes=window,
                tensors={"weight": scale.reshape(-1, 1, 1, 1), "bias": offset})

"""Shapes of what each node of a float network gives, and what it needs to hold."""

from concord.model.arithmetic.windows import Window
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op

#: Gates of each recurrent operation, whose weights lie one after another.
GATES = {Op.LSTM: 4, Op.GRU: 3, Op.GRU_BEFORE: 3, Op.RNN_TANH: 1, Op.RNN_RELU: 1}


def shapes(network: FloatNetwork) -> dict[str, tuple[int, ...]]:
    """Shape of the result of each node by its name, and of INPUT: [channels, rows, columns] or [elements].

    The shape of a sequence is that of one time step. An image of one dimension has one row.

    Raises:
        ValueError: a node takes what no node before it gives, or what does not fit its weights.
    """
    inputs = tuple(network.shape)
    found = {INPUT: (inputs[0], 1, inputs[1]) if len(inputs) == 2 else inputs}
    for node in network.nodes:
        if missing := [name for name in node.sources if name not in found]:
            raise ValueError(f"node {node.name!r} takes {missing[0]!r}, which no node before it gives")
        found[node.name] = _result(node, [found[name] for name in node.sources])
    return found


def window(node: Node) -> Window:
    """The window of a convolution or of pooling."""
    size = node.tensors["weight"].shape[2:] if node.op is Op.CONV else node.attributes["size"]
    return Window(size=tuple(size), **{key: tuple(node.attributes[key]) for key in ("stride", "dilation", "padding")})


def _result(node: Node, taken: list[tuple[int, ...]]) -> tuple[int, ...]:
    x = taken[0]
    match node.op:
        case Op.CONV | Op.MAX_POOL | Op.AVERAGE_POOL:
            places = window(node).counts(*_image(node, x)[1:])
            if min(places) < 1:
                raise ValueError(f"node {node.name!r}: its window is larger than the image {list(x)} with its padding")
            return (len(node.tensors["weight"]) if node.op is Op.CONV else x[0], *places)
        case Op.DENSE:
            return (len(node.tensors["weight"]),)
        case Op.GLOBAL_AVERAGE:
            return (_image(node, x)[0],)
        case Op.FLATTEN:
            return (int(_product(x)),)
        case Op.CONCAT:
            return (sum(shape[0] for shape in taken), *x[1:])
        case _ if node.op in RECURRENT:
            return (node.tensors["weight_hh"].shape[1] * (1 + bool(node.attributes.get("bidirectional"))),)
        case _:
            return x


def _image(node: Node, x: tuple[int, ...]) -> tuple[int, int, int]:
    if len(x) != 3:
        raise ValueError(f"node {node.name!r} takes an image, but gets {list(x)}")
    return x


def _product(x: tuple[int, ...]) -> int:
    count = 1
    for size in x:
        count *= size
    return count

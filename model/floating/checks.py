"""Checks of a float network: tensors of the right shapes, finite numbers, sources that fit."""

import numpy as np
from concord.model.floating.grid import check_grid
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op
from concord.model.floating.shapes import GATES, shapes

#: Operations that take sequences and give sequences if their source is one.
STEPWISE = frozenset({Op.DENSE, Op.BATCH_NORM, Op.AFFINE, Op.RELU, Op.SIGMOID, Op.TANH, Op.HARD_SIGMOID,
                      Op.HARD_SWISH, Op.QUANTIZE, Op.ADD, Op.CONCAT}) | RECURRENT
PER_CHANNEL = {Op.BATCH_NORM: ("weight", "bias", "mean", "variance"), Op.AFFINE: ("scale", "offset")}


def check(network: FloatNetwork):
    """Refuse a network that cannot be run.

    Raises:
        ValueError: there is no node, two have one name, a source is missing, a tensor has another shape than its node
            needs, or holds a value that is not finite.
    """
    if not network.nodes:
        raise ValueError("the network has no nodes; it needs one at least")
    sizes = network.shape
    if not 1 <= len(sizes) <= 3 or any(not isinstance(size, int) or size < 1 for size in sizes):
        raise ValueError(f"the input has the shape {list(sizes)}; one to three sizes of 1 or more are needed")
    if network.sequence and len(sizes) > 1:
        raise ValueError(f"the input is a sequence of {list(sizes)}; sequences of vectors are needed")
    if sorted(network.axes) != list(range(len(sizes))):
        raise ValueError(f"axes {list(network.axes)} do not name each axis of the shape {list(sizes)} once")
    names = [node.name for node in network.nodes]
    if len(set(names)) < len(names) or INPUT in names:
        raise ValueError("two nodes have one name, or one has none; names are unique")
    for node in network.nodes:
        _check_tensors(node)
    found, sequences = shapes(network), is_sequence(network)
    for node in network.nodes:
        _check_fit(node, [found[name] for name in node.sources])
        needs = node.op in RECURRENT or node.op is Op.LAST
        if len({sequences[name] for name in node.sources} | ({True} if needs else set())) > 1:
            raise ValueError(f"node {node.name!r} takes {'something else than' if needs else 'vectors and'} sequences")


#: Attributes that nodes of an operation have.
ATTRIBUTES = {
    Op.CONV: ("groups",), Op.MAX_POOL: ("size",), Op.AVERAGE_POOL: ("size", "count_padding"),
    Op.BATCH_NORM: ("epsilon",), Op.RELU: ("ceiling",), Op.HARD_SIGMOID: ("alpha", "beta"),
    Op.QUANTIZE: ("scale", "zero_point", "bits", "signed", "narrow")}
#: Operations with a window, and the smallest number of each of its attributes.
WINDOWED = frozenset({Op.CONV, Op.MAX_POOL, Op.AVERAGE_POOL})
WINDOW = {"size": (2, 1), "stride": (2, 1), "dilation": (2, 1), "padding": (4, 0)}


def _check_attributes(node: Node):
    """Refuse missing attributes, and others than numbers."""
    for key in ATTRIBUTES.get(node.op, ()):
        value = node.attributes.get(key, None if key == "ceiling" else "nothing")
        number = isinstance(value, int | float) and np.isfinite(value) or key == "size"
        if not number and not (key == "ceiling" and value is None):  # a relu without a ceiling
            raise ValueError(f"node {node.name!r}, {key}: a number is needed, not {value!r}")
    for key, (count, smallest) in WINDOW.items() if node.op in WINDOWED else ():
        if key == "size" and node.op is Op.CONV:
            continue
        value = node.attributes.get(key)
        if not isinstance(value, tuple) or len(value) != count or any(
                not isinstance(number, int) or number < smallest for number in value):
            raise ValueError(f"node {node.name!r}, {key}: {count} whole numbers of {smallest} or more are needed, not "
                             f"{value!r}")


def is_sequence(network: FloatNetwork) -> dict[str, bool]:
    """For INPUT and each node by name, whether its result is a sequence."""
    found = {INPUT: network.sequence}
    for node in network.nodes:
        found[node.name] = node.op in STEPWISE and found[node.sources[0]]
    return found


def _check_tensors(node: Node):
    _check_attributes(node)
    check_grid(node)
    for key, tensor in node.tensors.items():
        if tensor.dtype != np.float32:
            raise ValueError(f"node {node.name!r}, {key}: numbers are {tensor.dtype}, not float32")
        if not np.isfinite(tensor).all():
            raise ValueError(f"node {node.name!r}, {key}: it holds infinite values or values that are not a number "
                             f"({np.count_nonzero(~np.isfinite(tensor))} of {tensor.size}); train again")


def _check_fit(node: Node, taken: list[tuple[int, ...]]):
    """Refuse tensors whose shapes do not fit what enters the node."""
    many = 2 if node.op in (Op.ADD, Op.CONCAT) else 1
    if len(taken) < many or (many == 1 and len(taken) > 1):
        raise ValueError(f"node {node.name!r} takes {len(taken)} tensors; {node.op} needs {many}")
    for key, shape in _needed(node, taken).items():
        if key not in node.tensors or node.tensors[key].shape != shape:
            has = list(node.tensors[key].shape) if key in node.tensors else "nothing"
            raise ValueError(f"node {node.name!r}, {key}: the shape {list(shape)} is needed, there is {has}")
    if node.op is Op.ADD and len(set(taken)) > 1:
        raise ValueError(f"node {node.name!r} adds {' and '.join(str(list(one)) for one in taken)}; "
                         "their shapes must be equal")
    if node.op is Op.CONCAT and len({shape[1:] for shape in taken}) > 1:
        raise ValueError(f"node {node.name!r} joins images of different sizes")


def _needed(node: Node, taken: list[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors that a node needs."""
    channels = taken[0][0]
    if node.op is Op.CONV:
        weight, groups = node.tensors["weight"], node.attributes["groups"]
        if groups < 1 or channels % groups or len(weight) % groups:
            raise ValueError(f"node {node.name!r}: {groups} groups do not divide {channels} channels and "
                             f"{len(weight)} outputs")
        return {"weight": (len(weight), channels // groups, *weight.shape[2:]), "bias": (len(weight),)}
    if node.op is Op.DENSE:
        rows = len(node.tensors["weight"])
        return {"weight": (rows, channels), "bias": (rows,)} if len(taken[0]) == 1 else {"weight": (rows, -1)}
    if node.op in RECURRENT:
        hidden = node.tensors["weight_hh"].shape[1]
        gates = GATES[node.op] * hidden
        one = {"weight_ih": (gates, channels), "weight_hh": (gates, hidden), "bias_ih": (gates,), "bias_hh": (gates,)}
        both = {f"{key}_reverse": shape for key, shape in one.items()} if node.attributes.get("bidirectional") else {}
        return one | both
    return dict.fromkeys(PER_CHANNEL.get(node.op, ()), (channels,))

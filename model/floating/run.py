"""Runs a float network in float64, the reference that imports and quantised networks are held to."""

import numpy as np
from concord.model.floating.checks import is_sequence
from concord.model.floating.grid import grid_of
from concord.model.floating.network import INPUT, RECURRENT, FloatNetwork, Node, Op
from concord.model.floating.recurrent import last, unroll
from concord.model.floating.shapes import window


def run(network: FloatNetwork, x: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """The network's output.

    Args:
        network: The network.
        x:       Real numbers [samples, *shape], or [samples, time, *shape] where the network takes sequences.
        lengths: int[samples], time steps of each sequence; all time steps by default.

    Returns:
        float64[samples, outputs], or [samples, time, outputs] where the output is a sequence; an image is
        [samples, channels, rows, columns].
    """
    return forward(network, x, lengths)[network.nodes[-1].name]


def forward(network: FloatNetwork, x: np.ndarray, lengths: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Results of every node by name, as `run` gives that of the last one; INPUT is the input.

    Raises:
        ValueError: the input has another shape than the network takes.
    """
    x = np.asarray(x, np.float64)
    shape = tuple(network.shape)
    if x.shape[1 + network.sequence:] != shape or x.ndim != 1 + network.sequence + len(shape):
        takes = ["samples", *(["time"] if network.sequence else []), *shape]
        raise ValueError(f"inputs have the shape {list(x.shape)}, but {network.name!r} takes "
                         f"[{', '.join(str(size) for size in takes)}]")
    if len(shape) == 2:  # one dimension: an image of one row
        x = x[:, :, None]
    lengths = np.full(len(x), x.shape[1]) if lengths is None else np.asarray(lengths)
    made, sequences = {INPUT: x}, is_sequence(network)
    with np.errstate(over="ignore", invalid="ignore"):  # the exponential of a sigmoid; results show what is infinite
        for node in network.nodes:
            taken = [made[name] for name in node.sources]
            channels_last = sequences[node.sources[0]]
            made[node.name] = _result(node, taken, lengths, channels_last, network)
    return made


def _result(node: Node, taken: list[np.ndarray], lengths: np.ndarray, channels_last: bool,
            network: FloatNetwork) -> np.ndarray:
    if node.op in RECURRENT:
        return unroll(node, taken[0], lengths)
    if node.op is Op.LAST:
        return last(network, node, taken[0], lengths)
    if node.op is Op.CONCAT:
        return np.concatenate(taken, axis=-1 if channels_last else 1)
    if node.op in (Op.AFFINE, Op.BATCH_NORM):
        scale, offset = factors(node)
        if taken[0].ndim == 4:
            scale, offset = scale[:, None, None], offset[:, None, None]
        return scale * taken[0] + offset
    return OPERATIONS[node.op](node, *taken)


def factors(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """float64[channels] scale and offset of an affine node or of batch normalisation."""
    values = {key: value.astype(np.float64) for key, value in node.tensors.items()}
    if node.op is Op.AFFINE:
        return values["scale"], values["offset"]
    scale = values["weight"] / np.sqrt(values["variance"] + node.attributes["epsilon"])
    return scale, values["bias"] - scale * values["mean"]


def _conv(node: Node, x: np.ndarray) -> np.ndarray:
    weight, groups = node.tensors["weight"].astype(np.float64), node.attributes["groups"]
    over = window(node)
    patches = over.patches(over.bordered(x, 0.0), groups)
    sums = patches @ weight.reshape(groups, len(weight) // groups, -1).transpose(0, 2, 1)
    places = over.counts(*x.shape[2:])
    sums = np.moveaxis(sums, 0, 1).reshape(len(x), *places, len(weight)).transpose(0, 3, 1, 2)
    return sums + node.tensors["bias"][:, None, None]


def _average(node: Node, x: np.ndarray) -> np.ndarray:
    over = window(node)
    sums = over.seen(over.bordered(x, 0.0)).sum(axis=(4, 5))
    counted = np.ones((1, 1, *x.shape[2:]))
    border = over.bordered(counted, float(node.attributes["count_padding"]))
    return sums / over.seen(border).sum(axis=(4, 5))


def _max(node: Node, x: np.ndarray) -> np.ndarray:
    over = window(node)
    return over.seen(over.bordered(x, -np.inf)).max(axis=(4, 5))


def _hard_sigmoid(node: Node, x: np.ndarray) -> np.ndarray:
    return np.clip(node.attributes["alpha"] * x + node.attributes["beta"], 0, 1)


#: What an operation makes of its node and its inputs.
OPERATIONS = {
    Op.CONV: _conv,
    Op.DENSE: lambda node, x: x @ node.tensors["weight"].astype(np.float64).T + node.tensors["bias"],
    Op.RELU: lambda node, x: np.clip(x, 0, node.attributes.get("ceiling")),
    Op.SIGMOID: lambda node, x: 1 / (1 + np.exp(-x)),
    Op.TANH: lambda node, x: np.tanh(x),
    Op.HARD_SIGMOID: _hard_sigmoid,
    Op.HARD_SWISH: lambda node, x: x * np.clip(x / 6 + 0.5, 0, 1),
    Op.MAX_POOL: _max,
    Op.AVERAGE_POOL: _average,
    Op.GLOBAL_AVERAGE: lambda node, x: x.mean(axis=(2, 3)),
    Op.ADD: lambda node, *terms: sum(terms[1:], terms[0]),
    Op.QUANTIZE: lambda node, x: grid_of(node).quantized(x),
    Op.FLATTEN: lambda node, x: x.reshape(len(x), -1),
}

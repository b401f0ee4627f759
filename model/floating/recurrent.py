"""Recurrent nodes in float64, by the formulas of `model.cells`."""

import numpy as np
from concord.model.cells.cell import Cell
from concord.model.cells.gru import AFTER, BEFORE
from concord.model.cells.lstm import LSTM
from concord.model.cells.real import RealOperations
from concord.model.cells.rnn import RELU, TANH
from concord.model.floating.network import RECURRENT, FloatNetwork, Node, Op
from concord.model.layers.recurrent import backward

#: The cell of each recurrent operation.
CELLS = {Op.LSTM: LSTM, Op.GRU: AFTER, Op.GRU_BEFORE: BEFORE, Op.RNN_TANH: TANH, Op.RNN_RELU: RELU}


def unroll(node: Node, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """float64[samples, time, hidden], or twice hidden; it is zero behind the end of a sequence.

    Args:
        node:    Recurrent node.
        x:       float64[samples, time, inputs].
        lengths: int[samples], time steps of each sample.
    """
    forward = _direction(node, "", x, lengths)
    if not node.attributes.get("bidirectional"):
        return forward
    hidden = _direction(node, "_reverse", backward(x, lengths), lengths)
    return np.concatenate([forward, backward(hidden, lengths)], axis=-1)


def last(network: FloatNetwork, node: Node, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """float64[samples, features]: the last time step; of the backward half of a recurrent node the first one."""
    rows = np.arange(len(x))
    found = x[rows, lengths - 1].copy()
    source = next((one for one in network.nodes if one.name == node.sources[0]), None)
    if source is not None and source.op in RECURRENT and source.attributes.get("bidirectional"):
        half = x.shape[-1] // 2
        found[:, half:] = x[:, 0, half:]
    return found


def _direction(node: Node, end: str, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    cell, parameters = CELLS[node.op], _parameters(node, end)
    cells = node.tensors["weight_hh"].shape[1]
    states = tuple(np.zeros((len(x), cells)) for _ in cell.states)
    hidden = np.zeros((*x.shape[:2], cells))
    for step in range(x.shape[1]):
        on = np.flatnonzero(lengths > step)
        made = cell.step(RealOperations(cell, parameters, x[on, step]), *(state[on] for state in states))
        for state, new in zip(states, made, strict=True):
            state[on] = new
        hidden[on, step] = states[0][on]
    return hidden


def _parameters(node: Node, end: str) -> dict[str, np.ndarray]:
    """Parameters in the order of the cell's gates; files have them in PyTorch's."""
    cell: Cell = CELLS[node.op]
    theirs = cell.torch_gates or AFTER.torch_gates  # PyTorch has no GRU with the reset gate before the product
    order = [theirs.index(gate.name) for gate in cell.gates]
    count = len(order)
    parts = {key: np.split(node.tensors[f"{key}{end}"].astype(np.float64), count)
             for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    weight_ih, weight_hh, bias_ih, bias_hh = (np.stack([parts[key][k] for k in order]) for key in parts)
    bias, vectors = bias_ih + bias_hh, {}
    for name, gate in cell.torch_biases.items():
        bias[cell.index(gate)] = bias_ih[cell.index(gate)]
        vectors[name] = bias_hh[cell.index(gate)]
    return {"input_weights": weight_ih, "recurrent_weights": weight_hh, "bias": bias, **vectors}

"""Recurrent classifiers in FP32: recurrent layers, and one dense layer on the last hidden vector."""

from collections.abc import Sequence

import numpy as np
import torch
from concord.net.cells.cell import Cell
from concord.net.first_states import InitialState, drawn
from concord.net.graph import INPUT, Graph, Node
from concord.net.ops.recurrent import Direction, Recurrence
from concord.net.ops.sequences import Last
from concord.net.ops.weighted import Linear
from concord.train.recurrent.directions import Directions, last
from concord.train.recurrent.operations import (
    TorchOperations,
    arrays,
    direction_of,
    first_of,
    unroll,
    vectors_of,
)
from torch import nn

#: Name of the dense layer of a classifier in models.
HEAD = "output"


class FloatRecurrent(nn.Module):
    """One direction of a recurrent layer in FP32, with trained numbers from an operator."""

    def __init__(self, op: Recurrence, one: Direction):
        super().__init__()
        self.cell = op.cell
        self.input_weights, self.recurrent_weights, self.bias = (
            nn.Parameter(torch.from_numpy(value.copy()))
            for value in (one.input_weights, one.recurrent_weights, one.bias))
        self.vectors = vectors_of(one.vectors)
        self.register_buffer("first", first_of(op))

    def forward(self, x, lengths):
        """float[samples, time, inputs] to the hidden vectors of all time steps."""
        w, r = (weights.flatten(0, 1).T for weights in (self.input_weights, self.recurrent_weights))
        u = x @ w + self.bias.flatten()
        ops = TorchOperations(self.cell, lambda operand: operand @ r, self.vectors)
        return unroll(ops, self.cell, u.unflatten(2, self.bias.shape), lengths, self.first)

    def direction(self) -> Direction:
        """The direction with the numbers that training has found."""
        return direction_of(self)


class FloatClassifier(nn.Module):
    """Recurrent layers of one cell, and one dense layer.

    Args:
        inputs:  Elements of the input vector of a time step.
        hidden:  Sizes of the recurrent layers.
        classes: Outputs of the dense layer.
        cell:    The cell of every recurrent layer.
        both:    Whether each layer reads a sequence from its end, too.
        initial: The states before the first time step, which both directions share.
        seed:    Seed of these states.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int, cell: Cell, *, both: bool = False,
                 initial: InitialState = InitialState.ZERO, seed: int = 0):
        super().__init__()
        sizes = (inputs, *(size * (1 + both) for size in hidden))
        self.layers = nn.ModuleList()
        for index, (i, o) in enumerate(zip(sizes, hidden, strict=False)):
            first = drawn(initial, cell, o, (seed, index))
            op = Recurrence(cell=cell, first=first, directions=tuple(random_direction(cell, i, o)
                                                                     for _ in range(1 + both)))
            self.layers.append(Directions(op, [FloatRecurrent(op, one) for one in op.directions]))
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x, lengths):
        """float32[samples, classes] of float32[samples, time, inputs] and int64[samples]."""
        for layer in self.layers:
            x = layer(x, lengths)
        op = self.layers[-1].op
        return self.head(last(x, lengths, op.hidden * op.bidirectional))

    def graph(self, name: str = "classifier") -> Graph:
        """The float network with the numbers that training has found."""
        nodes, before = [], INPUT
        for index, layer in enumerate(self.layers, 1):
            nodes.append(Node(name=f"{layer.op.cell.name}{index}", op=layer.trained(), sources=(before,)))
            before = nodes[-1].name
        final = nodes[-1].op
        nodes.append(Node(name="last", op=Last(backward=final.hidden * final.bidirectional), sources=(before,)))
        head = arrays({"weight": self.head.weight, "bias": self.head.bias})
        nodes.append(Node(name=HEAD, op=Linear(**head), sources=("last",)))
        inputs = self.layers[0].op.directions[0].input_weights.shape[-1]
        return Graph(name=name, shape=(inputs,), sequence=True, axes=(0,), nodes=tuple(nodes))


def random_direction(cell: Cell, inputs: int, hidden: int) -> Direction:
    """A direction from which training starts: weights are uniform within 1 / sqrt(hidden)."""
    bound, gates = hidden**-0.5, len(cell.gates)
    weights, recurrent = (torch.empty(gates, hidden, size).uniform_(-bound, bound).numpy() for size in (inputs, hidden))
    bias = np.repeat(np.array([[gate.first_bias] for gate in cell.gates], np.float32), hidden, axis=1)
    return Direction(input_weights=weights, recurrent_weights=recurrent, bias=bias, vectors={
        name: np.zeros(hidden, np.float32) for name in cell.vectors})

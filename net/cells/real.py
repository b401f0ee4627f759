"""A cell's formula in real numbers, the FP32 network's own values, and all time steps of a cell in any arithmetic."""

from collections.abc import Callable, Mapping

import numpy as np
from concord.golden.mfu.multifunction import CURVES
from concord.net.arithmetic.windows import backward
from concord.net.cells.cell import Cell, Operations


class RealOperations(Operations[np.ndarray]):
    """Operations on float64[samples, cells].

    Args:
        cell:       The cell.
        parameters: float64 "input_weights"[gates, cells, inputs], "recurrent_weights"[gates, cells, cells],
            "bias"[gates, cells] and the cell's vectors[cells].
        x:          float64[samples, inputs], the input at this time step.
    """

    def __init__(self, cell: Cell, parameters: Mapping[str, np.ndarray], x: np.ndarray):
        self._cell, self._parameters, self._x = cell, parameters, x

    def preactivation(self, gate, operand):
        return self.input_product(gate) + self.recurrent_product(gate, operand)

    def input_product(self, gate):
        k = self._cell.index(gate)
        return self._x @ self._parameters["input_weights"][k].T + self._parameters["bias"][k]

    def recurrent_product(self, gate, operand):
        return operand @ self._parameters["recurrent_weights"][self._cell.index(gate)].T

    def output(self, gate, value):
        return self.curve(self._cell.gates[self._cell.index(gate)].curve, value)

    def vector(self, name):
        return self._parameters[name]

    def add(self, a, b):
        return a + b

    def sub(self, a, b):
        return a - b

    def mul(self, a, b):
        return a * b

    def larger(self, a, b):
        return np.maximum(a, b)

    def constant(self, number, *, bound=False):
        return np.float64(number)

    def curve(self, kind, value):
        return CURVES[kind](value)


def unrolled(
    cell: Cell, operations: Callable[[np.ndarray], Operations], x: np.ndarray, lengths: np.ndarray,
    first: tuple[np.ndarray, ...], *, reverse: bool = False,
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The hidden vectors of all time steps, and the states after the last one.

    Args:
        cell:       The cell.
        operations: From the inputs [samples, inputs] of one time step to what the cell's formula computes with.
        x:          [samples, time, inputs].
        lengths:    int[samples], time steps of each sample; a sample keeps its states when its sequence has ended.
        first:      [cells] for each state, before the first time step.
        reverse:    Whether the cell begins with the last time step; hidden vectors lie in the order of the sequence.

    Returns:
        [samples, time, cells], zero after the end of a sequence, and [samples, cells] for each state.
    """
    x = backward(x, lengths) if reverse else x
    samples, time = x.shape[:2]
    states = tuple(np.tile(state, (samples, 1)) for state in first)
    hidden = np.zeros((samples, time, len(first[0])), first[0].dtype)
    for step in range(min(time, int(np.max(lengths, initial=0)))):
        on = np.flatnonzero(lengths > step)
        made = cell.step(operations(x[on, step]), *(state[on] for state in states))
        for state, new in zip(states, made, strict=True):
            state[on] = new
        hidden[on, step] = states[0][on]
    return (backward(hidden, lengths) if reverse else hidden), states

"""A cell's formula in real numbers: the FP32 network's own values, in float64."""

from collections.abc import Mapping

import numpy as np
from concord.golden.mfu.multifunction import CURVES
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

    def curve(self, kind, value):
        return CURVES[kind](value)

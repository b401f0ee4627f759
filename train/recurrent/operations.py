"""A cell's formula in PyTorch: in real numbers, or with the machine's rounding after each operation."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from concord.net.cells.cell import Cell, Operations
from concord.net.ops.recurrent import Direction, Recurrence
from concord.train.lib.curves import CURVES, curve
from concord.train.lib.straight_through import binary16, plain
from torch import nn


def unrounded(y: torch.Tensor, gate: str) -> torch.Tensor:
    """Instead of the quantiser of the outputs of gates."""
    return y


class TorchOperations(Operations[torch.Tensor]):
    """Operations on float[samples, cells]; W x and R h are rounded and added one after the other.

    Args:
        cell:      The cell.
        recurrent: From an operand to R operand of all gates, float[samples, gates * cells].
        vectors:   The cell's own vectors.
        lowered:   Round each operation to binary16, as the machine does.
        outputs:   Applied to the outputs of gates: value and gate to value.
    """

    def __init__(
        self,
        cell: Cell,
        recurrent: Callable[[torch.Tensor], torch.Tensor],
        vectors: Mapping[str, torch.Tensor],
        *,
        lowered: bool = False,
        outputs: Callable[[torch.Tensor, str], torch.Tensor] = unrounded,
    ):
        self._cell, self._recurrent, self._outputs = cell, recurrent, outputs
        self._rounded = binary16 if lowered else plain
        self._curves = {kind: curve(kind, lowered) for kind in CURVES}
        self._vectors = {name: self._rounded(value) + 0.0 for name, value in vectors.items()}
        self._index = {gate.name: index for index, gate in enumerate(cell.gates)}
        self._inputs = self._operand = self._product = None
        self._made: dict[Callable, tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = {}

    def begin(self, inputs: torch.Tensor):
        """Begin a time step.

        Args:
            inputs: float[samples, gates, cells], W x, with its bias where that is added before R h.
        """
        self._inputs, self._operand = inputs, None
        self._made.clear()

    def preactivation(self, gate, operand):
        return self._gate(gate, operand, self._preactivations)

    def input_product(self, gate):
        return self._gate(gate, self._inputs, self._input_products)

    def recurrent_product(self, gate, operand):
        return self._gate(gate, operand, self._recurrent_products)

    def output(self, gate, value):
        return self._outputs(self.curve(self._cell.gates[self._index[gate]].curve, value), gate)

    def vector(self, name):
        return self._vectors[name]

    def add(self, a, b):
        return self._rounded(a + b)

    def sub(self, a, b):
        return self._rounded(a - b)

    def mul(self, a, b):
        return self._rounded(a * b)

    def larger(self, a, b):
        return torch.maximum(a, b)

    def constant(self, number, *, bound=False):
        return torch.tensor(number)

    def curve(self, kind, value):
        return self._curves[kind](value)

    def _gate(self, gate: str, operand: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """One gate of what is computed of an operand for all gates at once."""
        if compute not in self._made or self._made[compute][0] is not operand:
            self._made[compute] = operand, compute(operand).unbind(1)
        return self._made[compute][1][self._index[gate]]

    def _products(self, operand):
        """R operand of all gates, as it comes out of the product."""
        if self._operand is not operand:
            self._operand, self._product = operand, self._recurrent(operand).unflatten(1, (len(self._index), -1))
        return self._product

    def _preactivations(self, operand):
        return self._rounded(self._products(operand) + self._inputs)

    def _input_products(self, inputs):
        return inputs

    def _recurrent_products(self, operand):
        return self._products(operand)


class TorchBlockOperations(TorchOperations):
    """Operations in block floating point: W x and R h are exact sums, and one rounding follows their total.

    Args:
        bias:    float[gates, cells].
        results: The quantiser of products float[samples, gates, cells].
        Others:  As in `TorchOperations`.
    """

    def __init__(self, cell, recurrent, vectors, bias, *, lowered: bool, results=plain, outputs=unrounded):
        super().__init__(cell, recurrent, vectors, lowered=lowered, outputs=outputs)
        self._bias, self._results = self._rounded(bias) + 0.0, results

    def _preactivations(self, operand):
        return self._biased(self._inputs + self._products(operand))

    def _input_products(self, inputs):
        return self._biased(inputs)

    def _recurrent_products(self, operand):
        return self._results(self._rounded(self._products(operand)))

    def _biased(self, total):
        return self._rounded(self._results(self._rounded(total)) + self._bias)


def unroll(ops: TorchOperations, cell: Cell, inputs, lengths, first) -> torch.Tensor:
    """The hidden vectors of all time steps of one layer, float[samples, time, cells].

    Args:
        ops:     Operations of the cell's formula.
        inputs:  float[samples, time, gates, cells], what `ops.begin` takes.
        lengths: int[samples]; after its end a sample keeps its state.
        first:   float[states, cells], the states before the first step.
    """
    states = [state.expand(len(inputs), -1) for state in first]
    hidden = []
    for step in range(inputs.shape[1]):
        on = lengths > step
        ops.begin(inputs[:, step])
        new = cell.step(ops, *states)
        states = [torch.where(on[:, None], *pair) for pair in zip(new, states, strict=True)]
        hidden.append(states[0])
    return torch.stack(hidden, 1)


def first_of(op: Recurrence) -> torch.Tensor:
    """float32[states, cells], the states before the first time step."""
    return torch.from_numpy(np.stack(op.states(np.dtype(np.float32))))


def vectors_of(vectors: Mapping[str, np.ndarray]) -> nn.ParameterDict:
    """The cell's own vectors as parameters."""
    return nn.ParameterDict({name: torch.from_numpy(value.copy()) for name, value in vectors.items()})


def direction_of(layer: nn.Module) -> Direction:
    """The numbers of a layer with real weights."""
    return Direction(vectors=arrays(layer.vectors), **arrays({
        name: getattr(layer, name) for name in ("input_weights", "recurrent_weights", "bias")}))


def arrays(tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Copies of tensors as numpy has them, by their names."""
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}

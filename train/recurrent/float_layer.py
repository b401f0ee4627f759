"""Recurrent layers in FP32."""

from collections.abc import Sequence

import numpy as np
import torch
from concord.net.cells.cell import Cell
from concord.net.ops.recurrent import Direction
from concord.net.quantize.recipe import InitialState
from concord.train.recurrent.operations import TorchOperations, unroll
from torch import nn


class FloatRecurrent(nn.Module):
    """One FP32 recurrent layer; its gates lie in the order of the cell.

    Args:
        cell:   The cell.
        inputs: Elements of x.
        hidden: Elements of h.

    Attributes:
        first: float32[states, hidden], binary16 numbers: the states before the first time step.
    """

    def __init__(self, cell: Cell, inputs: int, hidden: int):
        super().__init__()
        self.cell = cell
        bound, gates = hidden**-0.5, len(cell.gates)
        self.input_weights = nn.Parameter(torch.empty(gates, hidden, inputs).uniform_(-bound, bound))
        self.recurrent_weights = nn.Parameter(torch.empty(gates, hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.tensor([[gate.first_bias] for gate in cell.gates]).repeat(1, hidden))
        self.vectors = nn.ParameterDict({name: torch.zeros(hidden) for name in cell.vectors})
        self.register_buffer("first", torch.zeros(len(cell.states), hidden))

    def forward(self, x, lengths):
        """float[samples, time, inputs] to the hidden vectors of all steps and the last one of each sample."""
        w, r = (weights.flatten(0, 1).T for weights in (self.input_weights, self.recurrent_weights))
        u = x @ w + self.bias.flatten()
        ops = TorchOperations(self.cell, lambda operand: operand @ r, self.vectors)
        return unroll(ops, self.cell, u.unflatten(2, self.bias.shape), lengths, self.first)

    @classmethod
    def from_torch(cls, cell: Cell, module: nn.RNNBase, layer: int = 0, *, reverse: bool = False) -> "FloatRecurrent":
        """A layer with the weights of `torch.nn.LSTM`, `GRU` or `RNN`.

        Args:
            cell:    The cell of that class.
            module:  Has biases.
            layer:   Index of its layer.
            reverse: Take the direction that reads a sequence from its end.

        Raises:
            ValueError: the module computes something else.
        """
        if type(module).__name__ != cell.torch_class or not module.bias or getattr(module, "proj_size", 0):
            name = cell.torch_class or "nothing"
            raise ValueError(f"{cell.title} takes the weights of torch.nn.{name} with biases and without projections, "
                             f"not of {module}")
        suffix = f"_l{layer}" + "_reverse" * reverse
        w, r, bias, recurrent_bias = (getattr(module, f"{name}{suffix}").detach().numpy()
                                      for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        return cls.of_direction(cell, Direction.of_gates(cell, cell.torch_gates, w, r, bias, recurrent_bias))

    @classmethod
    def of_direction(cls, cell: Cell, numbers: Direction) -> "FloatRecurrent":
        """A layer with the numbers of one direction of a recurrent operator."""
        made = cls(cell, numbers.input_weights.shape[2], numbers.input_weights.shape[1])
        with torch.no_grad():
            for name in ("input_weights", "recurrent_weights", "bias"):
                getattr(made, name).copy_(torch.from_numpy(getattr(numbers, name)))
            for name, vector in numbers.vectors.items():
                made.vectors[name].copy_(torch.from_numpy(vector))
        return made

    def parameters_by_name(self) -> dict[str, np.ndarray]:
        """What a layer of the quantised model keeps of the FP32 network."""
        names = ("input_weights", "recurrent_weights", "bias")
        found = {name: getattr(self, name) for name in names} | dict(self.vectors)
        return {name: value.detach().numpy().copy() for name, value in found.items()}


def initial_state(process: InitialState, shape: Sequence[int], seed) -> torch.Tensor:
    """States before the first time step, float32[states, hidden]: binary16 numbers in -1..1, the same for one seed."""
    rng = np.random.default_rng(seed)
    values = {
        InitialState.ZERO: lambda: np.zeros(shape),
        InitialState.UNIFORM: lambda: rng.uniform(-1, 1, shape),
        InitialState.NORMAL: lambda: rng.normal(0, 0.1, shape).clip(-1, 1),
    }[process]()
    return torch.from_numpy(values.astype(np.float16).astype(np.float32))


def states_by_name(cell: Cell, first: torch.Tensor) -> dict[str, np.ndarray]:
    """float32[states, hidden] as the lowering takes them."""
    return dict(zip(cell.states, first.numpy(), strict=True))

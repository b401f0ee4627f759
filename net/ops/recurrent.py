"""Recurrent layers of any cell and of one or two directions, and the last time step of a sequence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from concord.net.cells.cell import Cell
from concord.net.cells.gru import AFTER, BEFORE
from concord.net.cells.lstm import LSTM
from concord.net.cells.real import RealOperations, unrolled
from concord.net.cells.registry import CELLS
from concord.net.cells.rnn import RELU, TANH
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes

#: Names of recurrent operators in files that hold the gates in the order of PyTorch, and their cells.
TORCH_KINDS = {"lstm": LSTM, "gru": AFTER, "gru_before": BEFORE, "rnn_tanh": TANH, "rnn_relu": RELU}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Direction:
    """The trained numbers of one direction of a recurrent layer, float32, with the gates in the order of the cell.

    Attributes:
        input_weights:     [gates, hidden, inputs], W.
        recurrent_weights: [gates, hidden, hidden], R.
        bias:              [gates, hidden].
        vectors:           [hidden] for each of the cell's own vectors by its name.
    """

    input_weights: np.ndarray
    recurrent_weights: np.ndarray
    bias: np.ndarray
    vectors: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of_gates(
        cls, cell: Cell, names: tuple[str, ...], input_weights: np.ndarray, recurrent_weights: np.ndarray,
        bias: np.ndarray, recurrent_bias: np.ndarray, vectors: Mapping[str, np.ndarray] | None = None,
    ) -> "Direction":
        """A direction from arrays [gates * hidden, ...] with the gates in another order and two biases, as files have.

        Args:
            cell:    The cell.
            names:   Names of its gates in the order of the arrays.
            vectors: The cell's own vectors that are no second bias.
        """
        order = [names.index(gate.name) for gate in cell.gates]
        w, r, b, c = (np.asarray(value, np.float32).reshape(len(names), -1, *value.shape[1:])[order]
                      for value in (input_weights, recurrent_weights, bias, recurrent_bias))
        total, own = b + c, dict(vectors or {})
        for name, gate in cell.torch_biases.items():
            total[cell.index(gate)], own[name] = b[cell.index(gate)], c[cell.index(gate)]
        return cls(input_weights=w, recurrent_weights=r, bias=total, vectors={
            name: np.asarray(own[name], np.float32) for name in cell.vectors})

    def tensors(self) -> dict[str, np.ndarray]:
        """All of its numbers by name."""
        return {"input_weights": self.input_weights, "recurrent_weights": self.recurrent_weights, "bias": self.bias,
                **self.vectors}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Recurrence(Operator):
    """A cell at each time step; its result is the sequence of hidden vectors.

    Of two directions, the second one begins with the last time step. Their hidden vectors are joined at each time
    step, forward first.

    Attributes:
        cell:       The cell.
        directions: One or two directions of the same sizes.
        reverse:    Whether a single direction begins with the last time step.
        first:      float32[hidden] for states before the first time step by their names; others are zero.
    """

    cell: Cell
    directions: tuple[Direction, ...]
    reverse: bool = False
    first: Mapping[str, np.ndarray] = field(default_factory=dict)

    kind = "recurrent"
    takes = Takes.SEQUENCE

    def __post_init__(self):
        if len(self.directions) not in (1, 2):
            raise ValueError(f"it has {len(self.directions)} directions; one or two are possible")
        if self.reverse and self.bidirectional:
            raise ValueError("it has two directions, one of which is backward already; leave reverse out")
        if unknown := set(self.first) - set(self.cell.states):
            raise ValueError(f"{self.cell.title} has no state {min(unknown)!r}")
        checks.numbers(**self.first)
        for name, value in self.first.items():
            checks.shaped(name, value, (self.hidden,))
        gates, hidden, inputs = len(self.cell.gates), self.hidden, self.directions[0].input_weights.shape[-1]
        wanted = {"input_weights": (gates, hidden, inputs), "recurrent_weights": (gates, hidden, hidden),
                  "bias": (gates, hidden), **dict.fromkeys(self.cell.vectors, (hidden,))}
        for one in self.directions:
            if set(self.cell.vectors) != set(one.vectors):
                raise ValueError(f"{self.cell.title} has the vectors [{', '.join(self.cell.vectors)}], not "
                                 f"[{', '.join(one.vectors)}]")
            numbers = one.tensors()
            checks.numbers(**numbers)
            for name, shape in wanted.items():
                checks.shaped(name, numbers[name], shape)

    @property
    def label(self) -> str:
        return self.cell.name

    @property
    def hidden(self) -> int:
        """Elements of the hidden vector of one direction."""
        return self.directions[0].recurrent_weights.shape[-1]

    @property
    def weights(self):
        return sum(one.input_weights.size + one.recurrent_weights.size for one in self.directions)

    @property
    def apart(self) -> tuple["Recurrence", ...]:
        """An operator of one direction for each direction, all of which begin with the first time step."""
        return tuple(replace(self, directions=(one,), reverse=False) for one in self.directions)

    @property
    def bidirectional(self) -> bool:
        """Whether there are two directions."""
        return len(self.directions) == 2

    def shape(self, x):
        checks.channels(x[0], self.directions[0].input_weights.shape[-1])
        return (self.hidden * len(self.directions),)

    def real(self, x, lengths):
        return np.concatenate([self._unrolled(one, x, lengths, reverse=self.reverse or bool(index))
                               for index, one in enumerate(self.directions)], axis=-1)

    def of_scaled(self, scale: np.ndarray, offset: np.ndarray) -> "Recurrence":
        """The layer that gives for x what this one gives for scale * x + offset."""
        return replace(self, directions=tuple(_of_scaled(one, scale, offset) for one in self.directions))

    def tensors(self):
        return {f"{name}{end}": value for end, one in zip(("", "_reverse"), self.directions, strict=False)
                for name, value in one.tensors().items()} | {
            f"first_{name}": value for name, value in self.first.items()}

    def attributes(self):
        return {"cell": self.cell.name, **({"reverse": True} if self.reverse else {})}

    @classmethod
    def restored(cls, attributes, tensors):
        if attributes["cell"] not in CELLS:
            raise ValueError(f"the cell {attributes['cell']!r} is unknown; known are {', '.join(CELLS)}")
        cell = CELLS[attributes["cell"]]
        ends = ("", "_reverse") if "bias_reverse" in tensors else ("",)
        return cls(cell=cell, directions=tuple(Direction(
            **{name: tensors[f"{name}{end}"] for name in ("input_weights", "recurrent_weights", "bias")},
            vectors={name: tensors[f"{name}{end}"] for name in cell.vectors}) for end in ends),
            reverse=bool(attributes.get("reverse", False)),
            first={name: tensors[f"first_{name}"] for name in cell.states if f"first_{name}" in tensors})

    @classmethod
    def of_torch(cls, kind: str, attributes: Mapping[str, object], tensors: Mapping[str, np.ndarray]) -> "Recurrence":
        """The operator of a file that has one kind for each cell, with the gates in the order of PyTorch."""
        cell = TORCH_KINDS[kind]
        names = cell.torch_gates or AFTER.torch_gates  # PyTorch has no GRU with the reset gate before the product
        ends = ("", "_reverse") if attributes.get("bidirectional") else ("",)
        return cls(cell=cell, directions=tuple(Direction.of_gates(cell, names, *(
            tensors[f"{key}{end}"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))) for end in ends))

    def _unrolled(self, one: Direction, x: np.ndarray, lengths: np.ndarray, *, reverse: bool) -> np.ndarray:
        parameters = {name: value.astype(x.dtype) for name, value in one.tensors().items()}
        return unrolled(self.cell, lambda now: self.operations(parameters, now), x, lengths, self.states(x.dtype),
                        reverse=reverse)[0]

    def operations(self, parameters: Mapping[str, np.ndarray], x: np.ndarray) -> RealOperations:
        """What the cell's formula computes with in one time step, for inputs [samples, inputs]."""
        return RealOperations(self.cell, parameters, x)

    def states(self, dtype: np.dtype) -> tuple[np.ndarray, ...]:
        """[hidden] for each state before the first time step, in the cell's order."""
        return tuple(self.first.get(name, np.zeros(self.hidden)).astype(dtype) for name in self.cell.states)


def _of_scaled(one: Direction, scale: np.ndarray, offset: np.ndarray) -> Direction:
    weights = one.input_weights.astype(np.float64)
    scale, offset = (np.broadcast_to(part, weights.shape[-1]) for part in (scale, offset))
    return replace(one, input_weights=(weights * scale).astype(np.float32),
                   bias=(one.bias + weights @ offset).astype(np.float32))

"""Networks of sequences in FP32: recurrent layers, and dense layers on the last hidden vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from concord.net.cells.cell import Cell
from concord.spec.numbers.activation import Activation
from concord.train.lib.curves import curve
from concord.train.recurrent.bidirectional import Bidirectional
from concord.train.recurrent.float_layer import FloatRecurrent
from torch import nn

#: Name of the dense layer of a classifier in models.
HEAD = "output"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dense:
    """A dense layer.

    Attributes:
        name:       Name of the layer in models.
        layer:      Its weights and biases.
        activation: Activation function of the result.
    """

    name: str
    layer: nn.Linear = field(compare=False)
    activation: Activation = Activation.NONE

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The result in real numbers."""
        return curve(self.activation, False)(self.layer(x))


class FloatSequenceNetwork(nn.Module):
    """The FP32 network.

    Args:
        recurrent: Recurrent layers in order, by their names in models.
        dense:     Dense layers in order, one at least.

    Attributes:
        layers: The recurrent layers.
        names:  Their names.
        dense:  The dense layers.
    """

    def __init__(self, recurrent: Mapping[str, FloatRecurrent | Bidirectional], dense: Sequence[Dense]):
        super().__init__()
        self.names = list(recurrent)
        self.layers = nn.ModuleList(recurrent.values())
        self.dense = tuple(dense)
        self.head = nn.ModuleList(one.layer for one in dense)

    def forward(self, x, lengths):
        for layer in self.layers:
            x, last = layer(x, lengths)
        for dense in self.dense:
            last = dense(last)
        return last

    @property
    def recurrent(self) -> list[FloatRecurrent]:
        """The recurrent layers of all directions."""
        return [module for module in self.modules() if isinstance(module, FloatRecurrent)]

    @torch.no_grad()
    def hidden_vectors(self, x, lengths) -> list[torch.Tensor]:
        """float[samples, time, hidden] of each recurrent layer."""
        found = []
        for layer in self.layers:
            x, _ = layer(x, lengths)
            found.append(x)
        return found

    @torch.no_grad()
    def dense_inputs(self, x, lengths) -> list[torch.Tensor]:
        """float[samples, inputs] of each dense layer."""
        for layer in self.layers:
            x, last = layer(x, lengths)
        found = [last]
        for dense in self.dense[:-1]:
            found.append(dense(found[-1]))
        return found


class FloatClassifier(FloatSequenceNetwork):
    """Recurrent layers of one cell, and one dense layer.

    Args:
        inputs:  Elements of the input vector of a time step.
        hidden:  Sizes of the recurrent layers.
        classes: Outputs of the dense layer.
        cell:    The cell of every recurrent layer.
        both:    Whether each layer reads a sequence from its end, too.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int, cell: Cell, *, both: bool = False):
        sizes = (inputs, *(size * (1 + both) for size in hidden))
        made = [[FloatRecurrent(cell, i, o) for _ in range(1 + both)] for i, o in zip(sizes, hidden, strict=False)]
        layers = {f"{cell.name}{index}": Bidirectional(*parts) if both else parts[0]
                  for index, parts in enumerate(made, 1)}
        super().__init__(layers, [Dense(name=HEAD, layer=nn.Linear(sizes[-1], classes))])

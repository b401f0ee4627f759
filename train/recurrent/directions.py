"""One recurrent layer in one direction or in both: one reads a sequence from its beginning, one from its end."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from concord.net.arithmetic.windows import backward
from concord.net.ops.recurrent import Recurrence
from concord.net.quantize.blocks import Blocks
from concord.net.quantize.integers import Integers
from torch import nn

#: Learning rate of weights in steps, as a multiple of that of numbers in real units.
IN_STEPS = 100


class Directions(nn.Module):
    """A recurrent layer; hidden vectors of both directions lie side by side.

    Args:
        op:    The recurrent operator.
        parts: The module of each direction, which reads a sequence from its beginning.
    """

    def __init__(self, op: Recurrence, parts: Sequence[nn.Module]):
        super().__init__()
        self.op, self.parts = op, nn.ModuleList(parts)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, **mode) -> torch.Tensor:
        """float[samples, time, inputs] to the hidden vectors of all time steps."""
        made = [part(self.read(x, lengths, index), lengths, **mode) for index, part in enumerate(self.parts)]
        return torch.cat([self.read(hidden, lengths, index) for index, hidden in enumerate(made)], 2)

    def read(self, x: torch.Tensor, lengths: torch.Tensor, index: int) -> torch.Tensor:
        """A sequence in the order in which one direction reads it."""
        return backward(x, lengths) if self.op.reverse or index else x

    def bound(self):
        """No quantiser has parameters."""

    def rates(self) -> dict[float, list[nn.Parameter]]:
        """Parameters by their share of the learning rate."""
        found: dict[float, list[nn.Parameter]] = {}
        for part in self.parts:
            for name, parameter in part.named_parameters():
                found.setdefault(IN_STEPS if part.in_steps and "weight" in name else 1, []).append(parameter)
        return found

    def write(self, arithmetic: Integers | Blocks, name: str):
        """Write the numbers of the layer into an arithmetic, as those of a part."""
        if isinstance(arithmetic, Integers):
            arithmetic.gated[name] = tuple(part.gated() for part in self.parts)
        else:
            arithmetic.trained[name] = self.trained()

    def trained(self) -> Recurrence:
        """The operator with the real numbers that training has found."""
        return replace(self.op, directions=tuple(part.direction() for part in self.parts))


def last(x: torch.Tensor, lengths: torch.Tensor, backward: int) -> torch.Tensor:
    """float32[samples, elements], the last time step of a sequence; the first one of its last `backward` elements."""
    found, forward = x[torch.arange(len(x)), lengths - 1], x.shape[-1] - backward
    return torch.cat([found[:, :forward], x[:, 0, forward:]], 1)

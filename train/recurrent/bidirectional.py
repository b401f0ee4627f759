"""Two recurrent layers on one sequence: one reads it from its beginning, the other one from its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from concord.net.layers.concat import Concat, SequenceConcat
from concord.net.layers.layer import Layer
from concord.net.model import INPUT
from torch import nn


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowered:
    """What a recurrent layer becomes in the quantised model.

    Attributes:
        layers:  In order; the last one gives the result.
        sources: Names of what enters a layer, where that is not just the layer before it.
        hidden:  float32[samples, time, hidden], the hidden vectors of all time steps.
        last:    float32[samples, hidden], the last ones of each direction.
    """

    layers: tuple[Layer, ...]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hidden: torch.Tensor
    last: torch.Tensor


class Bidirectional(nn.Module):
    """A recurrent layer in both directions; their hidden vectors lie side by side.

    Args:
        ahead:  Reads a sequence from its beginning.
        behind: Reads it from its end.
    """

    def __init__(self, ahead: nn.Module, behind: nn.Module):
        super().__init__()
        self.ahead, self.behind = ahead, behind

    def forward(self, x, lengths, *mode):
        """As the layers themselves; the last hidden vectors are those of the sequence's end and of its beginning."""
        hidden, last = self.ahead(x, lengths, *mode)
        back, first = self.behind(backward(x, lengths), lengths, *mode)
        return torch.cat([hidden, backward(back, lengths)], 2), torch.cat([last, first], 1)

    def lowered(self, name: str, source: str, x: torch.Tensor, lengths: torch.Tensor, final: bool) -> Lowered:
        """The layers of the quantised model.

        Args:
            name:    Name of the first one.
            source:  Name of what x comes from.
            x:       float32[samples, time, inputs], calibration set.
            lengths: int[samples].
            final:   No recurrent layer follows, so that the last hidden vectors are the result.
        """
        ahead = self.ahead.lowered(name, source, x, lengths, final)
        behind = self.behind.lowered(f"{name}-reverse", source, backward(x, lengths), lengths, final)
        (first,), (reverse,) = ahead.layers, behind.layers
        join = (Concat if final else SequenceConcat)(name=f"{name}-both", sizes=(first.outputs, reverse.outputs))
        return Lowered(
            layers=(first, replace(reverse, reverse=True), join),
            sources={reverse.name: (source,), join.name: (first.name, reverse.name)},
            hidden=torch.cat([ahead.hidden, backward(behind.hidden, lengths)], 2),
            last=torch.cat([ahead.last, behind.last], 1),
        )


def backward(sequences: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[samples, time, ...] with the time steps of each sample in reverse order; what lies behind its end stays."""
    steps = torch.arange(sequences.shape[1])
    behind = lengths[:, None] - 1 - steps
    return sequences[torch.arange(len(sequences))[:, None], torch.where(behind >= 0, behind, steps)]


def mapped(layer: nn.Module, make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Other layers in the same directions, each made of the one that is there."""
    if isinstance(layer, Bidirectional):
        return Bidirectional(make(layer.ahead), make(layer.behind))
    return make(layer)


def lower_all(layers, names, x: torch.Tensor, lengths: torch.Tensor) -> Lowered:
    """Recurrent layers one behind the other. Arguments as in `Bidirectional.lowered`."""
    found, sources, last = [], {}, None
    for name, layer in zip(names, layers, strict=True):
        made = layer.lowered(name, found[-1].name if found else INPUT, x, lengths, name == names[-1])
        found += made.layers
        sources |= made.sources
        x, last = made.hidden, made.last
    return Lowered(layers=tuple(found), sources=sources, hidden=x, last=last)

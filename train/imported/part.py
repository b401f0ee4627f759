"""Samples as tensors in the form that an imported network takes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from concord.datasets.samples import Samples
from concord.train.lib.export import floats
from torch import nn

#: Number of samples that are computed at once.
TOGETHER = 250


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Samples of one kind.

    Attributes:
        inputs:  What enters the network: float32[samples, ...], and int64[samples] lengths where those are sequences.
        samples: The same as the machine reads them, and their labels.
    """

    inputs: tuple[torch.Tensor, ...]
    samples: Samples

    @classmethod
    def of(cls, samples: Samples, shape: Sequence[int]) -> "Part":
        """Samples of this shape, or sequences of vectors."""
        x = floats(samples.inputs)
        if x.dim() == 3:
            lengths = np.full(len(x), x.shape[1]) if samples.lengths is None else samples.lengths
            return cls(inputs=(x, torch.from_numpy(np.asarray(lengths, np.int64))), samples=samples)
        return cls(inputs=(x.view(-1, *shape),), samples=samples)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.samples)

    def at(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """What enters the network for the samples of these indices."""
        return tuple(part[index] for part in self.inputs)

    @torch.no_grad()
    def outputs(self, net: nn.Module, *mode: bool) -> torch.Tensor:
        """float32[samples, outputs] of a network in evaluation mode."""
        training = net.training
        net.eval()
        made = torch.cat([net(*self.at(index), *mode) for index in torch.arange(len(self)).split(TOGETHER)])
        net.train(training)
        return made

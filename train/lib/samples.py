"""Samples as tensors in the form that a network under training takes."""

from dataclasses import dataclass

import numpy as np
import torch
from concord.datasets.samples import Samples
from concord.train.lib.export import floats
from torch import nn

#: Number of samples that are computed at once.
TOGETHER = 250


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampleTensors:
    """Samples of one kind.

    Attributes:
        x:       float32[samples, elements], or float32[samples, time, elements].
        lengths: int64[samples], time steps of each sequence; None where samples are no sequences.
        samples: The same as the machine reads them, and their labels.
    """

    x: torch.Tensor
    lengths: torch.Tensor | None
    samples: Samples

    @classmethod
    def of(cls, samples: Samples) -> "SampleTensors":
        """Samples as a data set has them."""
        x, lengths = floats(samples.inputs), None
        if x.dim() == 3:
            given = np.full(len(x), x.shape[1]) if samples.lengths is None else samples.lengths
            lengths = torch.from_numpy(np.asarray(given, np.int64))
        return cls(x=x, lengths=lengths, samples=samples)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.samples)

    def at(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What enters a network for the samples of these indices."""
        return self.x[index], None if self.lengths is None else self.lengths[index]

    @torch.no_grad()
    def outputs(self, net: nn.Module, *, lowered: bool = False) -> torch.Tensor:
        """float32[samples, outputs] of a network behind quantisers, in evaluation mode."""
        training = net.training
        net.eval()
        made = torch.cat([net(*self.at(index), lowered=lowered) for index in torch.arange(len(self)).split(TOGETHER)])
        net.train(training)
        return made

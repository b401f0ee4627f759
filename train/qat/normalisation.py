"""Batch normalisation that stays under training, and folds into a row's scale and constant: integers stay as they are.

Source: S0; Ioffe and Szegedy, 2015.
"""

import torch
from torch import nn

#: Added to the variance of sums, which are of integers or of real weights.
EPSILON = 1e-5
#: Share of a batch in the running statistics.
MOMENTUM = 0.1


class Normalisation(nn.Module):
    """y = gain * (spread * (sum - mean) / deviation + centre) + constant, for sums of integer weights and codes.

    Under training mean and deviation are those of a batch, which move the running ones.

    With the running mean and deviation from which it starts, that is gain * (step * sum + offset * total) + constant to
    the bit: what the folded network computes.

    Its gain is a parameter of its own: a change of the integers' worth is normalised away.

    Args:
        gain, constant, total: float64[rows] of the folded layer; `total` sums a row's integers.
        step, offset:          Of the codes of its input.
        mean, deviation:       float64[rows], of y over the data.
    """

    def __init__(self, gain, constant, total, step: float, offset: float, mean, deviation):
        super().__init__()
        self.change = nn.Parameter(torch.zeros(len(gain)))
        self.register_buffer("start", gain.clone())
        unit = torch.where(gain == 0, 1.0, gain) * step
        centre = (mean - constant) / unit - offset * total / step
        self.register_buffer("mean", centre.float())
        self.register_buffer("variance", (deviation / unit).square().float())
        self.register_buffer("spread", step * self._deviation())
        self.register_buffer("centre", step * self.mean.double() + offset * total)

    @property
    def gain(self) -> torch.Tensor:
        """float64[rows], in place of that of a layer without normalisation."""
        return self.start * (1 + self.change.double())

    def _deviation(self):
        return (self.variance.double() + EPSILON).sqrt()

    def fold(self, constant, total, step, offset) -> tuple[torch.Tensor, torch.Tensor]:
        """Gain and constant, float64[rows], of a layer without normalisation, by the running statistics.

        Those were taken in the present step, so it has no gradient here.
        """
        gain, step, offset = self.gain, step.detach(), offset.detach()
        folded = gain * (self.spread / (step * self._deviation()))
        return folded, constant + gain * self.centre - folded * (step * self.mean.double() + offset * total)

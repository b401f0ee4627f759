"""Batch normalisation that stays under training. It folds into scale and constant of a row, and integers do not change.

Source: S0; Ioffe and Szegedy, 2015.
"""

import torch
from torch import nn

#: Added to the variance of the sums, which are sums of integers or of real weights.
EPSILON = 1e-5
#: Weight of a batch in the running statistics.
MOMENTUM = 0.1


class Normalisation(nn.Module):
    """y = gain * (spread * (sum - mean) / deviation + centre) + constant, for sums of integer weights and codes.

    Under training, mean and deviation are those of a batch, and the running statistics follow them. With the running
    statistics from which training starts, y is gain * (step * sum + offset * total) + constant to the bit, which is the
    result of the folded network.

    The gain is a parameter of its own, since a change of the real value of an integer is normalised away.

    Args:
        gain, constant, total: float64[rows] of the folded layer; `total` is the sum of the integers of a row.
        step, offset:          Step and offset of the codes of the layer's input.
        mean, deviation:       float64[rows], mean and deviation of y over the data.
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
        """float64[rows], which replaces the gain of a layer without normalisation."""
        return self.start * (1 + self.change.double())

    def _deviation(self):
        return (self.variance.double() + EPSILON).sqrt()

    def fold(self, constant, total, step, offset) -> tuple[torch.Tensor, torch.Tensor]:
        """Gain and constant, float64[rows], of a layer without normalisation, by the running statistics.

        The running statistics belong to the present step of the codes, so the step has no gradient here.
        """
        gain, step, offset = self.gain, step.detach(), offset.detach()
        folded = gain * (self.spread / (step * self._deviation()))
        return folded, constant + gain * self.centre - folded * (step * self.mean.double() + offset * total)

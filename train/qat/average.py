"""Averages of windows behind a quantiser of their input: sums of codes, whose weights are 1 and are not trained."""

from dataclasses import replace
from math import prod

import numpy as np
import torch
from concord.net.arithmetic.windows import Window
from concord.net.layers.average import Average
from concord.net.quantize.grid import Grid
from concord.train.qat.layer import QuantizedLayer
from concord.train.qat.weights import Weights
from torch import nn

#: The integers of a layer whose weights are all 1.
ONES = Grid(-1, 1)


def convolution(channels: int, window: Window) -> nn.Conv2d:
    """The convolution that averages each window of each channel, padding included."""
    made = nn.Conv2d(channels, channels, window.size, groups=channels, bias=False)
    nn.init.constant_(made.weight, 1 / prod(window.size))
    return made.requires_grad_(False)


class Ones(Weights):
    """Integers that are all 1, with a gain that stays."""

    def begin(self, codes, fraction):
        return torch.from_numpy(codes)

    def per_weight(self, grown):
        return 1.0


class QuantizedAverage(QuantizedLayer):
    """(1 / pixels) * (sum of the codes of a window). Arguments are those of `QuantizedLayer`, for a `convolution`."""

    kind = Average

    def __init__(self, *given):
        super().__init__(*given)
        self.constant.requires_grad_(False)

    def _quantizer(self, rows, bits, recipe, fold):
        count, pixels = rows.shape
        return Ones(np.ones(rows.shape), np.full(count, 1 / pixels), ONES, 0.0, 1.0).requires_grad_(False)

    def _loss(self, rows, samples):
        return replace(super()._loss(rows, samples), weights=None)  # ones lose nothing

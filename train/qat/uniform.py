"""Weights that are trained in real units, on a grid that stays.

Source: S0.c.
"""

import torch
from concord.train.qat.weights import Weights


class Uniform(Weights):
    """Weights in real units, on the grid from which training starts: n = clip(round(w / unit))."""

    in_real_units = True

    def begin(self, codes, fraction):
        return torch.from_numpy((codes + fraction) * self.unit.numpy()[:, None])

    def per_weight(self, grown):
        return self.unit.reciprocal().float()[:, None]

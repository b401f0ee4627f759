"""Weights that are trained in shares of their range.

Source: S0, WRPN.
"""

import torch
from concord.train.qat.weights import Weights


class Wrpn(Weights):
    """Weights in shares of their range: n = clip(round(w * 2**(bits - 1)))."""

    def begin(self, codes, fraction):
        self.half = self.grid.highest + 1.0
        return torch.from_numpy((codes + fraction) / self.half)

    def per_weight(self, grown):
        return self.half

    @torch.no_grad()
    def enlarge(self, factor):
        super().enlarge(factor)
        self.weight.div_(factor.to(self.weight.dtype)[:, None])

"""Weights that are trained in real units, in shares of their range, or after a tanh, on a grid that stays.

Source: S0.c; S0, WRPN; DoReFa-Net (Zhou et al., 2016).
"""

import numpy as np
import torch
from concord.train.qat.weights import TrainedWeights


class Uniform(TrainedWeights):
    """Weights in real units, on the grid from which training starts: n = clip(round(w / unit))."""

    in_real_units = True

    def begin(self, codes, fraction):
        return torch.from_numpy((codes + fraction) * self.unit.numpy()[:, None])

    def per_weight(self, grown):
        return self.unit.reciprocal().float()[:, None]


class Wrpn(TrainedWeights):
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


class DoReFa(TrainedWeights):
    """Weights after a tanh: n is odd, round to (2**bits - 1) * tanh(w) / normaliser; the normaliser stays."""

    def begin(self, codes, fraction):
        self.most = self.grid.highest
        self.register_buffer("normaliser", torch.tensor(np.tanh(1.0)))
        share = np.clip((codes + fraction) / self.most, -1, 1)
        return torch.from_numpy(np.arctanh(share * self.normaliser.item()))

    def per_weight(self, grown):
        return self.most / self.normaliser.item()

    def bent(self):
        return torch.tanh(self.weight.detach())

    def unbent(self, bent):
        return torch.atanh(bent)

    def of_weight(self, of_bent):
        return of_bent * (1 - self.bent().square())

    @torch.no_grad()
    def enlarge(self, factor):
        super().enlarge(factor)
        self.weight.copy_(self.unbent(self.bent() / factor.to(self.weight.dtype)[:, None]))

"""Weights that are trained behind a tanh.

Source: DoReFa-Net (Zhou et al., 2016).
"""

import numpy as np
import torch
from concord.train.qat.weights import Weights


class DoReFa(Weights):
    """Weights behind a tanh: n is odd, round to (2**bits - 1) * tanh(w) / normaliser; the normaliser stays."""

    def begin(self, codes, fraction):
        self.most = self.grid.highest
        self.register_buffer("normaliser", torch.tensor(np.tanh(1.0)))
        share = np.clip((codes + fraction) / self.most, -1, 1)
        return torch.from_numpy(np.arctanh(share * self.normaliser.item()))

    def per_weight(self, grown):
        return self.most / self.normaliser.item()

    def bent(self):
        return torch.tanh(self.weight.detach())

    def of_weight(self, of_bent):
        return of_bent * (1 - self.bent().square())

    @torch.no_grad()
    def enlarge(self, factor):
        super().enlarge(factor)
        self.weight.copy_(torch.atanh(torch.tanh(self.weight) / factor.to(self.weight.dtype)[:, None]))

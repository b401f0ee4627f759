"""Averages of windows behind a quantiser of their input: sums of codes, whose weights are 1 and are not trained."""

import numpy as np
import torch
from concord.train.qat.layer import QuantizedLayer
from concord.train.qat.weights import Weights


class Ones(Weights):
    """Integers that are all 1, with a gain that stays."""

    def begin(self, codes, fraction):
        return torch.from_numpy(codes)

    def per_weight(self, grown):
        return 1.0


class QuantizedAverage(QuantizedLayer):
    """(1 / pixels) * (sum of the codes of a window). Arguments are those of `QuantizedLayer`."""

    def __init__(self, *given):
        super().__init__(*given)
        self.constant.requires_grad_(False)

    def _quantizer(self, part, rows, recipe):
        return Ones(rows.weights.astype(np.float64), rows.gain, rows.grid, 0.0, 1.0).requires_grad_(False)

"""Quantisers of activations under training: saturation and offset, and the gradients of those that are learned.

Source: S0, activations; S0.c; PACT (Choi et al., 2018); learned step size (Esser et al., 2020).
"""

import numpy as np
import torch
from concord.train import ptq
from concord.train.lib.methods import ActivationMethod, ActivationTraining, Recipe, Start
from concord.train.lib.straight_through import Codes, Damped, Round
from torch import nn


class Activations(nn.Module):
    """Unsigned codes u = clip(round((x - m) / s), 0, levels), s = b / levels.

    Args:
        samples:  Real[samples, elements], what enters for a calibration set.
        bits:     Of the codes.
        recipe:   What is trained, and how saturation b and offset m are found: from the ends of the range, where
            training starts from FP32.

    Attributes:
        saturation: float32, b.
        offset:     float32, m.
        positive:   Nothing below 0 has entered: m stays at 0 or above, so that the clip at 0 is a relu.
    """

    def __init__(self, samples: np.ndarray, bits: int, recipe: Recipe):
        super().__init__()
        self.levels, self.learned = (1 << bits) - 1 - recipe.symmetric[1], recipe.activations
        self.learned_step = self.learned is ActivationTraining.LSQ
        self.positive = bool(samples.min() >= 0)
        kind, learned = ActivationTraining, self.learned
        method = recipe.methods.activations if recipe.start is Start.PTQ else ActivationMethod.UNIFORM
        fixed = 0.0 if self.positive and learned is not kind.UNIFORM else None
        saturation, offset = ptq.activations(samples, self.levels, method, fixed)
        self.saturation = _parameter(saturation, learned in (kind.UNIFORM, kind.PACT, kind.LSQ))
        self.offset = _parameter(offset, learned is kind.UNIFORM)
        #: So that a learned step b / levels moves by its own gradient over sqrt(elements * levels).
        self.damping = self.levels**2 * (samples.shape[1] * self.levels) ** -0.5 if self.learned_step else 1.0

    @property
    def step(self) -> torch.Tensor:
        """float64, the real value of one code."""
        saturation = Damped.apply(self.saturation, self.damping) if self.learned_step else self.saturation
        return saturation.double() / self.levels

    def codes(self, y: torch.Tensor) -> torch.Tensor:
        """float32 codes of y = (x - m) / s."""
        if self.learned_step:
            return Round.apply(y, 0, self.levels)
        return Codes.apply(y, self.saturation, self.levels)

    def bound(self):
        """Keep the parameters legal."""
        with torch.no_grad():
            if self.positive:
                self.offset.clamp_(min=0)
            self.saturation.clamp_(min=1e-3)


def _parameter(value: float, learned: bool) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=torch.float32), requires_grad=learned)

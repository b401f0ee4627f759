"""Quantisers whose step is learned, of weights and of activations.

Source: learned step size (Esser et al., 2020).
"""

import torch
from concord.train.lib.straight_through import Damped, Round
from concord.train.qat.activations import LearnedSaturation
from concord.train.qat.weight_methods import Uniform


class LearnedStep(Uniform):
    """Weights in real units on a grid whose step is learned: n = clip(round(w / step)), step = unit * (1 + change).

    The value of a quantised weight moves with the step by n - w / step inside the range, and by n outside. The gradient
    of the step is divided by sqrt(columns * highest), as the method has it.
    """

    def per_weight(self, grown):
        return (self.unit * grown).reciprocal_().float()[:, None]

    def of_change(self, of_gain, of_steps, steps, grown):
        apart = self.grid.step  # distance of neighbouring integers
        damping = (steps.shape[1] * self.grid.highest / apart) ** -0.5 / apart**2
        return (of_gain - (of_steps * steps).sum(1) / grown) * damping / self.unit.square()


class LearnedStepOfActivations(LearnedSaturation):
    """Activations whose step s = b / levels is learned: the rounding error of each value moves the saturation b.

    The gradient of the step is divided by sqrt(elements * levels), as the method has it. Where b begins below 1, it is
    that of a share of b: a step of training would otherwise be many times as long as a small b.
    """

    learned_step = True

    def __init__(self, found, recipe, elements):
        super().__init__(found, recipe, elements)
        share = min(1.0, found.step * found.levels) ** 2
        self.damping = share * self.levels**2 * (elements * self.levels) ** -0.5

    @property
    def step(self) -> torch.Tensor:
        """float64, the real value of one code."""
        return Damped.apply(self.saturation, self.damping).double() / self.levels

    def codes(self, y):
        """float32 codes of y = (x - m) / s."""
        return Round.apply(y, 0, self.levels)

"""Quantisers of activations under training: saturation and offset, and the gradients of those that are learned.

Source: S0, activations; S0.c; PACT (Choi et al., 2018).
"""

import numpy as np
import torch
from concord.net.quantize import tensors
from concord.net.quantize.recipe import ActivationMethod, Recipe, Start
from concord.train.lib.straight_through import Codes
from torch import nn


class Activations(nn.Module):
    """Unsigned codes u = clip(round((x - m) / s), 0, levels), s = b / levels, whose saturation b and offset m stay.

    Args:
        samples: Real[samples, elements], the inputs of the layer for a calibration set.
        bits:    Bits of a code.
        recipe:  How b and m are found. Where training starts from FP32, they are the ends of the range of the samples.
        padded:  Whether zeros are put around the inputs.

    Attributes:
        learns_saturation: Whether b is trained.
        learned_step:      Whether b is trained through the step s = b / levels, so that each value's rounding error
            moves it. It then has the learning rate of weights.
        damping:           Factor of the gradient of b.
        levels:            Largest code.
        saturation:        float32, b.
        offset:            float32, m.
        positive:          Whether all samples are 0 or above. Then m stays at 0 or above, so that the clip at 0 is a
            relu.
        padded:            Whether zeros are put around the inputs. Then the range from m to m + b includes 0, so that
            the code of a zero means 0, up to its rounding.
        ceiling:           Largest value of the input, or None: the clip of the largest code stays at or below it, so
            that this clip is a relu6.
    """

    learns_saturation = learned_step = False
    damping = 1.0

    def __init__(self, samples: np.ndarray, bits: int, recipe: Recipe, *, padded: bool = False):
        super().__init__()
        self.levels = (1 << bits) - 1 - recipe.symmetric[1]
        self.positive, self.padded = bool(samples.min() >= 0), padded
        self.ceiling: float | None = None
        method = recipe.methods.activations if recipe.start is Start.PTQ else ActivationMethod.UNIFORM
        fixed = 0.0 if self.positive and not recipe.activations.learns_offset else None
        saturation, offset = tensors.activations(samples, self.levels, method, fixed, padded=padded)
        self.saturation = _parameter(saturation, self.learns_saturation)
        self.offset = _parameter(offset, recipe.activations.learns_offset)

    @property
    def step(self) -> torch.Tensor:
        """float64, the real value of one code."""
        return self.saturation.double() / self.levels

    def codes(self, y: torch.Tensor) -> torch.Tensor:
        """float32 codes of y = (x - m) / s."""
        return Codes.apply(y, self.saturation, self.levels)

    def bound(self):
        """Keep saturation and offset in their ranges."""
        with torch.no_grad():
            if self.positive:
                self.offset.clamp_(min=0)
            if self.padded:
                self.offset.clamp_(max=0)
            self.saturation.clamp_(min=1e-3)
            if self.ceiling is not None:
                self.saturation.copy_(torch.minimum(self.saturation, self.ceiling - self.offset))
            if self.padded:
                self.saturation.copy_(torch.maximum(self.saturation, -self.offset))


class LearnedSaturation(Activations):
    """A quantiser whose saturation b is trained, by the gradients of the values above it."""

    learns_saturation = True


def activations(samples: np.ndarray, bits: int, recipe: Recipe, *, padded: bool = False) -> Activations:
    """The quantiser that a recipe trains. Arguments are those of `Activations`."""
    return recipe.activations.load()(samples, bits, recipe, padded=padded)


def _parameter(value: float, learned: bool) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=torch.float32), requires_grad=learned)

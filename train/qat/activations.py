"""Quantisers of activations under training: saturation and offset, and the gradients of those that are learned.

Source: S0, activations; S0.c; PACT (Choi et al., 2018).
"""

from collections.abc import Sequence
from math import prod

import torch
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.recipe import Recipe
from concord.train.lib.straight_through import CodesFunction, Round
from torch import nn

#: Smallest saturation of inputs that do not start near it.
LEAST = 1e-3


class Activations(nn.Module):
    """Unsigned codes u = clip(round((x - m) / s), 0, levels), s = b / levels, whose saturation b and offset m stay.

    Args:
        found:    The codes from which training starts.
        recipe:   What is trained.
        elements: Number of elements of an input of the layer.

    Attributes:
        learns_saturation: Whether b is trained.
        learned_step:      Whether b is trained through the step s = b / levels, so that each value's rounding error
            moves it. It then has the learning rate of weights.
        damping:           Factor of the gradient of b.
        levels:            Largest code.
        saturation:        float32, b.
        least:             Smallest b that training may reach; the one that it starts from is larger.
        offset:            float32, m.
        positive:          Whether all samples are 0 or above. Then m stays at 0 or above, so that the clip at 0 is a
            relu.
        padded:            Whether zeros are put around the inputs. Then the range from m to m + b includes 0, so that
            the code of a zero means 0, up to its rounding.
        ceiling:           Largest value of the input, or None: the clip of the largest code stays at or below it, so
            that this clip is a relu6.
    """

    learns_saturation = learned_step = False
    damping, unsigned = 1.0, True

    def __init__(self, found: InputCodes, recipe: Recipe, elements: int):
        super().__init__()
        self.found, self.levels, self.ends = found, found.levels, found.ends
        self.positive, self.padded, self.ceiling = found.positive, found.padded, found.ceiling
        self.saturation = _parameter(found.step * found.levels, self.learns_saturation)
        self.least = min(LEAST, found.step * found.levels / 2)
        self.offset = _parameter(found.offset, recipe.activations.learns_offset)

    @property
    def step(self) -> torch.Tensor:
        """float64, the real value of one code."""
        return self.saturation.double() / self.levels

    def codes(self, y: torch.Tensor) -> torch.Tensor:
        """float32 codes of y = (x - m) / s."""
        return CodesFunction.apply(y, self.saturation, self.levels)

    @torch.no_grad()
    def enlarge(self, factor: float):
        """Enlarge the range: the same real inputs stand in fewer steps. A factor below 1 shrinks it."""
        self.saturation.mul_(factor)

    def bound(self):
        """Keep saturation and offset in their ranges."""
        with torch.no_grad():
            if self.positive:
                self.offset.clamp_(min=0)
            if self.padded:
                self.offset.clamp_(max=0)
            self.saturation.clamp_(min=self.least)
            if self.ceiling is not None:
                self.saturation.copy_(torch.minimum(self.saturation, self.ceiling - self.offset))
            if self.padded:
                self.saturation.copy_(torch.maximum(self.saturation, -self.offset))


class LearnedSaturation(Activations):
    """A quantiser whose saturation b is trained, by the gradients of the values above it."""

    learns_saturation = True


class SignedCodes(nn.Module):
    """Codes of hidden vectors, clip(round(x / s), lowest, highest), whose step s stays. Attributes as `Activations`."""

    learned_step = unsigned = positive = padded = False
    damping, ceiling = 1.0, None

    def __init__(self, found: InputCodes):
        super().__init__()
        self.found, self.ends, self.levels = found, found.ends, found.ends[1]
        self.register_buffer("step", torch.tensor(found.step, dtype=torch.float64))
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("saturation", (self.step * self.levels).float())

    def codes(self, y: torch.Tensor) -> torch.Tensor:
        """float32 codes of y = x / s."""
        return Round.apply(y, *self.ends)

    def enlarge(self, factor: float):
        """Enlarge the range, as `Activations.enlarge` does."""
        self.step.mul_(factor)
        self.saturation.mul_(factor)

    def bound(self):
        """No parameter is trained."""


def activations(found: InputCodes | None, recipe: Recipe, shape: Sequence[int]) -> Activations | SignedCodes | None:
    """The quantiser of inputs of a shape that a recipe trains; None for inputs that stay in FP32."""
    if found is None:
        return None
    return recipe.activations.load()(found, recipe, prod(shape)) if found.unsigned else SignedCodes(found)


def _parameter(value: float, learned: bool) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=torch.float32), requires_grad=learned)

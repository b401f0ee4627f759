"""Operators that see all elements of a vector at once: softmax, and normalisation over features.

Of a sequence they see the vector of each time step, of an image the channels of each pixel.
"""

from dataclasses import dataclass

import numpy as np
from concord.golden.mfu.softmax import real_softmax
from concord.net.ops import checks
from concord.net.ops.operator import Operator, Takes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SoftmaxInside(Operator):
    """y_i = exp(x_i) / sum of exp(x_j) over the elements of a vector, of which a network goes on."""

    kind = "softmax"
    takes = Takes.EITHER

    def real(self, x, lengths):
        return np.moveaxis(real_softmax(_last(x)), -1, 1) if x.ndim == 4 else real_softmax(x)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FeatureNorm(Operator):
    """y = weight * d / sqrt(mean of d**2 + epsilon) + bias, where d = x - mean of x, or d = x: over a vector.

    Attributes:
        weight, bias: float32[elements].
        centred:      Whether the mean is subtracted: layer normalisation; otherwise RMS normalisation.
        epsilon:      Number above 0 that keeps the root away from zero.
    """

    weight: np.ndarray
    bias: np.ndarray
    centred: bool = True
    epsilon: float = 1e-5

    kind = "feature_norm"
    takes = Takes.EITHER

    def __post_init__(self):
        checks.numbers(weight=self.weight, bias=self.bias)
        checks.dimensions("weight", self.weight, 1)
        checks.shaped("bias", self.bias, self.weight.shape)
        checks.number(epsilon=self.epsilon)
        if not self.epsilon > 0:
            raise ValueError(f"epsilon: a number above 0 is needed, not {self.epsilon:g}")

    @property
    def label(self) -> str:
        return "layer norm" if self.centred else "RMS norm"

    def shape(self, *inputs):
        checks.channels(inputs[0][0], len(self.weight))
        return inputs[0]

    def real(self, x, lengths):
        return np.moveaxis(self._vectors(_last(x)), -1, 1) if x.ndim == 4 else self._vectors(x)

    def spread(self, x: np.ndarray) -> float:
        """The largest root mean square of d over the vectors of x."""
        return float(np.sqrt(np.square(self._differences(_last(x) if x.ndim == 4 else x)).mean(-1)).max(initial=0.0))

    def _differences(self, x):
        return x - x.mean(-1, keepdims=True) if self.centred else x

    def _vectors(self, x):
        difference = self._differences(x)
        variance = np.square(difference).mean(-1, keepdims=True)
        return self.weight * (difference / np.sqrt(variance + self.epsilon)) + self.bias


#: The operators that see all elements of a vector at once.
REDUCTIONS = (SoftmaxInside, FeatureNorm)


def _last(image: np.ndarray) -> np.ndarray:
    """An image with its channels on the last axis."""
    return np.moveaxis(image, 1, -1)

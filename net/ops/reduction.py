"""Operators that see all elements of a vector at once: softmax, and normalisation over features."""

from dataclasses import dataclass

import numpy as np
from concord.golden.mfu.softmax import real_softmax
from concord.net.ops import checks
from concord.net.ops.operator import Operator


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SoftmaxInside(Operator):
    """y_i = exp(x_i) / sum of exp(x_j) over the elements of a vector, of which a network goes on."""

    kind = "softmax"

    def shape(self, *inputs):
        return _vector(inputs[0], "a softmax")

    def real(self, x, lengths):
        return real_softmax(x)


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
        checks.channels(_vector(inputs[0], "a normalisation over features")[0], len(self.weight))
        return inputs[0]

    def real(self, x, lengths):
        difference = x - x.mean(-1, keepdims=True) if self.centred else x
        variance = np.square(difference).mean(-1, keepdims=True)
        return self.weight * (difference / np.sqrt(variance + self.epsilon)) + self.bias


#: The operators that see all elements of a vector at once.
REDUCTIONS = (SoftmaxInside, FeatureNorm)


def _vector(shape, what):
    if len(shape) != 1:
        raise ValueError(f"{what} takes a vector, not an image of {' x '.join(map(str, shape))}; flatten it before")
    return shape
